//! Files that outlive a gateway, below its folder of the state directory, and the secrets in them.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

/// Puts `content` in place of `file`, and makes its folder.
pub(super) fn replace(file: &Path, content: &[u8]) -> io::Result<()> {
    let folder = file.parent().expect("the file's path has a folder");
    fs::create_dir_all(folder)?;
    weal_host::files::replace(file, content)
}

/// Bytes that nobody guesses.
pub(super) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// `bytes` as hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
