//! Files that outlive a gateway, below its folder of the state directory.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Puts `content` in place of `file`, for its owner's eyes only. It is written beside and renamed, so that a crash leaves the old content or
/// the new one.
pub(super) fn replace(file: &Path, content: &[u8]) -> io::Result<()> {
    let folder = file.parent().expect("the file's path has a folder");
    fs::create_dir_all(folder)?;
    let new = file.with_extension("json.new");
    let mut written: File = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    written.write_all(content)?;
    written.sync_all()?;
    fs::rename(&new, file)
}
