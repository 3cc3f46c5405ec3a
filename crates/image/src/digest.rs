//! SHA-256, by which the parts of an image name each other.

use std::fmt;
use std::io::{self, Read};
use std::str::FromStr;

use sha2::{Digest as _, Sha256};

/// The SHA-256 of some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

/// What is no digest that is known here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no SHA-256 digest")]
pub struct BadDigest(pub String);

impl Digest {
    /// That of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Its 64 hexadecimal digits, which can be a file's name.
    pub fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// From 64 hexadecimal digits, in lower case as the specification has them.
    ///
    /// # Errors
    /// They are none.
    pub fn from_hex(hex: &str) -> Result<Self, BadDigest> {
        let bad = || BadDigest(hex.chars().take(100).collect());
        if hex.len() != 64 || !hex.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f')) {
            return Err(bad());
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(hex.as_bytes().chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| bad())?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| bad())?;
        }
        Ok(Self(bytes))
    }
}

impl FromStr for Digest {
    type Err = BadDigest;

    fn from_str(text: &str) -> Result<Self, BadDigest> {
        let bad = || BadDigest(text.chars().take(100).collect());
        Self::from_hex(text.strip_prefix("sha256:").ok_or_else(bad)?).map_err(|_| bad())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

/// Passes bytes on, and knows their digest in the end.
pub(crate) struct Hashing<R> {
    inner: R,
    hasher: Sha256,
    length: u64,
}

impl<R: Read> Hashing<R> {
    pub(crate) fn new(inner: R) -> Self {
        Self { inner, hasher: Sha256::new(), length: 0 }
    }

    /// Reads what is left, and returns how many bytes there were in all, and their digest.
    pub(crate) fn finish(mut self) -> io::Result<(u64, Digest)> {
        io::copy(&mut self, &mut io::sink())?;
        Ok((self.length, Digest(self.hasher.finalize().into())))
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        self.hasher.update(&buffer[..length]);
        self.length += length as u64;
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_read_as_it_is_written() {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::of(b"").to_string(), empty);
        assert_eq!(empty.parse(), Ok(Digest::of(b"")));
        for bad in ["", "sha256:", "sha512:00", &empty[7..], &empty.to_uppercase(), &format!("{empty}0"), "sha256:../../etc"] {
            assert!(bad.parse::<Digest>().is_err(), "{bad}");
        }
    }

    #[test]
    fn what_was_not_read_counts_as_well() {
        let mut hashing = Hashing::new(&b"abcdef"[..]);
        hashing.read_exact(&mut [0; 2]).unwrap();
        assert_eq!(hashing.finish().unwrap(), (6, Digest::of(b"abcdef")));
    }
}
