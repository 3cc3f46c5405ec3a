//! What carries a client's bytes: a plain socket, or TLS over one. Chosen when the connection is accepted and compiled for each, so that
//! a plain one pays nothing for the other.

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use crate::http::origin::Scheme;

/// A stream over a socket.
pub(crate) trait Transport: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// What the client's URL begins with.
    const SCHEME: Scheme;

    /// The socket below, to ask it for errors. Reading or writing it would break the stream.
    fn socket(&self) -> &TcpStream;
}

impl Transport for TcpStream {
    const SCHEME: Scheme = Scheme::Http;

    fn socket(&self) -> &TcpStream {
        self
    }
}

impl Transport for TlsStream<TcpStream> {
    const SCHEME: Scheme = Scheme::Https;

    fn socket(&self) -> &TcpStream {
        self.get_ref().0
    }
}
