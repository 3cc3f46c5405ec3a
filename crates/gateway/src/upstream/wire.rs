//! An instance's socket, as hyper reads and writes it.
//!
//! It keeps two things from hyper: the heads of interim responses, which hyper drops, and that an instance no longer takes what is sent.
//! An instance may answer before it has read a request, and close. hyper would give up at the failed write and never read the answer.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// What every head of an interim response begins with.
const INTERIM: &[u8] = b"HTTP/1.1 1";

/// The head that ends the interim ones although it looks like one of them.
const SWITCH: &[u8] = b"HTTP/1.1 101";

/// The most bytes of one interim head that are kept.
const LONGEST: usize = 64 << 10;

/// Interim heads of one request: a word each second for half an hour.
pub(super) const MOST_INTERIM: usize = 2000;
/// Bytes of them. Hints are some hundred bytes long, and come once.
const MOST_INTERIM_BYTES: usize = 256 << 10;

/// What the socket has noticed, for whoever drives the connection.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    /// True while the final head of a response is to come.
    expects_head: AtomicBool,
    has_interim: AtomicBool,
    interim: Mutex<Vec<Vec<u8>>>,
    /// True once the instance has closed its end for what is sent to it.
    is_deaf: AtomicBool,
}

/// The socket.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: TcpStream,
    notices: Arc<Notices>,
    /// The start of a head that may be an interim one.
    partial: Vec<u8>,
    /// Interim heads of the present request, and their bytes.
    interims: (usize, usize),
}

/// An instance that says no more than that it will answer.
#[derive(Debug, thiserror::Error)]
#[error("interim responses without end")]
struct EndlessInterims;

impl Notices {
    /// A request is sent next.
    pub fn expect_head(&self) {
        self.expects_head.store(true, Ordering::Relaxed);
    }

    /// The interim heads that have come since the last call, as they came.
    pub fn take_interim(&self) -> Vec<Vec<u8>> {
        if !self.has_interim.swap(false, Ordering::Acquire) {
            return Vec::new();
        }
        std::mem::take(&mut *self.interim.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// True when the instance takes nothing more.
    pub fn is_deaf(&self) -> bool {
        self.is_deaf.load(Ordering::Relaxed)
    }

    fn push_interim(&self, head: &[u8]) {
        self.interim.lock().unwrap_or_else(PoisonError::into_inner).push(head.to_vec());
        self.has_interim.store(true, Ordering::Release);
    }
}

impl Wire {
    pub fn new(stream: TcpStream) -> (Self, Arc<Notices>) {
        let notices = Arc::<Notices>::default();
        (Self { stream, notices: Arc::clone(&notices), partial: Vec::new(), interims: (0, 0) }, notices)
    }

    /// Looks for interim heads at the start of what was read.
    fn watch(&mut self, new: &[u8]) {
        if self.partial.is_empty() && !may_be_interim(new) {
            return self.end_watch();
        }
        self.partial.extend_from_slice(new);
        let mut rest = &self.partial[..];
        while let Some(end) = memchr::memmem::find(rest, b"\r\n\r\n").filter(|_| is_interim(rest)) {
            self.notices.push_interim(&rest[..end + 4]);
            self.interims = (self.interims.0 + 1, self.interims.1 + end + 4);
            rest = &rest[end + 4..];
        }
        if may_be_interim(rest) && rest.len() < LONGEST {
            let read = self.partial.len() - rest.len();
            self.partial.drain(..read);
        } else {
            self.end_watch();
        }
    }

    fn end_watch(&mut self) {
        (self.partial, self.interims) = (Vec::new(), (0, 0));
        self.notices.expects_head.store(false, Ordering::Relaxed);
    }

    /// Takes what is sent, to no purpose, once the instance takes nothing more. What it has answered is still to be read.
    fn forgive(&self, written: Poll<io::Result<usize>>, length: usize) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(Err(error)) if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => {
                self.notices.is_deaf.store(true, Ordering::Relaxed);
                Poll::Ready(Ok(length))
            }
            written => written,
        }
    }
}

/// True when `bytes` may be, or become, the head of an interim response.
fn may_be_interim(bytes: &[u8]) -> bool {
    let is_start = |of: &[u8]| bytes.iter().zip(of).all(|(byte, expected)| byte == expected);
    is_start(INTERIM) && !(bytes.len() >= SWITCH.len() && is_start(SWITCH))
}

fn is_interim(bytes: &[u8]) -> bool {
    bytes.starts_with(INTERIM) && !bytes.starts_with(SWITCH)
}

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let polled = Pin::new(&mut this.stream).poll_read(cx, buffer);
        let new = &buffer.filled()[before..];
        if !new.is_empty() && this.notices.expects_head.load(Ordering::Relaxed) {
            this.watch(new);
            if this.interims.0 > MOST_INTERIM || this.interims.1 > MOST_INTERIM_BYTES {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, EndlessInterims)));
            }
        }
        polled
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.notices.is_deaf() {
            return Poll::Ready(Ok(bytes.len()));
        }
        let written = Pin::new(&mut this.stream).poll_write(cx, bytes);
        this.forgive(written, bytes.len())
    }

    fn poll_write_vectored(self: Pin<&mut Self>, cx: &mut Context<'_>, slices: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let length = slices.iter().map(|slice| slice.len()).sum();
        if this.notices.is_deaf() {
            return Poll::Ready(Ok(length));
        }
        let written = Pin::new(&mut this.stream).poll_write_vectored(cx, slices);
        this.forgive(written, length)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
