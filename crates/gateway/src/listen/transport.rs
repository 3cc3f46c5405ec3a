//! What carries a client's bytes: a plain socket, or TLS over one. Chosen when the connection is accepted and compiled for each, so that
//! a plain one pays nothing for the other.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use weal_model::ListenScheme;

/// A stream over a socket.
pub(crate) trait Transport: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// What the client's URL begins with.
    const SCHEME: ListenScheme;

    /// True when the client and the gateway have agreed on HTTP/2, false when on anything else; `None` where they agree on nothing before
    /// the first byte.
    fn speaks_h2(&self) -> Option<bool>;

    /// The socket below, to ask it for errors. Reading or writing it would break the stream.
    fn socket(&self) -> &TcpStream;
}

impl Transport for TcpStream {
    const SCHEME: ListenScheme = ListenScheme::Http;

    fn speaks_h2(&self) -> Option<bool> {
        None
    }

    fn socket(&self) -> &TcpStream {
        self
    }
}

/// TLS over a socket. Boxed: it is large, and each future on its way would have room for one of its own for as long as the connection lasts.
pub(crate) type TlsTransport = Box<TlsStream<TcpStream>>;

impl Transport for TlsTransport {
    const SCHEME: ListenScheme = ListenScheme::Https;

    fn speaks_h2(&self) -> Option<bool> {
        Some((**self).get_ref().1.alpn_protocol() == Some(b"h2"))
    }

    fn socket(&self) -> &TcpStream {
        (**self).get_ref().0
    }
}

/// Reads `first`, which was read of `stream` before, and then on.
pub(crate) fn poll_after(
    first: &mut Bytes,
    stream: &mut (impl AsyncRead + Unpin),
    cx: &mut Context<'_>,
    buffer: &mut ReadBuf<'_>,
) -> Poll<io::Result<()>> {
    if first.is_empty() {
        return Pin::new(stream).poll_read(cx, buffer);
    }
    let count = first.len().min(buffer.remaining());
    buffer.put_slice(&first.split_to(count));
    Poll::Ready(Ok(()))
}
