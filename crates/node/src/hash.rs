//! Numbers that stand for paths.

use std::path::Path;

/// FNV-1a of a path, for names and for spreading things.
pub fn hash(path: &Path) -> u64 {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let bytes = path.as_os_str().as_encoded_bytes();
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}
