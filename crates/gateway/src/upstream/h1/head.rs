//! Heads: a request's is written, a response's is read.

use std::mem::MaybeUninit;

use bytes::{Bytes, BytesMut};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, StatusCode};

use super::body::Body;
use crate::http::remarks::write_field;

/// Fields of a response's head.
const MOST_FIELDS: usize = 100;
/// Fields that the gateway adds to a response. A map without room for them grows, and is built anew for that.
const ADDED_FIELDS: usize = 2;
/// Bytes of a response's head. Instances may say more than clients may.
const MOST_BYTES: usize = 400 << 10;

/// Why the head of a response is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadHead {
    #[error("its head is malformed: {0}")]
    Syntax(#[from] httparse::Error),
    #[error("a field of its head is malformed")]
    Field,
    #[error("its status is not one")]
    Status,
    #[error("its Content-Length is not one number")]
    ContentLength,
    #[error("HTTP/1.0 has no Transfer-Encoding")]
    OldCoding,
    #[error("its head is longer than {MOST_BYTES} bytes")]
    TooLong,
}

/// The head of a response, interim or final.
#[derive(Debug)]
pub(super) struct Head {
    pub status: StatusCode,
    pub headers: HeaderMap,
    /// What follows it. A final response's only.
    pub body: Body,
    /// True when it has no body whatever its fields say.
    pub is_bodiless: bool,
    /// True when the connection may be used again after it.
    pub keeps_alive: bool,
}

/// Appends the line of `request` and those of its fields that `is_written` names. The end of the head is still to come.
pub(super) fn write<B>(request: &Request<B>, is_written: impl Fn(&HeaderName) -> bool, into: &mut Vec<u8>) {
    let (uri, method) = (request.uri(), request.method().as_str());
    // A target that begins with its query has an empty path, which is written as `/` (RFC 9112 section 3.2.1).
    let path = if uri.path().is_empty() { "/" } else { uri.path() };
    let query = uri.query().map_or(["", ""], |query| ["?", query]);
    for part in [method, " ", path, query[0], query[1], " HTTP/1.1\r\n"] {
        into.extend_from_slice(part.as_bytes());
    }
    for (name, value) in request.headers() {
        if is_written(name) {
            write_field(name, value, into);
        }
    }
}

/// Searches for heads in what has come of a connection.
#[derive(Debug, Default)]
pub(super) struct Heads {
    /// Bytes that were searched for the end of a head to no purpose, so that each is looked at once, however slowly they come.
    searched: usize,
}

impl Heads {
    /// Takes the next head out of `received`; `None` when not all of it has come. `method` is the request's. The fields are put into `map`, which
    /// has none and is taken away.
    pub fn next(&mut self, received: &mut BytesMut, method: &Method, map: &mut HeaderMap) -> Result<Option<Head>, BadHead> {
        let Some(end) = self.find_end(received) else {
            return if received.len() > MOST_BYTES { Err(BadHead::TooLong) } else { Ok(None) };
        };
        let bytes = received.split_to(end).freeze();
        self.searched = 0;
        read(&bytes, method, std::mem::take(map)).map(Some)
    }

    /// Where the line is at its end that has nothing in it, and which is not before the first one that has (RFC 9112 section 2.2).
    fn find_end(&mut self, received: &[u8]) -> Option<usize> {
        let first = received.iter().position(|byte| !matches!(byte, b'\r' | b'\n'))?;
        let mut at = self.searched.max(first);
        while let Some(found) = memchr::memchr(b'\n', &received[at..]) {
            let next = at + found + 1;
            match &received[next..] {
                [b'\n', ..] => return Some(next + 1),
                [b'\r', b'\n', ..] => return Some(next + 2),
                // It may be the start of the end.
                [] | [b'\r'] => {
                    self.searched = next - 1;
                    return None;
                }
                _ => at = next,
            }
        }
        self.searched = received.len();
        None
    }
}

fn read(bytes: &Bytes, method: &Method, mut headers: HeaderMap) -> Result<Head, BadHead> {
    let mut fields = [const { MaybeUninit::uninit() }; MOST_FIELDS];
    let mut response = httparse::Response::new(&mut []);
    let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(&mut response, bytes, &mut fields)?;
    let (Some(code), Some(version)) = (response.code.filter(|_| parsed.is_complete()), response.version) else {
        return Err(BadHead::Status);
    };
    let status = StatusCode::from_u16(code).map_err(|_| BadHead::Status)?;
    let is_old = version == 0;
    let mut framing = Framing { keeps_alive: !is_old, ..Framing::default() };
    headers.reserve(response.headers.len() + ADDED_FIELDS);
    for field in &*response.headers {
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| BadHead::Field)?;
        let value = HeaderValue::from_maybe_shared(bytes.slice_ref(field.value)).map_err(|_| BadHead::Field)?;
        framing.note(&name, value.as_bytes())?;
        headers.append(name, value);
    }
    let is_bodiless = is_bodiless(status, method);
    let body = if is_bodiless { Body::length(0) } else { framing.body(is_old)? };
    // A body that may not be there is likely to follow.
    let is_honest = status != StatusCode::NO_CONTENT || (!framing.has_coding && framing.length.unwrap_or(0) == 0);
    let keeps_alive = framing.keeps_alive && !framing.closes && is_honest;
    Ok(Head { status, headers, body, is_bodiless, keeps_alive })
}

/// What the fields of a head say of where the response ends, and of the connection.
#[derive(Debug, Default)]
struct Framing {
    length: Option<u64>,
    has_coding: bool,
    is_chunked: bool,
    closes: bool,
    keeps_alive: bool,
}

impl Framing {
    fn note(&mut self, name: &HeaderName, value: &[u8]) -> Result<(), BadHead> {
        if *name == header::CONTENT_LENGTH {
            // RFC 9112 section 6.3, item 5: a list of equal lengths is as good as one of them.
            for member in value.split(|byte| *byte == b',') {
                let length = number(member.trim_ascii()).filter(|length| self.length.is_none_or(|before| before == *length));
                self.length = Some(length.ok_or(BadHead::ContentLength)?);
            }
        } else if *name == header::TRANSFER_ENCODING {
            // Any other coding, and any before it, is refused by whoever passes the response on.
            self.is_chunked = !self.has_coding && value.eq_ignore_ascii_case(b"chunked");
            self.has_coding = true;
        } else if *name == header::CONNECTION {
            for option in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                self.closes |= option.eq_ignore_ascii_case(b"close");
                self.keeps_alive |= option.eq_ignore_ascii_case(b"keep-alive");
            }
        }
        Ok(())
    }

    /// RFC 9112 section 6.3, from item 3 on.
    fn body(&self, is_old: bool) -> Result<Body, BadHead> {
        match self.length {
            _ if self.has_coding && is_old => Err(BadHead::OldCoding),
            _ if self.is_chunked => Ok(Body::chunked()),
            Some(length) if !self.has_coding => Ok(Body::length(length)),
            _ => Ok(Body::until_close()),
        }
    }
}

/// RFC 9112 section 6.3, item 1.
fn is_bodiless(status: StatusCode, method: &Method) -> bool {
    status.is_informational() || status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED || *method == Method::HEAD
}

fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heads(bytes: &[u8]) -> Vec<Result<Head, BadHead>> {
        let (mut received, mut heads, mut found) = (BytesMut::from(bytes), Heads::default(), Vec::new());
        while let Some(head) = heads.next(&mut received, &Method::GET, &mut HeaderMap::new()).transpose() {
            let is_bad = head.is_err();
            found.push(head);
            if is_bad {
                break;
            }
        }
        found
    }

    fn body_of(fields: &str) -> Result<Body, BadHead> {
        heads(format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n").as_bytes()).remove(0).map(|head| head.body)
    }

    #[test]
    fn heads_are_taken_one_after_the_other_however_their_bytes_come() {
        let bytes = b"\r\n\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100\n\nHTTP/1.0 200 OK\r\nX: y\r\n\r\nbody";
        let codes =
            |found: Vec<Result<Head, BadHead>>| found.into_iter().map(|head| head.unwrap().status.as_u16()).collect::<Vec<_>>();
        assert_eq!(codes(heads(bytes)), [103, 100, 200]);
        let (mut received, mut one_by_one, mut found) = (BytesMut::new(), Heads::default(), Vec::new());
        for byte in bytes {
            received.extend_from_slice(&[*byte]);
            found.extend(one_by_one.next(&mut received, &Method::GET, &mut HeaderMap::new()).transpose());
            if found.len() == 3 {
                break;
            }
        }
        assert_eq!(codes(found), [103, 100, 200]);
        assert!(received.is_empty());
    }

    #[test]
    fn where_a_response_ends_is_what_its_head_says() {
        assert_eq!(body_of("content-length: 5"), Ok(Body::length(5)));
        assert_eq!(body_of("content-length: 5, 5\r\ncontent-length: 5"), Ok(Body::length(5)));
        assert_eq!(body_of("transfer-encoding: Chunked\r\ncontent-length: 5"), Ok(Body::chunked()));
        for unclear in ["transfer-encoding: gzip, chunked", "transfer-encoding: chunked\r\ntransfer-encoding: chunked", "x: y"] {
            assert_eq!(body_of(unclear), Ok(Body::until_close()), "{unclear}");
        }
        for bad in ["content-length: 5, 6", "content-length: +5", "content-length:", "content-length: 18446744073709551616"] {
            assert_eq!(body_of(bad), Err(BadHead::ContentLength), "{bad}");
        }
        let old = heads(b"HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").remove(0);
        assert_eq!(old.map(|head| head.body).unwrap_err(), BadHead::OldCoding);
        let mut received = BytesMut::from(&b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n"[..]);
        let head = Heads::default().next(&mut received, &Method::HEAD, &mut HeaderMap::new()).unwrap().unwrap();
        assert_eq!(head.body, Body::length(0), "whatever it says");
    }

    #[test]
    fn a_connection_is_kept_as_its_version_has_it() {
        let keeps = |head: &str| heads(head.as_bytes()).remove(0).unwrap().keeps_alive;
        assert!(keeps("HTTP/1.1 204 x\r\n\r\n") && keeps("HTTP/1.0 204 x\r\nconnection: Keep-Alive\r\n\r\n"));
        assert!(!keeps("HTTP/1.0 204 x\r\n\r\n") && !keeps("HTTP/1.1 204 x\r\nconnection: x, Close\r\n\r\n"));
        assert!(!keeps("HTTP/1.1 204 x\r\nconnection: close\r\nconnection: keep-alive\r\n\r\n"));
    }

    /// The heads in `bytes`, which come in parts of `length`: their statuses, fields and bodies, and whether one was none.
    fn in_parts(bytes: &[u8], length: usize) -> (Vec<(StatusCode, HeaderMap, Body)>, bool) {
        let (mut received, mut heads, mut found) = (BytesMut::new(), Heads::default(), Vec::new());
        for part in bytes.chunks(length.max(1)) {
            received.extend_from_slice(part);
            loop {
                match heads.next(&mut received, &Method::GET, &mut HeaderMap::new()) {
                    Ok(Some(head)) => found.push((head.status, head.headers, head.body)),
                    Ok(None) => break,
                    Err(_) => return (found, true),
                }
            }
        }
        (found, false)
    }

    #[test]
    fn fuzz_response_heads() {
        weal_fuzz::target("response-head", |bytes| {
            let whole = in_parts(bytes, bytes.len());
            for length in [1, 7] {
                assert_eq!(in_parts(bytes, length), whole, "in parts of {length}");
            }
            // Who finds the end and who reads the fields have to agree about it.
            let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
            let parsed = httparse::Response::new(&mut fields).parse(bytes);
            if let (Ok(httparse::Status::Complete(length)), Some(end)) = (parsed, Heads::default().find_end(bytes)) {
                assert_eq!(end, length, "{:?}", String::from_utf8_lossy(bytes));
            }
        });
    }

    #[test]
    fn what_is_no_head_is_an_error() {
        for bad in ["HELLO\r\n\r\n", "HTTP/1.1 2000 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nno colon\r\n\r\n", "HTTP/1.1 099 x\r\n\r\n"]
        {
            assert!(heads(bad.as_bytes()).remove(0).is_err(), "{bad}");
        }
        assert!(heads(&b"HTTP/1.1 200 OK\r\nx: ".repeat(MOST_BYTES / 8)).remove(0).is_err());
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "x: y\r\n".repeat(MOST_FIELDS + 1));
        assert!(heads(many.as_bytes()).remove(0).is_err());
    }
}
