//! Ports for instances: none twice, none that somebody else listens on.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::ops::RangeInclusive;

/// Where an instance with this port listens.
pub fn address(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// Hands out ports in turn, so that a port that was given back rests as long as possible: clients of the old instance
/// shall not find the new one.
#[derive(Debug)]
pub struct Ports {
    range: RangeInclusive<u16>,
    taken: BTreeSet<u16>,
    next: u16,
}

impl Ports {
    /// From `range`, beginning somewhere in it as `seed` says, so that two pools on one machine rarely try the same.
    pub fn new(range: RangeInclusive<u16>, seed: u64) -> Self {
        let length = u64::from(*range.end()).saturating_sub(u64::from(*range.start())) + 1;
        let next = range.start() + u16::try_from(seed % length).unwrap_or(0);
        Self { range, taken: BTreeSet::new(), next }
    }

    /// Marks a port that an adopted instance has, wherever it lies.
    pub fn adopt(&mut self, port: u16) {
        self.taken.insert(port);
    }

    /// A port that is free now; `None` when all are taken.
    pub fn take(&mut self) -> Option<u16> {
        for _ in self.range.clone() {
            let port = self.next;
            self.next = if port >= *self.range.end() { *self.range.start() } else { port + 1 };
            if !self.taken.contains(&port) && is_free(port) {
                self.taken.insert(port);
                return Some(port);
            }
        }
        None
    }

    /// Gives a port back.
    pub fn give_back(&mut self, port: u16) {
        self.taken.remove(&port);
    }
}

/// True when nobody listens on it, nor takes datagrams there.
pub fn is_free(port: u16) -> bool {
    let anywhere = (Ipv4Addr::UNSPECIFIED, port);
    TcpListener::bind(anywhere).is_ok() && UdpSocket::bind(anywhere).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_given_once_and_never_while_somebody_listens_there() {
        // A pair of ports that are free now: find one, and hope only that its neighbour is; else try the next.
        let (held, low) = (0..100)
            .find_map(|_| {
                let held = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
                let port = held.local_addr().unwrap().port();
                (port < u16::MAX && is_free(port + 1)).then_some((held, port))
            })
            .unwrap();
        let mut ports = Ports::new(low..=low + 1, 0);
        assert_eq!(ports.take(), Some(low + 1));
        assert_eq!(ports.take(), None);
        drop(held);
        let datagrams = UdpSocket::bind((Ipv4Addr::LOCALHOST, low)).unwrap();
        assert_eq!(ports.take(), None, "somebody takes datagrams there");
        drop(datagrams);
        assert_eq!(ports.take(), Some(low));
        ports.give_back(low + 1);
        assert_eq!(ports.take(), Some(low + 1));
    }
}
