//! The PROXY protocol (HAProxy's specification of it, versions 1 and 2): the first bytes of a connection say whose it is, where a proxy
//! passes it on without reading it.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What every header of version 2 begins with (section 2.2). No other protocol's first bytes are these.
pub const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";

/// A version of the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProxyVersion {
    /// A line of text (section 2.1).
    V1,
    /// Bytes (section 2.2).
    V2,
}

impl ProxyVersion {
    /// Both of them.
    pub const ALL: [Self; 2] = [Self::V1, Self::V2];

    /// As it is written in a config.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V2 => "v2",
        }
    }

    /// The header of a connection from `source` to `destination`, which is passed on.
    pub fn header(self, source: SocketAddr, destination: SocketAddr) -> Vec<u8> {
        let (source, destination) = alike(source, destination);
        match self {
            Self::V1 => text(source, destination).into_bytes(),
            Self::V2 => binary(source, destination),
        }
    }

    /// The header of a connection that is the sender's own, such as a health check.
    pub fn own_header(self) -> Vec<u8> {
        match self {
            Self::V1 => b"PROXY UNKNOWN\r\n".to_vec(),
            // Version 2 and the command LOCAL, no family, no bytes after this.
            Self::V2 => [&SIGNATURE[..], &[0x20, 0, 0, 0]].concat(),
        }
    }
}

/// Both addresses in one family, which the header has room for.
fn alike(source: SocketAddr, destination: SocketAddr) -> (SocketAddr, SocketAddr) {
    let canonical = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
    let (source, destination) = (canonical(source), canonical(destination));
    if source.is_ipv4() == destination.is_ipv4() {
        return (source, destination);
    }
    (
        SocketAddr::new(mapped(source.ip()).into(), source.port()),
        SocketAddr::new(mapped(destination.ip()).into(), destination.port()),
    )
}

fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

fn text(source: SocketAddr, destination: SocketAddr) -> String {
    let family = if source.is_ipv4() { "TCP4" } else { "TCP6" };
    format!("PROXY {family} {} {} {} {}\r\n", source.ip(), destination.ip(), source.port(), destination.port())
}

fn binary(source: SocketAddr, destination: SocketAddr) -> Vec<u8> {
    let (family, addresses) = match (source.ip(), destination.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => (0x11, [source.octets(), destination.octets()].concat()),
        (source, destination) => (0x21, [mapped(source).octets(), mapped(destination).octets()].concat()),
    };
    let ports = [source.port().to_be_bytes(), destination.port().to_be_bytes()].concat();
    let length = u16::try_from(addresses.len() + ports.len()).unwrap_or(0).to_be_bytes();
    [&SIGNATURE[..], &[0x21, family], &length, &addresses, &ports].concat()
}

/// An address of `listen`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ListenScheme {
    /// The one without TLS.
    Http,
    /// The one with TLS.
    Https,
}

impl ListenScheme {
    /// Both of them.
    pub const ALL: [Self; 2] = [Self::Http, Self::Https];

    /// As it is written in a config.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

/// Addresses of `listen`.
pub type ListenSchemes = BTreeSet<ListenScheme>;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_line_names_both_ends_in_one_family() {
        let line = |source, destination| String::from_utf8(ProxyVersion::V1.header(at(source), at(destination))).unwrap();
        assert_eq!(line("192.0.2.1:56324", "192.0.2.2:443"), "PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\n");
        assert_eq!(line("[2001:db8::1]:1", "[2001:db8::2]:2"), "PROXY TCP6 2001:db8::1 2001:db8::2 1 2\r\n");
        assert_eq!(line("[::ffff:192.0.2.1]:1", "192.0.2.2:2"), "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n");
        assert_eq!(line("[2001:db8::1]:1", "192.0.2.2:2"), "PROXY TCP6 2001:db8::1 ::ffff:192.0.2.2 1 2\r\n");
        let longest = ProxyVersion::V1
            .header(at("[1111:1111:1111:1111:1111:1111:1111:1111]:65535"), at("[1111:1111:1111:1111:1111:1111:1111:1111]:65535"));
        assert!(longest.len() <= 107, "section 2.1 allows 107 bytes, not {}", longest.len());
    }

    #[test]
    fn bytes_say_the_same() {
        let header = ProxyVersion::V2.header(at("192.0.2.1:56324"), at("192.0.2.2:443"));
        assert_eq!(header, [&SIGNATURE[..], &[0x21, 0x11, 0, 12, 192, 0, 2, 1, 192, 0, 2, 2, 0xdc, 0x04, 0x01, 0xbb]].concat());
        let header = ProxyVersion::V2.header(at("[2001:db8::1]:1"), at("192.0.2.2:2"));
        assert_eq!((header.len(), &header[12..16]), (52, &[0x21, 0x21, 0, 36][..]));
    }
}
