//! Networks of addresses: `10.0.0.0/8`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// All addresses that begin with the same bits. Invariants: `length` is at most the address's bits, and those after it are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Network {
    address: IpAddr,
    length: u8,
}

/// Why a text is no network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// What is before the slash.
    #[error("the address cannot be read")]
    Address,
    /// What is after the slash.
    #[error("the length must be a number up to {most}")]
    Length {
        /// Bits of such an address.
        most: u8,
    },
    /// It names one address and means many.
    #[error("bits after the first {length} are set: the network is {right}")]
    Bits {
        /// As it was given.
        length: u8,
        /// The network that has the address.
        right: Network,
    },
}

impl Network {
    /// This machine.
    pub fn loopback() -> [Self; 2] {
        [
            Self { address: IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), length: 8 },
            Self { address: IpAddr::V6(Ipv6Addr::LOCALHOST), length: 128 },
        ]
    }

    /// The network of so many bits that has `address`. Longer than the address is all of it.
    pub fn of(address: IpAddr, length: u8) -> Self {
        match address {
            IpAddr::V4(v4) => {
                let length = length.min(32);
                let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
                Self { address: IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & mask)), length }
            }
            IpAddr::V6(v6) => {
                let length = length.min(128);
                let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
                Self { address: IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask)), length }
            }
        }
    }

    /// Whether it has `address`; an IPv4 address that is written as an IPv6 one is one.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.address.is_ipv4() && Self::of(address, self.length) == *self
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    /// `10.0.0.0/8`, or one address alone.
    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let (address, length) = text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length)));
        let address: IpAddr = address.parse().map_err(|_| NetworkError::Address)?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let length = match length {
            None => most,
            Some(length) => {
                let digits = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
                let length = length.parse().ok().filter(|length| digits && *length <= most);
                length.ok_or(NetworkError::Length { most })?
            }
        };
        let network = Self::of(address, length);
        if network.address != address {
            return Err(NetworkError::Bits { length, right: network });
        }
        Ok(network)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

impl From<Network> for String {
    fn from(network: Network) -> Self {
        network.to_string()
    }
}

impl TryFrom<String> for Network {
    type Error = NetworkError;

    fn try_from(text: String) -> Result<Self, NetworkError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        text.parse().unwrap()
    }

    #[test]
    fn a_network_has_the_addresses_that_begin_with_its_bits() {
        let has = |text: &str, address: &str| network(text).contains(address.parse().unwrap());
        for (text, address) in [
            ("10.0.0.0/8", "10.255.0.1"),
            ("10.0.0.0/8", "::ffff:10.0.0.1"),
            ("0.0.0.0/0", "192.0.2.1"),
            ("192.0.2.1", "192.0.2.1"),
            ("2001:db8::/32", "2001:db8:1::1"),
            ("::/0", "2001:db8::1"),
        ] {
            assert!(has(text, address), "{text} has {address}");
        }
        for (text, address) in
            [("10.0.0.0/8", "11.0.0.1"), ("0.0.0.0/0", "::1"), ("::/0", "127.0.0.1"), ("192.0.2.1/32", "192.0.2.2")]
        {
            assert!(!has(text, address), "{text} has not {address}");
        }
    }

    #[test]
    fn what_is_no_network_says_why() {
        let error = |text: &str| text.parse::<Network>().unwrap_err();
        assert_eq!(error("shop.example/8"), NetworkError::Address);
        for text in ["10.0.0.0/33", "10.0.0.0/", "10.0.0.0/+8", "10.0.0.0/8/8"] {
            assert_eq!(error(text), NetworkError::Length { most: 32 }, "{text}");
        }
        assert_eq!(error("10.1.0.0/8"), NetworkError::Bits { length: 8, right: network("10.0.0.0/8") });
        let network = network("2001:db8::/32");
        assert_eq!(serde_json::from_str::<Network>(&serde_json::to_string(&network).unwrap()).unwrap(), network);
    }
}
