//! Ports whose connections and datagrams are passed on as they come: the transport layer.
//!
//! # How a connection is counted
//!
//! A connection, or the session of one UDP client, is *one request of its flow, whose answer is that it stands*: it arrives, waits in the
//! flow's queue for a seat and for an instance (which may have to be woken), and is completed as soon as the instance has it. Then it gives
//! its seat back, but stays outstanding at its instance to its end, as a WebSocket does ([`Seat::into_tunnel`]).
//!
//! - **Seats** bound how many connections are being made at once. If a connection kept its seat, a pool of idle database connections would
//!   take all seats for hours, and the model behind seats, which knows service times of less than a minute, would plan for none.
//! - **Work factors** are CPU per connection: the regression compares CPU with completed connections. What long connections use later
//!   looks like CPU without requests and is planned for as such.
//! - **Balance**: the dispatcher counts open connections, so a new one goes to the instance with the fewest for its weight.
//! - **Drain and sleep**: an instance with an open connection is not idle, so it neither sleeps nor is stopped before its drain's deadline.
//!
//! [`Seat::into_tunnel`]: crate::routing::cluster::Seat::into_tunnel

mod connection;
mod datagrams;
mod ports;
mod relay;
mod session;

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use weal_model::Transport;
use weal_protocol::gateway::{Listener, Listeners};

pub(crate) use ports::Ports;

use super::accepting::Entrance;

/// Listens at the ports whose sockets `handover` brings, until this is dropped. Each message is complete: what is not in it is closed.
pub(crate) async fn serve(ports: Ports, handover: UnixDatagram) -> std::io::Result<()> {
    let handover = tokio::net::UnixDatagram::from_std(handover)?;
    let ports = Arc::new(ports);
    let mut open: BTreeMap<Listener, JoinSet<()>> = BTreeMap::new();
    loop {
        let (Listeners(listeners), sockets) = match weal_rpc::receive_handed_over(&handover).await {
            Ok(received) => received,
            Err(error) => {
                tracing::warn!(%error, "cannot take over the ports' sockets");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        open.retain(|listener, _| listeners.contains(listener));
        ports.note_listeners(&listeners);
        for (listener, socket) in listeners.into_iter().zip(sockets) {
            open.entry(listener).or_insert_with_key(|listener| listen(&ports, listener, socket));
        }
    }
}

/// Serves one socket until the result is dropped. Connections that it has brought go on then.
fn listen(ports: &Arc<Ports>, listener: &Listener, socket: OwnedFd) -> JoinSet<()> {
    let (mut task, port, ports) = (JoinSet::new(), listener.port(), Arc::clone(ports));
    let listener = listener.clone();
    let opened = match port.transport {
        Transport::Tcp => Entrance::new(socket.into()).map(|entrance| {
            task.spawn(async move {
                ports.configured().await;
                connection::accept(entrance, listener, ports).await;
            });
        }),
        Transport::Udp => open_udp(socket).map(|socket| {
            task.spawn(async move {
                ports.configured().await;
                datagrams::receive(socket, listener, ports).await;
            });
        }),
    };
    match opened {
        Ok(()) => tracing::info!(%port, "listening"),
        Err(error) => tracing::error!(%port, %error, "cannot listen"),
    }
    task
}

fn open_udp(socket: OwnedFd) -> std::io::Result<tokio::net::UdpSocket> {
    let socket = UdpSocket::from(socket);
    socket.set_nonblocking(true)?;
    tokio::net::UdpSocket::from_std(socket)
}
