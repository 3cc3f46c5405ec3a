//! One hierarchy of control groups: the file operations that v1 and v2 share.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::files::at;

/// A group, by its directory. Any directory will do, so it is tested in a temporary one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    path: PathBuf,
}

impl Group {
    /// The group at `path`, which need not exist.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The group `name` in it.
    pub fn child(&self, name: &str) -> Self {
        Self::new(self.path.join(name))
    }

    /// One of its files.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// True when it is there.
    pub fn exists(&self) -> bool {
        self.path.is_dir()
    }

    /// Makes it, with its parents; true when it was not there.
    pub fn create(&self) -> io::Result<bool> {
        if self.exists() {
            return Ok(false);
        }
        fs::create_dir_all(&self.path).map_err(at(&self.path))?;
        Ok(true)
    }

    /// Takes it away if it is empty of processes and groups. That it is gone already is no error.
    pub fn remove(&self) -> io::Result<()> {
        match fs::remove_dir(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at(&self.path)(error)),
            _ => Ok(()),
        }
    }

    /// The groups in it.
    pub fn children(&self) -> Vec<Self> {
        let Ok(entries) = fs::read_dir(&self.path) else { return Vec::new() };
        entries
            .flatten()
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .map(|entry| Self::new(entry.path()))
            .collect()
    }

    /// Takes away every empty group below it, and itself.
    pub fn remove_empty(&self) {
        for child in self.children() {
            child.remove_empty();
        }
        // A group that still holds processes stays, and so do its parents.
        let _ = self.remove();
    }

    /// Writes to one of its files.
    pub fn write(&self, name: &str, value: &str) -> io::Result<()> {
        let path = self.file(name);
        fs::write(&path, value).map_err(at(&path))
    }

    /// Reads one of its files.
    pub fn read(&self, name: &str) -> io::Result<String> {
        let path = self.file(name);
        fs::read_to_string(&path).map_err(at(&path))
    }

    /// Reads one number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.read(name).ok()?.trim().parse().ok()
    }

    /// Reads the number after `key` in a file of `key value` lines.
    pub fn keyed(&self, name: &str, key: &str) -> Option<u64> {
        keyed(&self.read(name).ok()?, key)
    }

    /// Bytes in memory that only swap can take, pages in the swap cache included; v1 prefixes what counts the groups below, too.
    pub fn own_pages(&self) -> u64 {
        let Ok(text) = self.read("memory.stat") else { return 0 };
        let of = |list: &str| keyed(&text, &format!("total_{list}")).or_else(|| keyed(&text, list));
        ["inactive_anon", "active_anon"].into_iter().filter_map(of).sum()
    }

    /// The processes in it and in the groups below it.
    pub fn processes(&self) -> Vec<u32> {
        let own = self.read("cgroup.procs").unwrap_or_default();
        let mut pids: Vec<u32> = own.lines().filter_map(|line| line.trim().parse().ok()).collect();
        for child in self.children() {
            pids.extend(child.processes());
        }
        pids
    }

    /// Seconds in which some process of it waited for CPU (PSI).
    pub fn cpu_pressure_seconds(&self) -> Option<f64> {
        let text = self.read("cpu.pressure").ok()?;
        let line = text.lines().find(|line| line.starts_with("some "))?;
        let total: u64 = line.split("total=").nth(1)?.trim().parse().ok()?;
        Some(total as f64 / 1e6)
    }
}

/// The number after `key` in lines of `key value`.
fn keyed(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (found, value) = line.split_once(' ')?;
        (found == key).then(|| value.trim().parse().ok())?
    })
}

/// CPU as a share relative to siblings: `per_core` for one core, within what the kernel takes.
pub fn weight(share: f64, per_core: f64, range: std::ops::RangeInclusive<u64>) -> u64 {
    let weight = (share.max(0.0) * per_core).round() as u64;
    weight.clamp(*range.start(), *range.end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_group_are_read_by_key_and_as_pressure() {
        let folder = tempfile::tempdir().unwrap();
        let group = Group::new(folder.path().join("a/b"));
        assert!(group.create().unwrap());
        assert!(!group.create().unwrap());
        group.write("cpu.stat", "usage_usec 12\nuser_usec 7\n").unwrap();
        group.write("cpu.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=2500000\nfull total=1\n").unwrap();
        group.write("cgroup.procs", "3\n5\n").unwrap();
        assert_eq!(group.keyed("cpu.stat", "user_usec"), Some(7));
        assert_eq!(group.keyed("cpu.stat", "user"), None);
        assert_eq!(group.cpu_pressure_seconds(), Some(2.5));
        assert_eq!(Group::new(folder.path()).processes(), [3, 5]);
        assert!(group.read("missing").unwrap_err().to_string().contains("a/b/missing"));
    }

    #[test]
    fn only_empty_groups_are_taken_away() {
        let folder = tempfile::tempdir().unwrap();
        let top = Group::new(folder.path().join("weal"));
        top.child("n1/a-1").create().unwrap();
        top.child("n2").create().unwrap();
        // A directory with a file in it cannot be removed, like a group with a process.
        top.child("n1/a-1").write("busy", "").unwrap();
        top.remove_empty();
        assert!(top.child("n1/a-1").exists());
        assert!(!top.child("n2").exists());
    }

    #[test]
    fn weights_stay_within_what_the_kernel_takes() {
        assert_eq!(weight(1.0, 100.0, 1..=10_000), 100);
        assert_eq!(weight(0.0, 100.0, 1..=10_000), 1);
        assert_eq!(weight(1e9, 100.0, 1..=10_000), 10_000);
        assert_eq!(weight(f64::NAN, 1024.0, 2..=262_144), 2);
    }
}
