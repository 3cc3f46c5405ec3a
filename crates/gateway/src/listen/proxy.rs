//! The header with which a proxy in front begins a connection (the PROXY protocol, versions 1 and 2): whose connection it passes on.
//!
//! The header is asked for only where the config says so, and only of trusted proxies; nobody else's word is read. There it has to come:
//! to guess whether one comes would let a client write one (section 2 of the specification).

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use weal_model::proxy::SIGNATURE;

use crate::upstream::speech::Ends;

/// The longest line of version 1 (section 2.1).
const LONGEST_LINE: usize = 107;
/// The longest header of version 2 that is taken. Addresses take 52 bytes; what follows them (a name, a certificate's subject) is rarely
/// beyond 500.
const LONGEST: usize = 4096;
const FIRST_WORD: &[u8] = b"PROXY ";

/// Why a connection's header cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProxyError {
    #[error("it does not begin with a header of the PROXY protocol")]
    Missing,
    #[error("the header of the PROXY protocol is too long")]
    TooLong,
    #[error("the header of the PROXY protocol is malformed: {0}")]
    Malformed(&'static str),
    #[error("the header of the PROXY protocol did not come within {} s", .0.as_secs_f64())]
    TooSlow(Duration),
    #[error("it ended within the header of the PROXY protocol")]
    Cut,
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Reads the header of `stream`, and not a byte more. `None` when the proxy says that the connection is its own.
pub(crate) async fn read_header(stream: &mut TcpStream, within: Duration) -> Result<Option<Ends>, ProxyError> {
    tokio::time::timeout(within, read(stream)).await.unwrap_or(Err(ProxyError::TooSlow(within)))
}

async fn read(stream: &mut TcpStream) -> Result<Option<Ends>, ProxyError> {
    let (mut header, mut buffer) = (Header::default(), [0; 512]);
    loop {
        // What follows the header belongs to others, so it is looked at before it is taken.
        let seen = stream.peek(&mut buffer).await?;
        if seen == 0 {
            return Err(ProxyError::Cut);
        }
        let (count, is_whole) = header.handle_bytes(&buffer[..seen])?;
        stream.read_exact(&mut buffer[..count]).await?;
        if is_whole {
            return header.ends();
        }
    }
}

/// A header, as far as it has come.
#[derive(Debug, Default)]
struct Header(Vec<u8>);

impl Header {
    /// Takes what belongs to the header of `bytes`: how many of them, and whether it is whole.
    fn handle_bytes(&mut self, bytes: &[u8]) -> Result<(usize, bool), ProxyError> {
        for (index, byte) in bytes.iter().enumerate() {
            self.0.push(*byte);
            if self.is_whole()? {
                return Ok((index + 1, true));
            }
        }
        Ok((bytes.len(), false))
    }

    fn is_whole(&self) -> Result<bool, ProxyError> {
        let taken = &self.0[..];
        if may_become(taken, &SIGNATURE) {
            let Some(length) = taken.get(14..16) else { return Ok(false) };
            let length = 16 + usize::from(u16::from_be_bytes([length[0], length[1]]));
            return if length > LONGEST { Err(ProxyError::TooLong) } else { Ok(taken.len() == length) };
        }
        if !may_become(taken, FIRST_WORD) {
            return Err(ProxyError::Missing);
        }
        let is_whole = taken.ends_with(b"\r\n");
        if !is_whole && taken.len() >= LONGEST_LINE { Err(ProxyError::TooLong) } else { Ok(is_whole) }
    }

    /// What a whole one says.
    fn ends(&self) -> Result<Option<Ends>, ProxyError> {
        if self.0.starts_with(&SIGNATURE) { ends_of_bytes(&self.0) } else { ends_of_line(&self.0) }
    }
}

fn may_become(taken: &[u8], start: &[u8]) -> bool {
    taken.iter().zip(start).all(|(byte, expected)| byte == expected)
}

/// Version 1 (section 2.1).
fn ends_of_line(line: &[u8]) -> Result<Option<Ends>, ProxyError> {
    let line =
        std::str::from_utf8(line).ok().and_then(|line| line.strip_suffix("\r\n")).ok_or(ProxyError::Malformed("not text"))?;
    let words: Vec<&str> = line.split(' ').collect();
    match words[..] {
        // What follows is not to be read.
        ["PROXY", "UNKNOWN", ..] => Ok(None),
        ["PROXY", "TCP4", source, destination, from, to] => {
            let address = |text: &str| text.parse::<Ipv4Addr>().ok();
            named(address(source).zip(address(destination)), port(from).zip(port(to)))
        }
        ["PROXY", "TCP6", source, destination, from, to] => {
            let address = |text: &str| text.parse::<Ipv6Addr>().ok();
            named(address(source).zip(address(destination)), port(from).zip(port(to)))
        }
        _ => Err(ProxyError::Malformed("neither TCP4 nor TCP6 with two addresses and two ports, nor UNKNOWN")),
    }
}

fn named<A: Into<std::net::IpAddr>>(addresses: Option<(A, A)>, ports: Option<(u16, u16)>) -> Result<Option<Ends>, ProxyError> {
    let (source, destination) = addresses.ok_or(ProxyError::Malformed("an address is not one of its family"))?;
    let (from, to) = ports.ok_or(ProxyError::Malformed("a port is not a number from 0 to 65535"))?;
    Ok(Some(Ends { client: SocketAddr::new(source.into(), from), server: SocketAddr::new(destination.into(), to) }))
}

/// Without a sign and without leading zeros.
fn port(text: &str) -> Option<u16> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| is_plain)
}

/// Version 2 (section 2.2).
fn ends_of_bytes(header: &[u8]) -> Result<Option<Ends>, ProxyError> {
    let (kind, family, rest) = (header[12], header[13], &header[16..]);
    match kind {
        // The proxy's own connection; what follows is not to be read.
        0x20 => return Ok(None),
        0x21 => {}
        0x22..=0x2f => return Err(ProxyError::Malformed("an unknown command")),
        _ => return Err(ProxyError::Malformed("not version 2")),
    }
    let too_short = ProxyError::Malformed("too short for its addresses");
    let (ends, more) = match family {
        0x11 => {
            let (addresses, more) = rest.split_first_chunk::<12>().ok_or(too_short)?;
            let octets = |at: usize| [addresses[at], addresses[at + 1], addresses[at + 2], addresses[at + 3]];
            (ends(octets(0), octets(4), &addresses[8..]), more)
        }
        0x21 => {
            let (addresses, more) = rest.split_first_chunk::<36>().ok_or(too_short)?;
            let octets = |at: usize| -> [u8; 16] { std::array::from_fn(|index| addresses[at + index]) };
            (ends(octets(0), octets(16), &addresses[32..]), more)
        }
        // Not said, or a family that has no addresses here (section 2.2, UNSPEC and AF_UNIX).
        0x00 | 0x31 => return Ok(None),
        _ => return Err(ProxyError::Malformed("neither a connection over IPv4 nor one over IPv6")),
    };
    check_further(more)?;
    Ok(Some(ends))
}

fn ends<A: Into<std::net::IpAddr>>(source: A, destination: A, ports: &[u8]) -> Ends {
    let port = |at: usize| u16::from_be_bytes([ports[at], ports[at + 1]]);
    Ends { client: SocketAddr::new(source.into(), port(0)), server: SocketAddr::new(destination.into(), port(2)) }
}

/// What follows the addresses: a type, a length of two bytes, and so many bytes, again and again (section 2.2.7). None of it is used.
fn check_further(mut rest: &[u8]) -> Result<(), ProxyError> {
    while let [_, high, low, value @ ..] = rest {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        rest = value.get(length..).ok_or(ProxyError::Malformed("what follows the addresses is cut off"))?;
    }
    if rest.is_empty() { Ok(()) } else { Err(ProxyError::Malformed("what follows the addresses is cut off")) }
}

#[cfg(test)]
mod tests {
    use weal_model::ProxyVersion;

    use super::*;

    fn whole(bytes: &[u8]) -> Result<Option<Ends>, ProxyError> {
        let mut header = Header::default();
        match header.handle_bytes(bytes)? {
            (count, true) => {
                assert_eq!(count, bytes.len(), "all of it");
                header.ends()
            }
            (_, false) => Err(ProxyError::Cut),
        }
    }

    #[test]
    fn what_is_written_reads_back_however_it_is_cut() {
        for (client, server) in [("192.0.2.1:56324", "192.0.2.2:443"), ("[2001:db8::1]:1", "[2001:db8::2]:0")] {
            let (client, server) = (client.parse().unwrap(), server.parse().unwrap());
            for version in ProxyVersion::ALL {
                let bytes = [&version.header(client, server)[..], b"GET / HTTP/1.1\r\n"].concat();
                let length = bytes.len() - 16;
                for cut in 1..length {
                    let mut header = Header::default();
                    assert_eq!(header.handle_bytes(&bytes[..cut]).unwrap(), (cut, false));
                    assert_eq!(header.handle_bytes(&bytes[cut..]).unwrap(), (length - cut, true), "not a byte of the request");
                    assert_eq!(header.ends().unwrap(), Some(Ends { client, server }));
                }
            }
        }
    }

    #[test]
    fn a_proxys_own_connection_names_nobody() {
        for version in ProxyVersion::ALL {
            assert_eq!(whole(&version.own_header()).unwrap(), None);
        }
        assert_eq!(whole(b"PROXY UNKNOWN ffff::1 whatever 1\r\n").unwrap(), None);
        assert_eq!(whole(&[&SIGNATURE[..], &[0x21, 0x00, 0, 3, 1, 2, 3]].concat()).unwrap(), None);
    }

    #[test]
    fn further_bytes_are_skipped_when_they_are_whole() {
        let header = |more: &[u8]| {
            let length = u8::try_from(12 + more.len()).unwrap();
            whole(&[&SIGNATURE[..], &[0x21, 0x11, 0, length, 192, 0, 2, 1, 192, 0, 2, 2, 0, 1, 0, 2], more].concat())
        };
        for more in [&[][..], &[4, 0, 0], &[2, 0, 1, b'x', 0xea, 0, 2, 1, 2]] {
            assert_eq!(header(more).unwrap().unwrap().client, "192.0.2.1:1".parse().unwrap());
        }
        for more in [&[4][..], &[4, 0], &[4, 0, 1], &[4, 0, 0, 9]] {
            assert!(matches!(header(more), Err(ProxyError::Malformed(_))), "{more:?}");
        }
    }

    #[test]
    fn fuzz_proxy_headers() {
        let read = |bytes: &[u8], length: usize| {
            let (mut header, mut taken) = (Header::default(), 0);
            for part in bytes.chunks(length) {
                match header.handle_bytes(part) {
                    Ok((count, true)) => return Ok((taken + count, header.ends().map_err(|error| error.to_string()))),
                    Ok((count, false)) => taken += count,
                    Err(error) => return Err(error.to_string()),
                }
            }
            Ok((taken, Err("not whole".to_owned())))
        };
        weal_fuzz::target("proxy-header", |bytes| {
            let whole = read(bytes, bytes.len().max(1));
            assert_eq!(read(bytes, 1), whole);
            assert!(whole.is_err() || whole.is_ok_and(|(taken, _)| taken <= LONGEST), "no more than a header is taken");
        });
    }
}
