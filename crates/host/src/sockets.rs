//! Which process listens at an address.

use std::net::SocketAddr;
use std::path::Path;

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
        let tables = ["net/tcp", "net/tcp6"].map(|table| text(&self.root().join(table), LIST).unwrap_or_default());
        let inodes = tables.iter().flat_map(|table| listening_inodes(table, address.port()));
        let wanted: Vec<String> = inodes.map(|inode| format!("socket:[{inode}]")).collect();
        if wanted.is_empty() {
            return Vec::new();
        }
        let holders = self.pids().into_iter().filter(|pid| self.holds(*pid, &wanted));
        holders.map(|pid| Listener { pid, name: self.name(pid).unwrap_or_default() }).collect()
    }

    /// True when one of the process's descriptors is one of the `wanted`.
    fn holds(&self, pid: u32, wanted: &[String]) -> bool {
        let Ok(open) = std::fs::read_dir(self.path(pid, "fd")) else { return false };
        let mut links = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
        links.any(|link| wanted.iter().any(|name| link == Path::new(name)))
    }
}

fn listening_inodes(table: &str, port: u16) -> Vec<u64> {
    const LISTEN: &str = "0A";
    let lines = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let listening = lines.filter(|fields| fields.len() > 9 && fields[3] == LISTEN);
    let here = listening.filter(|fields| fields[1].rsplit_once(':').is_some_and(|(_, hex)| hex == format!("{port:04X}")));
    here.filter_map(|fields| fields[9].parse().ok()).collect()
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
