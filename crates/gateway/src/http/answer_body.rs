//! Bodies on their way through: each end pulls, so that neither side can fill the gateway's memory.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use weal_control::flow::pipeline::Reading;

use super::compression::Encoded;
use super::relay::{BodyError, Relay};
use crate::listen::client::Busy;
use crate::routing::cluster::{Seat, SeatHandle};

/// What is sent to a client. Ends the connection's busy time when it is dropped.
#[derive(Debug)]
pub(crate) struct AnswerBody {
    content: Content,
    /// Bytes handed on so far.
    sent: u64,
    busy: Busy,
    /// True when its sender drops what it has not written yet once this fails.
    fails_late: bool,
    /// Why it is cut off, and the client's flushes by then: first everything before it is sent.
    failure: Option<(BodyError, u64)>,
}

#[derive(Debug)]
enum Content {
    Text(Full<Bytes>),
    Relay(Box<Relay>),
    Encoded(Box<Encoded>),
}

impl AnswerBody {
    pub fn text(text: Bytes, busy: Busy) -> Self {
        Self { content: Content::Text(Full::new(text)), sent: 0, busy, fails_late: true, failure: None }
    }

    pub fn empty(busy: Busy) -> Self {
        Self { content: Content::Text(Full::default()), sent: 0, busy, fails_late: true, failure: None }
    }

    pub fn relay(mut relay: Box<Relay>, busy: Busy) -> Self {
        if relay.is_end_stream() {
            relay.finish();
            return Self::empty(busy);
        }
        Self { content: Content::Relay(relay), sent: 0, busy, fails_late: true, failure: None }
    }

    /// A body that is compressed on its way.
    pub fn encoded(encoded: Encoded, busy: Busy) -> Self {
        Self { content: Content::Encoded(Box::new(encoded)), sent: 0, busy, fails_late: true, failure: None }
    }

    /// Its sender sends what it was given before, whatever comes after.
    #[must_use]
    pub fn failing_at_once(self) -> Self {
        Self { fails_late: false, ..self }
    }

    /// Its client is to take more of it.
    pub fn note_reading(&self, reading: Reading) {
        if let Some(seat) = self.seat() {
            seat.note_reading(reading);
        }
    }

    /// Ready when its client takes it so slowly that others wait for the seat.
    pub fn poll_cut(&self, cx: &Context<'_>) -> Poll<()> {
        self.seat().map_or(Poll::Pending, |seat| seat.poll_cut(cx))
    }

    /// The seat that its instance's part still takes.
    pub fn seat(&self) -> Option<SeatHandle> {
        let relay = match &self.content {
            Content::Text(_) => return None,
            Content::Relay(relay) => relay,
            Content::Encoded(encoded) => &encoded.relay,
        };
        relay.seat.as_ref().map(Seat::handle)
    }

    /// Over HTTP/1, the connection says when the client takes no more.
    #[must_use]
    pub fn told_by_connection(mut self) -> Self {
        if let Some(seat) = self.seat() {
            self.busy.note_answering(seat);
        }
        self
    }

    /// Lets the instance have the rest of its request while nothing more can be taken from this.
    pub fn drive(&mut self, cx: &mut Context<'_>) {
        let relay = match &mut self.content {
            Content::Text(_) => return,
            Content::Relay(relay) => relay,
            Content::Encoded(encoded) => &mut encoded.relay,
        };
        if let Some(lease) = &mut relay.lease {
            let _ = lease.poll_sent(cx);
        }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if this.failure.is_some() {
            return this.poll_failure();
        }
        let polled = match &mut this.content {
            Content::Text(text) => Pin::new(text).poll_frame(cx).map_err(|never| match never {}),
            Content::Relay(relay) => relay.poll_frame(cx),
            Content::Encoded(encoded) => encoded.poll_frame(cx),
        };
        let polled = match polled {
            Poll::Ready(Some(Err(error))) if this.fails_late => {
                this.failure = Some((error, this.busy.client().flushes()));
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            polled => polled,
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
            Content::Relay(relay) => relay.is_end_stream(),
            Content::Encoded(encoded) => encoded.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Text(text) => text.size_hint(),
            Content::Relay(relay) => relay.size_hint(),
            Content::Encoded(_) => SizeHint::new(),
        }
    }
}

impl AnswerBody {
    /// hyper drops what it has not written yet when a body fails: the head, and the part of the body that came with the end. So it learns
    /// of the failure once all of that is written; each attempt at that polls the body again.
    fn poll_failure(&mut self) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let flushes = self.busy.client().flushes();
        match self.failure.take_if(|(_, before)| *before != flushes) {
            Some((error, _)) => Poll::Ready(Some(Err(error))),
            None => Poll::Pending,
        }
    }
}
