//! Which process listens at an address.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use crate::listening::Listening;
use crate::process::Proc;
use crate::read::{LIST, text};

/// A process that listens somewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// Its number.
    pub pid: u32,
    /// Its name.
    pub name: String,
}

impl Proc {
    /// The processes that listen at the TCP port of `address`, on any address of this machine. Those of other users are seen by root only.
    pub fn listeners(&self, address: SocketAddr) -> Vec<Listener> {
        let sockets = self.listening(address.port()).unwrap_or_default();
        let wanted: Vec<String> = sockets.iter().map(|socket| format!("socket:[{}]", socket.inode)).collect();
        if wanted.is_empty() {
            return Vec::new();
        }
        let holders = self.pids().into_iter().filter(|pid| self.holds(*pid, &wanted));
        holders.map(|pid| Listener { pid, name: self.name(pid).unwrap_or_default() }).collect()
    }

    /// The sockets that listen at `port`, of both families. It reads every connection of the machine:
    /// [`listening`](crate::listening::listening) asks for those that listen only.
    ///
    /// # Errors
    /// The kernel's tables cannot be read.
    pub fn listening(&self, port: u16) -> io::Result<Vec<Listening>> {
        let mut found: Vec<Listening> = listening_at(&text(&self.root().join("net/tcp"), LIST)?, port).collect();
        // A kernel without IPv6 has no such table.
        found.extend(listening_at(&text(&self.root().join("net/tcp6"), LIST).unwrap_or_default(), port));
        Ok(found)
    }

    /// True when one of the process's descriptors is one of the `wanted`.
    fn holds(&self, pid: u32, wanted: &[String]) -> bool {
        let Ok(open) = std::fs::read_dir(self.path(pid, "fd")) else { return false };
        let mut links = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
        links.any(|link| wanted.iter().any(|name| link == Path::new(name)))
    }
}

/// The lines of a table of the kernel's that are sockets which listen at `port`: address, user and inode.
fn listening_at(table: &str, port: u16) -> impl Iterator<Item = Listening> {
    const LISTEN: &str = "0A";
    table.lines().skip(1).filter_map(move |line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (address, hex) = fields.get(1)?.rsplit_once(':')?;
        let is_here = *fields.get(3)? == LISTEN && u16::from_str_radix(hex, 16) == Ok(port);
        let (uid, inode) = (fields.get(7)?.parse().ok()?, fields.get(9)?.parse().ok()?);
        is_here.then_some(Listening { address: address_of(address)?, uid, inode })
    })
}

/// Words of 32 bits in the byte order of the machine, as hexadecimal digits.
fn address_of(hex: &str) -> Option<IpAddr> {
    let word = |at: usize| Some(u32::from_str_radix(hex.get(at * 8..at * 8 + 8)?, 16).ok()?.to_ne_bytes());
    if hex.len() == 8 {
        return Some(Ipv4Addr::from(word(0)?).into());
    }
    let bytes: [u8; 16] = [word(0)?, word(1)?, word(2)?, word(3)?].concat().try_into().ok()?;
    Some(Ipv6Addr::from(bytes).to_canonical())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_holder_of_a_listening_socket_is_named_and_one_that_is_only_connected_is_not() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("net")).unwrap();
        let line = |state: &str, inode: u32| format!("0: 0100007F:1F90 00000000:0000 {state} 0:0 00:0 0 0 0 {inode} 1\n");
        fs::write(root.path().join("net/tcp"), format!("header\n{}{}", line("0A", 71), line("01", 72))).unwrap();
        for (pid, inode) in [(7, 71), (8, 72)] {
            fs::create_dir_all(root.path().join(format!("{pid}/fd"))).unwrap();
            fs::write(root.path().join(format!("{pid}/comm")), "web\n").unwrap();
            symlink(format!("socket:[{inode}]"), root.path().join(format!("{pid}/fd/3"))).unwrap();
        }
        let proc = Proc::new(root.path());
        assert_eq!(proc.listeners("127.0.0.1:8080".parse().unwrap()), [Listener { pid: 7, name: "web".into() }]);
        assert_eq!(proc.listeners("127.0.0.1:8081".parse().unwrap()), []);
    }

    #[test]
    fn this_process_is_found_at_its_own_port() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let holders = Proc::system().listeners(listener.local_addr().unwrap());
        assert!(holders.iter().any(|holder| holder.pid == std::process::id()), "{holders:?}");
    }
}
