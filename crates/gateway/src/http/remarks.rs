//! What the gateway says of a request to an instance, in fields that its client has not sent.
//!
//! There are six of them, and five are the same for nearly all requests of a connection. So they are kept as the text that is written behind the
//! fields of the client, and only what needs them as fields makes fields of them.

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};

/// Fields that are written behind those of a head. The head has none of the same names.
#[derive(Debug, Clone, Default)]
pub(crate) struct Remarks {
    /// Those that the next request has too, each with the end of its line.
    lines: Bytes,
    /// The one that it has not.
    own: Option<(HeaderName, HeaderValue)>,
}

impl Remarks {
    pub fn new(lines: Bytes, own: (HeaderName, HeaderValue)) -> Self {
        Self { lines, own: Some(own) }
    }

    /// Appends them as they are written.
    pub fn write(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.lines);
        if let Some((name, value)) = &self.own {
            write_field(name, value, into);
        }
    }

    /// Makes fields of them.
    pub fn move_into(&mut self, headers: &mut HeaderMap) {
        let Self { lines, own } = std::mem::take(self);
        for line in lines.split(|byte| *byte == b'\n').filter_map(|line| line.strip_suffix(b"\r")) {
            let Some(colon) = memchr::memchr(b':', line) else { continue };
            let name = HeaderName::from_bytes(&line[..colon]);
            let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii_start());
            if let (Ok(name), Ok(value)) = (name, value) {
                headers.insert(name, value);
            }
        }
        headers.extend(own);
    }
}

/// Appends one field, with the end of its line.
pub(crate) fn write_field(name: &HeaderName, value: &HeaderValue, into: &mut Vec<u8>) {
    let (name, value) = (name.as_str().as_bytes(), value.as_bytes());
    into.reserve(name.len() + value.len() + 4);
    into.extend_from_slice(name);
    into.extend_from_slice(b": ");
    into.extend_from_slice(value);
    into.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_and_what_becomes_fields_are_the_same() {
        let own = (HeaderName::from_static("x-request-id"), HeaderValue::from_static("7"));
        let mut remarks = Remarks::new(Bytes::from_static(b"via: 1.1 weal\r\nforwarded: host=\"a:1\"\r\n"), own);
        let (mut written, mut headers) = (Vec::new(), HeaderMap::new());
        remarks.write(&mut written);
        assert_eq!(written, b"via: 1.1 weal\r\nforwarded: host=\"a:1\"\r\nx-request-id: 7\r\n");
        remarks.move_into(&mut headers);
        let mut again = Vec::new();
        headers.iter().for_each(|(name, value)| write_field(name, value, &mut again));
        assert_eq!(again, written);
        written.clear();
        remarks.write(&mut written);
        assert!(written.is_empty(), "they are said once");
    }
}
