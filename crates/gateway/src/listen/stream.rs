//! A client's connection, as hyper reads and writes it.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use weal_model::ListenScheme;

use super::client::{Client, Order, Phase};
use super::linger::Linger;
use super::patience::{self, Patience};
use super::preface;
use super::transport::{Transport, poll_after};
use crate::http::framing::Framing;

/// Up to so many bytes, a head and its body are copied together: the kernel takes one buffer with less work than a list.
const COALESCED: usize = 1024;

/// A client's stream that tells [`Client`] what is read and gives up on a client that takes nothing.
#[derive(Debug)]
pub(crate) struct ClientStream<T> {
    stream: T,
    /// What was read of it before.
    first: Bytes,
    client: Arc<Client>,
    patience: Patience,
    framing: Framing,
    /// True once a chunk was malformed: nothing after it is read.
    is_malformed: bool,
    /// An interim response of which some is still to be written.
    interim: Bytes,
    /// True once something was written since all was: interim responses wait, they must not stand within a response.
    is_writing: bool,
    closing: Closing,
}

/// How far the end of a connection has come.
#[derive(Debug)]
enum Closing {
    Open,
    Lingering(Linger),
    Closed,
}

impl<T: Transport> ClientStream<T> {
    /// `first` was read of `stream` before.
    pub fn new(stream: T, first: Bytes, client: Arc<Client>, patience: Patience) -> Self {
        Self {
            stream,
            first,
            client,
            patience,
            framing: Framing::default(),
            is_malformed: false,
            interim: Bytes::new(),
            is_writing: false,
            closing: Closing::Open,
        }
    }

    /// Waits for the next request's first bytes. False when none come, and the connection is closed.
    pub async fn rest(&mut self) -> bool {
        let client = Arc::clone(&self.client);
        // It may be kept for long, so that a client which has vanished without a word has to be noticed. Without this it is all the same.
        let _ = probe(self.stream.socket());
        client.note_rest(true);
        let came = poll_fn(|cx| match client.poll_order(cx) {
            Order::GoOn | Order::Leave => self.poll_first(cx),
            _ => Poll::Ready(Ok(false)),
        });
        let came = came.await.unwrap_or(false);
        client.note_rest(false);
        if !came {
            let _ = self.shutdown().await;
        }
        came
    }

    fn poll_first(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let mut first = BytesMut::new();
        ready!(preface::poll_read(cx, &mut self.stream, &mut first))?;
        self.first = first.freeze();
        Poll::Ready(Ok(!self.first.is_empty()))
    }

    pub fn into_inner(self) -> T {
        self.stream
    }

    /// Tells the request that waits for a seat when its client has closed its side. What the client has sent meanwhile stays unread.
    fn note_leaving(&self, cx: &mut Context<'_>) {
        let mut byte = [MaybeUninit::uninit()];
        if self.client.is_watched()
            && let Poll::Ready(Ok(0)) = self.stream.socket().poll_peek(cx, &mut ReadBuf::uninit(&mut byte))
        {
            self.client.note_left();
            cx.waker().wake_by_ref();
        }
    }

    /// Watches over what an attempt to write came to.
    fn watch(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if self.patience.waits() != written.is_pending() {
            let taken = if let Poll::Ready(Ok(bytes)) = &written { *bytes } else { 0 };
            self.client.note_stalled(written.is_pending(), taken);
        }
        if written.is_pending() && self.client.poll_cut(cx).is_ready() {
            return Poll::Ready(Err(patience::others_wait()));
        }
        self.patience.watch(cx, written, self.client.min_rate())
    }

    /// Writes interim responses where they may stand: before any byte of the response they belong to, and after all of the one before.
    fn poll_interim(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(heads) = self.client.take_interim()
            && !self.is_writing
        {
            self.interim = heads.into();
        }
        while !self.interim.is_empty() {
            let written = Pin::new(&mut self.stream).poll_write(cx, &self.interim);
            let count = ready!(self.watch(cx, written))?;
            self.interim.advance(count);
        }
        self.is_writing = true;
        Poll::Ready(Ok(()))
    }
}

/// Has the kernel ask every minute whether the other end is still there, and break the connection off after four questions without an answer.
fn probe(socket: &TcpStream) -> rustix::io::Result<()> {
    sockopt::set_tcp_keepidle(socket, Duration::from_secs(60))?;
    sockopt::set_tcp_keepintvl(socket, Duration::from_secs(15))?;
    sockopt::set_tcp_keepcnt(socket, 4)?;
    sockopt::set_socket_keepalive(socket, true)
}

/// hyper answers what it cannot parse by itself, and says no reason: the same with one. `None` for all other bytes; every answer
/// that went through the proxy has an `x-request-id` and differs in that.
fn explained(bytes: &[u8]) -> Option<String> {
    const LONGEST: usize = 160;
    if bytes.len() > LONGEST || !bytes.starts_with(b"HTTP/1.1 4") {
        return None;
    }
    let head = std::str::from_utf8(bytes).ok()?.strip_suffix("\r\n\r\n")?;
    let (status, rest) = head.strip_prefix("HTTP/1.1 ")?.split_once("\r\n")?;
    let date = rest.strip_prefix("connection: close\r\ncontent-length: 0\r\ndate: ")?;
    let reason = match status.split_once(' ')?.0 {
        _ if date.contains('\n') => return None,
        "414" => "the request's target is too long\n",
        "431" => "the request's head is too large\n",
        _ => "the request cannot be read: it is not well-formed HTTP/1.1\n",
    };
    let length = reason.len();
    Some(format!(
        "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {length}\r\n\
         x-weal-reason: malformed\r\ndate: {date}\r\n\r\n{reason}"
    ))
}

impl<T: Transport> AsyncRead for ClientStream<T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.is_malformed {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "malformed chunks")));
        }
        let before = buffer.filled().len();
        let polled = poll_after(&mut this.first, &mut this.stream, cx, buffer);
        let new = &buffer.filled()[before..];
        if !new.is_empty() && this.client.phase() != Phase::Tunnel {
            let within_body = this.framing.is_within_body();
            let read = this.framing.read(new);
            this.client.note_read(&this.framing, within_body);
            if let Err(bad) = read {
                // What came before is still read: it may be the head of the request, which gets an answer.
                this.is_malformed = true;
                buffer.set_filled(before + bad.at);
                if bad.at == 0 {
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, bad)));
                }
            }
        }
        polled
    }
}

impl<T: Transport> AsyncWrite for ClientStream<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_interim(cx))?;
        let written = match explained(bytes) {
            // An answer to a first request fits into an empty socket buffer; of what does not, the client is none the wiser.
            Some(answer) => Pin::new(&mut this.stream).poll_write(cx, answer.as_bytes()).map_ok(|_| bytes.len()),
            None => Pin::new(&mut this.stream).poll_write(cx, bytes),
        };
        this.watch(cx, written)
    }

    fn poll_write_vectored(self: Pin<&mut Self>, cx: &mut Context<'_>, slices: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let length: usize = slices.iter().map(|slice| slice.len()).sum();
        let written = if length <= COALESCED {
            let mut buffer = [0; COALESCED];
            let mut rest = &mut buffer[..];
            for slice in slices {
                let (start, end) = rest.split_at_mut(slice.len());
                start.copy_from_slice(slice);
                rest = end;
            }
            return Pin::new(this).poll_write(cx, &buffer[..length]);
        } else {
            ready!(this.poll_interim(cx))?;
            Pin::new(&mut this.stream).poll_write_vectored(cx, slices)
        };
        this.watch(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// hyper flushes whenever the connection's task runs, and reads nothing while a request is being answered, so that a client
    /// may close its sending half. This is where a client that is gone altogether shows: its reset makes the socket readable.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.client.phase() == Phase::Busy && this.stream.socket().poll_read_ready(cx).is_ready() {
            if let Ok(Some(reset)) = this.stream.socket().take_error() {
                return Poll::Ready(Err(reset));
            }
            this.note_leaving(cx);
        }
        this.is_writing = false;
        this.client.note_flush();
        ready!(this.poll_interim(cx))?;
        this.is_writing = false;
        Pin::new(&mut this.stream).poll_flush(cx)
    }

    /// Lingers where the client still sends.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Closing::Open = this.closing {
            let is_tunnel = this.client.phase() == Phase::Tunnel;
            let is_sending = !this.framing.is_between_requests() && !is_tunnel;
            // Where nothing more is read, the socket is closed now, and its kernel tells the client. TLS has something to say before that.
            if is_sending || is_tunnel || T::SCHEME == ListenScheme::Https {
                ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
            }
            this.closing = if is_sending { Closing::Lingering(Linger::new()) } else { Closing::Closed };
        }
        if let Closing::Lingering(linger) = &mut this.closing {
            ready!(linger.poll(cx, &mut this.stream));
            this.closing = Closing::Closed;
        }
        Poll::Ready(Ok(()))
    }
}
