//! The way to a place that a program may write, gone by root without being led astray.
//!
//! An application that owns the folder above could put a link in the place, and have root mount whatever the link leads to. So each name on the way is
//! opened by itself, and a link is followed only where nobody but root could have made it or could replace it.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, fstat, mkdirat, openat, readlinkat};
use rustix::io::Errno;

use crate::failure::Failure;

/// As many links as the kernel follows in one path.
const MOST_LINKS: u32 = 40;

/// What stands at `path`, held open.
pub fn find(path: &Path) -> Result<OwnedFd, Failure> {
    go(path, None)
}

/// The same. What is missing of it is made: folders, and in the end one of `kind`.
pub fn find_or_make(path: &Path, kind: FileType) -> Result<OwnedFd, Failure> {
    go(path, Some(kind))
}

fn go(path: &Path, make: Option<FileType>) -> Result<OwnedFd, Failure> {
    let failed = |error: Errno| Failure::at("find", path, error.into());
    let (mut place, mut so_far) = (open(CWD, OsStr::new("/")).map_err(failed)?, PathBuf::from("/"));
    let (mut ahead, mut links) = (names(path), 0);
    while let Some(name) = ahead.pop_front() {
        let opened = match (open(&place, &name), make) {
            (Err(Errno::NOENT), Some(kind)) => {
                let kind = if ahead.is_empty() { kind } else { FileType::Directory };
                make_one(&place, &name, kind).and_then(|()| open(&place, &name))
            }
            (opened, _) => opened,
        };
        let entry = opened.map_err(failed)?;
        let found = fstat(&entry).map_err(failed)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::Symlink {
            so_far.push(&name);
            place = entry;
            continue;
        }
        if !is_of_root(&found) || !is_of_root(&fstat(&place).map_err(failed)?) {
            return Err(Failure::ForeignLink { path: path.to_owned(), link: so_far.join(name) });
        }
        links += 1;
        if links > MOST_LINKS {
            return Err(failed(Errno::LOOP));
        }
        let target = readlinkat(&entry, "", Vec::new()).map_err(failed)?;
        let target = Path::new(OsStr::from_bytes(target.as_bytes()));
        if target.is_absolute() {
            (place, so_far) = (open(CWD, OsStr::new("/")).map_err(failed)?, PathBuf::from("/"));
        }
        ahead = names(target).into_iter().chain(ahead).collect();
    }
    Ok(place)
}

/// Opened for nothing but to be named. A link is opened itself.
fn open(folder: impl AsFd, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    openat(folder, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

fn make_one(folder: &OwnedFd, name: &OsStr, kind: FileType) -> rustix::io::Result<()> {
    if kind == FileType::Directory {
        return mkdirat(folder, name, Mode::from_raw_mode(0o755));
    }
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(folder, name, flags, Mode::from_raw_mode(0o644)).map(drop)
}

/// Whether nobody but root can change it. In a sticky folder such as `/tmp`, nobody can replace what another owns. The mode of a link means
/// nothing.
fn is_of_root(found: &Stat) -> bool {
    const STICKY: u32 = 0o1000;
    let is_link = FileType::from_raw_mode(found.st_mode) == FileType::Symlink;
    let writers = if found.st_gid == 0 { 0o002 } else { 0o022 };
    found.st_uid == 0 && (is_link || found.st_mode & STICKY != 0 || found.st_mode & writers == 0)
}

/// The names in `path`, in their order; without its root.
fn names(path: &Path) -> VecDeque<OsString> {
    let is_name = |part: &Component<'_>| matches!(part, Component::Normal(_) | Component::ParentDir);
    path.components().filter(is_name).map(|part| part.as_os_str().to_owned()).collect()
}
