//! One gateway's pipeline for one cluster: queues, a scheduler and a limit on outstanding requests (Pacifici section 2).
//!
//! A request arrives into the FIFO queue of its class. It is released toward an instance when (1) fewer than `N` requests
//! are outstanding and (2) the scheduler picks its queue. `N` limits the sum only, so a class borrows the seats that others
//! leave unused, and the pipeline is work conserving.
//!
//! # Which queue is next
//!
//! Weighted round robin (Pacifici section 2), as stride scheduling with a virtual time `V` and corrected by each class's deficit. Class `i`
//! has weight `w_i`, a pass `p_i`, and keeps a deficit of at most `c_i` releases while its queue is empty for a moment:
//!
//! ```text
//! queue i stops being empty:   p_i <- max(p_i, V - c_i / w_i),   c_i = max(1, N w_i / sum of w)
//! dispatch:                    i = argmin p_j over queues that are not empty (the first of equals)
//!                              V <- max(V, p_i);  p_i <- p_i + 1 / w_i
//! ```
//!
//! No pass is more than `1 / w_i` ahead of `V`. So while classes `i` and `j` both have requests waiting, the numbers `n` that each gets
//! released in any such period obey
//!
//! ```text
//! | n_i / w_i - n_j / w_j |  <=  1 / w_i + 1 / w_j
//! ```
//!
//! which makes the long-run proportions exact, whatever the lengths of requests, and class `i` waits for at most `ceil(w_j / w_i) + 1`
//! releases of each other class: nothing starves.
//!
//! Few clients beside many often leave their queue empty for the moment that an answer takes to become the next request. Without the
//! deficit their class would lose a turn each time, and get less than its share. A class that was idle for long gains no more than `c_i`
//! releases: its own part of the `N` seats, once.
//!
//! # What a class may say
//!
//! - *Late* requests may be dropped: those that have waited until an answer within the goal is unlikely. `S` is a request's time in its
//!   seat, with mean and mean deviation as smoothed measurements, so a request that arrived at `a` is late from
//!   `a + goal - (mean S + 4 dev S)` on. Where that is not after `a`, no request can meet the goal, and none is dropped for it.
//! - A *rate limit* releases so many requests per second. What comes faster waits, and does not hold up other classes.
//! - Requests of *sessions under way* wait before those that begin one (Carrera 4.3: what was begun is finished). In a full queue the
//!   newest that begins a session makes room for one that goes on.
//!
//! # Time that clients take
//!
//! A request whose client sends slowly, or takes its answer slowly, keeps its seat: the instance has it. But that time says nothing of the
//! instance. Were it counted as service, the model behind seats would take slow clients for a need of CPU. So
//! [`Pipeline::handle_client_wait`] keeps it out of the measured times and of the integral of outstanding requests. Those that take their
//! answers slowly never hold all seats while others wait: `pipeline/readers.rs` says how.
//!
//! # Each request is answered once
//!
//! `handle_arrival` gives a [`Ticket`] or rejects. A ticket ends in exactly one of: completed or cancelled
//! ([`Pipeline::handle_completion`], [`Pipeline::handle_cancel`]), expired in its queue ([`Pipeline::handle_timeout`]), or dropped from it
//! ([`Pipeline::poll_dropped`]).
//! In between it may lose its seat and wait once more ([`Pipeline::handle_return`]). A ticket that has ended is never valid again. In numbers, for each class and at any moment:
//! `arrivals = completions + rejections + errors + queued + in_service`.

mod class;
mod client;
mod limits;
mod queue;
mod readers;
mod share;
mod tickets;

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use weal_model::{ClassName, Time};
use weal_protocol::gateway::Unavailable;

use class::Class;
pub use class::ClassCounters;
pub use client::Reading;
use client::{ClientTime, Reader};
pub use limits::{ClassLimits, PipelineLimits};
pub use tickets::{ClassIndex, HANGS_AFTER, Ticket};
use tickets::{Phase, Request, Tickets};

/// Passes are counted from zero again beyond this, long before an f64 loses sight of `1 / w`.
const REBASE_AT: f64 = (1u64 << 20) as f64;

/// Why a request was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// As many wait as may.
    #[error("the queue is full")]
    QueueFull,
    /// No instance takes requests, and none will soon.
    #[error(transparent)]
    Unavailable(Unavailable),
}

/// How a request that had a seat ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestOutcome {
    /// An instance answered it, to the end of the response's body.
    Served,
    /// It ended in an error of ours or of an instance, or broke off.
    Failed,
}

/// A request that may go to an instance now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dispatch {
    /// Which.
    pub ticket: Ticket,
    /// Its class.
    pub class: ClassIndex,
    /// How long it waited.
    pub waited: Duration,
}

/// A request that comes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// Its class.
    pub class: ClassIndex,
    /// It goes on with a session that was begun before.
    pub in_session: bool,
    /// False: it waits for something that no goal reckons with, and is served however long that takes.
    pub can_be_late: bool,
}

impl From<ClassIndex> for Arrival {
    fn from(class: ClassIndex) -> Self {
        Self { class, in_session: false, can_be_late: true }
    }
}

/// Why a request that waited was dropped before its time was up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DropReason {
    /// It had waited until it could no longer meet its goal.
    #[error("the request waited for so long that it can no longer meet its goal")]
    Late,
    /// The queue was full, and a request of a session under way came.
    #[error("the queue is full, and requests of sessions under way go first")]
    Displaced,
}

/// A request that was dropped from its queue. Its ticket has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dropped {
    /// Which.
    pub ticket: Ticket,
    /// Why.
    pub reason: DropReason,
}

/// The queues, the scheduler and the limiter of one (gateway, cluster).
#[derive(Debug, Default)]
pub struct Pipeline {
    seats: Option<u32>,
    /// Those of the seats that are this gateway's now; `None` when all are.
    held: Option<u32>,
    /// Invariant: an entry is never removed, so that a [`ClassIndex`] stays valid.
    classes: Vec<Class>,
    tickets: Tickets,
    /// Queued requests by deadline. Invariant: holds exactly the queued ones.
    deadlines: BTreeSet<(Time, Ticket)>,
    /// Queued requests by the moment from which they are late. Invariant: holds exactly the queued ones that can be.
    lates: BTreeSet<(Time, Ticket)>,
    /// Not yet told.
    dropped: VecDeque<Dropped>,
    /// When clients that take nothing will be slow readers. Invariant: exactly those that are waited for and are none yet.
    stalls: BTreeSet<(Time, Ticket)>,
    /// When a request last got a seat.
    released: Time,
    /// Sum over classes.
    in_service: u32,
    /// Sum over classes.
    queued: u32,
    /// Of the classes that may take new requests.
    total_weight: f64,
    /// `V` above. Invariant: never falls, except that all passes are moved along with it.
    virtual_time: f64,
    /// The latest moment seen: an earlier `now` counts as this one.
    now: Time,
}

impl Pipeline {
    /// An empty pipeline.
    pub fn new(limits: &PipelineLimits) -> Self {
        let mut pipeline = Self::default();
        pipeline.configure(Time::ZERO, limits);
        pipeline
    }

    /// Works by `limits` from now on. No request is lost: those of a class that is gone keep their place and are served, and
    /// those beyond a lowered limit stay.
    pub fn configure(&mut self, now: Time, limits: &PipelineLimits) {
        self.advance(now);
        self.seats = limits.seats;
        for class in &mut self.classes {
            if !limits.classes.contains_key(&class.name) {
                class.queue_limit = 0;
            }
        }
        for (name, class_limits) in &limits.classes {
            match self.class(name) {
                Some(ClassIndex(index)) => {
                    self.classes[index as usize].configure(self.now, class_limits, self.virtual_time);
                }
                None => self.classes.push(Class::new(name.clone(), class_limits, self.now)),
            }
        }
        let listed = self.classes.iter().filter(|class| limits.classes.contains_key(&class.name));
        self.total_weight = listed.map(|class| class.weight).sum();
    }

    /// Where `name` is.
    pub fn class(&self, name: &ClassName) -> Option<ClassIndex> {
        self.classes.iter().position(|class| class.name == *name).map(|index| ClassIndex(index as u32))
    }

    /// A request comes in and is refused at once.
    pub fn handle_refusal(&mut self, now: Time, class: ClassIndex) {
        self.advance(now);
        let counters = &mut self.classes[class.at()].counters;
        counters.arrivals += 1;
        counters.rejections += 1;
    }

    /// A request comes in. It may go on once [`Pipeline::poll_dispatch`] names its ticket; if that has not happened at
    /// `deadline`, it expires.
    ///
    /// # Errors
    /// When as many wait as may.
    pub fn handle_arrival(&mut self, now: Time, arrival: impl Into<Arrival>, deadline: Time) -> Result<Ticket, Rejection> {
        self.advance(now);
        let Arrival { class, in_session, can_be_late } = arrival.into();
        self.classes[class.at()].counters.arrivals += 1;
        let is_full = self.classes[class.at()].is_full();
        if is_full && !self.passes_straight(class) && !(in_session && self.displace(class)) {
            self.classes[class.at()].counters.rejections += 1;
            return Err(Rejection::QueueFull);
        }
        if self.classes[class.at()].queued == 0 {
            let deficit = self.deficit(class);
            let entry = &mut self.classes[class.at()];
            entry.pass = entry.pass.max(self.virtual_time - deficit / entry.weight);
        }
        let entry = &mut self.classes[class.at()];
        entry.integrate(self.now);
        entry.queued += 1;
        self.queued += 1;
        let late = entry.late_from(self.now).filter(|_| can_be_late);
        let ticket = self.tickets.insert(Request { class, arrived: self.now, phase: Phase::Queued { deadline, late } });
        entry.queue.push(ticket, in_session);
        self.deadlines.insert((deadline, ticket));
        self.lates.extend(late.map(|late| (late, ticket)));
        Ok(ticket)
    }

    /// The next request that may go to an instance; it is outstanding from now on. `None` when no seat is free or nothing
    /// waits. Call it only when some instance can take a request.
    pub fn poll_dispatch(&mut self, now: Time) -> Option<Dispatch> {
        self.advance(now);
        self.drop_late();
        let class = self.next_class().filter(|&class| self.has_seat(class))?;
        self.take_turn(class);
        let ticket = self.classes[class.at()].queue.pop().expect("a queue with waiting requests has a front");
        self.forget_waiting(ticket);
        let request = self.tickets.get_mut(ticket).expect("the front of a queue waits");
        let (client, reader) = (ClientTime::default(), Reader::default());
        request.phase = Phase::InService { dispatched: self.now, is_silent: true, client, reader };
        let waited = self.now.since(request.arrived);
        self.left_queue(class);
        self.released = self.now;
        self.in_service += 1;
        self.classes[class.at()].in_service += 1;
        Some(Dispatch { ticket, class, waited })
    }

    /// A request that was dropped from its queue since the last call, by `now`. To be asked after each input until it gives none.
    pub fn poll_dropped(&mut self, now: Time) -> Option<Dropped> {
        self.advance(now);
        self.drop_late();
        self.dropped.pop_front()
    }

    /// When [`Pipeline::poll_dispatch`], [`Pipeline::poll_dropped`] or [`Pipeline::poll_cut`] have something to give although nothing comes in:
    /// the next request is late, a class may send its next one, or a slow reader makes room.
    pub fn poll_wait(&self) -> Option<Time> {
        let late = self.lates.first().map(|&(late, _)| late);
        let waiting = self.classes.iter().filter(|class| class.queued > 0);
        let tokens = waiting.filter_map(|class| class.next_token(self.now));
        tokens.chain(late).chain(self.poll_readers()).min()
    }

    /// A request that was dispatched goes back to the front of its queue, as no instance has begun with it. It waits until `timeout` after its
    /// arrival, and is not late before. False when that is over, or the ticket had ended or waits.
    pub fn handle_return(&mut self, now: Time, ticket: Ticket, timeout: Duration) -> bool {
        self.advance(now);
        let Some(&Request { class, arrived, phase: Phase::InService { client, reader, .. } }) = self.tickets.get(ticket) else {
            return false;
        };
        let deadline = arrived + timeout;
        if deadline <= self.now {
            return false;
        }
        self.forget_reader(class, ticket, reader);
        self.tickets.get_mut(ticket).expect("it was just there").phase = Phase::Queued { deadline, late: None };
        self.deadlines.insert((deadline, ticket));
        (self.in_service, self.queued) = (self.in_service - 1, self.queued + 1);
        self.classes[class.at()].take_back(self.now, ticket, client.waits());
        true
    }

    /// A request in service has shown a sign of life: it does not hang.
    pub fn handle_sign_of_life(&mut self, ticket: Ticket) {
        if let Some(Request { phase: Phase::InService { is_silent, .. }, .. }) = self.tickets.get_mut(ticket) {
            *is_silent = false;
        }
    }

    /// A request in service has a response with this status code.
    pub fn handle_status(&mut self, ticket: Ticket, status: u16) {
        if let Some(class) = self.class_in_service(ticket) {
            self.classes[class.at()].counters.responses.count(status);
        }
    }

    /// A request in service waits for its client from now on, or no longer. One that has no seat is none that holds one up.
    pub fn handle_client_wait(&mut self, now: Time, ticket: Ticket, waits: bool) {
        self.advance(now);
        let now = self.now;
        let Some(Request { class, phase: Phase::InService { client, .. }, .. }) = self.tickets.get_mut(ticket) else { return };
        if client.note(now, waits) {
            let entry = &mut self.classes[class.at()];
            entry.integrate(now);
            entry.at_clients = if waits { entry.at_clients + 1 } else { entry.at_clients - 1 };
        }
    }

    /// A request that was dispatched has ended; its seat is free. False when the ticket had ended before or is still queued.
    pub fn handle_completion(&mut self, now: Time, ticket: Ticket, outcome: RequestOutcome) -> bool {
        self.advance(now);
        let Some(&Request { class, arrived, phase: Phase::InService { dispatched, client, reader, .. } }) =
            self.tickets.get(ticket)
        else {
            return false;
        };
        self.forget_reader(class, ticket, reader);
        self.tickets.remove(ticket);
        self.in_service -= 1;
        let entry = &mut self.classes[class.at()];
        entry.integrate(self.now);
        entry.in_service -= 1;
        entry.at_clients -= u32::from(client.waits());
        let at_client = client.total(self.now);
        match outcome {
            RequestOutcome::Served => {
                entry.counters.completions += 1;
                entry.counters.response_time.record(self.now.since(arrived).saturating_sub(at_client));
                entry.note_service(self.now.since(dispatched).saturating_sub(at_client));
            }
            RequestOutcome::Failed => entry.counters.errors += 1,
        }
        true
    }

    /// Nobody wants the answer any more, wherever the request is. False when the ticket had ended before.
    pub fn handle_cancel(&mut self, now: Time, ticket: Ticket) -> bool {
        match self.tickets.get(ticket).map(|request| request.phase) {
            None => false,
            Some(Phase::InService { .. }) => self.handle_completion(now, ticket, RequestOutcome::Failed),
            Some(Phase::Queued { .. }) => {
                self.advance(now);
                let class = self.remove_queued(ticket);
                self.classes[class.at()].counters.errors += 1;
                true
            }
        }
    }

    /// When [`Pipeline::handle_timeout`] has something to do next; `None` when nothing waits.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.deadlines.first().map(|&(deadline, _)| deadline)
    }

    /// Ends what has waited until its deadline, and says what that was.
    pub fn handle_timeout(&mut self, now: Time) -> Vec<Ticket> {
        self.advance(now);
        let now = self.now;
        self.expire(|deadline| deadline <= now)
    }

    /// Ends everything that waits, and says what that was.
    pub fn handle_close(&mut self, now: Time) -> Vec<Ticket> {
        self.advance(now);
        self.expire(|_| true)
    }

    fn expire(&mut self, is_over: impl Fn(Time) -> bool) -> Vec<Ticket> {
        let mut expired = Vec::new();
        while let Some(&(deadline, ticket)) = self.deadlines.first() {
            if !is_over(deadline) {
                break;
            }
            let class = self.remove_queued(ticket);
            self.classes[class.at()].counters.rejections += 1;
            expired.push(ticket);
        }
        expired
    }

    /// True while the ticket is valid and has no seat.
    pub fn is_queued(&self, ticket: Ticket) -> bool {
        matches!(self.tickets.get(ticket), Some(Request { phase: Phase::Queued { .. }, .. }))
    }

    /// True while the ticket is valid and has a seat.
    pub fn is_in_service(&self, ticket: Ticket) -> bool {
        matches!(self.tickets.get(ticket), Some(Request { phase: Phase::InService { .. }, .. }))
    }

    /// The class of a ticket that is valid and has a seat.
    pub fn class_in_service(&self, ticket: Ticket) -> Option<ClassIndex> {
        self.tickets.get(ticket).filter(|request| matches!(request.phase, Phase::InService { .. })).map(|request| request.class)
    }

    /// Requests waiting, over all classes.
    pub fn queued(&self) -> u32 {
        self.queued
    }

    /// Requests outstanding, over all classes.
    pub fn in_service(&self) -> u32 {
        self.in_service
    }

    /// Those of them that have a seat, where slow readers have given theirs to others.
    pub fn seated(&self) -> u32 {
        self.in_service.saturating_sub(self.lent() as u32)
    }

    /// How long the oldest of the waiting has waited; zero when nothing waits.
    pub fn oldest_wait(&self, now: Time) -> Duration {
        let oldest = self.classes.iter().filter_map(|class| class.oldest(&self.tickets));
        oldest.map(|request| now.since(request.arrived)).max().unwrap_or_default()
    }

    /// Requests of a class that wait, how many may, and seats over all classes.
    pub fn limits_of(&self, class: ClassIndex) -> (u32, u32, Option<u32>) {
        let entry = &self.classes[class.at()];
        (entry.queued, entry.queue_limit, self.seats)
    }

    /// Every class with its counters complete up to `now`, the requests waiting and outstanding, and the time that the
    /// oldest of the waiting has waited.
    pub fn observe(&mut self, now: Time) -> impl Iterator<Item = ClassObservation<'_>> {
        self.advance(now);
        let now = self.now;
        let tickets = &self.tickets;
        let hanging: Vec<ClassIndex> = tickets.iter().filter(|request| request.hangs(now)).map(|request| request.class).collect();
        self.classes.iter_mut().enumerate().map(move |(index, class)| {
            class.integrate(now);
            let oldest = class.oldest(tickets);
            ClassObservation {
                index: ClassIndex(index as u32),
                name: &class.name,
                counters: &class.counters,
                queued: class.queued,
                in_service: class.in_service,
                at_clients: class.at_clients,
                hanging: hanging.iter().filter(|of| of.at() == index).count() as u32,
                oldest_wait: oldest.map(|request| now.since(request.arrived)).unwrap_or_default(),
            }
        })
    }

    fn advance(&mut self, now: Time) {
        self.now = self.now.max(now);
        for class in self.classes.iter_mut().filter(|class| class.is_rate_limited()) {
            class.refill(self.now);
        }
        self.note_slow_readers();
    }

    /// True when a request of `class` would not wait at all.
    fn passes_straight(&self, class: ClassIndex) -> bool {
        self.next_class().is_none() && self.has_seat(class) && self.classes[class.at()].has_token()
    }

    /// `c` above, in releases.
    fn deficit(&self, class: ClassIndex) -> f64 {
        let seats = f64::from(self.seats.unwrap_or(1));
        (seats * self.classes[class.at()].weight / self.total_weight.max(f64::MIN_POSITIVE)).clamp(1.0, seats.max(1.0))
    }

    /// Makes room for a request of a session under way, where one waits that begins a session.
    fn displace(&mut self, class: ClassIndex) -> bool {
        let tickets = &self.tickets;
        let Some(newest) = self.classes[class.at()].queue.pop_newest(|ticket| tickets.get(ticket).is_some()) else {
            return false;
        };
        self.drop(newest, DropReason::Displaced);
        true
    }

    fn drop_late(&mut self) {
        while let Some(&(_, ticket)) = self.lates.first().filter(|(late, _)| *late <= self.now) {
            self.drop(ticket, DropReason::Late);
        }
    }

    fn drop(&mut self, ticket: Ticket, reason: DropReason) {
        let class = self.remove_queued(ticket);
        let counters = &mut self.classes[class.at()].counters;
        counters.rejections += 1;
        counters.late += u64::from(reason == DropReason::Late);
        self.dropped.push_back(Dropped { ticket, reason });
    }

    /// True when one more request of `class` may be outstanding beside those that are. One that is larger than all the seats
    /// goes alone.
    fn has_seat(&self, class: ClassIndex) -> bool {
        self.has_room(self.classes[class.at()].size)
    }

    /// True when something waits and the seats allow it.
    pub fn can_dispatch(&self) -> bool {
        self.next_class().is_some_and(|class| self.has_seat(class))
    }

    /// The class whose turn it is. When its request is too large for the seats that are free, nobody passes it: a small one that
    /// did would keep it waiting for ever.
    fn next_class(&self) -> Option<ClassIndex> {
        let mut best: Option<(f64, u32)> = None;
        for (index, class) in self.classes.iter().enumerate() {
            if class.queued > 0 && class.has_token() && best.is_none_or(|(pass, _)| class.pass < pass) {
                best = Some((class.pass, index as u32));
            }
        }
        best.map(|(_, index)| ClassIndex(index))
    }

    fn take_turn(&mut self, class: ClassIndex) {
        let entry = &mut self.classes[class.at()];
        self.virtual_time = self.virtual_time.max(entry.pass);
        entry.pass += 1.0 / entry.weight;
        entry.take_token();
        if self.virtual_time > REBASE_AT {
            for class in &mut self.classes {
                class.pass -= self.virtual_time;
            }
            self.virtual_time = 0.0;
        }
    }

    /// Ends a request that waits; its entry in the queue is left behind unless it is in front.
    fn remove_queued(&mut self, ticket: Ticket) -> ClassIndex {
        self.forget_waiting(ticket);
        let request = self.tickets.remove(ticket).expect("the caller saw it waiting");
        self.left_queue(request.class);
        request.class
    }

    /// A request waits no longer: no moment ends its wait.
    fn forget_waiting(&mut self, ticket: Ticket) {
        if let Some(&Request { phase: Phase::Queued { deadline, late }, .. }) = self.tickets.get(ticket) {
            self.deadlines.remove(&(deadline, ticket));
            late.map(|late| self.lates.remove(&(late, ticket)));
        }
    }

    /// Restores the invariant of a class's queue after one request has left it, in amortised constant time.
    fn left_queue(&mut self, class: ClassIndex) {
        let entry = &mut self.classes[class.at()];
        entry.integrate(self.now);
        entry.queued -= 1;
        self.queued -= 1;
        let tickets = &self.tickets;
        let waits = |ticket: Ticket| matches!(tickets.get(ticket), Some(Request { phase: Phase::Queued { .. }, .. }));
        entry.queue.tidy(entry.queued as usize, waits);
    }
}

/// One class, as seen at a moment.
#[derive(Debug, Clone, Copy)]
pub struct ClassObservation<'a> {
    /// Where it is.
    pub index: ClassIndex,
    /// Its name.
    pub name: &'a ClassName,
    /// What happened so far.
    pub counters: &'a ClassCounters,
    /// Waiting now.
    pub queued: u32,
    /// Outstanding now.
    pub in_service: u32,
    /// Those of the outstanding that have shown no sign of life for [`HANGS_AFTER`] or longer.
    pub hanging: u32,
    /// Those of the outstanding that wait for their clients.
    pub at_clients: u32,
    /// How long the oldest of the waiting has waited.
    pub oldest_wait: Duration,
}
