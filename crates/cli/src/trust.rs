//! Whether others could change what root relies on.
//!
//! A config says which programs run, and as whom: whoever can write it, or put another in its place, is as good as root in a pool that root
//! started. The same holds for the state directory, whose records the node agent follows.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::users;

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
    if !users::is_root() {
        return Ok(());
    }
    let caller = std::env::var("SUDO_UID").ok().and_then(|uid| uid.parse().ok());
    check_among(path, &[Some(0), caller])
}

fn check_among(path: &Path, owners: &[Option<u32>]) -> Result<(), Untrusted> {
    let unseen = |source| Untrusted::Unseen { path: path.to_owned(), source };
    let real = path.canonicalize().map_err(unseen)?;
    // A link's own folder decides where it leads.
    let of_link = path.parent().map(Path::canonicalize).transpose().map_err(unseen)?;
    for part in real.ancestors().chain(of_link.iter().flat_map(|folder| folder.ancestors())) {
        let meta = fs::symlink_metadata(part).map_err(|source| Untrusted::Unseen { path: part.to_owned(), source })?;
        if !owners.contains(&Some(meta.uid())) {
            return Err(Untrusted::Owner { path: part.to_owned(), uid: meta.uid() });
        }
        if is_writable_by_others(&meta) {
            return Err(Untrusted::Writable { path: part.to_owned(), mode: meta.mode() & 0o7777 });
        }
    }
    Ok(())
}

/// In a sticky folder such as `/tmp`, nobody can replace what another owns. Root's own group is root.
fn is_writable_by_others(meta: &Metadata) -> bool {
    const STICKY: u32 = 0o1000;
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
        let check = || check_among(&file, &[Some(0), Some(own)]);
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
        let stranger = check_among(&file, &[Some(own + 1)]).unwrap_err();
        assert!(matches!(stranger, Untrusted::Owner { uid, .. } if uid == own), "{stranger}");
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
        let owners = [Some(0), Some(rustix::process::geteuid().as_raw())];
        check_among(&closed.join("weal.toml"), &owners).unwrap();
        assert!(matches!(check_among(&open.join("weal.toml"), &owners), Err(Untrusted::Writable { .. })));
    }
}
