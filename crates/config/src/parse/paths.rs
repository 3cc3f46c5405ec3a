//! Paths of files and folders in a config.

use std::path::{Component, Path, PathBuf};

use crate::section::{Reading, Section};

/// True for a path in which nothing is left to be filled in.
pub(super) fn is_literal(path: &str) -> bool {
    !path.starts_with('~') && !path.contains(['$', '\0'])
}

/// `path`, which is relative to the config's folder unless it is absolute.
pub(super) fn below(folder: &Path, path: &str) -> String {
    // `..` stays: after a symbolic link it is the kernel's to resolve.
    let whole: PathBuf = folder.join(path).components().filter(|part| *part != Component::CurDir).collect();
    whole.to_string_lossy().into_owned()
}

/// The file that `key` names.
pub(super) fn read_file(reading: &mut Reading, section: &Section, folder: &Path, key: &str) -> Option<String> {
    let path = section.text(reading, key)?;
    if path.is_empty() || !is_literal(&path) {
        let help = "write a path without `~` and `$`; it is relative to the config's folder";
        reading.findings.error(reading.places.value(&section.at(key)), format!("`{path}` cannot be a file"), help);
        return None;
    }
    Some(below(folder, &path))
}
