//! What a request uses of a connection to an instance, whichever version of HTTP it speaks.

use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use tokio::net::TcpStream;

use super::attempt::{Failed, Meanwhile, Sendable};
use super::error::InstanceError;
use super::h1::Link;
use super::multiplexed::Lane;
use crate::http::request_body::RequestBody;

/// A request's part of a connection.
#[derive(Debug)]
pub(crate) enum Lease {
    /// All of it, until the response has ended.
    H1(Link),
    /// One stream among others.
    H2(Box<Lane>),
}

impl Lease {
    /// Sends a request and waits for the head of the final response. What it leaves of the request is whole, and may be sent again.
    pub async fn exchange(&mut self, request: &mut Sendable, meanwhile: &mut impl Meanwhile) -> Result<Response<()>, Failed> {
        match self {
            Self::H1(link) => link.exchange(request, meanwhile).await,
            // Boxed, so that requests over HTTP/1 keep no room for it.
            Self::H2(lane) => Box::pin(lane.exchange(request, meanwhile)).await,
        }
    }

    /// Keeps the map of a head that was sent for the next one that comes.
    pub fn keep_map(&mut self, sent: Request<RequestBody>) {
        if let Self::H1(link) = self {
            link.keep_map(sent.into_parts().0.headers);
        }
    }

    /// What carries it, with what has come behind the response: the instance has switched to another protocol. `None` where it may not have done so,
    /// because some of the request is still to be sent, or others share the connection.
    pub fn into_stream(self) -> Option<(TcpStream, Bytes)> {
        match self {
            Self::H1(link) => link.into_stream(),
            Self::H2(_) => None,
        }
    }

    /// What comes next of the response's body.
    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, InstanceError>>> {
        match self {
            Self::H1(link) => link.poll_frame(cx).map_err(InstanceError::H1),
            Self::H2(lane) => lane.poll_frame(cx).map_err(InstanceError::H2),
        }
    }

    /// All of the response's body, if it has come with the head.
    pub fn take_whole(&mut self) -> Option<Bytes> {
        match self {
            Self::H1(link) => link.take_whole(),
            Self::H2(_) => None,
        }
    }

    /// True when nothing more comes of the response's body.
    pub fn is_end_stream(&self) -> bool {
        match self {
            Self::H1(link) => link.is_end_stream(),
            Self::H2(lane) => lane.is_end_stream(),
        }
    }

    /// What is known of the length of the rest of the response's body.
    pub fn size_hint(&self) -> SizeHint {
        match self {
            Self::H1(link) => link.size_hint(),
            Self::H2(lane) => lane.size_hint(),
        }
    }

    /// Sends on what is left of the request. Ready once nothing is, or nothing comes of that any more.
    pub fn poll_sent(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::H1(link) => link.poll_sent(cx),
            Self::H2(lane) => lane.poll_sent(cx),
        }
    }

    /// True when nothing is left of the request.
    pub fn is_sent(&self) -> bool {
        match self {
            Self::H1(link) => link.is_sent(),
            Self::H2(lane) => lane.is_sent(),
        }
    }

    /// True when its connection carries no other request meanwhile.
    pub fn is_alone(&self) -> bool {
        !matches!(self, Self::H2(_))
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
