//! Whether others could change what root relies on.
//!
//! A config says which programs run, and as whom: whoever can write it, or put another in its place, is as good as root in a pool that root
//! started. The same holds for the state directory, whose records the node agent follows.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use crate::users;

/// As many links as the kernel follows in one path.
const MOST_LINKS: u32 = 40;

/// Why root does not rely on a path.
#[derive(Debug, thiserror::Error)]
pub enum Untrusted {
    /// Somebody else owns it.
    #[error("{} belongs to user {uid}, who could make root run anything: give it to root, or run weal as that user", .path.display())]
    Owner {
        /// The path, or a folder above it.
        path: PathBuf,
        /// Whose it is.
        uid: u32,
    },
    /// Somebody else made a link on the way.
    #[error("{} is a link that user {uid} made, who could lead root anywhere by it: name the place itself, or remove the link", .path.display())]
    Link {
        /// The link.
        path: PathBuf,
        /// Whose it is.
        uid: u32,
    },
    /// Others may write to it.
    #[error("others than its owner may write to {} (mode {mode:o}), and could make root run anything: chmod go-w {0}", .path.display())]
    Writable {
        /// The path, or a folder above it.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// It cannot be looked at.
    #[error("cannot look at {}: {source}", .path.display())]
    Unseen {
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Whether nobody but root can change `path` or what stands at it. Who called `sudo` could have become root without weal, so their files count as
/// root's. Everything is right for a user who is not root: their pool can do no more than they can.
///
/// # Errors
/// Somebody else can.
pub fn check(path: &Path) -> Result<(), Untrusted> {
    if users::is_root() { check_among(path, &trusted()) } else { Ok(()) }
}

/// The same whoever asks, for what runs as root.
///
/// # Errors
/// Somebody else can.
pub fn check_of_root(path: &Path) -> Result<(), Untrusted> {
    check_among(path, &trusted())
}

/// The same for as much of `path` as is there, before the rest is made.
///
/// # Errors
/// Somebody else than root decides where it would be made.
pub fn check_way(path: &Path) -> Result<(), Untrusted> {
    match check(path) {
        Err(Untrusted::Unseen { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(()),
        checked => checked,
    }
}

/// Root, and whoever called `sudo`.
fn trusted() -> Vec<u32> {
    let caller = std::env::var("SUDO_UID").ok().and_then(|uid| uid.parse().ok());
    [Some(0), caller].into_iter().flatten().collect()
}

/// Goes the way of `path` as the kernel does, from one name to the next and on where a link leads.
fn check_among(path: &Path, owners: &[u32]) -> Result<(), Untrusted> {
    let unseen = |path: &Path| {
        let path = path.to_owned();
        move |source| Untrusted::Unseen { path, source }
    };
    let (mut place, mut links) = (PathBuf::from("/"), 0);
    check_entry(&place, &fs::symlink_metadata(&place).map_err(unseen(&place))?, owners)?;
    let mut ahead = names(&std::path::absolute(path).map_err(unseen(path))?);
    while let Some(name) = ahead.pop_front() {
        if name == ".." {
            place.pop();
            continue;
        }
        let entry = place.join(name);
        let meta = fs::symlink_metadata(&entry).map_err(unseen(&entry))?;
        check_entry(&entry, &meta, owners)?;
        if !meta.is_symlink() {
            place = entry;
            continue;
        }
        let target = fs::read_link(&entry).map_err(unseen(&entry))?;
        links += 1;
        if links > MOST_LINKS {
            return Err(unseen(&entry)(io::Error::from_raw_os_error(rustix::io::Errno::LOOP.raw_os_error())));
        }
        if target.is_absolute() {
            place = PathBuf::from("/");
        }
        ahead = names(&target).into_iter().chain(ahead).collect();
    }
    Ok(())
}

/// The names in `path`, in their order; without its root.
fn names(path: &Path) -> VecDeque<OsString> {
    let is_name = |part: &Component<'_>| matches!(part, Component::Normal(_) | Component::ParentDir);
    path.components().filter(is_name).map(|part| part.as_os_str().to_owned()).collect()
}

fn check_entry(path: &Path, meta: &Metadata, owners: &[u32]) -> Result<(), Untrusted> {
    let (path, uid) = (path.to_owned(), meta.uid());
    match owners.contains(&uid) {
        false if meta.is_symlink() => Err(Untrusted::Link { path, uid }),
        false => Err(Untrusted::Owner { path, uid }),
        true if is_writable_by_others(meta) => Err(Untrusted::Writable { path, mode: meta.mode() & 0o7777 }),
        true => Ok(()),
    }
}

/// In a sticky folder such as `/tmp`, nobody can replace what another owns. Root's own group is root. The mode of a link means nothing.
fn is_writable_by_others(meta: &Metadata) -> bool {
    const STICKY: u32 = 0o1000;
    if meta.is_symlink() {
        return false;
    }
    let is_sticky = meta.is_dir() && meta.mode() & STICKY != 0;
    let writers = if meta.gid() == 0 { 0o002 } else { 0o022 };
    meta.mode() & writers != 0 && !is_sticky
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_that_others_can_change_or_replace_is_refused_with_the_place() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("pool");
        fs::create_dir(&inner).unwrap();
        let file = inner.join("weal.toml");
        fs::write(&file, "").unwrap();
        let own = rustix::process::geteuid().as_raw();
        let check = || check_among(&file, &[0, own]);
        let mode = |path: &Path, mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        mode(&file, 0o644);
        check().unwrap();
        mode(&file, 0o666);
        assert!(matches!(check(), Err(Untrusted::Writable { path, mode: 0o666 }) if path == file.canonicalize().unwrap()));
        mode(&file, 0o644);
        mode(&inner, 0o777);
        assert!(matches!(check(), Err(Untrusted::Writable { path, .. }) if path.ends_with("pool")));
        mode(&inner, 0o1777);
        check().unwrap();
        let stranger = check_among(&file, &[own + 1]).unwrap_err();
        assert!(matches!(stranger, Untrusted::Owner { .. }), "{stranger}");
    }

    #[test]
    fn a_link_counts_with_the_folder_that_it_lies_in() {
        let folder = tempfile::tempdir().unwrap();
        let (open, closed) = (folder.path().join("open"), folder.path().join("closed"));
        for folder in [&open, &closed] {
            fs::create_dir(folder).unwrap();
        }
        fs::write(closed.join("weal.toml"), "").unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        std::os::unix::fs::symlink(closed.join("weal.toml"), open.join("weal.toml")).unwrap();
        let owners = [0, rustix::process::geteuid().as_raw()];
        check_among(&closed.join("weal.toml"), &owners).unwrap();
        assert!(matches!(check_among(&open.join("weal.toml"), &owners), Err(Untrusted::Writable { .. })));
    }

    #[test]
    fn a_strangers_link_anywhere_on_the_way_is_named() {
        if !users::is_root() {
            return weal_testing::skip("only root can make files of others");
        }
        const STRANGER: u32 = 61_203;
        let folder = tempfile::tempdir().unwrap();
        let (shared, own) = (folder.path().join("shared"), folder.path().join("own/deep"));
        fs::create_dir_all(&own).unwrap();
        fs::create_dir(&shared).unwrap();
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).unwrap();
        let link = |name: &str, target: &Path, uid| {
            std::os::unix::fs::symlink(target, shared.join(name)).unwrap();
            std::os::unix::fs::lchown(shared.join(name), Some(uid), None).unwrap();
        };
        link("trap", &folder.path().join("own"), STRANGER);
        link("mine", &folder.path().join("own"), 0);
        link("chain", Path::new("trap/deep/.."), 0);
        link("loop", Path::new("loop"), 0);
        let check = |path: &str| check_among(&shared.join(path), &[0]);
        check("mine/deep").unwrap();
        check("mine/../own/deep").unwrap();
        for path in ["trap", "trap/deep", "trap/new/state", "chain", "chain/deep", "mine/../shared/trap/deep"] {
            let found = check(path).unwrap_err();
            assert!(
                matches!(&found, Untrusted::Link { path, uid: STRANGER } if path.ends_with("shared/trap")),
                "{path}: {found}"
            );
        }
        assert!(matches!(check("loop"), Err(Untrusted::Unseen { .. })));
        assert!(matches!(check("mine/new"), Err(Untrusted::Unseen { source, .. }) if source.kind() == io::ErrorKind::NotFound));
        // What lies in a shared folder has to be ours, too.
        fs::create_dir(shared.join("theirs")).unwrap();
        std::os::unix::fs::chown(shared.join("theirs"), Some(STRANGER), None).unwrap();
        assert!(matches!(check("theirs"), Err(Untrusted::Owner { uid: STRANGER, .. })));
    }
}
