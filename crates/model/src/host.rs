//! Hosts as requests and routes name them: one reading for both, so that a route that is valid can be reached.

use std::borrow::Cow;
use std::net::Ipv6Addr;

/// The longest name that DNS can look up (RFC 1035 section 2.3.4).
const LONGEST_NAME: usize = 253;
/// The longest label of such a name.
const LONGEST_LABEL: usize = 63;

/// Why a text names no host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// `a..b`, `.a`.
    #[error("a label between two dots is empty")]
    EmptyLabel,
    /// `a b`, `a/b`.
    #[error("a name has letters, digits, dashes, underscores and dots")]
    Character,
    /// More than DNS allows.
    #[error("a label has at most 63 characters and a name at most 253")]
    TooLong,
    /// `[::1`, `[1.2.3.4]`.
    #[error("what is in brackets is no IPv6 address")]
    Address,
    /// `a:b`, `a:99999`.
    #[error("a port is a number up to 65535")]
    Port,
}

/// Reads a host without port: `shop.example`, `192.0.2.1`, `[2001:db8::1]`. The result is the only spelling of it: in lower case, without the
/// dot at the end that stands for DNS's root, an IPv6 address in its shortest form (RFC 5952), in brackets.
///
/// Of the `reg-name` of RFC 3986 section 3.2.2, which allows nearly everything, it takes what DNS can look up: empty labels, escapes
/// and sub-delimiters name no host that a route could have.
///
/// # Errors
/// When it names no host.
pub fn read_host(text: &str) -> Result<Cow<'_, str>, HostError> {
    if let Some(rest) = text.strip_prefix('[') {
        let address = rest.strip_suffix(']').and_then(|address| address.parse::<Ipv6Addr>().ok());
        return address.map(|address| Cow::Owned(format!("[{address}]"))).ok_or(HostError::Address);
    }
    let name = text.strip_suffix('.').unwrap_or(text);
    let (mut label, mut is_upper) = (0_usize, false);
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' => label += 1,
            b'A'..=b'Z' => (label, is_upper) = (label + 1, true),
            b'.' if label == 0 => return Err(HostError::EmptyLabel),
            b'.' => label = 0,
            _ => return Err(HostError::Character),
        }
        if label > LONGEST_LABEL {
            return Err(HostError::TooLong);
        }
    }
    if label == 0 {
        return Err(HostError::EmptyLabel);
    }
    if name.len() > LONGEST_NAME {
        return Err(HostError::TooLong);
    }
    Ok(if is_upper { name.to_ascii_lowercase().into() } else { name.into() })
}

/// Reads what `Host` and a URL's authority are made of: a host and, after a colon, a port, which may be empty (RFC 9110 section 7.2, RFC 3986
/// section 3.2.3). User information has no place in it (RFC 9110 section 4.2.4).
///
/// # Errors
/// When the host names none or the port is no port.
pub fn read_authority(text: &str) -> Result<(Cow<'_, str>, Option<u16>), HostError> {
    let end = text.rfind(']').map_or(0, |bracket| bracket + 1);
    let Some(colon) = text[end..].find(':') else { return Ok((read_host(text)?, None)) };
    let (host, port) = (&text[..end + colon], &text[end + colon + 1..]);
    if !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(HostError::Port);
    }
    let port = if port.is_empty() { None } else { Some(port.parse().map_err(|_| HostError::Port)?) };
    Ok((read_host(host)?, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_has_one_spelling() {
        for (text, host) in [
            ("shop.example", "shop.example"),
            ("Shop.EXAMPLE.", "shop.example"),
            ("a_b.c-d", "a_b.c-d"),
            ("192.0.2.1", "192.0.2.1"),
            ("[::1]", "[::1]"),
            ("[0:0:0:0:0:0:0:1]", "[::1]"),
            ("[2001:DB8::0:1]", "[2001:db8::1]"),
        ] {
            assert_eq!(read_host(text).as_deref(), Ok(host), "{text}");
        }
    }

    #[test]
    fn what_no_resolver_could_look_up_is_no_host() {
        let long = "a".repeat(64);
        let longer = "a.".repeat(127) + "a";
        for (text, error) in [
            ("", HostError::EmptyLabel),
            (".", HostError::EmptyLabel),
            ("a..b", HostError::EmptyLabel),
            ("a..", HostError::EmptyLabel),
            (".a", HostError::EmptyLabel),
            ("a b", HostError::Character),
            ("a/b", HostError::Character),
            ("a%62", HostError::Character),
            ("u@a", HostError::Character),
            ("a:80", HostError::Character),
            ("ü", HostError::Character),
            ("[::1", HostError::Address),
            ("[1.2.3.4]", HostError::Address),
            ("[fe80::1%25eth0]", HostError::Address),
            ("[v1.x]", HostError::Address),
            ("[]", HostError::Address),
            (long.as_str(), HostError::TooLong),
            (longer.as_str(), HostError::TooLong),
        ] {
            assert_eq!(read_host(text), Err(error), "{text}");
        }
    }

    #[test]
    fn an_authority_is_a_host_and_perhaps_a_port() {
        for (text, host, port) in [
            ("a.test", "a.test", None),
            ("a.test:", "a.test", None),
            ("a.test:080", "a.test", Some(80)),
            ("[::1]:8080", "[::1]", Some(8080)),
        ] {
            assert_eq!(read_authority(text), Ok((host.into(), port)), "{text}");
        }
        for text in [
            "a.test:evil.com",
            "a.test:abc",
            "a.test:-1",
            "a.test:99999",
            "a.test:80:80",
            "[::1]]:80",
            "[::1]x:80",
            "::1",
            ":80",
            "u:p@a",
        ] {
            assert!(read_authority(text).is_err(), "{text}");
        }
    }
}
