//! Mounts that are made first and attached then.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::CWD;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create, fsconfig_set_string, fsmount,
    fsopen, move_mount, open_tree,
};

use crate::failure::Failure;
use crate::way::find;

/// The mounts at `path`, apart from the rest.
pub(crate) fn tree(path: &Path) -> Result<OwnedFd, Failure> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_EMPTY_PATH;
    open_tree(find(path)?, "", flags).map_err(at("find", path))
}

/// Attaches a mount at `path`.
pub(crate) fn attach(tree: impl AsFd, path: &Path) -> Result<(), Failure> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    move_mount(tree, "", CWD, path, flags).map_err(at("mount", path))
}

/// A new file system, not attached anywhere yet.
pub(crate) fn new(kind: &str, options: &[(&str, &str)], attributes: MountAttrFlags) -> Result<OwnedFd, Failure> {
    let make = || {
        let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
        for (key, value) in options {
            fsconfig_set_string(context.as_fd(), *key, *value)?;
        }
        fsconfig_create(context.as_fd())?;
        fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)
    };
    make().map_err(|error| Failure::new(format!("make a file system of its own ({kind})"), error.into()))
}

/// Makes a mount read-only, and with `recursive` all below it (mount_setattr(2), Linux 5.12).
pub(crate) fn make_read_only(folder: impl AsFd, path: &str, recursive: bool) -> Result<(), Failure> {
    let read_only = u64::from(MountAttrFlags::MOUNT_ATTR_RDONLY.bits());
    let attributes = libc::mount_attr { attr_set: read_only, attr_clr: 0, propagation: 0, userns_fd: 0 };
    let name = CString::new(path).expect("our own paths have no NUL");
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    let size = size_of::<libc::mount_attr>();
    // SAFETY: the call reads the name and the attributes, which both live until it returns.
    let result = unsafe {
        libc::syscall(libc::SYS_mount_setattr, folder.as_fd().as_raw_fd(), name.as_ptr(), flags, &raw const attributes, size)
    };
    match result {
        0 => Ok(()),
        _ => Err(Failure::new(
            format!("make {} read-only", if path.is_empty() { "a mount" } else { path }),
            io::Error::last_os_error(),
        )),
    }
}

pub(crate) fn at<E: Into<io::Error>>(what: &'static str, path: &Path) -> impl Fn(E) -> Failure {
    move |error| Failure::at(what, path, error.into())
}
