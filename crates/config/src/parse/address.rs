//! Addresses: an IP address and a port.

use std::net::SocketAddr;
use std::ops::Range;

use crate::section::{Reading, Section};

/// The address at `key`, or the default.
pub(super) fn read_address(reading: &mut Reading, section: &Section, key: &str, default: &str) -> SocketAddr {
    let text = section.text(reading, key);
    let read = text.and_then(|text| parse_address(reading, &text, reading.places.value(&section.at(key)), default));
    read.unwrap_or_else(|| default.parse().expect("the defaults are addresses"))
}

/// The address that `text` is, which stands at `span`.
pub(super) fn parse_address(reading: &mut Reading, text: &str, span: Range<usize>, default: &str) -> Option<SocketAddr> {
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let port = text.rsplit(':').next().filter(|port| port.parse::<u16>().is_ok());
    let help = match (text.strip_prefix("localhost:").or(text.strip_prefix(':')).or(port.filter(|port| *port == text)), port) {
        (Some(_), Some(port)) => format!("did you mean `127.0.0.1:{port}`?"),
        (None, Some(_)) => "write an IP address and a port; names are not looked up here".to_owned(),
        _ => format!("write an IP address and a port from 0 to 65535, such as `{default}`"),
    };
    reading.findings.error(span, format!("`{text}` is not an address"), help);
    None
}
