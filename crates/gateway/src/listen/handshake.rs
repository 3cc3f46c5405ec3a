//! From an accepted socket to TLS: within a deadline, the cheap ones first, few at a time, and with an answer for a client that speaks plain HTTP.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::rustls::HandshakeKind;
use tokio_rustls::rustls::server::{Accepted, Acceptor};
use tokio_rustls::server::StartHandshake;

use super::client::Client;
use super::line::{Line, NoTurn};
use super::refusal::send_error_response;
use super::transport::TlsTransport;
use crate::limits::Limits;
use crate::tls::challenges::ACME_TLS;
use crate::tls::hello;
use crate::tls::{HandshakeEnd, Tls};

/// Why no connection came about.
enum Failure {
    /// The client closed without a word, or was shown what it asked for: nothing failed.
    Over,
    /// Too many want one.
    TurnedAway(NoTurn),
    Io(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Shakes hands with `client` when it is its turn in `line`. `None` when nothing came of it; that is counted, and said where somebody may look
/// for it.
pub(crate) async fn shake(stream: TcpStream, tls: &Tls, line: &Line, client: &Client, limits: &Limits) -> Option<TlsTransport> {
    let shaken = tokio::select! {
        shaken = tokio::time::timeout(limits.handshake, begin(stream, tls, line)) => {
            shaken.unwrap_or(Err(Failure::Io(io::ErrorKind::TimedOut.into())))
        }
        () = client.told_to_close() => return None,
    };
    match shaken {
        Ok(stream) => {
            let kind = (*stream).get_ref().1.handshake_kind();
            tls.count(if kind == Some(HandshakeKind::Resumed) { HandshakeEnd::Resumed } else { HandshakeEnd::Full });
            return Some(stream);
        }
        Err(Failure::Over) => {}
        Err(Failure::TurnedAway(NoTurn::Overloaded(error))) => {
            tls.count(HandshakeEnd::TurnedAway);
            tracing::debug!(%error, client = %client.peer, "the TLS handshake failed");
        }
        Err(Failure::TurnedAway(NoTurn::Gone)) => tls.count(HandshakeEnd::Failed),
        Err(Failure::Io(error)) => {
            tls.count(HandshakeEnd::Failed);
            tracing::debug!(%error, client = %client.peer, "the TLS handshake failed");
        }
    }
    None
}

async fn begin(stream: TcpStream, tls: &Tls, line: &Line) -> Result<TlsTransport, Failure> {
    // A client that says nothing takes no memory for what it says.
    let mut first = [0];
    if stream.peek(&mut first).await? == 0 {
        return Err(Failure::Over);
    }
    if first[0].is_ascii_uppercase() {
        refuse_plain(stream);
        return Err(Failure::Io(io::Error::new(io::ErrorKind::InvalidData, "plain HTTP on the port for https")));
    }
    let (accepted, stream, ticket) = read_hello(stream).await?;
    if let Some(challenge) = tls.shown().handshake.clone()
        && accepted.client_hello().alpn().is_some_and(|mut protocols| protocols.any(|protocol| protocol == ACME_TLS))
    {
        // An authority, which wants no more than to be shown that (RFC 8737 section 3).
        StartHandshake::from_parts(accepted, stream).into_stream(challenge).await?.shutdown().await?;
        return Err(Failure::Over);
    }
    let in_force = tls.current().ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected))?;
    let effort = in_force.effort(&accepted.client_hello(), ticket.as_deref());
    let config = in_force.config(&accepted.client_hello());
    line.turn(effort, &stream).await.map_err(Failure::TurnedAway)?;
    let _permit = tls.permits.acquire().await.map_err(io::Error::other)?;
    // Key exchange and signature happen here; what follows is short.
    let before = cpu_time();
    let shaking = StartHandshake::from_parts(accepted, stream).into_stream(config);
    let cost = cpu_time().saturating_sub(before);
    line.note(effort, cost);
    tls.count_cost(effort, cost);
    Ok(Box::new(shaking.await?))
}

/// Reads what a client wants: that, the stream, and the ticket that it shows.
async fn read_hello(stream: TcpStream) -> io::Result<(Accepted, TcpStream, Option<Vec<u8>>)> {
    let listening = Listening { stream, heard: Vec::new() };
    let StartHandshake { accepted, io, .. } = LazyConfigAcceptor::new(Acceptor::default(), listening).await?;
    let ticket = hello::ticket(&io.heard);
    Ok((accepted, io.stream, ticket))
}

/// The CPU time of this thread.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// A stream that keeps what was read of it, within a bound.
struct Listening {
    stream: TcpStream,
    heard: Vec<u8>,
}

impl AsyncRead for Listening {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.heard.len() > hello::LONGEST {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "the client's hello has no end")));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, buffer))?;
        this.heard.extend_from_slice(&buffer.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Listening {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

/// What came is read first: closed over unread bytes, the kernel would take the answer back.
fn refuse_plain(stream: TcpStream) {
    let mut unread = [0; 16 << 10];
    let _ = stream.try_read(&mut unread);
    send_error_response(stream, "400 Bad Request", "this port speaks https only: begin the address with https://\n");
}
