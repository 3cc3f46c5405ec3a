//! From an accepted socket to TLS: within a deadline, few at a time, and with an answer for who speaks plain HTTP.

use std::io;
use std::sync::Arc;

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio_rustls::rustls::server::Acceptor;
use tokio_rustls::rustls::{HandshakeKind, ServerConfig};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{LazyConfigAcceptor, TlsAcceptor};

use super::client::Client;
use super::refusal::answer_raw;
use crate::limits::Limits;
use crate::tls::challenges::ACME_TLS;
use crate::tls::{HandshakeEnd, Tls};

/// Shakes hands with `client`. `None` when nothing came of it; that is counted, and said where somebody may look for it.
pub(crate) async fn shake(stream: TcpStream, tls: &Tls, client: &Client, limits: &Limits) -> Option<TlsStream<TcpStream>> {
    let shaken = tokio::select! {
        shaken = tokio::time::timeout(limits.handshake, begin(stream, tls)) => shaken.unwrap_or(Err(io::ErrorKind::TimedOut.into())),
        () = client.told_to_close() => return None,
    };
    match shaken {
        Ok(Some(stream)) => {
            let kind = stream.get_ref().1.handshake_kind();
            tls.count(if kind == Some(HandshakeKind::Resumed) { HandshakeEnd::Resumed } else { HandshakeEnd::Full });
            Some(stream)
        }
        Ok(None) => None,
        Err(error) => {
            tls.count(HandshakeEnd::Failed);
            tracing::debug!(%error, client = %client.peer, "no TLS connection came about");
            None
        }
    }
}

/// `None` for a client that closes without a word.
async fn begin(stream: TcpStream, tls: &Tls) -> io::Result<Option<TlsStream<TcpStream>>> {
    // A client that says nothing takes no place among the handshakes.
    let mut first = [0];
    if stream.peek(&mut first).await? == 0 {
        return Ok(None);
    }
    if first[0].is_ascii_uppercase() {
        refuse_plain(stream);
        return Err(io::Error::new(io::ErrorKind::InvalidData, "plain HTTP on the port for https"));
    }
    let _permit = tls.permits.acquire().await.map_err(io::Error::other)?;
    let config = tls.current().ok_or(io::ErrorKind::NotConnected)?;
    match tls.shown().handshake.clone() {
        None => TlsAcceptor::from(config).accept(stream).await.map(Some),
        Some(challenge) => accept_or_show(stream, config, challenge).await,
    }
}

/// Shakes hands with a client, or shows an authority what it asks for, which is all that it wants (RFC 8737 section 3).
async fn accept_or_show(
    stream: TcpStream,
    config: Arc<ServerConfig>,
    challenge: Arc<ServerConfig>,
) -> io::Result<Option<TlsStream<TcpStream>>> {
    let hello = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
    let is_authority = hello.client_hello().alpn().is_some_and(|mut protocols| protocols.any(|protocol| protocol == ACME_TLS));
    if !is_authority {
        return hello.into_stream(config).await.map(Some);
    }
    hello.into_stream(challenge).await?.shutdown().await?;
    Ok(None)
}

/// What came is read first: closed over unread bytes, the kernel would take the answer back.
fn refuse_plain(stream: TcpStream) {
    let mut unread = [0; 16 << 10];
    let _ = stream.try_read(&mut unread);
    answer_raw(stream, "400 Bad Request", "this port speaks https only: begin the address with https://\n");
}
