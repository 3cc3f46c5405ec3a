//! Connections to one instance, and one exchange over such a connection.
//!
//! A connection has no task of its own: whoever uses it drives it, so an exchange costs no wake-up between tasks. While
//! nobody uses it, nobody notices that the instance closed it; that shows when it is taken out again.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Waker};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::http::request_body::RequestBody;
use crate::limits::Limits;

/// One instance's address with the connections to it that nothing uses now.
#[derive(Debug)]
pub(crate) struct Upstream {
    address: SocketAddr,
    /// By worker, so that a connection stays with the reactor that it is registered at, and a lock is never waited for.
    idle: Box<[Mutex<Vec<Idle>>]>,
    /// Sweeps so far: a clock that costs nothing to read.
    sweeps: AtomicU32,
    /// True: connections are not kept after their use.
    closed: AtomicBool,
}

#[derive(Debug)]
struct Idle {
    link: Link,
    /// The sweep that it was put back after.
    since: u32,
}

/// A connection to an instance that one request uses. Boxed, because it is handed on several times per request and large.
#[derive(Debug)]
pub(crate) struct Link(Box<Connected>);

#[derive(Debug)]
struct Connected {
    sender: http1::SendRequest<RequestBody>,
    connection: http1::Connection<TokioIo<TcpStream>, RequestBody>,
    /// False once the connection has come to its end.
    open: bool,
    used: bool,
}

/// Why an exchange brought no response.
#[derive(Debug)]
pub(crate) struct ExchangeError {
    /// The request, when not a byte of it was sent.
    pub unsent: Option<Request<RequestBody>>,
    pub source: hyper::Error,
}

impl Upstream {
    pub fn new(address: SocketAddr, workers: usize) -> Self {
        let idle = (0..workers.max(1)).map(|_| Mutex::default()).collect();
        Self { address, idle, sweeps: AtomicU32::new(0), closed: AtomicBool::new(false) }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// An open connection that is idle; `None` when there is none.
    pub fn take_idle(&self, worker: usize) -> Option<Link> {
        loop {
            let mut link = self.list(worker).pop()?.link;
            if link.is_usable() {
                return Some(link);
            }
        }
    }

    /// A new connection.
    pub async fn connect(&self, limits: &Limits) -> io::Result<Link> {
        let stream = self.connect_stream(limits).await?;
        // Of a response's fields as many are taken as `limits::FIELDS_ON_STACK`, which is hyper's own limit.
        let (sender, connection) = http1::Builder::new()
            // Heads are small and bodies rare: one copy is cheaper for the kernel than a list of slices.
            .writev(false)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(io::Error::other)?;
        Ok(Link(Box::new(Connected { sender, connection, open: true, used: false })))
    }

    /// A new connection, still without protocol.
    pub async fn connect_stream(&self, limits: &Limits) -> io::Result<TcpStream> {
        let stream = tokio::time::timeout(limits.connect, TcpStream::connect(self.address))
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// Keeps a connection whose response has ended. Whether either side wants it closed shows when it is taken out again.
    pub fn put_back(&self, worker: usize, mut link: Link, limits: &Limits) {
        if !link.0.open || self.is_closed() {
            return;
        }
        link.0.used = true;
        let mut list = self.list(worker);
        if list.len() < limits.idle_upstreams {
            list.push(Idle { link, since: self.sweeps.load(Ordering::Relaxed) });
        }
    }

    /// Closes what is idle, and from now on each connection after its use.
    pub fn close_idle(&self) {
        self.closed.store(true, Ordering::Relaxed);
        for worker in 0..self.idle.len() {
            let closed = std::mem::take(&mut *self.list(worker));
            drop(closed);
        }
    }

    /// True once [`Upstream::close_idle`] was called.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Closes what has been idle for `sweeps` calls of this.
    pub fn sweep(&self, sweeps: u32) {
        let now = self.sweeps.fetch_add(1, Ordering::Relaxed);
        for worker in 0..self.idle.len() {
            let mut list = self.list(worker);
            // The last to be put back is the first to be taken, so the old ones are in front.
            let old = list.iter().take_while(|entry| now.wrapping_sub(entry.since) >= sweeps).count();
            let closed: Vec<Idle> = list.drain(..old).collect();
            drop(list);
            drop(closed);
        }
    }

    fn list(&self, worker: usize) -> std::sync::MutexGuard<'_, Vec<Idle>> {
        self.idle[worker % self.idle.len()].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Link {
    /// Sends `request` and waits for the head of the response.
    pub async fn exchange(&mut self, request: Request<RequestBody>) -> Result<Response<Incoming>, ExchangeError> {
        let Connected { sender, connection, open, .. } = &mut *self.0;
        let mut response = pin!(sender.try_send_request(request));
        let mut drive = move |cx: &mut Context<'_>| {
            if *open && Pin::new(&mut *connection).poll(cx).is_ready() {
                *open = false;
            }
            // Only the connection above completes this, so it needs no waker: that would wake this very task once more.
            response.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        };
        let result = std::future::poll_fn(|cx| drive(cx)).await;
        result.map_err(|mut error| ExchangeError { unsent: error.take_message(), source: error.into_error() })
    }

    /// Lets the connection read and write; false once it has come to its end.
    pub fn drive(&mut self, cx: &mut Context<'_>) -> bool {
        let Connected { connection, open, .. } = &mut *self.0;
        if *open && Pin::new(connection).poll(cx).is_ready() {
            *open = false;
        }
        *open
    }

    /// True when it has carried a request before: the instance may be closing it just now.
    pub fn was_used(&self) -> bool {
        self.0.used
    }

    /// True when it can take another request.
    fn is_usable(&mut self) -> bool {
        self.drive(&mut Context::from_waker(Waker::noop())) && self.0.sender.is_ready()
    }
}
