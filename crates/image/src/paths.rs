//! The paths of a layer's entries, and those that it has put in place.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::error::LayerError;

/// Bytes of their names in one layer, which are kept while it is unpacked.
const MOST_NAMES: usize = 64 << 20;
/// The longest path of an entry, as in the kernel.
pub(crate) const LONGEST_PATH: usize = 4096;
/// The longest name of a file.
const LONGEST_NAME: usize = 255;
/// Folders in each other.
pub(crate) const DEEPEST: usize = 128;
/// The names in a path, each of which is one of the image's own.
pub(crate) fn names(path: &[u8]) -> Result<Vec<&OsStr>, LayerError> {
    if path.len() > LONGEST_PATH || path.contains(&0) {
        return Err(LayerError::BadName { path: shown(path) });
    }
    let parts = path.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
    let names: Vec<&OsStr> = parts.map(OsStr::from_bytes).collect();
    if names.iter().any(|name| *name == "..") {
        return Err(LayerError::LeadsOut { path: shown(path) });
    }
    if names.len() > DEEPEST || names.iter().any(|name| name.len() > LONGEST_NAME) {
        return Err(LayerError::BadName { path: shown(path) });
    }
    Ok(names)
}

/// A path that may hold anything, for people.
pub(crate) fn shown(path: &[u8]) -> String {
    let text = String::from_utf8_lossy(&path[..path.len().min(200)]).into_owned();
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// What one layer has put in place: a whiteout hides what lower layers have, and nothing of its own.
#[derive(Default)]
pub(crate) struct Placed {
    paths: BTreeSet<Vec<u8>>,
    bytes: usize,
}

impl Placed {
    pub(crate) fn add(&mut self, names: &[&OsStr]) -> Result<(), LayerError> {
        let path = join(names);
        self.bytes += path.len();
        if self.bytes > MOST_NAMES {
            return Err(LayerError::TooMuch("64 MiB of names"));
        }
        self.paths.insert(path);
        Ok(())
    }

    /// Whether the layer has something at this path.
    pub(crate) fn has(&self, path: &[u8]) -> bool {
        self.paths.contains(path)
    }
}

pub(crate) fn join(names: &[&OsStr]) -> Vec<u8> {
    names.iter().map(|name| name.as_bytes()).collect::<Vec<_>>().join(&b'/')
}
