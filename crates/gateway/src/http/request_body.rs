//! The body of a request on its way to an instance, and how far it has come.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use weal_model::Time;

use super::incoming::{Incoming, IncomingError};
use super::{forward, origin};
use crate::clock::Clock;
use crate::listen::patience::Patience;

/// Bytes that are read to no purpose so that a connection can go on after a response that came before the end of the request. More cost
/// the client more than a new connection.
const DISCARDED: u64 = 256 << 10;

/// What reading them may take.
const DISCARD_TIME: Duration = Duration::from_secs(10);

/// What is sent to an instance.
#[derive(Debug)]
pub(crate) enum RequestBody {
    Empty,
    Client(Box<ClientBody>),
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
    /// What was read before the instance asked for it.
    ahead: VecDeque<Bytes>,
    trailers: Option<HeaderMap>,
    /// True once the client has sent all.
    has_ended: bool,
    /// With how slow a client, and at which rate in bytes per second; `None` for any.
    patience: Option<(Patience, u32)>,
}

/// How much of a body was read ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ahead {
    All,
    /// As much as there was room for.
    Full,
    /// It came to a bad end.
    Broken,
}

/// Why a body came to a bad end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UploadError {
    #[error(transparent)]
    Client(#[from] IncomingError),
    #[error("the request's body is longer than its route allows")]
    TooLarge,
    #[error("the request's body comes too slowly")]
    TooSlow,
}

/// The seat of a request.
pub(crate) trait NotesClientWait: fmt::Debug + Send + Sync {
    /// The request waits for its client from now on, or does not any more.
    fn note_client_wait(&self, waits: bool);
}

/// What a request holds until its body is there, and lets go by being dropped.
pub(crate) trait Share: fmt::Debug + Send {}

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
    /// The rate that the body has fallen short of, in bytes per second; 0 while it has not.
    missed_rate: AtomicU32,
    /// Its request's seat, which is told when it waits for the client.
    seat: OnceLock<Box<dyn NotesClientWait>>,
    /// Its part of the seats that may wait for bodies, until all of it is there.
    share: Mutex<Option<Box<dyn Share>>>,
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
            missed_rate: AtomicU32::new(0),
            seat: OnceLock::new(),
            share: Mutex::default(),
        });
        let body = ClientBody {
            incoming: Some(incoming),
            upload: Arc::clone(&upload),
            room: u64::MAX,
            limit: u64::MAX,
            ahead: VecDeque::new(),
            trailers: None,
            has_ended: false,
            patience: None,
        };
        (Self::Client(Box::new(body)), Some(upload))
    }

    /// A client that sends less than `rate` bytes a second, once it has had `patience`, has sent a bad body. 0 is any rate.
    pub fn pace(&mut self, rate: u32, patience: Duration) {
        if let Self::Client(body) = self {
            body.patience = (rate > 0).then(|| (Patience::new(patience), rate));
        }
    }

    /// Reads what comes before the instance asks for it, up to `room` bytes.
    pub fn poll_ahead(&mut self, cx: &mut Context<'_>, room: usize) -> Poll<Ahead> {
        match self {
            Self::Empty => Poll::Ready(Ahead::All),
            Self::Client(body) => body.poll_ahead(cx, room),
        }
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

    /// The rate that the body has fallen short of, in bytes per second.
    pub fn missed_rate(&self) -> Option<u32> {
        Some(self.missed_rate.load(Ordering::Acquire)).filter(|rate| *rate > 0)
    }

    /// Its request goes on although not all of it has come.
    pub fn hold(&self, share: impl Share + 'static) {
        *self.share.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(share));
    }

    /// Its request has taken this place.
    pub fn attach(&self, seat: impl NotesClientWait + 'static) {
        self.is_starved.store(false, Ordering::Relaxed);
        let _ = self.seat.set(Box::new(seat));
    }

    /// The client has sent nothing more, or it has.
    fn note_starved(&self, is_starved: bool) {
        if self.is_starved.swap(is_starved, Ordering::Relaxed) != is_starved
            && let Some(seat) = self.seat.get()
        {
            seat.note_client_wait(is_starved);
        }
    }

    /// Nobody takes the body any more.
    fn note_gone(&self) {
        if self.is_starved.load(Ordering::Relaxed)
            && let Some(seat) = self.seat.get()
        {
            seat.note_client_wait(false);
        }
    }

    /// Nothing more is to come.
    fn let_share_go(&self) {
        drop(self.share.lock().unwrap_or_else(PoisonError::into_inner).take());
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

/// Pieces that are kept one by one: of more, one is made.
const PIECES: usize = 16;

impl ClientBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, UploadError>>> {
        let ahead = self.ahead.pop_front().map(Frame::data).or_else(|| self.trailers.take().map(Frame::trailers));
        let frame = match ahead {
            Some(frame) => Some(Ok(frame)),
            None => ready!(self.poll_incoming(cx)),
        };
        let is_last = match &frame {
            Some(Err(_)) => false,
            // Trailers are the last that comes.
            Some(Ok(frame)) => !frame.is_data() || self.is_at_end(),
            None => true,
        };
        if is_last {
            self.upload.enter(State::Complete);
        }
        Poll::Ready(frame)
    }

    /// Reads of the client.
    fn poll_incoming(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, UploadError>>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        let Some(incoming) = self.incoming.as_mut().filter(|_| !self.upload.is_held()) else { return Poll::Pending };
        let polled = Pin::new(&mut *incoming).poll_frame(cx);
        self.upload.note_starved(polled.is_pending());
        let Poll::Ready(frame) = polled else { return self.poll_too_slow(cx) };
        let Some(Ok(frame)) = frame else {
            self.has_ended = true;
            self.upload.let_share_go();
            return Poll::Ready(frame.map(|error| {
                self.upload.enter(State::Broken);
                error.map_err(UploadError::Client)
            }));
        };
        let bytes = frame.data_ref().map_or(0, Bytes::len);
        let Some(room) = self.room.checked_sub(bytes as u64) else {
            self.upload.exceeded.store(self.limit, Ordering::Release);
            return Poll::Ready(Some(Err(self.fail(UploadError::TooLarge))));
        };
        self.room = room;
        if let Some((patience, rate)) = &mut self.patience {
            patience.note_progress(bytes, *rate);
        }
        if frame.is_data() && !incoming.is_end_stream() {
            self.upload.left.store(incoming.size_hint().exact().unwrap_or(u64::MAX), Ordering::Relaxed);
        } else {
            self.has_ended = true;
            self.upload.let_share_go();
        }
        self.upload.moved.store(self.upload.clock.now().0, Ordering::Relaxed);
        Poll::Ready(Some(Ok(with_clean_trailers(frame))))
    }

    fn poll_too_slow(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, UploadError>>> {
        let Some((patience, rate)) = &mut self.patience else { return Poll::Pending };
        ready!(patience.poll_exhausted(cx));
        self.upload.missed_rate.store(*rate, Ordering::Release);
        Poll::Ready(Some(Err(self.fail(UploadError::TooSlow))))
    }

    fn fail(&self, error: UploadError) -> UploadError {
        self.upload.enter(State::Broken);
        self.upload.let_share_go();
        error
    }

    fn poll_ahead(&mut self, cx: &mut Context<'_>, room: usize) -> Poll<Ahead> {
        loop {
            if self.has_ended {
                return Poll::Ready(Ahead::All);
            }
            if self.ahead.iter().map(Bytes::len).sum::<usize>() >= room {
                return Poll::Ready(Ahead::Full);
            }
            match ready!(self.poll_incoming(cx)) {
                None => return Poll::Ready(Ahead::All),
                Some(Err(_)) => return Poll::Ready(Ahead::Broken),
                Some(Ok(frame)) => self.keep(frame),
            }
        }
    }

    fn keep(&mut self, frame: Frame<Bytes>) {
        match frame.into_data() {
            Ok(data) if data.is_empty() => {}
            Ok(data) => self.ahead.push_back(data),
            Err(frame) => self.trailers = frame.into_trailers().ok(),
        }
        if self.ahead.len() > PIECES {
            let whole = self.ahead.iter().flatten().copied().collect::<Bytes>();
            self.ahead = [whole].into();
        }
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.incoming.as_ref().map_or_else(SizeHint::default, Incoming::size_hint);
        let ahead = self.ahead.iter().map(|data| data.len() as u64).sum::<u64>();
        match rest.exact() {
            Some(rest) => SizeHint::with_exact(ahead + rest),
            None => rest,
        }
    }

    /// True when nothing is left to hand on, trailers included.
    fn is_at_end(&self) -> bool {
        self.ahead.is_empty() && self.trailers.is_none() && self.has_ended
    }
}

/// Trailers cannot say anew what the gateway has said: some servers add them to the fields of the head (RFC 9110 section 6.5.1).
fn with_clean_trailers(mut frame: Frame<Bytes>) -> Frame<Bytes> {
    if let Some(trailers) = frame.trailers_mut() {
        forward::clean_trailers(trailers);
        origin::remove_announced(trailers);
    }
    frame
}

impl Drop for ClientBody {
    fn drop(&mut self) {
        self.upload.note_gone();
        self.upload.let_share_go();
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
            Self::Client(body) => body.is_at_end(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Client(body) => body.size_hint(),
        }
    }
}
