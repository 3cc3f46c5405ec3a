//! The body of a request on its way to an instance, and how far it has come.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use weal_model::Time;

use super::incoming::{Incoming, IncomingError};
use super::origin;
use crate::clock::Clock;

/// Bytes that are read to no purpose so that a connection can go on after a response that came before the end of the request. More cost
/// the client more than a new connection.
const DISCARDED: u64 = 256 << 10;

/// What reading them may take.
const DISCARD_TIME: Duration = Duration::from_secs(10);

/// What is sent to an instance.
#[derive(Debug)]
pub(crate) enum RequestBody {
    Empty,
    Client(ClientBody),
}

/// What a client sends. Dropped before its end, the rest is read, if that is little, so that the client's connection can go on. Over HTTP/2
/// it goes on in any case.
#[derive(Debug)]
pub(crate) struct ClientBody {
    /// `None` only while this is dropped.
    incoming: Option<Incoming>,
    upload: Arc<Upload>,
    /// Bytes that may still come.
    room: u64,
    limit: u64,
}

/// Why a body came to a bad end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UploadError {
    #[error(transparent)]
    Client(#[from] IncomingError),
    #[error("the request's body is longer than its route allows")]
    TooLarge,
}

/// How far a body has come. Its exchange looks at this while the connection to the instance has the body.
#[derive(Debug)]
pub(crate) struct Upload {
    clock: Clock,
    state: AtomicU8,
    /// Bytes to come; `u64::MAX` when that is unknown.
    left: AtomicU64,
    /// When bytes were last taken.
    moved: AtomicU64,
    /// True while the client has sent nothing more.
    is_starved: AtomicBool,
    /// The limit that the body has exceeded; `u64::MAX` while it has not.
    exceeded: AtomicU64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum State {
    /// The client sends nothing before it is told to go on, which reading does.
    Held,
    Flowing,
    Complete,
    /// The client broke off, or sent nonsense.
    Broken,
}

impl RequestBody {
    /// What comes with a request. With `is_held` nothing is read before [`Upload::release`].
    pub fn new(incoming: Incoming, is_held: bool, clock: Clock) -> (Self, Option<Arc<Upload>>) {
        if incoming.is_end_stream() {
            return (Self::Empty, None);
        }
        let state = if is_held { State::Held } else { State::Flowing };
        let upload = Arc::new(Upload {
            clock,
            state: AtomicU8::new(state as u8),
            left: AtomicU64::new(incoming.size_hint().exact().unwrap_or(u64::MAX)),
            moved: AtomicU64::new(clock.now().0),
            is_starved: AtomicBool::new(false),
            exceeded: AtomicU64::new(u64::MAX),
        });
        (
            Self::Client(ClientBody { incoming: Some(incoming), upload: Arc::clone(&upload), room: u64::MAX, limit: u64::MAX }),
            Some(upload),
        )
    }

    /// More than `limit` bytes are an error.
    pub fn limit(&mut self, limit: u64) {
        if let Self::Client(body) = self {
            (body.room, body.limit) = (limit, limit);
        }
    }
}

impl Upload {
    /// The client is told to go on, once the connection to the instance asks for its body.
    pub fn release(&self) {
        let _ = self.state.compare_exchange(State::Held as u8, State::Flowing as u8, Ordering::AcqRel, Ordering::Acquire);
    }

    pub fn is_held(&self) -> bool {
        self.is(State::Held)
    }

    /// True when nothing more is to come.
    pub fn is_finished(&self) -> bool {
        self.is(State::Complete) || self.is(State::Broken)
    }

    /// True when it is the client that ended it before its time.
    pub fn is_broken(&self) -> bool {
        self.is(State::Broken)
    }

    /// The limit that the body has exceeded.
    pub fn exceeded(&self) -> Option<u64> {
        Some(self.exceeded.load(Ordering::Acquire)).filter(|limit| *limit != u64::MAX)
    }

    /// True when the client's connection cannot go on after a response now: too much of the request is still to come, or nobody knows
    /// whether it will (RFC 9112 section 9.3, RFC 9110 section 10.1.1).
    pub fn ends_connection(&self) -> bool {
        self.is_held() || self.is_broken() || (self.is(State::Flowing) && self.left.load(Ordering::Relaxed) > DISCARDED)
    }

    /// For how long nothing has been taken.
    pub fn stillness(&self) -> Duration {
        self.clock.now().since(Time(self.moved.load(Ordering::Relaxed)))
    }

    /// True when the connection to the instance would take more than the client has sent.
    pub fn waits_for_client(&self) -> bool {
        self.is(State::Flowing) && self.is_starved.load(Ordering::Relaxed)
    }

    fn is(&self, state: State) -> bool {
        self.state.load(Ordering::Acquire) == state as u8
    }

    fn enter(&self, state: State) {
        self.state.store(state as u8, Ordering::Release);
    }
}

impl ClientBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, UploadError>>> {
        let Self { incoming, upload, room, limit } = self;
        let Some(incoming) = incoming.as_mut().filter(|_| !upload.is_held()) else { return Poll::Pending };
        let polled = Pin::new(&mut *incoming).poll_frame(cx);
        upload.is_starved.store(polled.is_pending(), Ordering::Relaxed);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            match room.checked_sub(frame.data_ref().map_or(0, |data| data.len() as u64)) {
                Some(left) => *room = left,
                None => {
                    upload.exceeded.store(*limit, Ordering::Release);
                    upload.enter(State::Broken);
                    return Poll::Ready(Some(Err(UploadError::TooLarge)));
                }
            }
        }
        match &polled {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Some(Err(_))) => upload.enter(State::Broken),
            // Trailers are the last that comes.
            Poll::Ready(Some(Ok(frame))) if frame.is_data() && !incoming.is_end_stream() => {
                upload.left.store(incoming.size_hint().exact().unwrap_or(u64::MAX), Ordering::Relaxed);
            }
            Poll::Ready(_) => upload.enter(State::Complete),
        }
        upload.moved.store(upload.clock.now().0, Ordering::Relaxed);
        polled.map_ok(without_announced).map_err(UploadError::Client)
    }
}

/// Trailers cannot say anew what the gateway has said: some servers add them to the fields of the head (RFC 9110 section 6.5.1).
fn without_announced(frame: Frame<Bytes>) -> Frame<Bytes> {
    match frame.into_trailers() {
        Ok(mut trailers) => {
            origin::remove_announced(&mut trailers);
            Frame::trailers(trailers)
        }
        Err(data) => data,
    }
}

impl Drop for ClientBody {
    fn drop(&mut self) {
        // What is held is not read: the client would be told to send it.
        if self.upload.is(State::Flowing)
            && let Some(incoming @ Incoming::H1(_)) = self.incoming.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(tokio::time::timeout(DISCARD_TIME, discard(incoming)));
        }
    }
}

async fn discard(mut incoming: Incoming) {
    let mut count = 0;
    while let Some(Ok(frame)) = incoming.frame().await {
        count += frame.data_ref().map_or(0, |data| data.len() as u64);
        if count > DISCARDED {
            return;
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = UploadError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, UploadError>>> {
        match self.get_mut() {
            Self::Empty => Poll::Ready(None),
            Self::Client(body) => body.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Client(body) => body.incoming.as_ref().is_none_or(Incoming::is_end_stream),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Client(body) => body.incoming.as_ref().map_or_else(SizeHint::default, Incoming::size_hint),
        }
    }
}
