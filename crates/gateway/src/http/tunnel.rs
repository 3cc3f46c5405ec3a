//! Connections that stop being HTTP: WebSockets and other protocols that a client upgrades to.
//!
//! Only an instance's `101` makes a tunnel; until it has come, not a byte of the client beyond its request is passed on.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::listen::client::Client;
use crate::listen::registry::Entry;
use crate::listen::stillness::Stillness;
use crate::listen::transport::poll_after;
use crate::routing::cluster::TunnelSeat;

/// Puts the request for another protocol, or the consent to it, back into a head without hop-by-hop headers.
pub(crate) fn ask(headers: &mut HeaderMap, protocol: Option<HeaderValue>) {
    if let Some(protocol) = protocol {
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, protocol);
    }
}

/// What stands to its end behind a connection that is no longer HTTP.
pub(crate) struct Tunnel {
    pub seat: TunnelSeat,
    pub client: Arc<Client>,
    pub entry: Arc<Entry>,
    /// How long nothing may move.
    pub idle: Duration,
}

/// Passes bytes both ways, what had come of the instance first, until both sides have closed, one breaks off, or nothing has moved for too long.
pub(crate) fn spawn(client_side: OnUpgrade, (instance_side, first): (TcpStream, Bytes), tunnel: Tunnel) {
    let Tunnel { seat, client, entry, idle } = tunnel;
    client.enter_tunnel();
    tokio::spawn(async move {
        let client_side = match client_side.await {
            Ok(client_side) => TokioIo::new(client_side),
            Err(error) => return tracing::debug!(%error, "a tunnel could not be opened"),
        };
        let stillness = Stillness::new(client.clock());
        let mut from_client = Watched { stream: client_side, first: Bytes::new(), stillness: &stillness };
        let mut from_instance = Watched { stream: instance_side, first, stillness: &stillness };
        tokio::select! {
            ended = tokio::io::copy_bidirectional(&mut from_client, &mut from_instance) => if let Err(error) = ended {
                tracing::debug!(%error, client = %client.peer, "a tunnel broke off");
            },
            () = stillness.lasts(idle) => tracing::debug!(client = %client.peer, "nothing moved in a tunnel for too long"),
        }
        drop((seat, entry));
    });
}

/// One side of a tunnel. What is read or written on it has moved.
struct Watched<'a, T> {
    stream: T,
    /// What was read of it before.
    first: Bytes,
    stillness: &'a Stillness,
}

impl<T: AsyncRead + Unpin> AsyncRead for Watched<'_, T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = poll_after(&mut this.first, &mut this.stream, cx, buffer);
        if polled.is_ready() {
            this.stillness.note_move();
        }
        polled
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Watched<'_, T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_write(cx, bytes);
        if polled.is_ready() {
            this.stillness.note_move();
        }
        polled
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
