//! A folder in which an image is unpacked. Nothing that is done here reaches anything outside of it, whatever links are in it.
//!
//! Each path is opened by the kernel beneath the folder (openat2(2)). A link on the way to an entry is followed where it is relative and stays
//! within; everything else is refused. No existing file is ever opened for writing: it is removed, and made anew.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Timespec, Timestamps, fchmod, futimens, linkat, mkdirat, openat,
    openat2, readlinkat, statat, symlinkat, syncfs, unlinkat,
};
use rustix::io::Errno;

use crate::error::LayerError;
use crate::paths::{DEEPEST, Placed, join, shown};

/// The rights of a folder.
const FOLDER: Mode = Mode::from_raw_mode(0o755);

/// A folder in which an image is unpacked.
pub(crate) struct Tree {
    root: OwnedFd,
    /// How deep it is itself.
    depth: usize,
}

impl Tree {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = openat(CWD, path, flags, Mode::empty())?;
        let depth = depth_of(&root)?;
        Ok(Self { root, depth })
    }

    /// Waits until all of it is on the disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        Ok(syncfs(&self.root)?)
    }

    /// Everybody may go in.
    pub(crate) fn make_folder(&self, names: &[&OsStr]) -> Result<(), LayerError> {
        let (name, parent) = self.parent_of(names)?;
        let kind = kind_of(&parent, name)?;
        if kind.is_some_and(|kind| kind != FileType::Directory) {
            unlinkat(&parent, name, AtFlags::empty())?;
        }
        if kind != Some(FileType::Directory) {
            mkdirat(&parent, name, FOLDER)?;
        }
        // Whatever the umask is.
        Ok(fchmod(open_folder(&parent, name)?, FOLDER)?)
    }

    pub(crate) fn make_link(&self, names: &[&OsStr], target: &OsStr) -> Result<(), LayerError> {
        let (name, parent) = self.cleared(names)?;
        Ok(symlinkat(target, &parent, name)?)
    }

    /// Returns how many bytes `content` had.
    pub(crate) fn make_file(&self, names: &[&OsStr], mode: u32, time: u64, content: &mut impl Read) -> Result<u64, LayerError> {
        let (name, parent) = self.cleared(names)?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(openat(&parent, name, flags, Mode::from_raw_mode(0o600))?);
        let length = io::copy(content, &mut file)?;
        let time = Timespec { tv_sec: i64::try_from(time).unwrap_or(0), tv_nsec: 0 };
        // Some programs compare it with what they have made of the file.
        futimens(&file, &Timestamps { last_access: time, last_modification: time })?;
        fchmod(&file, Mode::from_raw_mode(mode))?;
        Ok(length)
    }

    /// A second name of what was unpacked as `target`.
    pub(crate) fn link(&self, names: &[&OsStr], target: &[&OsStr]) -> Result<(), LayerError> {
        if names == target {
            return Ok(());
        }
        let none = || LayerError::NoTarget { path: shown(&join(names)), target: shown(&join(target)) };
        let (source, above) = target.split_last().ok_or_else(none)?;
        let folder = self.folder(above).map_err(|error| if error == Errno::NOENT { none() } else { refused(error, target) })?;
        if !matches!(kind_of(&folder, source)?, Some(FileType::RegularFile | FileType::Symlink)) {
            return Err(none());
        }
        let (name, parent) = self.cleared(names)?;
        linkat(&folder, *source, &parent, name, AtFlags::empty()).map_err(|error| match error {
            Errno::NOENT => none(),
            error => error.into(),
        })
    }

    /// Removes what is at `names` as far as nothing of it is `placed`.
    pub(crate) fn hide(&self, names: &[&OsStr], placed: &Placed) -> Result<(), LayerError> {
        let Some((name, above)) = names.split_last() else { return Ok(()) };
        match self.folder(above) {
            Ok(parent) => remove(&parent, name, &join(names), Some(placed), DEPTH),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(()),
            Err(error) => Err(refused(error, names)),
        }
    }

    /// The same for all that is in the folder at `names`.
    pub(crate) fn hide_content(&self, names: &[&OsStr], placed: &Placed) -> Result<(), LayerError> {
        match self.folder(names) {
            Ok(folder) => remove_content(&folder, &join(names), Some(placed), DEPTH),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(()),
            Err(error) => Err(refused(error, names)),
        }
    }

    /// The folder in which `names` is, with nothing of that name in it.
    fn cleared<'n>(&self, names: &[&'n OsStr]) -> Result<(&'n OsStr, OwnedFd), LayerError> {
        let (name, parent) = self.parent_of(names)?;
        remove(&parent, name, &[], None, DEPTH)?;
        Ok((name, parent))
    }

    /// The folder in which `names` is. What is missing of it is made.
    fn parent_of<'n>(&self, names: &[&'n OsStr]) -> Result<(&'n OsStr, OwnedFd), LayerError> {
        let Some((&name, above)) = names.split_last() else { return Err(LayerError::BadName { path: "/".to_owned() }) };
        let parent = match self.folder(above) {
            Err(Errno::NOENT) => self.made(above)?,
            found => found.map_err(|error| refused(error, names))?,
        };
        Ok((name, parent))
    }

    fn made(&self, names: &[&OsStr]) -> Result<OwnedFd, LayerError> {
        let mut folder = self.folder(&[]).map_err(|error| refused(error, names))?;
        for count in 1..=names.len() {
            folder = match self.folder(&names[..count]) {
                Err(Errno::NOENT) => {
                    // A link that leads nowhere is in the way, and stays.
                    let make = || mkdirat(&folder, names[count - 1], FOLDER).and_then(|()| self.folder(&names[..count]));
                    let made = make().map_err(|error| refused(error, names))?;
                    fchmod(&made, FOLDER)?;
                    made
                }
                found => found.map_err(|error| refused(error, names))?,
            };
        }
        Ok(folder)
    }

    /// The folder at `names`, held open.
    fn folder(&self, names: &[&OsStr]) -> Result<OwnedFd, Errno> {
        let path = if names.is_empty() { b".".to_vec() } else { join(names) };
        let open = |resolve: ResolveFlags| {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let resolve = resolve | ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
            openat2(&self.root, path.as_slice(), flags, Mode::empty(), resolve)
        };
        match open(ResolveFlags::NO_SYMLINKS) {
            // By links one could go deeper with each.
            Err(Errno::LOOP) => {
                let folder = open(ResolveFlags::empty())?;
                let depth = depth_of(&folder)?.saturating_sub(self.depth);
                if depth > DEEPEST { Err(Errno::NAMETOOLONG) } else { Ok(folder) }
            }
            opened => opened,
        }
    }
}

/// Folders in each other: those that names can say, and as many again behind a link.
const DEPTH: usize = 2 * DEEPEST + 1;

/// How many folders are above an open one.
fn depth_of(folder: impl AsFd) -> Result<usize, Errno> {
    let path = readlinkat(CWD, format!("/proc/self/fd/{}", folder.as_fd().as_raw_fd()), Vec::new())?;
    Ok(Path::new(OsStr::from_bytes(path.as_bytes())).components().count())
}

fn refused(error: Errno, names: &[&OsStr]) -> LayerError {
    match error {
        Errno::XDEV | Errno::LOOP => LayerError::LeadsOut { path: shown(&join(names)) },
        Errno::NAMETOOLONG => LayerError::BadName { path: shown(&join(names)) },
        error => error.into(),
    }
}

/// What is called `name`; `None` for nothing.
fn kind_of(folder: &OwnedFd, name: &OsStr) -> Result<Option<FileType>, Errno> {
    match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => Ok(None),
        found => Ok(Some(FileType::from_raw_mode(found?.st_mode))),
    }
}

fn open_folder(parent: &OwnedFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(parent, name, flags, Mode::empty())
}

/// Removes what is called `name` and has this `path`, as far as nothing of it is `placed`.
fn remove(parent: &OwnedFd, name: &OsStr, path: &[u8], placed: Option<&Placed>, depth: usize) -> Result<(), LayerError> {
    let is_placed = placed.is_some_and(|placed| placed.has(path));
    match kind_of(parent, name)? {
        None => Ok(()),
        Some(FileType::Directory) => {
            remove_content(&open_folder(parent, name)?, path, placed, depth)?;
            if is_placed {
                return Ok(());
            }
            match unlinkat(parent, name, AtFlags::REMOVEDIR) {
                // Something in it is the layer's own.
                Err(Errno::NOTEMPTY) if placed.is_some() => Ok(()),
                removed => Ok(removed?),
            }
        }
        Some(_) if is_placed => Ok(()),
        Some(_) => Ok(unlinkat(parent, name, AtFlags::empty())?),
    }
}

fn remove_content(folder: &OwnedFd, path: &[u8], placed: Option<&Placed>, depth: usize) -> Result<(), LayerError> {
    let depth = depth.checked_sub(1).ok_or_else(|| LayerError::BadName { path: shown(path) })?;
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if !matches!(name.as_slice(), b"." | b"..") {
            names.push(name);
        }
    }
    for name in names {
        let path = if path.is_empty() { name.clone() } else { [path, &name].join(&b'/') };
        remove(folder, &std::ffi::OsString::from_vec(name), &path, placed, depth)?;
    }
    Ok(())
}
