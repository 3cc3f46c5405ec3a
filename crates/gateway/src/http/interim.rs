//! Interim responses (RFC 9110 section 15.2) on their way to a client.
//!
//! Over HTTP/1, hyper's server writes final responses only, and its client drops the others. So they pass beside it: the connection to the
//! instance keeps their heads, and the client's socket writes them before the response. Over HTTP/2, h2 hands them over on both sides.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};

use super::forward;

/// The head of an interim response as a client gets it.
#[derive(Debug, PartialEq)]
pub(crate) struct Interim {
    pub status: StatusCode,
    pub headers: HeaderMap,
}

/// Interim responses that are to be sent before a final one.
#[derive(Debug, Default)]
pub(crate) struct Interims {
    has_any: AtomicBool,
    waiting: Mutex<Vec<Response<()>>>,
}

impl Interim {
    pub fn new(status: StatusCode, mut headers: HeaderMap) -> Self {
        forward::remove_hop_by_hop(&mut headers);
        // It has no body (RFC 9110 section 8.6, RFC 9112 section 6.1).
        headers.remove(header::CONTENT_LENGTH);
        headers.remove(header::TRANSFER_ENCODING);
        Self { status, headers }
    }

    /// From the bytes of a head of HTTP/1.1; `None` when it is not well-formed.
    pub fn parse(head: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(head).ok()?;
        let mut lines = text.trim_end_matches(['\r', '\n']).split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line));
        let status = lines.next()?.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
        let mut headers = HeaderMap::new();
        for line in lines {
            let (name, value) = line.split_once(':')?;
            headers.append(HeaderName::try_from(name).ok()?, HeaderValue::from_str(value.trim_matches([' ', '\t'])).ok()?);
        }
        Some(Self::new(status, headers))
    }

    /// The bytes of its head in HTTP/1.1.
    pub fn write(&self) -> Vec<u8> {
        let reason = self.status.canonical_reason().unwrap_or("");
        let mut written = format!("HTTP/1.1 {} {reason}\r\n", self.status.as_u16()).into_bytes();
        for (name, value) in &self.headers {
            for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
                written.extend_from_slice(part);
            }
        }
        written.extend_from_slice(b"\r\n");
        written
    }
}

impl Interims {
    pub fn push(&self, interim: Interim) {
        let mut response = Response::new(());
        *response.status_mut() = interim.status;
        *response.headers_mut() = interim.headers;
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(response);
        self.has_any.store(true, Ordering::Release);
    }

    /// Those that have come since the last call.
    pub fn take(&self) -> Vec<Response<()>> {
        if !self.has_any.swap(false, Ordering::Acquire) {
            return Vec::new();
        }
        std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interim_head_is_written_anew() {
        let head =
            b"HTTP/1.1 103 Whatever\r\nLink: </a>; rel=preload\r\nConnection: x-hop\r\nX-Hop: 1\r\nContent-Length: 3\r\n\r\n";
        let interim = Interim::parse(head).unwrap();
        assert_eq!(
            (interim.status.as_u16(), interim.write().as_slice()),
            (103, &b"HTTP/1.1 103 Early Hints\r\nlink: </a>; rel=preload\r\n\r\n"[..])
        );
        for head in
            ["HTTP/1.1 1", "HTTP/1.0 103 x\r\n\r\n", "HTTP/1.1 103 x\r\nno colon\r\n\r\n", "HTTP/1.1 103 x\r\n a: b\r\n\r\n"]
        {
            assert!(Interim::parse(head.as_bytes()).is_none(), "{head}");
        }
    }

    #[test]
    fn fuzz_interim_heads() {
        weal_fuzz::target("interim", |bytes| {
            if let Some(interim) = Interim::parse(bytes) {
                let written = interim.write();
                let text = String::from_utf8_lossy(&written);
                assert_eq!(text.matches("\r\n\r\n").count(), 1, "one head: {text:?}");
            }
        });
    }
}
