//! The file system as the program sees it: a mount namespace of its own, in which everything is read-only but what it may write.
//!
//! What the program may write is found and mounted along a [way] on which its own links lead nowhere.
//!
//! [way]: crate::way

use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, makedev, mkdirat, mknodat, stat, symlinkat};
use rustix::mount::{MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount_change, move_mount, open_tree};
use rustix::thread::{ThreadNameSpaceType, UnshareFlags, move_into_thread_name_spaces, unshare_unsafe};
use serde::{Deserialize, Serialize};

use crate::attach::{at, attach, make_read_only, new, tree};
use crate::failure::{Failure, during};
use crate::root::OtherRoot;
use crate::way::find_or_make;

/// What the program sees and may change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mounts {
    /// Folders and files that it may write, where file permissions let it.
    pub write: Vec<PathBuf>,
    /// Whose `/tmp` and `/var/tmp` it sees.
    pub tmp: Tmp,
    /// Folders that it finds empty.
    pub hide: Vec<PathBuf>,
    /// Folders and files that stay where they are also when they lie below `/tmp`: its program, its working directory.
    pub keep: Vec<PathBuf>,
    /// Devices that it sees besides those that hold nothing (`null`, `zero`, `urandom`, …).
    pub devices: Vec<PathBuf>,
    /// The files that it sees in the place of the machine's; `None` is the machine's own.
    #[serde(default)]
    pub root: Option<OtherRoot>,
}

/// What stands in the place of `/tmp` and `/var/tmp`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tmp {
    /// Those of the machine, shared with everybody.
    Shared,
    /// `tmp` and `var-tmp` of this folder.
    Folder(PathBuf),
    /// Memory, which is gone with the program.
    Memory,
}

/// What any program needs, with major and minor number.
const DEVICES: [(&str, u32, u32); 6] =
    [("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0)];
/// What of /proc concerns the machine and not a process.
const TUNABLES: [&str; 5] = ["/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs"];

impl Mounts {
    /// Takes this process into namespaces of its own: mounts, System V IPC and POSIX queues, host name.
    ///
    /// # Errors
    /// Says at which step.
    pub fn enter(&self) -> Result<(), Failure> {
        // What is made here on the way to a mount, its user passes through.
        let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
        let mounted = self.mount();
        rustix::process::umask(before);
        mounted
    }

    fn mount(&self) -> Result<(), Failure> {
        part_from_machine()?;
        // Held by descriptors: what follows may hide the paths.
        let writable = self
            .write
            .iter()
            .map(|path| {
                Ok((path.as_path(), tree(path).map_err(|error| error.or_missing(|| Failure::NothingToWrite(path.clone())))?))
            })
            .collect::<Result<Vec<_>, Failure>>()?;
        let is_hidden =
            |path: &PathBuf| self.root.is_some() || self.tmp != Tmp::Shared && TMP.iter().any(|tmp| path.starts_with(tmp));
        let kept = trees(self.keep.iter().filter(|path| is_hidden(path)))?;
        let tmp = self.tmp.trees()?;
        let devices = self
            .devices
            .iter()
            .map(|path| {
                let failed = |error| at("look at", path)(error).or_missing(|| Failure::NoDevice(path.clone()));
                Ok((path, stat(path).map_err(failed)?))
            })
            .collect::<Result<Vec<_>, Failure>>()?;
        match &self.root {
            None => make_read_only(CWD, "/", true)?,
            Some(root) => root.enter(writable.iter().chain(&kept))?,
        }
        if let Some((tmp, var_tmp)) = tmp {
            // Some machines have only one of them.
            for (tree, path) in [(tmp, TMP[0]), (var_tmp, TMP[1])].into_iter().filter(|(_, path)| Path::new(path).exists()) {
                attach(&tree, Path::new(path))?;
            }
        }
        for (path, tree) in &kept {
            make_read_only(tree, "", true)?;
            attach_on_its_way(tree, path)?;
        }
        let hidden: Vec<&PathBuf> = self.hide.iter().filter(|path| path.is_dir()).collect();
        for path in &hidden {
            attach(new("tmpfs", &[("mode", "0755"), ("size", "64k")], MountAttrFlags::MOUNT_ATTR_NOSUID)?, path)?;
        }
        for (path, tree) in &writable {
            attach_on_its_way(tree, path)?;
        }
        for path in hidden {
            let folder = open_tree(CWD, path.as_path(), OpenTreeFlags::OPEN_TREE_CLOEXEC).map_err(at("find", path))?;
            make_read_only(folder, "", false)?;
        }
        mount_devices(&devices)?;
        mount_proc()
    }
}

/// Takes this process into namespaces of its own.
fn part_from_machine() -> Result<(), Failure> {
    let all = UnshareFlags::NEWNS | UnshareFlags::NEWIPC | UnshareFlags::NEWUTS;
    // SAFETY: the process has a single thread, and no file descriptor table is unshared.
    unsafe { unshare_unsafe(all) }.map_err(during("leave the machine's namespaces"))?;
    // What is mounted outside later is seen; what is mounted here is not seen outside.
    let slave = MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM;
    mount_change("/", slave).map_err(during("part from the machine's mounts"))
}

/// Where programs keep what is only for now.
const TMP: [&str; 2] = ["/tmp", "/var/tmp"];

impl Tmp {
    /// What is mounted at each of the two; `None` leaves them.
    fn trees(&self) -> Result<Option<(OwnedFd, OwnedFd)>, Failure> {
        let memory = || {
            new(
                "tmpfs",
                &[("mode", "1777"), ("size", "64m")],
                MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV,
            )
        };
        Ok(match self {
            Self::Shared => None,
            Self::Folder(folder) => Some((tree(&folder.join("tmp"))?, tree(&folder.join("var-tmp"))?)),
            Self::Memory => Some((memory()?, memory()?)),
        })
    }
}

/// The mounts at each path, apart from the rest.
fn trees<'a>(paths: impl Iterator<Item = &'a PathBuf>) -> Result<Vec<(&'a Path, OwnedFd)>, Failure> {
    paths.map(|path| Ok((path.as_path(), tree(path)?))).collect()
}

/// The same where others could put links on the way. What is missing there is made: a folder of temporary files may hide what was there.
fn attach_on_its_way(tree: &OwnedFd, path: &Path) -> Result<(), Failure> {
    let kind = rustix::fs::fstat(tree).map_err(at("look at", path))?.st_mode;
    let place = find_or_make(path, FileType::from_raw_mode(kind))?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(tree, "", &place, "", flags).map_err(at("mount", path))
}

/// A /dev of its own: devices that hold nothing, pseudoterminals, shared memory, message queues.
fn mount_devices(others: &[(&PathBuf, rustix::fs::Stat)]) -> Result<(), Failure> {
    let closed = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let log = std::fs::read_link("/dev/log").ok();
    let dev = new("tmpfs", &[("mode", "0755"), ("size", "64k")], closed)?;
    let fill = || {
        for (name, major, minor) in DEVICES {
            make_device(&dev, Path::new(name), FileType::CharacterDevice, 0o666, makedev(major, minor))?;
        }
        for (target, name) in
            [("/proc/self/fd", "fd"), ("fd/0", "stdin"), ("fd/1", "stdout"), ("fd/2", "stderr"), ("pts/ptmx", "ptmx")]
        {
            symlinkat(target, &dev, name)?;
        }
        if let Some(target) = log {
            symlinkat(target, &dev, "log")?;
        }
        for name in ["pts", "shm", "mqueue"] {
            mkdirat(&dev, name, Mode::from_raw_mode(0o755))?;
        }
        for (path, found) in others {
            let Ok(name) = path.strip_prefix("/dev") else { continue };
            make_folders(&dev, name)?;
            make_device(&dev, name, FileType::from_raw_mode(found.st_mode), found.st_mode & 0o777, found.st_rdev)?;
            rustix::fs::chownat(
                &dev,
                name,
                Some(rustix::fs::Uid::from_raw(found.st_uid)),
                Some(rustix::fs::Gid::from_raw(found.st_gid)),
                AtFlags::SYMLINK_NOFOLLOW,
            )?;
        }
        rustix::io::Result::Ok(())
    };
    fill().map_err(|error| Failure::new("fill /dev".to_owned(), error.into()))?;
    attach(&dev, Path::new("/dev"))?;
    let nodev = closed | MountAttrFlags::MOUNT_ATTR_NODEV;
    let terminals = new("devpts", &[("ptmxmode", "0666"), ("mode", "0620")], closed)?;
    attach(terminals, Path::new("/dev/pts"))?;
    attach(new("tmpfs", &[("mode", "1777")], nodev)?, Path::new("/dev/shm"))?;
    attach(new("mqueue", &[], nodev)?, Path::new("/dev/mqueue"))?;
    make_read_only(CWD, "/dev", false)
}

fn make_device(dev: &OwnedFd, name: &Path, kind: FileType, mode: u32, number: u64) -> rustix::io::Result<()> {
    mknodat(dev, name, kind, Mode::from_raw_mode(mode), number)?;
    // The umask took its part.
    rustix::fs::chmodat(dev, name, Mode::from_raw_mode(mode), AtFlags::empty())
}

fn make_folders(dev: &OwnedFd, name: &Path) -> rustix::io::Result<()> {
    let mut folder = PathBuf::new();
    for part in name.parent().into_iter().flat_map(Path::components) {
        folder.push(part);
        match mkdirat(dev, &folder, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A /proc that shows nothing of processes of other users, and lets nothing of the machine be changed.
fn mount_proc() -> Result<(), Failure> {
    let closed = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC | MountAttrFlags::MOUNT_ATTR_NODEV;
    attach(new("proc", &[("hidepid", "invisible")], closed)?, Path::new("/proc"))?;
    for path in TUNABLES.map(Path::new).into_iter().filter(|path| path.exists()) {
        let tunable = tree(path)?;
        make_read_only(&tunable, "", true)?;
        attach(&tunable, path)?;
    }
    Ok(())
}

/// Joins the namespaces that [`Mounts::enter`] made for `process`, a process descriptor: what runs beside a program sees what it sees.
///
/// # Errors
/// The process has ended, or the caller is not root.
pub fn join(process: BorrowedFd<'_>) -> Result<(), Failure> {
    let all = ThreadNameSpaceType::MOUNT
        | ThreadNameSpaceType::INTER_PROCESS_COMMUNICATION
        | ThreadNameSpaceType::HOST_NAME_AND_NIS_DOMAIN_NAME;
    move_into_thread_name_spaces(process, all).map_err(during("be joined"))
}
