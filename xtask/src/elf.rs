//! Numbers in ELF files (elf(5)).

use anyhow::{Context, Result};

/// The little-endian number of `length` bytes at `offset`.
///
/// # Errors
/// The file ends before.
pub fn number(bytes: &[u8], offset: u64, length: usize) -> Result<u64> {
    let from = usize::try_from(offset)?;
    let field = bytes.get(from..from.saturating_add(length)).context("the file is cut short")?;
    Ok(field.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
}
