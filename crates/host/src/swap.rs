//! The machine's swap: what there is, how much of it is free, and what kind of device it is.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use weal_model::Bytes;

use crate::process::Proc;
use crate::read::{SMALL, text};

/// What kind of device swap is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Compressed memory.
    Zram,
    /// A disk without moving parts.
    Solid,
    /// A disk that calls itself rotational. Virtual ones often do, whatever is behind them.
    Rotational,
}

/// One swap device or file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its path.
    pub path: PathBuf,
    /// What it is on.
    pub kind: Kind,
    /// Its size.
    pub size: Bytes,
    /// What is taken of it.
    pub used: Bytes,
    /// The highest is filled first.
    pub priority: i64,
}

/// The devices that `proc` lists, with what `sys` says about each.
pub fn devices(proc: &Proc, sys: &Path) -> Vec<Device> {
    let text = text(&proc.root().join("swaps"), SMALL).unwrap_or_default();
    text.lines().skip(1).filter_map(|line| device(line, sys)).collect()
}

fn device(line: &str, sys: &Path) -> Option<Device> {
    let mut fields = line.split_whitespace();
    let (path, kind) = (fields.next()?, fields.next()?);
    let mut number = || fields.next()?.parse::<i64>().ok();
    let (size, used, priority) = (number()?, number()?, number().unwrap_or(0));
    let kib = |count: i64| Bytes(u64::try_from(count).unwrap_or(0) * 1024);
    let path = PathBuf::from(path.replace("\\040", " "));
    let kind = if path.starts_with("/dev") && path.to_string_lossy().contains("zram") {
        Kind::Zram
    } else if is_rotational(&path, kind == "partition", sys) {
        Kind::Rotational
    } else {
        Kind::Solid
    };
    Some(Device { path, kind, size: kib(size), used: kib(used), priority })
}

/// What the disk under `path` calls itself; a partition has no such file, its disk one level up has.
fn is_rotational(path: &Path, is_partition: bool, sys: &Path) -> bool {
    let Ok(metadata) = fs::metadata(path) else { return false };
    let number = if is_partition { metadata.rdev() } else { metadata.dev() };
    let place = sys.join(format!("dev/block/{}:{}", rustix::fs::major(number), rustix::fs::minor(number)));
    let said = |file: &str| text(&place.join(file), SMALL).ok();
    said("queue/rotational").or_else(|| said("../queue/rotational")).is_some_and(|text| text.trim() == "1")
}

/// What is free on all of them.
pub fn free(devices: &[Device]) -> Bytes {
    devices.iter().map(|device| device.size - device.used).sum()
}

/// The kind that the next page goes to; `None` without free swap.
pub fn next_kind(devices: &[Device]) -> Option<Kind> {
    devices.iter().filter(|device| device.used < device.size).max_by_key(|device| device.priority).map(|device| device.kind)
}

/// The swap of this machine.
pub fn of_this_machine() -> Vec<Device> {
    devices(&Proc::system(), Path::new("/sys"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_swap_is_the_sum_and_the_highest_priority_comes_next() {
        let root = tempfile::tempdir().unwrap();
        let (file, proc, sys) = (root.path().join("swap"), root.path().join("proc"), root.path().join("sys"));
        fs::write(&file, "").unwrap();
        let number = fs::metadata(&file).unwrap().dev();
        let disk = sys.join(format!("dev/block/{}:{}/queue", rustix::fs::major(number), rustix::fs::minor(number)));
        fs::create_dir_all(&disk).unwrap();
        fs::create_dir(&proc).unwrap();
        let line = |used: u64| {
            format!(
                "Filename Type Size Used Priority\n{} file 1000 400 -2\n/dev/zram0 partition 500 {used} 100\n",
                file.display()
            )
            .replace("\\\n", "\n")
        };
        for (rotational, kind) in [("1\n", Kind::Rotational), ("0\n", Kind::Solid)] {
            fs::write(disk.join("rotational"), rotational).unwrap();
            fs::write(proc.join("swaps"), line(500)).unwrap();
            let full = devices(&Proc::new(&proc), &sys);
            assert_eq!((next_kind(&full), free(&full)), (Some(kind), Bytes(600 * 1024)));
        }
        fs::write(proc.join("swaps"), line(0)).unwrap();
        assert_eq!(next_kind(&devices(&Proc::new(&proc), &sys)), Some(Kind::Zram));
        fs::write(proc.join("swaps"), "Filename Type Size Used Priority\n").unwrap();
        assert_eq!((next_kind(&devices(&Proc::new(&proc), &sys)), free(&[])), (None, Bytes(0)));
    }
}
