//! Interim responses (RFC 9110 section 15.2) on their way to a client.
//!
//! hyper's server writes final responses only, and its client drops the others. So they pass beside it: the connection to the
//! instance keeps their heads, and the client's socket writes them before the response.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};

use super::forward;

/// The status of an interim response and its head as a client gets it; `None` when it is not well-formed.
pub(crate) fn rewrite(head: &[u8]) -> Option<(u16, Vec<u8>)> {
    let text = std::str::from_utf8(head).ok()?;
    let mut lines = text.trim_end_matches(['\r', '\n']).split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line));
    let status: u16 = lines.next()?.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    let mut headers = HeaderMap::new();
    for line in lines {
        let (name, value) = line.split_once(':')?;
        headers.append(HeaderName::try_from(name).ok()?, HeaderValue::from_str(value.trim_matches([' ', '\t'])).ok()?);
    }
    forward::remove_hop_by_hop(&mut headers);
    // It has no body (RFC 9110 section 8.6, RFC 9112 section 6.1).
    headers.remove(header::CONTENT_LENGTH);
    headers.remove(header::TRANSFER_ENCODING);
    let reason = http::StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason()).unwrap_or("");
    let mut written = format!("HTTP/1.1 {status} {reason}\r\n").into_bytes();
    for (name, value) in &headers {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            written.extend_from_slice(part);
        }
    }
    written.extend_from_slice(b"\r\n");
    Some((status, written))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interim_head_is_written_anew() {
        let head =
            b"HTTP/1.1 103 Whatever\r\nLink: </a>; rel=preload\r\nConnection: x-hop\r\nX-Hop: 1\r\nContent-Length: 3\r\n\r\n";
        let (status, written) = rewrite(head).unwrap();
        assert_eq!((status, written.as_slice()), (103, &b"HTTP/1.1 103 Early Hints\r\nlink: </a>; rel=preload\r\n\r\n"[..]));
        for head in
            ["HTTP/1.1 1", "HTTP/1.0 103 x\r\n\r\n", "HTTP/1.1 103 x\r\nno colon\r\n\r\n", "HTTP/1.1 103 x\r\n a: b\r\n\r\n"]
        {
            assert!(rewrite(head.as_bytes()).is_none(), "{head}");
        }
    }
}
