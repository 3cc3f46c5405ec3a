//! Other files in the place of the machine's: those of an image, which several programs share and none of them writes.
//!
//! The image is a lower layer of an overlay. Above it lies a folder of the program's own that has nothing but places for mounts, so that these
//! need not be in the image, and no link of the image leads a mount anywhere.

use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use rustix::mount::{MountAttrFlags, MoveMountFlags, UnmountFlags, move_mount, unmount};
use serde::{Deserialize, Serialize};

use crate::attach::{at, attach, make_read_only, new, tree};
use crate::failure::{Failure, during};

/// Other files in the place of the machine's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherRoot {
    /// The files.
    pub files: PathBuf,
    /// A folder of the program's own, in which places for mounts are made. Nobody but root may write in it.
    pub places: PathBuf,
}

/// What every program finds, whatever is in its image.
const FOLDERS: [&str; 5] = ["dev", "proc", "sys", "tmp", "var/tmp"];
/// Files of the machine by which names are found in its network, which the program shares.
const OF_NETWORK: [&str; 3] = ["/etc/hosts", "/etc/resolv.conf", "/etc/hostname"];

impl OtherRoot {
    /// Makes these files the root, and lets go of the machine's. `mounts` are about to be attached where their paths say.
    pub(crate) fn enter<'m>(&self, mounts: impl Iterator<Item = &'m (&'m Path, OwnedFd)>) -> Result<(), Failure> {
        for (path, tree) in mounts {
            let kind = fstat(tree).map_err(at("look at", path))?.st_mode;
            self.make_place(path, FileType::from_raw_mode(kind) == FileType::Directory)?;
        }
        FOLDERS.into_iter().try_for_each(|folder| self.make_place(Path::new(folder), true))?;
        let network = OF_NETWORK.map(Path::new).into_iter().filter(|path| path.is_file()).map(|path| {
            self.make_place(path, false)?;
            Ok((path, tree(path)?))
        });
        let network = network.collect::<Result<Vec<_>, Failure>>()?;
        let sys = tree(Path::new("/sys"))?;
        self.pivot()?;
        make_read_only(&sys, "", true)?;
        attach(&sys, Path::new("/sys"))?;
        for (path, tree) in network {
            make_read_only(&tree, "", true)?;
            attach(&tree, path)?;
        }
        Ok(())
    }

    /// Makes a folder or an empty file, unless there is one.
    fn make_place(&self, path: &Path, is_folder: bool) -> Result<(), Failure> {
        let place = self.places.join(path.strip_prefix("/").unwrap_or(path));
        let folders = |path: &Path| fs::DirBuilder::new().recursive(true).mode(0o755).create(path);
        let make = || match place.parent() {
            Some(above) if !is_folder => {
                folders(above)?;
                fs::OpenOptions::new().append(true).create(true).open(&place).map(drop)
            }
            _ => folders(&place),
        };
        make().map_err(at("make a place for", path))
    }

    fn pivot(&self) -> Result<(), Failure> {
        let root = self.overlay()?;
        let onto = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        move_mount(&root, "", CWD, &self.places, onto).map_err(at("mount its files at", &self.places))?;
        let step = || {
            rustix::process::fchdir(&root)?;
            // The machine's files lie over the program's for a moment, until they are let go.
            rustix::process::pivot_root(".", ".")?;
            unmount(".", UnmountFlags::DETACH)?;
            rustix::process::chdir("/")
        };
        step().map_err(during("leave the machine's files"))
    }

    /// The places over the files, not attached anywhere yet.
    fn overlay(&self) -> Result<OwnedFd, Failure> {
        let open = |path: &Path| {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            openat(CWD, path, flags, Mode::empty()).map_err(at("find", path))
        };
        // By number, since a path may have a colon.
        let (places, files) = (open(&self.places)?, open(&self.files)?);
        let layers = format!("/proc/self/fd/{}:/proc/self/fd/{}", places.as_raw_fd(), files.as_raw_fd());
        let closed = MountAttrFlags::MOUNT_ATTR_RDONLY | MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        new("overlay", &[("lowerdir", layers.as_str())], closed)
    }
}
