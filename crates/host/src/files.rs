//! Small files that are replaced as a whole or not at all, and which of two names are the same file.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Puts `content` in place of `path` at once, for its owner's eyes only. A crash leaves the old content or the new one.
///
/// # Errors
/// It cannot be written.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    put(path, content, true)
}

/// The same without waiting for the disk, for what does not outlive a crash of the machine anyway.
///
/// # Errors
/// It cannot be written.
pub fn replace_unsynced(path: &Path, content: &[u8]) -> io::Result<()> {
    put(path, content, false)
}

/// Device and inode: two paths with the same numbers are one file.
///
/// # Errors
/// There is none, or it cannot be looked at.
pub fn file_id(path: &Path) -> io::Result<(u64, u64)> {
    fs::metadata(path).map(|file| (file.dev(), file.ino()))
}

fn put(path: &Path, content: &[u8], is_synced: bool) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    // What lies there already may be a link that leads elsewhere.
    let _ = fs::remove_file(&new);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(content)?;
    if is_synced {
        file.sync_all()?;
    }
    fs::rename(&new, path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_file_is_replaced_for_its_owner_and_no_link_beside_it_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("secret"), folder.path().join("other"));
        fs::write(&other, "another's").unwrap();
        symlink(&other, folder.path().join("secret.new")).unwrap();
        for content in ["first", "second"] {
            replace(&path, content.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        assert_eq!(fs::read_to_string(&other).unwrap(), "another's");
        assert!(!folder.path().join("secret.new").exists());
    }
}
