//! The body of an instance's response on its way to the client.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep};
use weal_control::dispatch::Attempt;
use weal_control::flow::pipeline::RequestOutcome;

use super::forward;
use super::request_body::Upload;
use super::resume::{Resume, Resumed};
use crate::limits::Limits;
use crate::routing::cluster::Seat;
use crate::upstream::error::InstanceError;
use crate::upstream::lease::Lease;
use crate::upstream::pool::Upstream;

/// The body of an instance's response. The seat is held until its end.
#[derive(Debug)]
pub(crate) struct Relay {
    /// What brings it; `None` at the end.
    pub lease: Option<Lease>,
    /// `None` at the end.
    pub seat: Option<Seat>,
    pub upstream: Arc<Upstream>,
    pub worker: usize,
    pub limits: Arc<Limits>,
    /// How long nothing may come.
    pub idle: Duration,
    /// Runs while the instance sends nothing.
    pub stall: Option<Pin<Box<Sleep>>>,
    /// How to go on from another instance when this one breaks off.
    pub resume: Option<Box<Resume>>,
    /// It is known that the instance works on the request.
    pub is_alive: bool,
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
    Broken(#[from] InstanceError),
    #[error("the instance broke off, and no other could continue the answer")]
    NotResumed,
    #[error("the instance sent more than the range that it named")]
    TooLong,
    #[error("the instance sent nothing for too long")]
    Stalled,
    #[error("the request took too long in all")]
    TimedOut,
    #[error("it cannot be compressed: {0}")]
    Coding(std::io::Error),
}

impl Relay {
    /// What comes next of the body.
    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        loop {
            if self.resume.as_ref().is_some_and(|resume| resume.is_fetching()) {
                match self.poll_rest(cx) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(error)) => return Poll::Ready(Some(Err(error))),
                    Poll::Pending => return self.poll_stall(cx),
                }
            }
            let Some(lease) = &mut self.lease else { return Poll::Ready(None) };
            match lease.poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => return Poll::Ready(Some(self.note(frame))),
                Poll::Ready(None) if !self.is_short() => {
                    self.finish();
                    return Poll::Ready(None);
                }
                Poll::Ready(None) if self.ask_another(Attempt::Broken) => {}
                Poll::Ready(None) => {
                    self.fail(Attempt::Broken);
                    return Poll::Ready(Some(Err(BodyError::NotResumed)));
                }
                Poll::Ready(Some(Err(_))) if self.ask_another(Attempt::Broken) => {}
                Poll::Ready(Some(Err(error))) => {
                    self.fail(Attempt::Broken);
                    return Poll::Ready(Some(Err(error.into())));
                }
                Poll::Pending => return self.poll_stall(cx),
            }
        }
    }

    /// True when nothing more comes.
    pub fn is_end_stream(&self) -> bool {
        self.lease.as_ref().is_none_or(|lease| lease.is_end_stream() && !self.is_short())
    }

    /// True when bytes are missing whatever the instance says: the rest that it sends is shorter than the range that it named.
    fn is_short(&self) -> bool {
        self.resume.as_ref().is_some_and(|resume| resume.is_short())
    }

    /// What is known of the length of the rest.
    pub fn size_hint(&self) -> SizeHint {
        self.lease.as_ref().map_or_else(|| SizeHint::with_exact(0), Lease::size_hint)
    }

    /// A part of the response has come.
    fn note(&mut self, mut frame: Frame<Bytes>) -> Result<Frame<Bytes>, BodyError> {
        self.stall = None;
        if let Some(trailers) = frame.trailers_mut() {
            forward::clean_trailers(trailers);
        }
        if let (Some(resume), Some(data)) = (&mut self.resume, frame.data_ref())
            && !resume.note(data.len())
        {
            self.fail(Attempt::Broken);
            return Err(BodyError::TooLong);
        }
        if self.is_end_stream() {
            self.finish();
        }
        Ok(frame)
    }

    /// Has another instance go on with the response, if that is possible.
    fn ask_another(&mut self, attempt: Attempt) -> bool {
        let (Some(resume), Some(seat)) = (&mut self.resume, &self.seat) else { return false };
        resume.begin(seat, attempt, self.worker, &self.limits)
    }

    /// Waits for the rest of the response from another instance.
    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        loop {
            let Some(resume) = &mut self.resume else { return Poll::Ready(Ok(())) };
            match resume.poll(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(Resumed { lease, upstream })) => {
                    (self.lease, self.upstream, self.stall) = (Some(lease), upstream, None);
                    return Poll::Ready(Ok(()));
                }
                // One that answers, but not with the rest, is not to blame.
                Poll::Ready(Err(attempt)) if attempt != Attempt::Answered && self.ask_another(attempt) => {}
                Poll::Ready(Err(attempt)) => {
                    self.fail(attempt);
                    return Poll::Ready(Err(BodyError::NotResumed));
                }
            }
        }
    }

    fn poll_stall(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.end.as_mut().is_some_and(|end| end.as_mut().poll(cx).is_ready()) {
            self.fail(Attempt::Abandoned);
            return Poll::Ready(Some(Err(BodyError::TimedOut)));
        }
        if !std::mem::replace(&mut self.is_alive, true) {
            // What ends at once needs no such note.
            self.seat.as_ref().into_iter().for_each(Seat::note_life);
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

    /// The response has ended as it should.
    pub fn finish(&mut self) {
        let (seat, lease) = (self.seat.take(), self.lease.take());
        let unfinished = self.upload.take().filter(|upload| {
            let is_sent = lease.as_ref().is_none_or(Lease::is_sent);
            !upload.is_finished() || !is_sent
        });
        match (lease, unfinished) {
            (Some(lease), Some(upload)) if self.takes_rest && !upload.is_held() => {
                let (upstream, worker, limits) = (Arc::clone(&self.upstream), self.worker, Arc::clone(&self.limits));
                tokio::spawn(Rest { lease, seat, upload, upstream, worker, limits, end: self.end.take() }.send());
                return;
            }
            (Some(lease), None) => self.upstream.put_back(self.worker, lease, &self.limits),
            // Its request is not finished, so no other may follow on it (RFC 9112 section 9.3).
            (lease, _) => drop(lease),
        }
        if let Some(seat) = seat {
            seat.finish(Attempt::Answered, RequestOutcome::Served);
        }
    }

    fn fail(&mut self, attempt: Attempt) {
        self.lease = None;
        if let Some(seat) = self.seat.take() {
            let is_client = self.upload.as_ref().is_some_and(|upload| upload.is_broken());
            seat.finish(if is_client { Attempt::Abandoned } else { attempt }, RequestOutcome::Failed);
        }
    }
}

/// What is left of a request after its response. It keeps the seat: the instance still works on it.
struct Rest {
    lease: Lease,
    seat: Option<Seat>,
    upload: Arc<Upload>,
    upstream: Arc<Upstream>,
    worker: usize,
    limits: Arc<Limits>,
    /// When the request has taken all the time it may.
    end: Option<Pin<Box<Sleep>>>,
}

impl Rest {
    /// Sends it for as long as it moves.
    async fn send(mut self) {
        self.seat.iter().for_each(Seat::note_life);
        let is_sent = match self.end.take() {
            None => self.move_on().await,
            Some(end) => tokio::select! {
                is_sent = self.move_on() => is_sent,
                () = end => false,
            },
        };
        let Self { lease, seat, upload, upstream, worker, limits, .. } = self;
        if is_sent && upload.is_finished() && !upload.is_broken() {
            upstream.put_back(worker, lease, &limits);
        } else {
            drop(lease);
        }
        // Its client has its answer, whatever came of the rest.
        if let Some(seat) = seat {
            seat.finish(Attempt::Answered, RequestOutcome::Served);
        }
    }

    /// True once nothing more is to be sent; false when nothing has moved for too long.
    async fn move_on(&mut self) -> bool {
        loop {
            let sent = std::future::poll_fn(|cx| self.lease.poll_sent(cx));
            if tokio::time::timeout(self.limits.stalled_write, sent).await.is_ok() {
                return true;
            }
            if self.upload.stillness() >= self.limits.stalled_write {
                return false;
            }
        }
    }
}
