//! Whether a file has changed.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// How often files are looked at. A change is taken when two looks in a row see the same, so that a file that is being written is not read
/// half-way.
pub const LOOK: Duration = Duration::from_millis(500);

/// What tells a changed file from an unchanged one, also when an editor replaced it.
pub type Stamp = (u64, i64, i64, u64);

/// That of a file; `None` when there is none.
pub fn stamp(path: &Path) -> Option<Stamp> {
    let meta = std::fs::metadata(path).ok()?;
    Some((meta.ino(), meta.mtime(), meta.mtime_nsec(), meta.size()))
}

/// That of a file from which `text` was read before; `None` when it holds something else by now, or cannot be read.
pub fn stamp_of(path: &Path, text: &str) -> Option<Stamp> {
    // The stamp comes first: what is written after it changes it.
    let seen = stamp(path)?;
    std::fs::read_to_string(path).is_ok_and(|now| now == text).then_some(seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_has_changed_since_it_was_read_was_not_seen() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("weal.toml");
        assert_eq!(stamp_of(&file, ""), None);
        std::fs::write(&file, "old").unwrap();
        assert_eq!(stamp_of(&file, "old"), stamp(&file));
        std::fs::write(&file, "new").unwrap();
        assert_eq!(stamp_of(&file, "old"), None);
    }
}
