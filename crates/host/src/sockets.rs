//! Which process listens at an address.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::connections::Ends;
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
        let sockets = self.listening().unwrap_or_default();
        let here = sockets.iter().filter(|socket| socket.address.port() == address.port());
        let wanted: BTreeSet<u32> = here.map(|socket| socket.inode).collect();
        if wanted.is_empty() {
            return Vec::new();
        }
        let holders = self.pids().into_iter().filter(|pid| self.sockets(*pid).any(|inode| wanted.contains(&inode)));
        holders.map(|pid| Listener { pid, name: self.name(pid).unwrap_or_default() }).collect()
    }

    /// The sockets that listen, of both families. It reads every connection of the machine:
    /// [`listening`](crate::listening::listening) asks for those that listen only.
    ///
    /// # Errors
    /// The kernel's tables cannot be read.
    pub fn listening(&self) -> io::Result<Vec<Listening>> {
        self.sockets_in("tcp", "0A")
    }

    /// The sockets for datagrams that are connected to nobody, of both families.
    ///
    /// # Errors
    /// The kernel's tables cannot be read.
    pub fn receiving(&self) -> io::Result<Vec<Listening>> {
        self.sockets_in("udp", "07")
    }

    /// The TCP sockets of the machine by their own end and the other one. Those that listen are among them, with nobody's address at the other end.
    /// [`connected_at`](crate::listening::connected_at) asks for one only, where the kernel allows that.
    ///
    /// # Errors
    /// The kernel's tables cannot be read.
    pub fn connections(&self) -> io::Result<HashMap<Ends, Listening>> {
        Ok(self.rows("tcp")?.into_iter().map(|row| ((row.socket.address, row.remote), row.socket)).collect())
    }

    fn sockets_in(&self, table: &str, state: &str) -> io::Result<Vec<Listening>> {
        Ok(self.rows(table)?.into_iter().filter(|row| row.state == state).map(|row| row.socket).collect())
    }

    /// The sockets in a table of the kernel's, of both families.
    fn rows(&self, table: &str) -> io::Result<Vec<Row>> {
        let net = self.root().join("net");
        let mut found = rows_of(&text(&net.join(table), LIST)?);
        // A kernel without IPv6 has no such table.
        found.extend(rows_of(&text(&net.join(format!("{table}6")), LIST).unwrap_or_default()));
        Ok(found)
    }

    /// The numbers of the sockets that a process has open; none where it has ended or this user may not look.
    pub fn sockets(&self, pid: u32) -> impl Iterator<Item = u32> {
        let open = std::fs::read_dir(self.path(pid, "fd")).into_iter().flatten();
        let links = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
        links.filter_map(|link| link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok())
    }
}

/// A socket in a table of the kernel's.
struct Row {
    socket: Listening,
    remote: SocketAddr,
    /// Two hexadecimal digits: `0A` listens.
    state: String,
}

fn rows_of(table: &str) -> Vec<Row> {
    let rows = table.lines().skip(1).filter_map(|line| {
        // SLOT LOCAL REMOTE STATE QUEUES TIMER RETRANSMITS UID TIMEOUT INODE
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (address, remote, state) = (end_of(fields.next()?)?, end_of(fields.next()?)?, fields.next()?.to_owned());
        let uid = fields.nth(3)?.parse().ok()?;
        let inode = fields.nth(1)?.parse().ok()?;
        Some(Row { socket: Listening { address, uid, inode, only_v6: false }, remote, state })
    });
    rows.collect()
}

fn end_of(field: &str) -> Option<SocketAddr> {
    let (ip, port) = field.rsplit_once(':')?;
    Some(SocketAddr::new(ip_of(ip)?, u16::from_str_radix(port, 16).ok()?))
}

/// Words of 32 bits in the byte order of the machine, as hexadecimal digits.
fn ip_of(hex: &str) -> Option<IpAddr> {
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
