//! Whether the socket at an instance's port is the instance's own. A process that is faster after a restart would get its requests otherwise,
//! with all that is in them.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;

use weal_host::Proc;
use weal_host::listening::{Listening, listening, receivers_at};

use crate::ports::address;

/// Another process listens where the instance should.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("port {port} is held by {holder}, which is none of its processes")]
pub struct Stranger {
    /// The port.
    pub port: u16,
    /// Who holds it.
    pub holder: String,
}

/// What has been looked at: the sockets that were found to be the instance's own.
#[derive(Debug, Default)]
pub struct Own {
    inodes: BTreeSet<u32>,
    user: Option<u32>,
}

impl Own {
    /// The user that made them; `None` while none listens, where they are of several users, and where the kernel does not say.
    pub fn user(&self) -> Option<u32> {
        self.user
    }

    /// Looks who listens at `port`, and who takes `datagrams` there if any are sent, where `processes` are those of the instance. Sockets that were
    /// looked at before cost nothing again.
    ///
    /// # Errors
    /// Another process does.
    pub fn check(
        &mut self,
        proc: &Proc,
        port: u16,
        datagrams: bool,
        processes: impl FnOnce() -> Vec<u32>,
    ) -> Result<(), Stranger> {
        let reached = match reached(address(port), datagrams) {
            Ok(reached) => reached,
            Err(error) => {
                tracing::warn!(%error, port, "the kernel does not say who listens");
                return Ok(());
            }
        };
        if !reached.is_empty() && reached.iter().all(|socket| self.inodes.contains(&socket.inode)) {
            return Ok(());
        }
        self.user = None;
        if reached.is_empty() {
            return Ok(());
        }
        let processes = processes();
        let held: BTreeSet<u32> = processes.iter().flat_map(|pid| proc.sockets(*pid)).collect();
        self.inodes = reached.iter().map(|socket| socket.inode).filter(|inode| held.contains(inode)).collect();
        match reached.iter().find(|socket| !held.contains(&socket.inode)) {
            None => {
                let users: BTreeSet<u32> = reached.iter().map(|socket| socket.uid).collect();
                self.user = users.first().copied().filter(|_| users.len() == 1);
                Ok(())
            }
            Some(stranger) => Err(Stranger { port, holder: name_of(proc, port, *stranger, &processes) }),
        }
    }
}

/// The sockets that take what is sent to `address`.
fn reached(address: SocketAddr, datagrams: bool) -> io::Result<Vec<Listening>> {
    let mut reached: Vec<Listening> = listening()?.into_iter().filter(|socket| socket.takes(address)).collect();
    if datagrams {
        reached.extend(receivers_at(address)?);
    }
    Ok(reached)
}

/// The ports at which `processes` listen, where none of them listens at `port`: an application that does not look at `$PORT`.
pub fn elsewhere(proc: &Proc, port: u16, processes: &[u32]) -> BTreeSet<u16> {
    let found = listening().unwrap_or_default();
    if found.iter().any(|socket| socket.takes(address(port))) {
        return BTreeSet::new();
    }
    let held: BTreeSet<u32> = processes.iter().flat_map(|pid| proc.sockets(*pid)).collect();
    found.iter().filter(|socket| held.contains(&socket.inode)).map(|socket| socket.address.port()).collect()
}

/// The program that holds a socket, as far as it can be found.
fn name_of(proc: &Proc, port: u16, socket: Listening, own: &[u32]) -> String {
    let holders = proc.listeners(address(port));
    match holders.iter().find(|holder| !own.contains(&holder.pid)) {
        Some(holder) => format!("{} (pid {})", holder.name, holder.pid),
        None => format!("a process of user {}", socket.uid),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv6Addr, TcpListener};
    use std::os::fd::OwnedFd;

    use rustix::net::{AddressFamily, SocketType, sockopt};

    use super::*;

    #[test]
    fn a_socket_of_ones_own_passes_and_one_of_others_is_told_by_its_holder() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (proc, me) = (Proc::system(), std::process::id());
        let mut own = Own::default();
        own.check(&proc, port, false, || vec![me]).unwrap();
        own.check(&proc, port, false, || panic!("what was looked at is not looked at again")).unwrap();
        assert_eq!(own.user(), Some(rustix::process::geteuid().as_raw()));
        let error = Own::default().check(&proc, port, false, Vec::new).unwrap_err();
        assert_eq!(error.port, port);
        assert!(error.holder.contains(&format!("(pid {me})")), "{error}");
        drop(listener);
        own.check(&proc, port, false, || panic!("there is nothing to look at")).unwrap();
        assert_eq!(own.user(), None, "nobody listens any more");
    }

    #[test]
    fn who_takes_datagrams_in_its_place_is_a_stranger_where_any_are_sent() {
        let (listener, datagrams) = (0..100)
            .find_map(|_| {
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                let datagrams = std::net::UdpSocket::bind(listener.local_addr().unwrap()).ok()?;
                Some((listener, datagrams))
            })
            .unwrap();
        let port = listener.local_addr().unwrap().port();
        let (proc, me) = (Proc::system(), std::process::id());
        let mut own = Own::default();
        own.check(&proc, port, true, || vec![me]).unwrap();
        assert_eq!(own.user(), Some(rustix::process::geteuid().as_raw()));
        drop(listener);
        assert_eq!(Own::default().check(&proc, port, true, Vec::new).unwrap_err().port, port);
        Own::default().check(&proc, port, false, || panic!("it takes none, and whoever does is in nobody's way")).unwrap();
        drop(datagrams);
        own.check(&proc, port, true, || panic!("there is nothing to look at")).unwrap();
    }

    #[test]
    fn who_listens_elsewhere_is_told_by_its_ports() {
        let [wanted, taken] = [0; 2].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
        let [wanted_port, port] = [&wanted, &taken].map(|listener| listener.local_addr().unwrap().port());
        let (proc, me) = (Proc::system(), [std::process::id()]);
        assert!(elsewhere(&proc, wanted_port, &me).is_empty(), "somebody listens where it should");
        drop(wanted);
        assert!(elsewhere(&proc, wanted_port, &me).contains(&port));
        assert!(elsewhere(&proc, wanted_port, &[]).is_empty(), "others' ports are not its own");
    }

    /// Listens at this address as one of several, or for IPv6 alone; `None` without IPv6.
    fn listen(address: SocketAddr, shares: bool) -> Option<OwnedFd> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = rustix::net::socket(family, SocketType::STREAM, None).ok()?;
        sockopt::set_socket_reuseport(&socket, shares).unwrap();
        if !shares {
            sockopt::set_ipv6_v6only(&socket, true).unwrap();
        }
        rustix::net::bind(&socket, &address).ok()?;
        rustix::net::listen(&socket, 1).unwrap();
        Some(socket)
    }

    fn port_of(socket: &OwnedFd) -> u16 {
        SocketAddr::try_from(rustix::net::getsockname(socket).unwrap()).unwrap().port()
    }

    #[test]
    fn a_second_socket_at_the_same_port_is_looked_at() {
        let first = listen(address(0), true).unwrap();
        let port = port_of(&first);
        let mut own = Own::default();
        own.check(&Proc::system(), port, false, || vec![std::process::id()]).unwrap();
        let second = listen(address(port), true).unwrap();
        assert!(own.check(&Proc::system(), port, false, Vec::new).is_err());
        drop(second);
    }

    #[test]
    fn a_strangers_socket_for_ipv6_alone_takes_nothing_of_an_instance() {
        let own_socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = own_socket.local_addr().unwrap().port();
        let mut own = Own::default();
        own.check(&Proc::system(), port, false, || vec![std::process::id()]).unwrap();
        let Some(_strangers) = listen((Ipv6Addr::UNSPECIFIED, port).into(), false) else {
            return weal_testing::skip("there is no IPv6 here");
        };
        own.check(&Proc::system(), port, false, || panic!("there is nothing new to look at")).unwrap();
    }
}
