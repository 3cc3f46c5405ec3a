//! Bodies on their way through: each end pulls, so that neither side can fill the gateway's memory.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use tokio::time::{Instant, Sleep};
use weal_control::dispatch::Attempt;
use weal_control::flow::pipeline::RequestOutcome;

use super::incoming::{Incoming, IncomingError};
use super::request_body::Upload;
use crate::limits::Limits;
use crate::listen::client::Busy;
use crate::routing::cluster::Seat;
use crate::upstream::lease::Lease;
use crate::upstream::pool::Upstream;

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
}

/// The body of an instance's response. The seat is held until its end.
#[derive(Debug)]
pub(crate) struct Relay {
    pub incoming: Incoming,
    /// `None` when a task of its own drives the connection, and at the end.
    pub link: Option<Lease>,
    /// `None` at the end.
    pub seat: Option<Seat>,
    pub upstream: Arc<Upstream>,
    pub worker: usize,
    pub limits: Arc<Limits>,
    /// How long nothing may come.
    pub idle: Duration,
    /// Runs while the instance sends nothing.
    pub stall: Option<Pin<Box<Sleep>>>,
    /// When the request has taken all the time it may.
    pub end: Option<Pin<Box<Sleep>>>,
    /// What of the request is still on its way.
    pub upload: Option<Arc<Upload>>,
    /// True when the instance wants the rest of the request even after its response. By an error it says that it does not.
    pub takes_rest: bool,
}

/// Why a response was cut off.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    #[error("the instance broke off: {0}")]
    Broken(#[from] IncomingError),
    #[error("the instance sent nothing for too long")]
    Stalled,
    #[error("the request took too long in all")]
    TimedOut,
}

impl AnswerBody {
    pub fn text(text: Bytes, busy: Busy) -> Self {
        Self { content: Content::Text(Full::new(text)), sent: 0, busy, fails_late: true, failure: None }
    }

    pub fn empty(busy: Busy) -> Self {
        Self { content: Content::Text(Full::default()), sent: 0, busy, fails_late: true, failure: None }
    }

    pub fn relay(mut relay: Box<Relay>, busy: Busy) -> Self {
        if relay.incoming.is_end_stream() {
            relay.finish();
            return Self::empty(busy);
        }
        Self { content: Content::Relay(relay), sent: 0, busy, fails_late: true, failure: None }
    }

    /// Its sender sends what it was given before, whatever comes after.
    #[must_use]
    pub fn failing_at_once(self) -> Self {
        Self { fails_late: false, ..self }
    }

    /// Lets the connection to the instance read and write while nothing more can be taken from this.
    pub fn drive(&mut self, cx: &mut Context<'_>) {
        if let Content::Relay(relay) = &mut self.content
            && let Some(link) = &mut relay.link
        {
            link.drive(cx);
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
                self.fail(Attempt::Broken);
                Poll::Ready(Some(Err(error.into())))
            }
            Poll::Pending => self.poll_stall(cx),
        }
    }

    /// Where this task drives the connection, nothing else completes the body, so a waker would only wake this task twice.
    fn poll_incoming(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, IncomingError>>> {
        let mut noop = Context::from_waker(Waker::noop());
        let cx = if self.link.as_ref().is_some_and(Lease::is_driven_by_user) { &mut noop } else { cx };
        Pin::new(&mut self.incoming).poll_frame(cx)
    }

    fn poll_stall(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.end.as_mut().is_some_and(|end| end.as_mut().poll(cx).is_ready()) {
            self.fail(Attempt::Abandoned);
            return Poll::Ready(Some(Err(BodyError::TimedOut)));
        }
        let idle = self.idle;
        let stall = self.stall.get_or_insert_with(|| Box::pin(tokio::time::sleep(idle)));
        while stall.as_mut().poll(cx).is_ready() {
            // An instance that is still reading has reason to say nothing.
            let left = self.upload.as_ref().and_then(|upload| idle.checked_sub(upload.stillness()));
            let Some(left) = left.filter(|left| !left.is_zero()) else {
                self.fail(Attempt::Broken);
                return Poll::Ready(Some(Err(BodyError::Stalled)));
            };
            stall.as_mut().reset(Instant::now() + left);
        }
        Poll::Pending
    }

    fn finish(&mut self) {
        if let Some(seat) = self.seat.take() {
            seat.finish(Attempt::Answered, RequestOutcome::Served);
        }
        let Some(link) = self.link.take() else { return };
        match self.upload.take().filter(|upload| !upload.is_finished()) {
            None => self.upstream.put_back(self.worker, link, &self.limits),
            Some(upload) if self.takes_rest && !upload.is_held() => {
                let (upstream, worker, limits) = (Arc::clone(&self.upstream), self.worker, Arc::clone(&self.limits));
                tokio::spawn(finish_upload(link, upload, upstream, worker, limits));
            }
            // Its request is not finished, so no other may follow on it (RFC 9112 section 9.3).
            Some(_) => drop(link),
        }
    }

    fn fail(&mut self, attempt: Attempt) {
        self.link = None;
        if let Some(seat) = self.seat.take() {
            let is_client = self.upload.as_ref().is_some_and(|upload| upload.is_broken());
            seat.finish(if is_client { Attempt::Abandoned } else { attempt }, RequestOutcome::Failed);
        }
    }
}

/// Sends the rest of a request after its response, for as long as it moves.
async fn finish_upload(mut link: Lease, upload: Arc<Upload>, upstream: Arc<Upstream>, worker: usize, limits: Arc<Limits>) {
    loop {
        let finished = link.drive_until(|| upload.is_finished());
        if tokio::time::timeout(limits.stalled_write, finished).await.is_ok() {
            break;
        }
        if upload.stillness() >= limits.stalled_write {
            return;
        }
    }
    if upload.is_finished() && !upload.is_broken() {
        upstream.put_back(worker, link, &limits);
    }
}
