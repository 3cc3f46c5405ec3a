//! The codings themselves, from libraries: bytes go in, and what has become of them comes out.

use std::io::{self, Write as _};

use super::coding::Coding;

/// How hard zstd tries. Beyond, it takes more CPU for each byte than it saves on any link.
const ZSTD_LEVEL: i32 = 3;
/// zstd looks back 128 KiB: its memory is below 1 MiB for each answer.
const ZSTD_WINDOW: u32 = 17;
/// How hard Brotli tries, of 11: the best ones are for files that are compressed once.
const BROTLI_LEVEL: u32 = 4;
/// Brotli looks back 256 KiB.
const BROTLI_WINDOW: u32 = 18;
const BROTLI_BUFFER: usize = 4096;
/// How hard gzip tries, of 9.
const GZIP_LEVEL: u32 = 5;

/// What codes one answer.
pub(super) enum Encoder {
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
    Brotli(Box<brotli::CompressorWriter<Vec<u8>>>),
    Gzip(flate2::write::GzEncoder<Vec<u8>>),
}

impl Encoder {
    pub fn new(coding: Coding) -> Self {
        match coding {
            Coding::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), ZSTD_LEVEL).expect("the level is one of zstd's");
                encoder.window_log(ZSTD_WINDOW).expect("the window is one of zstd's");
                Self::Zstd(encoder)
            }
            Coding::Brotli => {
                let writer = brotli::CompressorWriter::new(Vec::new(), BROTLI_BUFFER, BROTLI_LEVEL, BROTLI_WINDOW);
                Self::Brotli(Box::new(writer))
            }
            Coding::Gzip => Self::Gzip(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(GZIP_LEVEL))),
        }
    }

    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Zstd(encoder) => encoder.write_all(bytes),
            Self::Brotli(encoder) => encoder.write_all(bytes),
            Self::Gzip(encoder) => encoder.write_all(bytes),
        }
    }

    /// Brings out all that went in.
    pub fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Zstd(encoder) => encoder.flush(),
            Self::Brotli(encoder) => encoder.flush(),
            Self::Gzip(encoder) => encoder.flush(),
        }
    }

    /// Bytes that have come out and were not taken yet.
    pub fn output(&mut self) -> usize {
        self.sink().len()
    }

    /// What has come out since the last call.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(self.sink())
    }

    fn sink(&mut self) -> &mut Vec<u8> {
        match self {
            Self::Zstd(encoder) => encoder.get_mut(),
            Self::Brotli(encoder) => encoder.get_mut(),
            Self::Gzip(encoder) => encoder.get_mut(),
        }
    }

    /// The rest, with the coding's end.
    pub fn finish(self) -> io::Result<Vec<u8>> {
        match self {
            Self::Zstd(encoder) => encoder.finish(),
            Self::Brotli(encoder) => Ok(encoder.into_inner()),
            Self::Gzip(encoder) => encoder.finish(),
        }
    }
}
