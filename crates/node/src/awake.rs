//! Whether an application works without a request and must not sleep: it touches the file that `$WEAL_KEEP_AWAKE` names.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// The variable that names the file.
pub(crate) const VARIABLE: &str = "WEAL_KEEP_AWAKE";
/// The file's name in the application's folder.
pub(crate) const FILE: &str = ".keep-awake";
/// So long a touch counts. One that forgets to remove the file sleeps again; one that works longer touches it again.
const COUNTS_FOR: Duration = Duration::from_secs(600);

/// Whether the file at `path` is there and was touched lately. One from the future counts.
pub(crate) fn is_wanted(path: &Path, now: SystemTime) -> bool {
    // It is the application's: a link in its place is not followed.
    let touched = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file).and_then(|file| file.modified().ok());
    touched.is_some_and(|touched| now.duration_since(touched).unwrap_or_default() < COUNTS_FOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_counts_for_ten_minutes_after_it_was_touched() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join(FILE), folder.path().join("link"));
        let now = SystemTime::now();
        assert!(!is_wanted(&path, now));
        fs::write(&path, "").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(is_wanted(&path, now) && is_wanted(&path, now + COUNTS_FOR / 2) && !is_wanted(&link, now));
        assert!(!is_wanted(&path, now + COUNTS_FOR * 2) && !is_wanted(folder.path(), now));
    }
}
