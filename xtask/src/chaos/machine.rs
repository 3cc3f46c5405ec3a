//! Faults of the machine under the pool: its disk and its swap.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Result;
use rustix::fs::{major, minor};
use rustix::mm::{Advice, madvise};
use weal_host::Proc;

/// Big enough for what two applications write, and quickly filled.
const DISK_BYTES: u64 = 64 << 20;
const SWAP_BYTES: usize = 32 << 20;
/// A disk of the worst kind: what a busy network drive still does.
const SLOW_BYTES_PER_SECOND: u64 = 256 << 10;
const SLOW_OPERATIONS_PER_SECOND: u64 = 20;
const PAGE: usize = 4096;

/// Mounts a small ext4 at `at`, from an image in `folder`; false where this user may not.
pub fn mount_disk(folder: &Path, at: &Path) -> bool {
    let image = folder.join("disk.img");
    let made = fs::File::create(&image).and_then(|file| file.set_len(DISK_BYTES)).is_ok();
    made && call("mkfs.ext4", &["-q".as_ref(), "-F".as_ref(), "-m".as_ref(), "0".as_ref(), &image])
        && call("mount", &["-o".as_ref(), "loop".as_ref(), &image, at])
        && fs::remove_dir(at.join("lost+found")).is_ok()
        && fs::set_permissions(at, fs::Permissions::from_mode(0o711)).is_ok()
}

/// A disk on which every write waits, until this is dropped.
pub struct Frozen(PathBuf);

impl Frozen {
    /// Freezes the file system at `path`; `None` where it cannot be.
    pub fn begin(path: &Path) -> Option<Self> {
        call("fsfreeze", &["-f".as_ref(), path]).then(|| Self(path.to_owned()))
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        call("fsfreeze", &["-u".as_ref(), &self.0]);
    }
}

/// A disk that is slow for the groups of some processes, until this is dropped.
pub struct Slow {
    /// What to write where, so that all is as before.
    undo: Vec<(PathBuf, String)>,
}

impl Slow {
    /// Slows the disk under `path` for the groups that `pids` are in; `None` where it cannot be.
    pub fn begin(path: &Path, pids: &[u32]) -> Option<Self> {
        let device = fs::metadata(path).ok()?.dev();
        let device = format!("{}:{}", major(device), minor(device));
        let mut slow = Self { undo: Vec::new() };
        for group in pids.iter().flat_map(|pid| groups(*pid, "blkio")) {
            slow.limit(&group, &device);
        }
        (!slow.undo.is_empty()).then_some(slow)
    }

    fn limit(&mut self, group: &Path, device: &str) {
        let (bytes, operations) = (SLOW_BYTES_PER_SECOND, SLOW_OPERATIONS_PER_SECOND);
        let v1 = [("read_bps", bytes), ("write_bps", bytes), ("read_iops", operations), ("write_iops", operations)];
        for (what, most) in v1 {
            self.set(group.join(format!("blkio.throttle.{what}_device")), format!("{device} {most}"), format!("{device} 0"));
        }
        let v2 = format!("{device} rbps={bytes} wbps={bytes} riops={operations} wiops={operations}");
        self.set(group.join("io.max"), v2, format!("{device} rbps=max wbps=max riops=max wiops=max"));
    }

    fn set(&mut self, file: PathBuf, text: String, undo: String) {
        if file.exists() && fs::write(&file, text).is_ok() {
            self.undo.push((file, undo));
        }
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        for (file, text) in &self.undo {
            // The group may be gone, and its limit with it.
            let _ = fs::write(file, text);
        }
    }
}

/// The directories of a process's groups: in the hierarchy of a controller of v1, and in that of v2.
fn groups(pid: u32, controller: &str) -> Vec<PathBuf> {
    let proc = Proc::system();
    let mut mounts = proc.cgroup_mounts(std::process::id());
    mounts.retain(|mount| mount.is_v2 || mount.has(controller));
    proc.group_directories(pid, &mounts)
}

/// Swap that is full, until this is dropped.
pub struct FullSwap {
    file: PathBuf,
    /// What lies in it.
    held: Vec<u8>,
}

impl FullSwap {
    /// Gives the machine a little swap and fills it. `None` where there is swap already: that belongs to others, who may need it.
    pub fn begin(folder: &Path) -> Result<Option<Self>> {
        if !weal_host::swap::of_this_machine().is_empty() {
            return Ok(None);
        }
        let file = folder.join("swap.img");
        // Swap has no holes.
        fs::write(&file, vec![0; SWAP_BYTES])?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600))?;
        if !(call("mkswap", &[&file]) && call("swapon", &[&file])) {
            return Ok(None);
        }
        let swap = Self { file, held: paged_out(SWAP_BYTES + (8 << 20))? };
        let free = weal_host::swap::free(&weal_host::swap::of_this_machine());
        anyhow::ensure!(free.0 < 1 << 20, "{free:?} of the swap are still free");
        Ok(Some(swap))
    }
}

impl Drop for FullSwap {
    fn drop(&mut self) {
        self.held = Vec::new();
        call("swapoff", &[&self.file]);
        // The folder goes with it otherwise.
        let _ = fs::remove_file(&self.file);
    }
}

/// So many bytes of this process, of which the kernel has written to swap what found room there.
fn paged_out(bytes: usize) -> Result<Vec<u8>> {
    let mut held = vec![0x5a_u8; bytes];
    let from = held.as_ptr().align_offset(PAGE);
    let length = (bytes - from) / PAGE * PAGE;
    // SAFETY: the range lies within `held`, and paging out changes no byte of it.
    unsafe { madvise(held.as_mut_ptr().add(from).cast(), length, Advice::LinuxPageOut) }?;
    Ok(held)
}

/// Resets the connections of whoever listens at `port`, and says how many these were.
pub fn reset_connections(port: u16) -> usize {
    let mut command = Command::new("ss");
    command.args(["--kill", "--no-header", "--tcp", "state", "established", &format!("sport = :{port}")]).stderr(Stdio::null());
    command.output().map_or(0, |output| output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count())
}

fn call(program: &str, words: &[&Path]) -> bool {
    let done = Command::new(program).args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    done.is_ok_and(|status| status.success())
}
