//! Reading small files, and no more of them than there should be.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The longest file about one thing, such as `/proc/PID/status`. The kernel writes a few KiB; 65,536 supplementary groups take 700 KiB.
pub const SMALL: u64 = 1 << 20;
/// The longest list, such as `/proc/PID/maps`. A process with the usual maximum of 65,530 mappings takes 8 MiB.
pub const LIST: u64 = 64 << 20;

/// The text of `path`.
///
/// # Errors
/// It cannot be read, it is not UTF-8, or it has more than `most` bytes. The kind and the number of the system's error stay as they are.
pub fn text(path: &Path, most: u64) -> io::Result<String> {
    String::from_utf8(bytes(path, most)?).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// The content of `path`.
///
/// # Errors
/// It cannot be read, or it has more than `most` bytes.
pub fn bytes(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    let length = File::open(path)?.take(most + 1).read_to_end(&mut content)?;
    if length as u64 > most { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(content) }
}

/// The number after `name` at the beginning of a line.
pub fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_longer_than_its_bound_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "12345678").unwrap();
        assert_eq!(text(&file, 8).unwrap(), "12345678");
        assert_eq!(text(&file, 7).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(text(&folder.path().join("none"), 8).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_field_is_found_at_the_beginning_of_its_line_only() {
        let status = "Name:\tx VmSwap: 9\nVmSwap:\t     12 kB\n";
        assert_eq!(field(status, "VmSwap:"), Some(12));
        assert_eq!(field(status, "VmRSS:"), None);
    }
}
