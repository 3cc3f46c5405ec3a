//! One client connection: its bytes, its phase, and the orders that others give it.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;
use weal_model::Time;

use crate::clock::Clock;

/// What a connection does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    /// Between requests, not a byte of the next one is there.
    Idle,
    /// Some of a request's head is there.
    Head,
    /// A request is being answered.
    Busy,
    /// No longer HTTP.
    Tunnel,
}

/// What a connection is told to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Order {
    GoOn,
    /// Close after the answer to the present request, or at once if there is none.
    Close,
    /// The head of the request takes too long: close now.
    TooSlow,
}

/// One client connection, as its own task and the sweeper see it.
#[derive(Debug)]
pub(crate) struct Client {
    pub peer: SocketAddr,
    clock: Clock,
    phase: AtomicU8,
    /// When the phase began; while busy, when the head did.
    since: AtomicU64,
    order: AtomicU8,
    waker: AtomicWaker,
    /// The first bytes read since the connection was last idle: what hyper has dropped of a head can be looked up here.
    head: Mutex<Vec<u8>>,
}

/// Up to so many bytes, a head and its body are copied together: the kernel takes one buffer with less work than a list.
const COALESCED: usize = 1024;

/// Bytes of a head that are kept for a second look. Heads are smaller than this by default.
const KEPT_HEAD: usize = 64 << 10;

impl Client {
    pub fn new(peer: SocketAddr, clock: Clock) -> Self {
        Self {
            peer,
            clock,
            phase: AtomicU8::new(Phase::Idle as u8),
            since: AtomicU64::new(clock.now().0),
            order: AtomicU8::new(Order::GoOn as u8),
            waker: AtomicWaker::new(),
            head: Mutex::default(),
        }
    }

    pub fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Idle,
            1 => Phase::Head,
            2 => Phase::Busy,
            _ => Phase::Tunnel,
        }
    }

    /// How long it has been in its phase.
    pub fn phase_age(&self, now: Time) -> Duration {
        now.since(Time(self.since.load(Ordering::Relaxed)))
    }

    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// Gives an order; one that says more replaces one that says less.
    pub fn give(&self, order: Order) {
        self.order.fetch_max(order as u8, Ordering::AcqRel);
        self.waker.wake();
    }

    /// True when it is going to close.
    pub fn has_order(&self) -> bool {
        self.order.load(Ordering::Acquire) != Order::GoOn as u8
    }

    /// The order in force. The task of `cx` is woken when another one is given.
    pub fn poll_order(&self, cx: &mut Context<'_>) -> Order {
        self.waker.register(cx.waker());
        match self.order.load(Ordering::Acquire) {
            0 => Order::GoOn,
            1 => Order::Close,
            _ => Order::TooSlow,
        }
    }

    /// A request begins.
    pub fn begin(self: &Arc<Self>) -> Busy {
        // How long it has been busy is nobody's concern, and the time costs a call.
        self.phase.store(Phase::Busy as u8, Ordering::Release);
        Busy { client: Arc::clone(self), record: None }
    }

    /// The connection is no longer HTTP, until it closes.
    pub fn enter_tunnel(&self) {
        self.enter(Phase::Tunnel);
    }

    /// The kept bytes of the present request's head and of what came with it.
    pub fn with_head<R>(&self, look: impl FnOnce(&[u8]) -> R) -> R {
        look(&self.head.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn enter(&self, phase: Phase) {
        self.since.store(self.clock.now().0, Ordering::Relaxed);
        self.phase.store(phase as u8, Ordering::Release);
    }

    fn note_read(&self, bytes: &[u8]) {
        match self.phase() {
            Phase::Busy | Phase::Tunnel => return,
            Phase::Idle => {
                self.enter(Phase::Head);
                self.head.lock().unwrap_or_else(PoisonError::into_inner).clear();
            }
            Phase::Head => {}
        }
        let mut head = self.head.lock().unwrap_or_else(PoisonError::into_inner);
        let room = KEPT_HEAD.saturating_sub(head.len());
        head.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
}

/// A request being answered, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Busy {
    client: Arc<Client>,
    /// What the access log says at the end; `None` keeps none.
    pub record: Option<Box<Record>>,
}

/// One line of the access log.
#[derive(Debug)]
pub(crate) struct Record {
    method: http::Method,
    host: String,
    path: String,
    /// `app/class`; `None` when no route matched.
    pub flow: Option<Arc<str>>,
    status: u16,
    sent: u64,
    begun: Time,
}

impl Record {
    pub fn new<B>(request: &http::Request<B>, begun: Time) -> Self {
        Self {
            method: request.method().clone(),
            host: crate::http::forward::host_of(request.headers(), request.uri().authority()).into_owned(),
            path: request.uri().path().to_owned(),
            flow: None,
            status: 0,
            sent: 0,
            begun,
        }
    }
}

impl Busy {
    pub fn note_status(&mut self, status: http::StatusCode) {
        if let Some(record) = &mut self.record {
            record.status = status.as_u16();
        }
    }

    pub fn note_sent(&mut self, bytes: u64) {
        if let Some(record) = &mut self.record {
            record.sent = bytes;
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if self.client.phase() == Phase::Busy {
            self.client.enter(Phase::Idle);
        }
        if let Some(record) = &self.record {
            let took_s = self.client.clock.now().since(record.begun).as_secs_f64();
            tracing::info!(
                target: "access", client = %self.client.peer.ip(), method = %record.method, host = record.host,
                path = record.path, flow = record.flow.as_deref().unwrap_or("-"), status = record.status, bytes = record.sent, took_s, "request"
            );
        }
    }
}

/// A client's socket that tells [`Client`] what is read and gives up on a client that takes nothing.
#[derive(Debug)]
pub(crate) struct ClientStream {
    stream: TcpStream,
    client: Arc<Client>,
    stalled_write: Duration,
    /// Runs while the client takes nothing.
    stall: Option<Pin<Box<Sleep>>>,
}

impl ClientStream {
    pub fn new(stream: TcpStream, client: Arc<Client>, stalled_write: Duration) -> Self {
        Self { stream, client, stalled_write, stall: None }
    }

    pub fn into_inner(self) -> TcpStream {
        self.stream
    }

    fn watch(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.stall = None;
            return written;
        }
        let limit = self.stalled_write;
        let stall = self.stall.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        if std::future::Future::poll(stall.as_mut(), cx).is_ready() {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes nothing")));
        }
        Poll::Pending
    }
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

impl AsyncRead for ClientStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let polled = Pin::new(&mut this.stream).poll_read(cx, buffer);
        let new = &buffer.filled()[before..];
        if !new.is_empty() {
            this.client.note_read(new);
        }
        polled
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
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
        if this.client.phase() == Phase::Busy
            && this.stream.poll_read_ready(cx).is_ready()
            && let Ok(Some(reset)) = this.stream.take_error()
        {
            return Poll::Ready(Err(reset));
        }
        Pin::new(&mut this.stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
