//! A number that stands for some bytes.

use std::borrow::Borrow;

/// FNV-1a, 64 bits. Equal bytes give equal numbers in every process and in every version of weal, unlike with the standard library's hasher. Whoever
/// chooses the bytes can make two that have the same number.
pub fn fnv1a(bytes: impl IntoIterator<Item: Borrow<u8>>) -> u64 {
    bytes
        .into_iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte.borrow())).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From "The FNV Non-Cryptographic Hash Algorithm" (draft-eastlake-fnv, appendix C).
    #[test]
    fn it_gives_the_published_numbers() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a("foobar".bytes()), 0x8594_4171_f739_67e8);
    }
}
