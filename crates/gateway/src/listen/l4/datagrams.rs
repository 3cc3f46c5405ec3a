//! UDP: one session for each address that sends, with a socket of its own to an instance.
//!
//! The first datagram of an address begins a session, which waits for an instance as a connection does; what comes meanwhile is held. Replies
//! leave by the port's own socket, so that they come from where the client sent to. A session ends when nothing has passed in either
//! direction for so long, or when the instance's port is closed; the next datagram then begins another.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use weal_model::{OwnAnswer, Time, TransportPort};
use weal_protocol::gateway::Listener;

use super::ports::Ports;
use super::session::reach;
use crate::http::error_response::ErrorResponse;
use crate::routing::cluster::{Target, TunnelSeat};
use crate::routing::table::Destination;
use crate::upstream::pool::Upstream;

/// Without a datagram in either direction. Longer than the pauses of games and of DNS, shorter than what NATs keep (RFC 4787 asks for two
/// minutes, and most have less). A route's `idle-timeout` replaces it.
const IDLE: Duration = Duration::from_secs(60);
/// Datagrams of one session that wait for their instance.
const HELD: usize = 32;
/// Bytes of all sessions of a port that wait for their instances. Addresses are easily forged, and each may send 64 KiB.
const HELD_BYTES: usize = 8 << 20;
/// No datagram is longer.
const LONGEST: usize = 64 << 10;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; LONGEST]);
}

/// A datagram on its way to an instance.
struct Datagram {
    bytes: Box<[u8]>,
    /// When the gateway had it. This is the place for the kernel's timestamps: with `SO_TIMESTAMPING` on the port's socket and `recvmsg` in
    /// [`receive`], the moment of arrival at the network card stands in the ancillary data, and goes here instead.
    received: Time,
    /// Its part of [`HELD_BYTES`], until it has been sent on.
    _held: OwnedSemaphorePermit,
}

/// The sessions of one port.
struct Sessions {
    port: TransportPort,
    listener: Listener,
    ports: Arc<Ports>,
    socket: Arc<UdpSocket>,
    open: HashMap<SocketAddr, mpsc::Sender<Datagram>>,
    held: Arc<Semaphore>,
    ended: mpsc::UnboundedSender<SocketAddr>,
}

/// Takes datagrams until this is dropped.
pub(super) async fn receive(socket: UdpSocket, listener: Listener, ports: Arc<Ports>) {
    let (ended, mut endings) = mpsc::unbounded_channel();
    let held = Arc::new(Semaphore::new(HELD_BYTES));
    let port = listener.port();
    let mut sessions = Sessions { port, listener, ports, socket: Arc::new(socket), open: HashMap::new(), held, ended };
    loop {
        tokio::select! {
            Some(peer) = endings.recv() => sessions.handle_end(peer),
            ready = sessions.socket.readable() => match ready {
                Ok(()) => sessions.receive_ready(),
                Err(error) => return tracing::error!(%port, %error, "cannot receive any more"),
            },
        }
    }
}

impl Sessions {
    /// Takes what is there, a bounded number so that ends are noticed too.
    fn receive_ready(&mut self) {
        let socket = Arc::clone(&self.socket);
        for _ in 0..64 {
            let received = BUFFER.with_borrow_mut(|buffer| {
                socket.try_recv_from(buffer).map(|(count, peer)| (Box::<[u8]>::from(&buffer[..count]), peer))
            });
            match received {
                Ok((bytes, peer)) => self.handle_datagram(bytes, peer),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // What the network says of an earlier reply: nobody listens there any more. The session ends when it is idle.
                Err(error) => tracing::debug!(port = %self.port, %error, "a reply did not arrive"),
            }
        }
    }

    fn handle_datagram(&mut self, bytes: Box<[u8]>, peer: SocketAddr) {
        let destination = match self.ports.destination(&self.listener) {
            Ok(Some(destination)) => destination,
            // No port for datagrams speaks HTTP.
            Ok(None) => return,
            Err(refusal) => return self.ports.note(&refusal, None),
        };
        let Some(datagram) = self.datagram(bytes) else { return destination.cluster.ports().note_dropped() };
        let datagram = match self.open.get(&peer) {
            Some(session) => match session.try_send(datagram) {
                Ok(()) => return,
                Err(TrySendError::Full(_)) => return destination.cluster.ports().note_dropped(),
                Err(TrySendError::Closed(datagram)) => datagram,
            },
            None => datagram,
        };
        self.begin(datagram, peer, destination);
    }

    /// Begins a session with its first datagram.
    fn begin(&mut self, first: Datagram, peer: SocketAddr, destination: Destination) {
        let most = self.ports.gateway.limits.udp_sessions;
        if self.open.len() >= most {
            let refusal = ErrorResponse::closed(OwnAnswer::TooManySessions, format!("{most} sessions of {} are open", self.port));
            return self.ports.note(&refusal, Some(&destination));
        }
        let (session, datagrams) = mpsc::channel(HELD);
        session.try_send(first).unwrap_or_else(|_| unreachable!("the channel is new"));
        self.open.insert(peer, session);
        let (ports, socket, ended) = (Arc::clone(&self.ports), Arc::clone(&self.socket), self.ended.clone());
        tokio::spawn(async move {
            if let Err(refusal) = pass(datagrams, &socket, peer, &destination, &ports).await {
                ports.note(&refusal, Some(&destination));
            }
            // The port is gone when nobody hears it.
            let _ = ended.send(peer);
        });
    }

    fn datagram(&self, bytes: Box<[u8]>) -> Option<Datagram> {
        // An empty datagram is one too.
        let length = u32::try_from(bytes.len().max(1)).ok()?;
        let held = Arc::clone(&self.held).try_acquire_many_owned(length).ok()?;
        Some(Datagram { bytes, received: self.ports.clock.now(), _held: held })
    }

    fn handle_end(&mut self, peer: SocketAddr) {
        // A later session of the same address may be there already.
        if self.open.get(&peer).is_some_and(mpsc::Sender::is_closed) {
            self.open.remove(&peer);
        }
    }
}

/// One session from its first datagram to its last.
async fn pass(
    mut datagrams: mpsc::Receiver<Datagram>,
    socket: &UdpSocket,
    peer: SocketAddr,
    destination: &Destination,
    ports: &Ports,
) -> Result<(), ErrorResponse> {
    let ((instance, upstream), seat): (Reached, TunnelSeat) = reach(destination, peer.ip(), connect).await?;
    let stats = destination.cluster.ports();
    let open = stats.open();
    let idle = destination.rules.idle.unwrap_or(IDLE);
    let total = async {
        match destination.rules.total {
            Some(total) => tokio::time::sleep(total).await,
            None => std::future::pending().await,
        }
    };
    let relay = async {
        loop {
            let moved = tokio::select! {
                datagram = datagrams.recv() => match datagram {
                    Some(datagram) => match upstream.confirm_receiver() {
                        Ok(()) => send(&instance, &datagram, destination, ports).await,
                        Err(error) => Err(error),
                    },
                    // The port is closed.
                    None => return,
                },
                ready = instance.ready(Interest::READABLE | Interest::ERROR) => match ready {
                    // Nobody listens there (an ICMP message says so): no datagram comes with it.
                    Ok(ready) if ready.is_error() => Err(instance.take_error().ok().flatten().unwrap_or(io::ErrorKind::ConnectionRefused.into())),
                    Ok(_) => reply(&instance, socket, peer, destination),
                    Err(error) => Err(error),
                },
                () = tokio::time::sleep(idle) => return,
            };
            if let Err(error) = moved {
                return tracing::debug!(%error, %peer, flow = %destination.rules.flow, "a session broke off");
            }
        }
    };
    tokio::select! {
        () = relay => {}
        () = total => {}
    }
    drop((open, seat));
    Ok(())
}

/// A socket for an instance, and the instance.
type Reached = (UdpSocket, Arc<Upstream>);

async fn connect(target: Target) -> io::Result<Reached> {
    target.upstream.confirm_receiver()?;
    let address = target.upstream.address();
    let any: IpAddr = if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(address).await?;
    Ok((socket, target.upstream))
}

/// Passes a datagram on, or drops it where the socket takes no more: UDP promises nothing, and holding it would only make it late.
async fn send(instance: &UdpSocket, datagram: &Datagram, destination: &Destination, ports: &Ports) -> io::Result<()> {
    // A socket that is new is not known to be writable yet.
    instance.writable().await?;
    let stats = destination.cluster.ports();
    let held = ports.clock.now().since(datagram.received);
    tracing::trace!(flow = %destination.rules.flow, held_us = held.as_micros() as u64, bytes = datagram.bytes.len(), "datagram");
    note(instance.try_send(&datagram.bytes), || stats.note_dropped(), |count| stats.note_in(count))
}

fn reply(instance: &UdpSocket, socket: &UdpSocket, peer: SocketAddr, destination: &Destination) -> io::Result<()> {
    let stats = destination.cluster.ports();
    BUFFER.with_borrow_mut(|buffer| match instance.try_recv(buffer) {
        Ok(count) => note(socket.try_send_to(&buffer[..count], peer), || stats.note_dropped(), |count| stats.note_out(count)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        Err(error) => Err(error),
    })
}

fn note(sent: io::Result<usize>, dropped: impl FnOnce(), passed: impl FnOnce(usize)) -> io::Result<()> {
    match sent {
        Ok(count) => passed(count),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => dropped(),
        Err(error) => return Err(error),
    }
    Ok(())
}
