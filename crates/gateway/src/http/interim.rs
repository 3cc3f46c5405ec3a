//! Interim responses (RFC 9110 section 15.2) on their way to a client.
//!
//! hyper's server writes final responses only. So over HTTP/1 they pass beside it: the client's socket writes them before the response. Over
//! HTTP/2, h2 sends them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use http::header::{self, HeaderMap};
use http::{Response, StatusCode};

use super::forward;
use super::present::Present;

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
        let present = Present::of(&headers);
        forward::remove_hop_by_hop(&mut headers, present);
        // It has no body (RFC 9110 section 8.6, RFC 9112 section 6.1).
        headers.remove(header::CONTENT_LENGTH);
        headers.remove(header::TRANSFER_ENCODING);
        Self { status, headers }
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
    use http::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn an_interim_head_is_written_anew() {
        let fields = [("link", "</a>; rel=preload"), ("connection", "x-hop"), ("x-hop", "1"), ("content-length", "3")];
        let headers = fields.map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let interim = Interim::new(StatusCode::EARLY_HINTS, HeaderMap::from_iter(headers));
        assert_eq!(interim.write().as_slice(), b"HTTP/1.1 103 Early Hints\r\nlink: </a>; rel=preload\r\n\r\n");
    }
}
