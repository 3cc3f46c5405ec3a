//! Accepting connections.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};

/// Hands each connection that comes in at `socket` to `take`, until this is dropped. Whenever `room` does not complete, clients wait in the
/// socket's backlog.
pub(crate) async fn accept_each<R: Future<Output = ()>>(
    socket: &TcpListener,
    room: impl Fn() -> R,
    mut take: impl FnMut(TcpStream, SocketAddr),
) {
    loop {
        room().await;
        match socket.accept().await {
            Ok((stream, peer)) => take(stream, peer),
            Err(error) => {
                let at = socket.local_addr().map(|address| address.to_string()).unwrap_or_default();
                tracing::warn!(%error, at, "cannot accept a client");
                // Out of file descriptors, most likely: the next attempt would fail at once and spin.
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}
