//! Small files that are written as a whole or not at all.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Writes `value` as JSON to `path`, readable for its owner only: a reader sees the old content or the new, never a part.
///
/// It is not synced to disk: what it describes are processes, and those do not outlive a crash of the machine either.
pub fn write_json<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    let text = serde_json::to_vec(value)?;
    // On a full disk, what stays as it is must not be what fails.
    if fs::read(path).is_ok_and(|before| before == text) {
        return Ok(());
    }
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    // What lies there already may be a link that leads elsewhere.
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    file.write_all(&text)?;
    drop(file);
    fs::rename(&temporary, path)
}

/// Reads what [`write_json`] wrote; `None` when there is no such file.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match fs::read(path) {
        Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// An error that says which file it was about.
pub fn at(path: &Path) -> impl Fn(io::Error) -> io::Error + '_ {
    move |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
