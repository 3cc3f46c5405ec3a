//! Small files that are written as a whole or not at all.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags};
use serde::Serialize;
use serde::de::DeserializeOwned;
use weal_host::files::replace_unsynced;

/// Writes `value` as JSON to `path`, readable for its owner only: a reader sees the old content or the new, never a part.
///
/// It is not synced to disk: what it describes are processes, and those do not outlive a crash of the machine either.
pub fn write_json<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    let text = serde_json::to_vec(value)?;
    // On a full disk, what stays as it is must not be what fails.
    if fs::read(path).is_ok_and(|before| before == text) {
        return Ok(());
    }
    replace_unsynced(path, &text)
}

/// The same where there is no file yet.
pub fn write_missing_json<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    if path.exists() { Ok(()) } else { write_json(path, value) }
}

/// Moves a file or a folder. What is not there any more was moved before.
///
/// # Errors
/// It cannot be moved.
pub fn move_into(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at(from)(error)),
        _ => Ok(()),
    }
}

/// Bytes of the files in a folder, without those in folders within.
pub fn size(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    entries.flatten().filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.len()).sum()
}

/// Reads what [`write_json`] wrote; `None` when there is no such file.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match fs::read(path) {
        Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// At most `longest` bytes of a file that only the user of this process can have written; `None` when there is no such file.
///
/// # Errors
/// It cannot be read, or another user could have written it.
pub fn read_own(path: &Path, longest: u64) -> io::Result<Option<Vec<u8>>> {
    let file = match rustix::fs::openat(CWD, path, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
        Ok(file) => file,
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(error) => return Err(at(path)(error.into())),
    };
    let meta = rustix::fs::fstat(&file)?;
    if meta.st_uid != rustix::process::geteuid().as_raw() || meta.st_mode & 0o022 != 0 {
        let why = "another user could have written it";
        return Err(at(path)(io::Error::new(io::ErrorKind::PermissionDenied, why)));
    }
    let mut text = Vec::new();
    fs::File::from(file).take(longest).read_to_end(&mut text)?;
    Ok(Some(text))
}

/// An error that says which file it was about.
pub fn at(path: &Path) -> impl Fn(io::Error) -> io::Error + '_ {
    move |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
