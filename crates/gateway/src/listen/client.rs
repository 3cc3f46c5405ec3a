//! One client connection as others see it: its phase, how far its requests have come, and the orders that it is given.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use weal_control::flow::pipeline::Reading;
use weal_model::{AppName, Time};

use crate::clock::Clock;
use crate::http::framing::Framing;
use crate::listen::own::Counted;
use crate::routing::cluster::SeatHandle;
use crate::telemetry::ended::Recorded;
use crate::upstream::speech::Ends;

/// What a connection does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    /// Between requests, not a byte of the next one is there.
    Idle,
    /// Some of a request's head is there.
    Head,
    /// At least one request is being answered.
    Busy,
    /// No longer HTTP.
    Tunnel,
}

/// Whether the request of a connection waits for a seat.
#[derive(Debug, Clone, Copy)]
#[repr(u8)]
enum Waiting {
    No,
    Yes,
    /// It did when its client closed its side.
    Left,
}

/// What a connection is told to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Order {
    GoOn,
    /// Close after the next answer that begins: its head says so.
    Leave,
    /// Close after the answers to the present requests, or at once if there is none.
    Close,
    /// The head of the request takes too long: close now.
    TooSlow,
    /// The client abuses the gateway: close now, whatever is being answered.
    Abuse,
}

/// One client connection, as its own task and the sweeper see it.
#[derive(Debug)]
pub(crate) struct Client {
    pub peer: SocketAddr,
    /// Where it connected to.
    pub server: SocketAddr,
    /// The application that is called, when it came through an inner address.
    inner: Option<AppName>,
    /// How its connections and requests are counted.
    counted: Counted,
    clock: Clock,
    phase: AtomicU8,
    /// When the phase began; while busy, when the head did.
    since: AtomicU64,
    /// Requests being answered. Over HTTP/1 there is one at most.
    exchanges: AtomicU32,
    order: AtomicU8,
    waker: AtomicWaker,
    /// Requests of which the framing is told unambiguously by their heads: [`Framing::requests`].
    requests: AtomicU64,
    /// True while some of a head has come.
    is_within_head: AtomicBool,
    /// Times that all that was to be written has been.
    flushes: AtomicU64,
    /// What of them had been when it became idle.
    flushes_before_idle: AtomicU64,
    /// It has been idle for a while: nothing of HTTP's machinery need be kept for it.
    may_rest: AtomicBool,
    /// It has sent a body. Who answers before its end may still have to read the rest or to close, which only HTTP's machinery knows: taken
    /// for a request, the rest would be one that nobody has sent.
    has_sent_body: AtomicBool,
    /// Nothing is kept for it but its socket.
    is_resting: AtomicBool,
    /// Whether it waits for a seat, or has closed its side of the connection while it did: [`Client::has_left`].
    waiting: AtomicU8,
    /// Heads of interim responses that are to be written before the response, and whether there are any.
    interim: Mutex<Vec<u8>>,
    has_interim: AtomicBool,
    /// Bytes per second that it sends and takes at least, by the route of its last request.
    min_rate: AtomicU32,
    /// The seat of the request whose answer it is sent, where that takes longer than a moment.
    answering: Mutex<Option<SeatHandle>>,
}

impl Client {
    pub fn new(ends: Ends, clock: Clock) -> Self {
        Self {
            peer: ends.client,
            server: ends.server,
            inner: None,
            counted: Counted::Address,
            clock,
            phase: AtomicU8::new(Phase::Idle as u8),
            since: AtomicU64::new(clock.now().0),
            exchanges: AtomicU32::new(0),
            order: AtomicU8::new(Order::GoOn as u8),
            waker: AtomicWaker::new(),
            requests: AtomicU64::new(0),
            is_within_head: AtomicBool::new(false),
            flushes: AtomicU64::new(0),
            flushes_before_idle: AtomicU64::new(0),
            may_rest: AtomicBool::new(false),
            has_sent_body: AtomicBool::new(false),
            is_resting: AtomicBool::new(false),
            waiting: AtomicU8::new(Waiting::No as u8),
            interim: Mutex::default(),
            has_interim: AtomicBool::new(false),
            min_rate: AtomicU32::new(0),
            answering: Mutex::default(),
        }
    }

    /// Bytes per second that it sends and takes at least; 0 is any rate.
    pub fn min_rate(&self) -> u32 {
        self.min_rate.load(Ordering::Relaxed)
    }

    pub fn note_min_rate(&self, rate: u32) {
        self.min_rate.store(rate, Ordering::Relaxed);
    }

    /// The request that has this seat is being answered, until its end.
    pub fn note_answering(&self, seat: SeatHandle) {
        *self.answering() = Some(seat);
    }

    /// It takes no more of its answer for now, or has taken so many bytes since.
    pub fn note_stalled(&self, is_stalled: bool, taken: usize) {
        if let Some(seat) = &*self.answering() {
            seat.note_reading(Reading { waits: is_stalled, taken: taken as u64, min_rate: self.min_rate() });
        }
    }

    /// Ready when it takes its answer so slowly that others wait for the seat.
    pub fn poll_cut(&self, cx: &Context<'_>) -> Poll<()> {
        self.answering().as_ref().map_or(Poll::Pending, |seat| seat.poll_cut(cx))
    }

    fn answering(&self) -> MutexGuard<'_, Option<SeatHandle>> {
        self.answering.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It came through the inner address of `app`.
    #[must_use]
    pub fn with_inner(self, inner: Option<AppName>) -> Self {
        Self { inner, ..self }
    }

    /// It is counted so.
    #[must_use]
    pub fn with_counted(self, counted: Counted) -> Self {
        Self { counted, ..self }
    }

    /// False for an application that calls one which it needs.
    pub fn is_counted(&self) -> bool {
        self.counted != Counted::Not
    }

    /// What it is counted as.
    pub fn counted_as(&self) -> IpAddr {
        match self.counted {
            Counted::As(address) => address,
            Counted::Address | Counted::Not => self.peer.ip(),
        }
    }

    /// The application that is called, when it came through an inner address.
    pub fn inner(&self) -> Option<&AppName> {
        self.inner.as_ref()
    }

    pub fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Idle,
            1 => Phase::Head,
            2 => Phase::Busy,
            _ => Phase::Tunnel,
        }
    }

    /// How long it has been in its phase.
    pub fn phase_age(&self, now: Time) -> Duration {
        now.since(Time(self.since.load(Ordering::Relaxed)))
    }

    pub fn now(&self) -> Time {
        self.clock.now()
    }

    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Gives an order; one that says more replaces one that says less.
    pub fn give(&self, order: Order) {
        self.order.fetch_max(order as u8, Ordering::AcqRel);
        self.waker.wake();
    }

    /// True when it is going to close.
    pub fn has_order(&self) -> bool {
        self.order.load(Ordering::Acquire) != Order::GoOn as u8
    }

    /// The order in force. The task of `cx` is woken when another one is given.
    pub fn poll_order(&self, cx: &mut Context<'_>) -> Order {
        self.waker.register(cx.waker());
        match self.order.load(Ordering::Acquire) {
            0 => Order::GoOn,
            1 => Order::Leave,
            2 => Order::Close,
            3 => Order::TooSlow,
            _ => Order::Abuse,
        }
    }

    /// Completes once it is told to close although no request has come.
    pub async fn told_to_close(&self) {
        std::future::poll_fn(|cx| if self.poll_order(cx) < Order::Close { Poll::Pending } else { Poll::Ready(()) }).await;
    }

    /// A request begins.
    pub fn begin(self: &Arc<Self>) -> Busy {
        self.exchanges.fetch_add(1, Ordering::Relaxed);
        // How long it has been busy is nobody's concern, and the time costs a call.
        self.phase.store(Phase::Busy as u8, Ordering::Release);
        Busy { client: Arc::clone(self), record: None, has_seat_noted: false }
    }

    /// Requests being answered.
    pub fn exchanges(&self) -> u32 {
        self.exchanges.load(Ordering::Relaxed)
    }

    /// The connection is no longer HTTP, until it closes.
    pub fn enter_tunnel(&self) {
        self.enter(Phase::Tunnel);
    }

    /// Requests that have come as far as the end of their heads, and whose framing is unambiguous.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Times that all that was to be written has been.
    pub fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::Relaxed)
    }

    /// Notes that nothing more is to be written for now.
    pub fn note_flush(&self) {
        self.flushes.fetch_add(1, Ordering::Relaxed);
    }

    /// It has been idle for a while. True once for each time that it is.
    pub fn let_rest(&self) -> bool {
        let is_new = !self.may_rest.swap(true, Ordering::AcqRel);
        if is_new {
            self.waker.wake();
        }
        is_new
    }

    /// True once [`Client::let_rest`] was called since it became idle.
    pub fn may_rest(&self) -> bool {
        self.may_rest.load(Ordering::Acquire)
    }

    /// It keeps HTTP's machinery for good.
    pub fn forbid_rest(&self) {
        self.has_sent_body.store(true, Ordering::Relaxed);
    }

    /// It rests from now on, or no longer.
    pub fn note_rest(&self, rests: bool) {
        self.is_resting.store(rests, Ordering::Relaxed);
    }

    pub fn is_resting(&self) -> bool {
        self.is_resting.load(Ordering::Relaxed)
    }

    /// True when it has been idle for a while, and all that was to be written to it has been.
    pub fn can_rest(&self) -> bool {
        self.may_rest()
            && !self.has_sent_body.load(Ordering::Relaxed)
            && self.phase() == Phase::Idle
            && self.flushes() > self.flushes_before_idle.load(Ordering::Relaxed)
    }

    /// Its request waits for a seat, or no longer does. While it waits, a client that closes its side of the connection counts as gone:
    /// few do that and still want an answer, and most have closed the whole connection, which looks the same from here.
    pub fn watch_for_leaving(&self, waits: bool) {
        let waiting = if waits { Waiting::Yes } else { Waiting::No };
        self.waiting.store(waiting as u8, Ordering::Relaxed);
    }

    /// True while [`Client::watch_for_leaving`] asks for news that has not come.
    pub fn is_watched(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) == Waiting::Yes as u8
    }

    /// It has closed its side of the connection while its request waited.
    pub fn note_left(&self) {
        self.waiting.store(Waiting::Left as u8, Ordering::Relaxed);
    }

    pub fn has_left(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) == Waiting::Left as u8
    }

    /// Has the head of an interim response written before the response.
    pub fn push_interim(&self, head: &[u8]) {
        self.interim().extend_from_slice(head);
        self.has_interim.store(true, Ordering::Release);
    }

    /// What [`Client::push_interim`] has brought, if anything.
    pub fn take_interim(&self) -> Option<Vec<u8>> {
        if !self.has_interim.load(Ordering::Acquire) {
            return None;
        }
        self.has_interim.store(false, Ordering::Release);
        Some(std::mem::take(&mut *self.interim()))
    }

    fn interim(&self) -> MutexGuard<'_, Vec<u8>> {
        self.interim.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, phase: Phase) {
        if phase == Phase::Idle {
            self.flushes_before_idle.store(self.flushes(), Ordering::Relaxed);
            self.may_rest.store(false, Ordering::Release);
        }
        self.since.store(self.clock.now().0, Ordering::Relaxed);
        self.phase.store(phase as u8, Ordering::Release);
    }

    /// Notes how far a reader of what was received has come, which was `within_body` before.
    pub fn note_read(&self, framing: &Framing, within_body: bool) {
        let begun = self.requests.swap(framing.requests(), Ordering::Relaxed) != framing.requests();
        self.is_within_head.store(framing.is_within_head(), Ordering::Relaxed);
        if self.phase() != Phase::Idle {
            return;
        }
        if within_body && !begun && !framing.is_within_head() {
            // The request has its answer already, and its client sends the rest of the body.
            self.since.store(self.clock.now().0, Ordering::Relaxed);
        } else {
            self.enter(Phase::Head);
        }
    }
}

/// A request being answered, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Busy {
    client: Arc<Client>,
    /// What the access log and a span say at the end; `None` when there is neither.
    pub record: Option<Recorded>,
    /// True once [`Client::note_answering`] was told.
    has_seat_noted: bool,
}

impl Busy {
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Its answer takes longer than a moment, and its client may hold it up.
    pub fn note_answering(&mut self, seat: SeatHandle) {
        self.client.note_answering(seat);
        self.has_seat_noted = true;
    }

    /// It is answered with `status`; by the gateway itself when there is a `reason`.
    pub fn note_answer(&mut self, status: http::StatusCode, reason: Option<&'static str>) {
        if let Some((record, _)) = &mut self.record {
            (record.status, record.reason) = (status.as_u16(), reason);
        }
    }

    pub fn note_sent(&mut self, bytes: u64) {
        if let Some((record, _)) = &mut self.record {
            record.sent = bytes;
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let is_last = self.client.exchanges.fetch_sub(1, Ordering::Relaxed) == 1;
        if self.has_seat_noted {
            *self.client.answering() = None;
        }
        if is_last && self.client.phase() == Phase::Busy {
            // The start of the next request may have come meanwhile, and nothing else may follow.
            let is_within_head = self.client.is_within_head.load(Ordering::Relaxed);
            self.client.enter(if is_within_head { Phase::Head } else { Phase::Idle });
        }
        if let Some((mut record, told)) = self.record.take() {
            record.ended = self.client.clock.now();
            told.push(record);
        }
    }
}
