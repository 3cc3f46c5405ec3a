//! Accepting connections.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use rustix::net::{SocketFlags, acceptfrom_with, sockopt};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::upstream::speech::Ends;

/// A socket at which clients connect.
pub(crate) struct Entrance {
    socket: AsyncFd<TcpListener>,
    address: SocketAddr,
}

/// A connection that was accepted. It belongs to no runtime yet: the one that serves it is another than the one that accepts, and a socket that
/// changes runtimes is registered twice.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub stream: TcpStream,
    pub ends: Ends,
}

impl Entrance {
    /// What is small goes out at once over the connections that come in here: the kernel hands this option of a listening socket on to them.
    ///
    /// # Errors
    /// It is no socket that listens.
    pub fn new(socket: TcpListener) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        sockopt::set_tcp_nodelay(&socket, true)?;
        let address = socket.local_addr()?;
        // SAFETY: the socket is moved in and stays the same open descriptor until the registration is dropped.
        let socket = unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) }?;
        Ok(Self { socket, address })
    }

    /// Hands each connection that comes in to `take`, until this is dropped. Whenever `room` does not complete, clients wait in the socket's
    /// backlog.
    pub async fn accept_each<R: Future<Output = ()>>(&self, room: impl Fn() -> R, mut take: impl FnMut(Accepted)) {
        loop {
            room().await;
            match self.socket.async_io(Interest::READABLE, accept).await {
                Ok((stream, client)) => {
                    // One that has gone meanwhile has no ends.
                    if let Ok(server) = self.address_of(&stream) {
                        take(Accepted { stream, ends: Ends { client, server } });
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, at = %self.address, "cannot accept a client");
                    // Out of file descriptors, most likely: the next attempt would fail at once and spin.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }

    /// Where the client of `stream` connected to. The kernel is asked only where clients connect to several addresses.
    fn address_of(&self, stream: &TcpStream) -> io::Result<SocketAddr> {
        if self.address.ip().is_unspecified() { stream.local_addr() } else { Ok(self.address) }
    }
}

fn accept(socket: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    let (stream, client) = acceptfrom_with(socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
    let client = client.and_then(|client| client.try_into().ok()).ok_or(io::ErrorKind::InvalidData)?;
    Ok((stream.into(), client))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_connection_knows_its_ends_and_holds_back_nothing_small() {
        for at in ["127.0.0.1:0", "0.0.0.0:0"] {
            let entrance = Entrance::new(TcpListener::bind(at).unwrap()).unwrap();
            let port = entrance.address.port();
            let client = TcpStream::connect(("127.0.0.1", port)).unwrap();
            let (taken, mut taken_out) = tokio::sync::mpsc::unbounded_channel();
            let accepted = tokio::select! {
                () = entrance.accept_each(|| std::future::ready(()), |one| taken.send(one).unwrap()) => unreachable!("it has no end"),
                accepted = taken_out.recv() => accepted.unwrap(),
            };
            assert_eq!(
                accepted.ends,
                Ends { client: client.local_addr().unwrap(), server: ([127, 0, 0, 1], port).into() },
                "{at}"
            );
            assert!(accepted.stream.nodelay().unwrap(), "{at}");
            let nothing = std::io::Read::read(&mut &accepted.stream, &mut [0]).unwrap_err();
            assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock, "nobody waits for it: {at}");
        }
    }
}
