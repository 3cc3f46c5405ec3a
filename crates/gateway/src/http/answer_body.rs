//! Bodies on their way through: each end pulls, so that neither side can fill the gateway's memory.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use hyper::body::Incoming;
use tokio::time::Sleep;
use weal_control::dispatch::Attempt;
use weal_control::flow::pipeline::Outcome;

use crate::limits::Limits;
use crate::listen::client::Busy;
use crate::routing::cluster::Seat;
use crate::upstream::pool::{Link, Upstream};

/// What is sent to a client. Ends the connection's busy time when it is dropped.
#[derive(Debug)]
pub(crate) struct AnswerBody {
    content: Content,
    /// Bytes handed on so far.
    sent: u64,
    busy: Busy,
}

#[derive(Debug)]
enum Content {
    Text(Full<Bytes>),
    Relay(Box<Relay>),
}

/// The body of an instance's response. The seat is held until its end.
#[derive(Debug)]
pub(crate) struct Relay {
    pub incoming: Incoming,
    /// `None` when a task of its own drives the connection, and at the end.
    pub link: Option<Link>,
    /// `None` at the end.
    pub seat: Option<Seat>,
    pub upstream: Arc<Upstream>,
    pub worker: usize,
    pub limits: Arc<Limits>,
    /// Runs while the instance sends nothing.
    pub stall: Option<Pin<Box<Sleep>>>,
}

/// Why a response was cut off.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    #[error("the instance broke off: {0}")]
    Broken(#[from] hyper::Error),
    #[error("the instance sent nothing for too long")]
    Stalled,
}

impl AnswerBody {
    pub fn text(text: String, busy: Busy) -> Self {
        Self { content: Content::Text(Full::new(Bytes::from(text))), sent: 0, busy }
    }

    pub fn empty(busy: Busy) -> Self {
        Self { content: Content::Text(Full::default()), sent: 0, busy }
    }

    pub fn relay(mut relay: Relay, busy: Busy) -> Self {
        if relay.incoming.is_end_stream() {
            relay.finish();
            return Self::empty(busy);
        }
        Self { content: Content::Relay(Box::new(relay)), sent: 0, busy }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        let polled = match &mut this.content {
            Content::Text(text) => Pin::new(text).poll_frame(cx).map_err(|never| match never {}),
            Content::Relay(relay) => relay.poll_frame(cx),
        };
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
        {
            this.sent += data.len() as u64;
            this.busy.note_sent(this.sent);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Text(text) => text.is_end_stream(),
            Content::Relay(relay) => relay.incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Text(text) => text.size_hint(),
            Content::Relay(relay) => relay.incoming.size_hint(),
        }
    }
}

impl Relay {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut polled = self.poll_incoming(cx);
        if polled.is_pending()
            && let Some(link) = &mut self.link
        {
            link.drive(cx);
            polled = self.poll_incoming(cx);
        }
        match polled {
            Poll::Ready(Some(Ok(frame))) => {
                self.stall = None;
                if self.incoming.is_end_stream() {
                    self.finish();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(None) => {
                self.finish();
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(error))) => {
                self.fail();
                Poll::Ready(Some(Err(error.into())))
            }
            Poll::Pending => self.poll_stall(cx),
        }
    }

    /// Where this task drives the connection, nothing else completes the body, so a waker would only wake this task twice.
    fn poll_incoming(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let mut noop = Context::from_waker(Waker::noop());
        let cx = if self.link.is_some() { &mut noop } else { cx };
        Pin::new(&mut self.incoming).poll_frame(cx)
    }

    fn poll_stall(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let limit = self.limits.stalled_response;
        let stall = self.stall.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        if stall.as_mut().poll(cx).is_ready() {
            self.fail();
            return Poll::Ready(Some(Err(BodyError::Stalled)));
        }
        Poll::Pending
    }

    fn finish(&mut self) {
        if let Some(seat) = self.seat.take() {
            seat.finish(Attempt::Answered, Outcome::Served);
        }
        if let Some(link) = self.link.take() {
            self.upstream.put_back(self.worker, link, &self.limits);
        }
    }

    fn fail(&mut self) {
        self.link = None;
        if let Some(seat) = self.seat.take() {
            seat.finish(Attempt::Broken, Outcome::Failed);
        }
    }
}
