//! Listening sockets: made by the supervisor and inherited by the roles, so that callers wait in the backlog while a role
//! is started anew.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;
use std::path::Path;

use anyhow::{Context, anyhow, bail};
use rustix::process::PidfdGetfdFlags;
use weal_host::users::User;
use weal_node::folder::{Owner, give_entry};

use crate::process::{ProcessId, holder_of};

/// Connections that wait while a gateway is started anew: one second of 4,000 new connections per second. The system
/// cuts it to `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// Listens at `address`, which `table` of the config calls `key`.
///
/// # Errors
/// The address cannot be had; says which, who holds it, and what to change.
pub fn bind_tcp(address: SocketAddr, key: &str, table: &str) -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind(address).map_err(|error| explain(address, key, table, &error))?;
    listener.set_nonblocking(true)?;
    // Listening again only changes the length of the backlog; std asks for 128.
    rustix::net::listen(&listener, BACKLOG)?;
    Ok(listener)
}

/// Why `address` cannot be had, and what to change.
pub fn explain(address: SocketAddr, key: &str, table: &str, error: &io::Error) -> anyhow::Error {
    let port = address.port();
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            let holder = holder_of(address).unwrap_or_else(|| "a process that cannot be seen from here".to_owned());
            anyhow!("port {port} is in use: {holder} listens there. Stop it, or change `{key} = \"{address}\"` in {table}")
        }
        io::ErrorKind::PermissionDenied => {
            anyhow!("port {port} needs root (ports below 1024 do): change `{key} = \"{address}\"` in {table}, or run as root")
        }
        io::ErrorKind::AddrNotAvailable => {
            anyhow!("this machine has no address {}: change `{key} = \"{address}\"` in {table}", address.ip())
        }
        _ => anyhow!("cannot listen at `{key} = \"{address}\"`: {error}"),
    }
}

/// Listens at the Unix socket `path`; `owner` is who may open it besides root.
pub fn bind_unix(path: &Path, owner: Option<&User>) -> anyhow::Result<UnixListener> {
    let listener = weal_rpc::bind(path).with_context(|| format!("cannot listen at {}", path.display()))?;
    if let Some(user) = owner {
        give_entry(path, Owner { uid: user.uid, gid: user.gid })?;
    }
    Ok(listener)
}

/// A copy of `socket` that the next started process inherits; dropped after the start.
pub fn inheritable(socket: &impl AsFd) -> io::Result<OwnedFd> {
    const FIRST_FREE: RawFd = 3;
    let copy = rustix::io::fcntl_dupfd_cloexec(socket, FIRST_FREE)?;
    rustix::io::fcntl_setfd(&copy, rustix::io::FdFlags::empty())?;
    Ok(copy)
}

/// The socket that this process inherited as descriptor `number`.
///
/// # Errors
/// No such descriptor: the role was not started by a supervisor.
pub fn inherited(number: RawFd) -> anyhow::Result<OwnedFd> {
    if number < 3 {
        bail!("descriptor {number} is not a socket of the supervisor");
    }
    // SAFETY: borrowed only for this call, which fails cleanly on a closed descriptor.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    rustix::io::fcntl_setfd(borrowed, rustix::io::FdFlags::CLOEXEC)
        .with_context(|| format!("descriptor {number} was not inherited: roles are started by weal up"))?;
    // SAFETY: the descriptor is open, as just seen, was inherited for this use, and is asked for once per number.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// A copy of the socket that `process` holds as descriptor `number`, with all that waits in its backlog. `None` when the
/// system does not allow it (another user, or Yama) or the process has ended.
pub fn taken_over(process: ProcessId, number: RawFd) -> Option<OwnedFd> {
    let handle = process.open()?;
    rustix::process::pidfd_getfd(handle, number, PidfdGetfdFlags::empty()).ok()
}

/// The number under which a started process finds `socket`.
pub fn number(socket: &OwnedFd) -> RawFd {
    socket.as_raw_fd()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_in_use_names_its_holder_and_the_key_to_change() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let held = TcpListener::bind(taken).unwrap();
        let error = bind_tcp(taken, "listen", "[pool]").unwrap_err().to_string();
        assert!(error.starts_with(&format!("port {} is in use: ", taken.port())), "{error}");
        assert!(error.contains(&format!("(pid {})", std::process::id())), "{error}");
        assert!(error.contains(&format!("change `listen = \"{taken}\"` in [pool]")), "{error}");
        drop(held);
    }

    #[test]
    fn a_foreign_address_is_named() {
        let error = bind_tcp("192.0.2.1:0".parse().unwrap(), "api", "[pool]").unwrap_err().to_string();
        assert!(error.contains("no address 192.0.2.1") && error.contains("`api"), "{error}");
    }

    #[test]
    fn a_socket_comes_over_from_a_living_process() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let copy = taken_over(ProcessId::me().unwrap(), listener.as_raw_fd()).unwrap();
        assert_eq!(TcpListener::from(copy).local_addr().unwrap(), listener.local_addr().unwrap());
    }

    #[test]
    fn a_descriptor_that_nobody_passed_on_is_refused() {
        assert!(inherited(9_999).unwrap_err().to_string().contains("was not inherited"));
    }
}
