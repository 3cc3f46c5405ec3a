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
