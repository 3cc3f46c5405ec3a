//! Folders that are held open while something is done in them.
//!
//! Root changes owners and modes in folders where others write too. By a path, it could be led elsewhere between two calls: a link in place of a
//! folder is enough. So each step goes from an open folder to an entry of it, never through a link, and a change is made to what was looked at.

use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, RenameFlags, Stat, Uid};
use rustix::io::Errno;

use crate::files::at;

/// Folders within folders that are given away: whoever nests more deeply wants to use up descriptors.
const DEEPEST_GIVEN: usize = 256;
/// Folders within folders that are gone into at a time to remove them.
const DEEPEST_REMOVED: usize = 64;

/// Entries of a folder that are looked at.
const MOST_ENTRIES: usize = 1024;

/// A file before it has its name. Instances of one application start at the same time, and write and remove the same files: one at a time,
/// or one would take away what another is about to name.
const NEW: &str = ".new";
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Whose something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

impl Owner {
    /// Root.
    pub const ROOT: Self = Self { uid: 0, gid: 0 };

    fn is_of(self, stat: &Stat) -> bool {
        (stat.st_uid, stat.st_gid) == (self.uid, self.gid)
    }

    fn ids(self) -> (Option<Uid>, Option<Gid>) {
        (Some(Uid::from_raw(self.uid)), Some(Gid::from_raw(self.gid)))
    }
}

/// A folder that is held open.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    handle: OwnedFd,
}

impl Folder {
    /// The folder at `path`, whose last part may be no link.
    ///
    /// # Errors
    /// There is none, or it is something else.
    pub fn open(path: &Path) -> io::Result<Self> {
        let handle = open_folder(CWD, path).map_err(at(path))?;
        Ok(Self { path: path.to_owned(), handle })
    }

    /// The folder `name` in this one; made with `mode` where it is missing.
    ///
    /// # Errors
    /// It cannot be made, or something else is there.
    pub fn make(&self, name: &str, mode: u32) -> io::Result<Self> {
        let path = self.path.join(name);
        match rustix::fs::mkdirat(&self.handle, name, Mode::from_raw_mode(mode)) {
            Err(error) if error != Errno::EXIST => return Err(at(&path)(error.into())),
            _ => {}
        }
        let handle = open_folder(self.handle.as_fd(), Path::new(name)).map_err(at(&path))?;
        Ok(Self { path, handle })
    }

    /// The folder `name` in this one; `None` where nothing has that name.
    ///
    /// # Errors
    /// Something else is there.
    pub fn child(&self, name: &str) -> io::Result<Option<Self>> {
        match open_folder(self.handle.as_fd(), Path::new(name)) {
            Ok(handle) => Ok(Some(Self { path: self.path.join(name), handle })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(at(&self.path.join(name))(error)),
        }
    }

    /// Removes those files and links in this folder whose name is meant. Folders stay, and of more than [`MOST_ENTRIES`] some may: who owns the
    /// folder could fill it to keep this process busy.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn remove_files(&self, is_meant: impl Fn(&str) -> bool) -> io::Result<()> {
        let _only = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        for entry in Dir::read_from(&self.handle)?.take(MOST_ENTRIES) {
            let entry = entry?;
            if entry.file_name().to_str().is_ok_and(&is_meant) {
                // A folder, or somebody else removed it.
                let _ = rustix::fs::unlinkat(&self.handle, entry.file_name(), AtFlags::empty());
            }
        }
        Ok(())
    }

    /// Puts a file with `content` in place of what is called `name` in this folder, for `owner` to read only. A reader sees the old file or the
    /// new one, never a part. A folder of that name is removed: whoever else may write here could keep the file away with one.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn replace_file(&self, name: &str, content: &[u8], owner: Option<Owner>) -> io::Result<PathBuf> {
        let path = self.path.join(name);
        let write = || -> io::Result<()> {
            let _only = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
            self.clear(Path::new(NEW))?;
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let handle = rustix::fs::openat(&self.handle, NEW, flags, Mode::from_raw_mode(0o400))?;
            if let Some((uid, gid)) = owner.map(Owner::ids) {
                rustix::fs::fchown(&handle, uid, gid)?;
            }
            std::fs::File::from(handle).write_all(content)?;
            let name_it = || rustix::fs::renameat(&self.handle, NEW, &self.handle, name);
            match name_it() {
                Err(Errno::ISDIR) => {
                    self.clear(Path::new(name))?;
                    Ok(name_it()?)
                }
                named => Ok(named?),
            }
        };
        write().map_err(at(&path))?;
        Ok(path)
    }

    /// Removes what is called `name` in this folder, with all in it. Nothing may have that name.
    fn clear(&self, name: &Path) -> io::Result<()> {
        if unlinked(self.handle.as_fd(), name)? {
            return Ok(());
        }
        let top = open_folder(self.handle.as_fd(), name)?;
        let mut brought = 0;
        loop {
            let before = brought;
            empty(top.as_fd(), top.as_fd(), DEEPEST_REMOVED, &mut brought)?;
            if brought == before {
                break;
            }
        }
        Ok(rustix::fs::unlinkat(&self.handle, name, AtFlags::REMOVEDIR)?)
    }

    /// Sets its mode.
    ///
    /// # Errors
    /// It belongs to somebody else.
    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        rustix::fs::fchmod(&self.handle, Mode::from_raw_mode(mode)).map_err(|error| at(&self.path)(error.into()))
    }

    /// Gives the folder to `owner`, with all in it that belongs to whom the folder belonged to. What others own there stays theirs: a link to it
    /// may have been made there. So does what is nested below [`DEEPEST_GIVEN`] folders, or nobody could start there any more. The folder itself
    /// comes last, so that what was broken off is done again. True when it was another's before.
    ///
    /// # Errors
    /// Something cannot be given away.
    pub fn give(&self, owner: Owner) -> io::Result<bool> {
        let before = rustix::fs::fstat(&self.handle)?;
        if owner.is_of(&before) {
            return Ok(false);
        }
        if !give_content(self.handle.as_fd(), before.st_uid, owner, DEEPEST_GIVEN).map_err(at(&self.path))? {
            tracing::warn!(folder = %self.path.display(), "what is nested below {DEEPEST_GIVEN} folders stays with the user before");
        }
        let (uid, gid) = owner.ids();
        rustix::fs::fchown(&self.handle, uid, gid).map_err(|error| at(&self.path)(error.into()))?;
        Ok(true)
    }
}

/// Removes what is at `path`, with all in it. Folders may be nested as deeply as somebody likes: those below [`DEEPEST_REMOVED`] are
/// brought up before they are gone into. A link is removed itself.
///
/// # Errors
/// Something cannot be removed.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Err(io::ErrorKind::InvalidInput.into()) };
    match Folder::open(parent).and_then(|parent| parent.clear(Path::new(name))) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(at(path)),
    }
}

/// Removes all that is in `folder`, which is below `top`. Folders that are `depth` below it are moved into `top`, under names that count on.
fn empty(folder: BorrowedFd<'_>, top: BorrowedFd<'_>, depth: usize, brought: &mut u64) -> io::Result<()> {
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = Path::new(std::ffi::OsStr::from_bytes(entry.file_name().to_bytes()));
        if matches!(name.to_str(), Some("." | "..")) || unlinked(folder, name)? {
            continue;
        }
        match depth.checked_sub(1) {
            None => bring(folder, name, top, brought)?,
            Some(depth) => {
                empty(open_folder(folder, name)?.as_fd(), top, depth, brought)?;
                rustix::fs::unlinkat(folder, name, AtFlags::REMOVEDIR)?;
            }
        }
    }
    Ok(())
}

/// Moves the folder `name` into `top`, under a name that nothing there has.
fn bring(folder: BorrowedFd<'_>, name: &Path, top: BorrowedFd<'_>, brought: &mut u64) -> io::Result<()> {
    loop {
        *brought += 1;
        let new = format!("brought-{brought}");
        match rustix::fs::renameat_with(folder, name, top, new, RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => {}
            moved => return Ok(moved?),
        }
    }
}

/// Removes what is called `name`; false for a folder, which stays.
fn unlinked(folder: BorrowedFd<'_>, name: &Path) -> io::Result<bool> {
    match rustix::fs::unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::ISDIR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Gives `path` itself to `owner`, be it a link.
pub fn give_entry(path: &Path, owner: Owner) -> io::Result<()> {
    let (uid, gid) = owner.ids();
    rustix::fs::chownat(CWD, path, uid, gid, AtFlags::SYMLINK_NOFOLLOW).map_err(|error| at(path)(error.into()))
}

fn open_folder(parent: BorrowedFd<'_>, name: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty()).map_err(|error| match error {
        Errno::LOOP | Errno::NOTDIR => io::Error::new(io::ErrorKind::NotADirectory, "it is a link or a file, not a folder"),
        error => error.into(),
    })
}

/// False when something is nested below `depth` folders.
fn give_content(folder: BorrowedFd<'_>, from: u32, owner: Owner, depth: usize) -> io::Result<bool> {
    let Some(deeper) = depth.checked_sub(1) else { return Ok(false) };
    let mut all = true;
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = Path::new(std::ffi::OsStr::from_bytes(entry.file_name().to_bytes()));
        if matches!(name.to_str(), Some("." | "..")) {
            continue;
        }
        // What is looked at is what is changed: a handle that is good for nothing else, not even of a link's end.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = match rustix::fs::openat(folder, name, flags, Mode::empty()) {
            Err(Errno::NOENT) => continue,
            handle => handle?,
        };
        let stat = rustix::fs::fstat(&handle)?;
        if stat.st_uid != from {
            continue;
        }
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            let inner = rustix::fs::openat(&handle, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
            all &= give_content(inner.as_fd(), from, owner, deeper)?;
        }
        let (uid, gid) = owner.ids();
        rustix::fs::chownat(&handle, "", uid, gid, AtFlags::EMPTY_PATH)?;
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, chown, symlink};

    use super::*;

    #[test]
    fn files_are_removed_by_name_and_no_folder_is_gone_into() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::open(place.path()).unwrap();
        assert!(folder.child("inner").unwrap().is_none());
        let inner = folder.make("inner", 0o700).unwrap();
        inner.replace_file("kept", b"1", None).unwrap();
        inner.replace_file("former", b"2", None).unwrap();
        symlink(place.path(), place.path().join("inner/link")).unwrap();
        fs::create_dir(place.path().join("inner/folder")).unwrap();
        folder.child("inner").unwrap().unwrap().remove_files(|name| name != "kept").unwrap();
        let left =
            fs::read_dir(place.path().join("inner")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        assert_eq!(left.collect::<std::collections::BTreeSet<_>>(), ["folder", "kept"].map(str::to_owned).into());
        assert!(folder.child("inner/kept").is_err(), "a file is no folder");
    }

    const FORMER: Owner = Owner { uid: 61_200, gid: 61_200 };
    const LATER: Owner = Owner { uid: 61_201, gid: 61_201 };

    /// A folder of `FORMER` with a file, and a file of root's beside it; `None` when this test cannot make one.
    fn data() -> Option<(tempfile::TempDir, PathBuf, PathBuf)> {
        if !rustix::process::geteuid().is_root() {
            weal_testing::skip("only root can give files away");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let (data, secret) = (folder.path().join("data"), folder.path().join("secret"));
        fs::create_dir_all(data.join("deep/er")).unwrap();
        fs::write(data.join("deep/er/file"), "x").unwrap();
        fs::write(&secret, "s").unwrap();
        for path in ["", "deep", "deep/er", "deep/er/file"] {
            chown(data.join(path), Some(FORMER.uid), Some(FORMER.gid)).unwrap();
        }
        Some((folder, data, secret))
    }

    fn uid(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().uid()
    }

    #[test]
    fn a_folder_goes_to_its_next_owner_with_all_that_the_former_had() {
        let Some((_folder, data, _)) = data() else { return };
        let folder = Folder::open(&data).unwrap();
        assert!(folder.give(LATER).unwrap());
        assert_eq!(["deep", "deep/er", "deep/er/file"].map(|path| uid(&data.join(path))), [LATER.uid; 3]);
        assert_eq!(uid(&data), LATER.uid);
        assert!(!folder.give(LATER).unwrap(), "there is nothing left to do");
    }

    #[test]
    fn links_lead_nowhere_when_a_folder_is_given_away() {
        let Some((folder, data, secret)) = data() else { return };
        symlink(&secret, data.join("deep/soft")).unwrap();
        fs::hard_link(&secret, data.join("deep/hard")).unwrap();
        symlink(folder.path(), data.join("up")).unwrap();
        for link in ["deep/soft", "up"] {
            give_entry(&data.join(link), FORMER).unwrap();
        }
        Folder::open(&data).unwrap().give(LATER).unwrap();
        assert_eq!((uid(&secret), uid(folder.path())), (0, 0), "what links lead to stays root's");
        assert_eq!((uid(&data.join("deep/soft")), uid(&data.join("up"))), (LATER.uid, LATER.uid));
        assert_eq!(uid(&data.join("deep/er/file")), LATER.uid);
    }

    /// So many folders, one in the other, in `folder`; a path so long could not be named.
    fn nest(folder: &Path, levels: u32) {
        let mut handle = open_folder(CWD, folder).unwrap();
        for _ in 0..levels {
            rustix::fs::mkdirat(&handle, "n", Mode::from_raw_mode(0o700)).unwrap();
            handle = open_folder(handle.as_fd(), Path::new("n")).unwrap();
        }
        rustix::fs::openat(&handle, "file", OFlags::WRONLY | OFlags::CREATE, Mode::RUSR).unwrap();
    }

    #[test]
    fn a_tree_is_removed_however_deep_it_is_and_no_link_in_it_is_followed() {
        let place = tempfile::tempdir().unwrap();
        let (tree, outside) = (place.path().join("tree"), place.path().join("outside"));
        fs::create_dir_all(tree.join("brought-1/full")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("kept"), "x").unwrap();
        symlink(&outside, tree.join("link")).unwrap();
        symlink("/nowhere", tree.join("brought-2")).unwrap();
        nest(&tree, 4000);
        nest(&tree.join("brought-1"), 200);
        // A call for each level would take more than this stack: the thread's end would be the process's.
        let (small, whole) = (std::thread::Builder::new().stack_size(256 << 10), tree.clone());
        small.spawn(move || remove_tree(&whole).unwrap()).unwrap().join().unwrap();
        assert!(tree.symlink_metadata().is_err() && outside.join("kept").exists());
        symlink(&outside, &tree).unwrap();
        remove_tree(&tree).unwrap();
        assert!(tree.symlink_metadata().is_err() && outside.join("kept").exists(), "a link itself is removed");
        remove_tree(&tree).unwrap();
    }

    #[test]
    fn folders_that_are_nested_too_deeply_keep_nobody_from_starting() {
        let Some((_folder, data, _)) = data() else { return };
        nest(&data, 300);
        let mut path = data.clone();
        for _ in 0..300 {
            path.push("n");
            chown(&path, Some(FORMER.uid), Some(FORMER.gid)).unwrap();
        }
        assert!(Folder::open(&data).unwrap().give(LATER).unwrap());
        assert_eq!((uid(&data), uid(&data.join("n/n")), uid(&path)), (LATER.uid, LATER.uid, FORMER.uid));
    }

    #[test]
    fn a_link_in_place_of_a_folder_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        symlink("/etc", folder.path().join("data")).unwrap();
        let error = Folder::open(folder.path()).unwrap().make("data", 0o700).unwrap_err().to_string();
        assert!(error.ends_with("data: it is a link or a file, not a folder"), "{error}");
        assert!(Folder::open(&folder.path().join("data")).is_err());
    }

    #[test]
    fn files_are_replaced_at_once_also_by_several_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let data = Folder::open(folder.path()).unwrap();
        fs::write(folder.path().join("other"), "another's").unwrap();
        symlink("other", folder.path().join("secret")).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| data.replace_file("secret", b"hunter2", None).unwrap());
            }
        });
        assert_eq!(fs::read_to_string(folder.path().join("secret")).unwrap(), "hunter2");
        assert_eq!(fs::metadata(folder.path().join("secret")).unwrap().mode() & 0o777, 0o400);
        assert_eq!(fs::read_to_string(folder.path().join("other")).unwrap(), "another's");
        assert!(!folder.path().join(".new").exists());
    }

    #[test]
    fn folders_keep_no_file_away() {
        let folder = tempfile::tempdir().unwrap();
        let data = Folder::open(folder.path()).unwrap();
        for name in [NEW, "secret"] {
            fs::create_dir_all(folder.path().join(name).join("full/of")).unwrap();
            fs::write(folder.path().join(name).join("full/of/files"), "x").unwrap();
        }
        data.replace_file("secret", b"hunter2", None).unwrap();
        assert_eq!(fs::read_to_string(folder.path().join("secret")).unwrap(), "hunter2");
        assert!(!folder.path().join(NEW).exists());
    }

    #[test]
    fn files_are_replaced_while_others_remove_what_is_left_over() {
        let folder = tempfile::tempdir().unwrap();
        let data = Folder::open(folder.path()).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..200).for_each(|_| drop(data.replace_file("secret", b"hunter2", None).unwrap())));
                scope.spawn(|| (0..200).for_each(|_| data.remove_files(|name| name != "secret").unwrap()));
            }
        });
        assert_eq!(fs::read_to_string(folder.path().join("secret")).unwrap(), "hunter2");
    }

    #[test]
    fn a_missing_folder_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let made = Folder::open(folder.path()).unwrap().make("data", 0o700).unwrap();
        made.set_mode(0o711).unwrap();
        assert_eq!(fs::metadata(folder.path().join("data")).unwrap().mode() & 0o777, 0o711);
    }
}
