//! How long the gateway waits for a client that is to send or to take something.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use super::pace::Pace;

/// Patience with one client.
#[derive(Debug)]
pub(crate) struct Patience {
    pace: Pace,
    /// Since when nothing has moved; `None` while the gateway does not wait.
    since: Option<Instant>,
    /// When the patience is at its end.
    end: Option<Pin<Box<Sleep>>>,
}

/// Why a client that reads slowly is cut off before its patience ends.
pub(crate) fn others_wait() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the client reads slowly, and others wait for its seat")
}

impl Patience {
    /// With a client that may let `most` pass at once.
    pub fn new(most: Duration) -> Self {
        Self { pace: Pace::new(most), since: None, end: None }
    }

    /// What an attempt to send came to; an error when the client has taken too little for too long. `rate` is as for
    /// [`Pace::handle_progress`].
    pub fn watch(&mut self, cx: &mut Context<'_>, attempt: Poll<io::Result<usize>>, rate: u32) -> Poll<io::Result<usize>> {
        match &attempt {
            Poll::Pending if self.poll_exhausted(cx).is_ready() => {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client reads too slowly")));
            }
            Poll::Ready(Ok(bytes)) => self.note_progress(*bytes, rate),
            _ => {}
        }
        attempt
    }

    /// The client has moved so many bytes.
    pub fn note_progress(&mut self, bytes: usize, rate: u32) {
        let waited = self.since.take().map_or(Duration::ZERO, |since| since.elapsed());
        self.pace.handle_progress(waited, bytes, rate);
        self.end = None;
    }

    /// Nothing moves now. Ready when it has been so for too long.
    pub fn poll_exhausted(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.since.get_or_insert_with(Instant::now);
        let left = self.pace.left();
        self.end.get_or_insert_with(|| Box::pin(tokio::time::sleep(left))).as_mut().poll(cx)
    }

    /// True while the gateway waits for the client.
    pub fn waits(&self) -> bool {
        self.since.is_some()
    }
}
