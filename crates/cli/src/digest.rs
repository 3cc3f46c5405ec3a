//! Names for texts: what has the same one is the same text.

use ring::digest::{SHA256, digest};

/// The SHA-256 of `text` in hexadecimal digits.
pub fn sha256(text: &str) -> String {
    digest(&SHA256, text.as_bytes()).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}
