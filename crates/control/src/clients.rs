//! How much of a gateway one client address may take: connections at once, and requests over time.
//!
//! Requests are limited by the generic cell rate algorithm (ITU-T I.371, annex A): each request is due one interval `1/rate` after the one
//! before, and may come up to `BURST` before it is due. So an address sends at most `rate` requests per second over time, and
//! `rate * BURST` at once. An address is a network of 64 bits for IPv6, which is what one customer gets.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use weal_model::{Network, Time};

/// How long before it is due a request may come. Longer lets more through at once; shorter refuses a page with many parts.
const BURST: Duration = Duration::from_secs(2);

/// Addresses that are remembered, about 5 MB. Beyond it those go that take nothing now; where none does, newcomers are not limited.
const REMEMBERED: usize = 65_536;

/// The addresses that take something, or did a moment ago.
#[derive(Debug, Default)]
pub struct ClientUse {
    addresses: BTreeMap<Network, AddressUse>,
}

#[derive(Debug, Clone, Copy, Default)]
struct AddressUse {
    connections: u32,
    requests: RequestUse,
}

/// The requests of one caller over time.
#[derive(Debug, Clone, Copy, Default)]
pub struct RequestUse {
    /// When the next one is due.
    due: Time,
}

impl RequestUse {
    /// A request comes in; `rate` is requests per second.
    ///
    /// # Errors
    /// When it comes too early: the time until it may.
    pub fn handle_request(&mut self, now: Time, rate: u32) -> Result<(), Duration> {
        let due = self.due.max(now);
        let early = due.since(now);
        if early > BURST {
            return Err(early - BURST);
        }
        self.due = due + Duration::from_secs(1) / rate.max(1);
        Ok(())
    }
}

impl ClientUse {
    /// A connection comes in. False: the address has `most` already, and this one is not counted.
    pub fn handle_connect(&mut self, now: Time, address: IpAddr, most: u32) -> bool {
        let Some(used) = self.entry(now, address) else { return true };
        if used.connections >= most {
            return false;
        }
        used.connections += 1;
        true
    }

    /// A connection that was counted has ended.
    pub fn handle_disconnect(&mut self, address: IpAddr) {
        if let Some(used) = self.addresses.get_mut(&client_of(address)) {
            used.connections = used.connections.saturating_sub(1);
        }
    }

    /// A request comes in; `rate` is requests per second.
    ///
    /// # Errors
    /// When it comes too early: the time until it may.
    pub fn handle_request(&mut self, now: Time, address: IpAddr, rate: u32) -> Result<(), Duration> {
        self.entry(now, address).map_or(Ok(()), |used| used.requests.handle_request(now, rate))
    }

    /// `None` when too many are remembered.
    fn entry(&mut self, now: Time, address: IpAddr) -> Option<&mut AddressUse> {
        let key = client_of(address);
        if self.addresses.len() >= REMEMBERED && !self.addresses.contains_key(&key) {
            self.addresses.retain(|_, used| used.connections > 0 || used.requests.due > now);
            if self.addresses.len() >= REMEMBERED {
                return None;
            }
        }
        Some(self.addresses.entry(key).or_default())
    }
}

/// What counts as one client: the address, or its network of 64 bits for IPv6.
pub fn client_of(address: IpAddr) -> Network {
    let address = address.to_canonical();
    Network::of(address, if address.is_ipv4() { 32 } else { 64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALICE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const BOB: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    fn at(seconds: f64) -> Time {
        Time::from_secs_f64(seconds)
    }

    #[test]
    fn an_address_has_so_many_connections_and_leaves_others_theirs() {
        let mut clients = ClientUse::default();
        assert!(clients.handle_connect(at(0.0), ALICE, 2) && clients.handle_connect(at(0.0), ALICE, 2));
        assert!(!clients.handle_connect(at(0.0), ALICE, 2));
        assert!(clients.handle_connect(at(0.0), BOB, 2));
        clients.handle_disconnect(ALICE);
        assert!(clients.handle_connect(at(0.0), ALICE, 2));
    }

    #[test]
    fn an_address_sends_at_its_rate_over_time_and_a_burst_at_once() {
        let mut clients = ClientUse::default();
        let mut passed =
            |from: f64, count: u32| (0..count).filter(|_| clients.handle_request(at(from), ALICE, 10).is_ok()).count();
        assert_eq!(passed(100.0, 100), 21);
        assert_eq!(passed(101.0, 100), 10);
        assert_eq!(passed(200.0, 100), 21, "what was not sent is not saved up");
        let wait = clients.handle_request(at(200.0), ALICE, 10).unwrap_err();
        assert_eq!(wait, Duration::from_millis(100));
        assert!(clients.handle_request(at(200.0) + wait, ALICE, 10).is_ok(), "it may when it was said that it may");
        assert!(clients.handle_request(at(200.0), BOB, 10).is_ok());
    }

    #[test]
    fn a_network_of_64_bits_is_one_client_and_memory_is_bounded() {
        let mut clients = ClientUse::default();
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(clients.handle_connect(at(0.0), address("2001:db8::1"), 1));
        assert!(!clients.handle_connect(at(0.0), address("2001:db8::2"), 1));
        assert!(clients.handle_connect(at(0.0), address("2001:db8:0:1::1"), 1));
        for number in 0..2 * REMEMBERED as u32 {
            let _ = clients.handle_request(at(f64::from(number)), IpAddr::from(number.to_be_bytes()), 1);
        }
        assert!(clients.addresses.len() <= REMEMBERED);
        assert!(!clients.handle_connect(at(1e6), address("2001:db8::1"), 1), "who has a connection is remembered");
    }
}
