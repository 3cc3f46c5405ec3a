//! The body of a response: where it ends, and what of the bytes that have come is part of it.

use bytes::{Buf as _, Bytes, BytesMut};
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http_body::{Frame, SizeHint};

/// Bytes of the line before a chunk, its extensions included.
const MOST_LINE: usize = 16 << 10;
/// Bytes of all trailers, and their number.
const MOST_TRAILERS: usize = 16 << 10;
const MOST_TRAILER_FIELDS: usize = 100;

/// A body that is malformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadBody {
    #[error("the line before a chunk is malformed")]
    Size,
    #[error("a chunk is longer than it says")]
    ChunkEnd,
    #[error("the trailers are malformed")]
    Trailers,
}

/// What is still to come of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Body {
    /// So many bytes.
    Length(u64),
    /// Chunks (RFC 9112 section 7.1).
    Chunked(Chunked),
    /// All that comes until the instance closes.
    UntilClose,
}

/// Where a chunked body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Chunked {
    /// Before the line with a chunk's size.
    Size,
    /// Within a chunk of which so many bytes are to come.
    Data(u64),
    /// After the last byte of a chunk, before the end of its line.
    DataEnd,
    /// After the last chunk.
    Trailers,
}

impl Body {
    pub fn length(length: u64) -> Self {
        Self::Length(length)
    }

    pub fn chunked() -> Self {
        Self::Chunked(Chunked::Size)
    }

    pub fn until_close() -> Self {
        Self::UntilClose
    }

    pub fn is_at_end(self) -> bool {
        self == Self::Length(0)
    }

    /// True when the connection's end is the body's.
    pub fn ends_with_connection(self) -> bool {
        self == Self::UntilClose
    }

    pub fn size_hint(self) -> SizeHint {
        match self {
            Self::Length(left) => SizeHint::with_exact(left),
            _ => SizeHint::default(),
        }
    }

    /// All that is to come, if it has come already.
    pub fn take_whole(&mut self, received: &mut BytesMut) -> Option<Bytes> {
        let Self::Length(length) = *self else { return None };
        let length = usize::try_from(length).ok().filter(|length| *length <= received.len())?;
        *self = Self::Length(0);
        Some(received.split_to(length).freeze())
    }

    /// The next part, out of what has come. `None` when more has to come, or at the end.
    pub fn next(&mut self, received: &mut BytesMut) -> Result<Option<Frame<Bytes>>, BadBody> {
        if let Some(trailers) = self.read_lines(received)? {
            return Ok(Some(Frame::trailers(trailers)));
        }
        let left = match self {
            Self::Length(left) | Self::Chunked(Chunked::Data(left)) => *left,
            Self::Chunked(_) => return Ok(None),
            Self::UntilClose => u64::MAX,
        };
        let count = received.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        if count == 0 {
            return Ok(None);
        }
        let data = received.split_to(count).freeze();
        let left = left - count as u64;
        match self {
            Self::Length(length) => *length = left,
            Self::Chunked(chunked) => {
                *chunked = if left == 0 { Chunked::DataEnd } else { Chunked::Data(left) };
                self.note_end(received);
            }
            Self::UntilClose => {}
        }
        Ok(Some(Frame::data(data)))
    }

    /// Most chunked bodies have their last chunk right behind the data: then the data is the end, and need not be followed by nothing.
    fn note_end(&mut self, received: &mut BytesMut) {
        const END: &[u8] = b"\r\n0\r\n\r\n";
        if *self == Self::Chunked(Chunked::DataEnd) && received.starts_with(END) {
            received.advance(END.len());
            *self = Self::Length(0);
        }
    }

    /// Reads on to the next byte of data. What it returns are trailers, and the end.
    fn read_lines(&mut self, received: &mut BytesMut) -> Result<Option<HeaderMap>, BadBody> {
        loop {
            match self {
                Self::Chunked(chunked @ Chunked::DataEnd) => match &received[..] {
                    [b'\r', b'\n', ..] => {
                        received.advance(2);
                        *chunked = Chunked::Size;
                    }
                    [] | [b'\r'] => return Ok(None),
                    _ => return Err(BadBody::ChunkEnd),
                },
                Self::Chunked(chunked @ Chunked::Size) => {
                    let Some(end) = memchr::memchr(b'\n', received) else {
                        // The CR of its end may have come.
                        return if received.len() > MOST_LINE + 1 { Err(BadBody::Size) } else { Ok(None) };
                    };
                    let size = size(&received[..end]).ok_or(BadBody::Size)?;
                    received.advance(end + 1);
                    *chunked = if size == 0 { Chunked::Trailers } else { Chunked::Data(size) };
                }
                Self::Chunked(Chunked::Trailers) => {
                    let Some(trailers) = take_trailers(received)? else { return Ok(None) };
                    *self = Self::Length(0);
                    return Ok(Some(trailers).filter(|trailers| !trailers.is_empty()));
                }
                _ => return Ok(None),
            }
        }
    }
}

/// The size in the line before a chunk, without its LF. What follows it is ignored, but has to be there as an extension: with anything else,
/// two readers may see two sizes. Blanks may end the line, because there are servers that pad it.
fn size(line: &[u8]) -> Option<u64> {
    let line = line.strip_suffix(b"\r").filter(|line| line.len() <= MOST_LINE && !line.contains(&b'\r'))?;
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let rest = line[digits..].trim_ascii_start();
    if digits == 0 || !(rest.is_empty() || rest.starts_with(b";")) {
        return None;
    }
    line[..digits].iter().try_fold(0_u64, |size, digit| {
        let digit = char::from(*digit).to_digit(16)?;
        size.checked_mul(16)?.checked_add(u64::from(digit))
    })
}

/// `None` when not all of them have come.
fn take_trailers(received: &mut BytesMut) -> Result<Option<HeaderMap>, BadBody> {
    let mut fields = [httparse::EMPTY_HEADER; MOST_TRAILER_FIELDS];
    let (length, headers) = match httparse::parse_headers(received, &mut fields) {
        Ok(httparse::Status::Complete((length, fields))) if length <= MOST_TRAILERS => (length, to_map(fields)?),
        Ok(httparse::Status::Partial) if received.len() <= MOST_TRAILERS => return Ok(None),
        _ => return Err(BadBody::Trailers),
    };
    received.advance(length);
    Ok(Some(headers))
}

fn to_map(fields: &[httparse::Header<'_>]) -> Result<HeaderMap, BadBody> {
    let field = |field: &httparse::Header<'_>| {
        Some((HeaderName::from_bytes(field.name.as_bytes()).ok()?, HeaderValue::from_bytes(field.value).ok()?))
    };
    let mut headers = HeaderMap::new();
    for one in fields {
        let (name, value) = field(one).ok_or(BadBody::Trailers)?;
        headers.append(name, value);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a body brings when its bytes come in parts of `length`: its data, its trailers, and what follows it.
    fn read(mut body: Body, bytes: &[u8], length: usize) -> Result<(Vec<u8>, HeaderMap, Vec<u8>), BadBody> {
        let (mut received, mut data, mut trailers) = (BytesMut::new(), Vec::new(), HeaderMap::new());
        for part in bytes.chunks(length.max(1)) {
            received.extend_from_slice(part);
            while let Some(frame) = body.next(&mut received)? {
                match frame.into_data() {
                    Ok(part) => data.extend_from_slice(&part),
                    Err(frame) => trailers = frame.into_trailers().unwrap_or_default(),
                }
            }
        }
        if body.is_at_end() { Ok((data, trailers, received.to_vec())) } else { Ok((data, trailers, b"unfinished".to_vec())) }
    }

    #[test]
    fn a_body_is_the_same_however_its_bytes_come() {
        let chunked = b"4\r\nabcd\r\n00A ;x=y\r\n0123456789\r\n1  \r\n!\r\n0\r\nX-A: b\r\nX-A: c\r\n\r\nHTTP";
        for length in [1, 2, 3, 7, chunked.len()] {
            let (data, trailers, rest) = read(Body::chunked(), chunked, length).unwrap();
            assert_eq!((&data[..], &rest[..]), (&b"abcd0123456789!"[..], &b"HTTP"[..]), "{length}");
            assert_eq!(trailers.get_all("x-a").iter().count(), 2);
            let (data, trailers, rest) = read(Body::chunked(), b"2\r\nab\r\n0\r\n\r\nx", length).unwrap();
            assert_eq!((&data[..], trailers.is_empty(), &rest[..]), (&b"ab"[..], true, &b"x"[..]), "{length}");
            assert_eq!(read(Body::length(3), b"abcdef", length).unwrap().2, b"def", "{length}");
        }
    }

    #[test]
    fn a_body_is_taken_whole_only_when_all_of_it_is_there() {
        let mut received = BytesMut::from(&b"abcdef"[..]);
        assert_eq!(Body::length(7).take_whole(&mut received), None);
        assert_eq!(Body::chunked().take_whole(&mut received), None);
        let mut body = Body::length(3);
        assert_eq!(body.take_whole(&mut received).as_deref(), Some(&b"abc"[..]));
        assert!(body.is_at_end() && &received[..] == b"def");
    }

    #[test]
    fn a_part_that_is_the_last_says_so() {
        let (mut body, mut received) = (Body::chunked(), BytesMut::from(&b"2\r\nab\r\n0\r\n\r\n"[..]));
        assert!(body.next(&mut received).unwrap().is_some() && body.is_at_end());
    }

    #[test]
    fn chunks_that_two_readers_may_read_differently_are_errors() {
        for bad in [
            "\r\n",
            "g\r\n",
            "-1\r\n",
            "0x1\r\n",
            "1\na",
            "1\r\r\na",
            "1 2\r\n",
            "1\r\nab",
            "10000000000000000\r\n",
            "0\r\nno\r\n\r\n",
        ] {
            assert!(read(Body::chunked(), bad.as_bytes(), 64).is_err(), "{bad:?}");
        }
        assert!(read(Body::chunked(), &b"1;".repeat(MOST_LINE), 512).is_err());
        assert!(read(Body::chunked(), format!("0\r\nx: {}", "y".repeat(2 * MOST_TRAILERS)).as_bytes(), 512).is_err());
    }

    /// However much of it has come at once.
    #[test]
    fn a_section_has_one_greatest_length() {
        let trailers = |length: usize| format!("0\r\nx: {}\r\n\r\n", "y".repeat(length - "x: \r\n\r\n".len()));
        let line = |length: usize| format!("1;{}\r\na\r\n0\r\n\r\n", "x".repeat(length - "1;".len()));
        for (is_good, bytes) in [
            (true, trailers(MOST_TRAILERS)),
            (false, trailers(MOST_TRAILERS + 1)),
            (true, line(MOST_LINE)),
            (false, line(MOST_LINE + 1)),
        ] {
            for length in [1, 7, bytes.len()] {
                let read = read(Body::chunked(), bytes.as_bytes(), length);
                assert_eq!(read.is_ok_and(|(_, _, rest)| rest.is_empty()), is_good, "{} bytes in parts of {length}", bytes.len());
            }
        }
    }

    #[test]
    fn fuzz_response_bodies() {
        weal_fuzz::target("response-body", |bytes| {
            let whole = read(Body::chunked(), bytes, bytes.len());
            for length in [1, 2, 7] {
                let parts = read(Body::chunked(), bytes, length);
                assert_eq!(parts.as_ref().ok(), whole.as_ref().ok(), "in parts of {length}");
            }
        });
    }
}
