//! Numbers that stand for paths.

use std::path::Path;

use weal_model::fnv1a;

/// FNV-1a of a path, for names and for spreading things.
pub fn hash(path: &Path) -> u64 {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    fnv1a(path.as_os_str().as_encoded_bytes())
}
