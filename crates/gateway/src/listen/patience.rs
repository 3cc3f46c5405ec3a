//! How long a client may take nothing of what is sent to it.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Sleep;

/// Patience with one client.
#[derive(Debug)]
pub(crate) struct Patience {
    limit: Duration,
    /// Runs while the client takes nothing.
    stall: Option<Pin<Box<Sleep>>>,
}

impl Patience {
    pub fn new(limit: Duration) -> Self {
        Self { limit, stall: None }
    }

    /// What an attempt to send came to; an error when none has come to anything for too long.
    pub fn watch<R>(&mut self, cx: &mut Context<'_>, attempt: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        if attempt.is_ready() {
            self.stall = None;
            return attempt;
        }
        let limit = self.limit;
        let stall = self.stall.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        if stall.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes nothing")));
        }
        Poll::Pending
    }

    /// The client has taken something.
    pub fn note_progress(&mut self) {
        self.stall = None;
    }
}
