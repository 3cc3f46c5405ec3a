//! The listening socket that an instance is given instead of a port to bind, as systemd gives it: descriptor 3, and `LISTEN_FDS` and
//! `LISTEN_PID` in the environment (sd_listen_fds(3)).
//!
//! The agent binds it and keeps it for as long as it knows the instance. So no other process can take the port while the instance is started
//! again, and clients wait in the backlog meanwhile. The shim has it too, from which the next agent takes it over.

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use weal_host::Identity;
use weal_host::Proc;

use crate::ports::address;

/// The descriptor by which an instance, and its shim, has the socket.
pub const DESCRIPTOR: i32 = 3;
/// How many there are.
pub const COUNT: (&str, &str) = ("LISTEN_FDS", "1");
/// Whom they are for: programs that the instance starts shall not take them for theirs.
pub const FOR_WHOM: &str = "LISTEN_PID";

/// Connections that wait to be accepted, as the standard library has it; the kernel's own limit is the smaller one mostly.
const BACKLOG: i32 = 4096;

/// Listens at an instance's port.
///
/// # Errors
/// Somebody else does.
pub fn bind(port: u16) -> io::Result<TcpListener> {
    TcpListener::bind(address(port))
}

/// Listens again where the former process of an instance has shut the socket down for everybody, which any holder can.
///
/// # Errors
/// The kernel does not let it.
pub fn listen(socket: &TcpListener) -> io::Result<()> {
    Ok(rustix::net::listen(socket, BACKLOG)?)
}

/// The socket at `port` that a shim has; `None` where it has another one, or the kernel does not give it.
pub fn of_shim(proc: &Proc, shim: Identity, port: u16) -> Option<TcpListener> {
    let handle = pidfd_open(Pid::from_raw(shim.pid.cast_signed())?, PidfdFlags::empty()).ok()?;
    // The handle is of whoever has the number now.
    let socket = proc.is_alive(shim).then(|| pidfd_getfd(handle, DESCRIPTOR, PidfdGetfdFlags::empty()))?.ok()?;
    is_listening_at(socket.as_fd(), port).then(|| TcpListener::from(socket))
}

/// Makes what the agent passed as standard input the shim's [`DESCRIPTOR`], whatever it is. Nothing may be open beyond the first three.
///
/// # Errors
/// [`DESCRIPTOR`] is taken.
pub fn take_standard_input() -> io::Result<OwnedFd> {
    let socket = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), DESCRIPTOR)?;
    if std::os::fd::AsRawFd::as_raw_fd(&socket) != DESCRIPTOR {
        return Err(io::Error::other("descriptor 3 is taken"));
    }
    let null = std::fs::File::open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    Ok(socket)
}

fn is_listening_at(socket: BorrowedFd<'_>, port: u16) -> bool {
    let is_listening = rustix::net::sockopt::socket_acceptconn(socket).unwrap_or(false);
    let here = rustix::net::getsockname(socket).ok().and_then(|name| std::net::SocketAddr::try_from(name).ok());
    is_listening && here == Some(address(port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_that_was_shut_down_listens_again() {
        // Of a port that the kernel chose, it lets go then. Another process may take the one that is free here.
        let free = || bind(0).and_then(|chosen| chosen.local_addr());
        let (listener, here) = (0..100).find_map(|_| free().ok().and_then(|here| Some((bind(here.port()).ok()?, here)))).unwrap();
        rustix::net::shutdown(&listener, rustix::net::Shutdown::Both).unwrap();
        assert!(std::net::TcpStream::connect(here).is_err());
        listen(&listener).unwrap();
        assert!(std::net::TcpStream::connect(here).is_ok());
    }

    #[test]
    fn only_a_socket_that_listens_at_the_port_is_taken_over() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(is_listening_at(listener.as_fd(), port));
        assert!(!is_listening_at(listener.as_fd(), port.wrapping_add(1)));
        let client = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        assert!(!is_listening_at(client.as_fd(), client.local_addr().unwrap().port()));
        assert!(bind(port).is_err(), "one at a time");
    }
}
