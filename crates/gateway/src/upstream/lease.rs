//! What a request uses of a connection to an instance, whichever version of HTTP it speaks.

use std::task::{Context, Poll};

use http::Response;

use super::attempt::{Meanwhile, Sendable};
use super::link::Link;
use super::multiplexed::Lane;
use crate::http::incoming::{Incoming, IncomingError};

/// A request's part of a connection.
#[derive(Debug)]
pub(crate) enum Lease {
    /// All of it, until the response has ended.
    H1(Link),
    /// One stream among others.
    H2(Box<Lane>),
}

impl Lease {
    /// Sends a request and waits for the head of the final response. The request is put back if the instance has surely not begun with it.
    pub async fn exchange(
        &mut self,
        request: &mut Sendable,
        meanwhile: &mut impl Meanwhile,
    ) -> Result<Response<Incoming>, IncomingError> {
        match self {
            Self::H1(link) => link.exchange(request, meanwhile).await,
            // Boxed, so that requests over HTTP/1 keep no room for it.
            Self::H2(lane) => Box::pin(lane.exchange(request, meanwhile)).await,
        }
    }

    /// Lets the connection read and write, as far as nobody else does; false once nothing comes of that any more.
    pub fn drive(&mut self, cx: &mut Context<'_>) -> bool {
        match self {
            Self::H1(link) => link.drive(cx),
            Self::H2(lane) => lane.drive(cx),
        }
    }

    /// Drives it until `is_done`, or until nothing comes of that any more.
    pub async fn drive_until(&mut self, is_done: impl Fn() -> bool) {
        std::future::poll_fn(|cx| if !self.drive(cx) || is_done() { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    /// True when nothing is read from the connection but by [`Lease::drive`].
    pub fn is_driven_by_user(&self) -> bool {
        matches!(self, Self::H1(_))
    }

    /// True when it is of a connection that has carried requests before: the instance may be closing it just now.
    pub fn was_used(&self) -> bool {
        match self {
            Self::H1(link) => link.was_used(),
            Self::H2(lane) => lane.was_used(),
        }
    }

    /// Where the response ends is not sure: nothing may follow it on its connection.
    pub fn note_doubt(&mut self) {
        if let Self::H1(link) = self {
            link.note_doubt();
        }
    }
}
