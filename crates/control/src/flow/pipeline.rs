//! One gateway's pipeline for one cluster: queues, a scheduler and a limit on outstanding requests (Pacifici section 2).
//!
//! A request arrives into the FIFO queue of its class. It is released toward an instance when (1) fewer than `N` requests
//! are outstanding and (2) the scheduler picks its queue. `N` limits the sum only, so a class borrows the seats that others
//! leave unused, and the pipeline is work conserving.
//!
//! # Which queue is next
//!
//! Weighted round robin, as stride scheduling with a virtual time `V`. Class `i` has weight `w_i` and a pass `p_i`:
//!
//! ```text
//! queue i stops being empty:   p_i <- max(p_i, V)
//! dispatch:                    i = argmin p_j over queues that are not empty (the first of equals)
//!                              V <- p_i;  p_i <- p_i + 1 / w_i
//! ```
//!
//! `V` never falls, and no pass is more than `1 / w_i` ahead of it. So while classes `i` and `j` both have requests waiting,
//! the numbers `n` that each gets released in any such period obey
//!
//! ```text
//! | n_i / w_i - n_j / w_j |  <=  1 / w_i + 1 / w_j
//! ```
//!
//! which makes the long-run proportions exact, and class `i` waits for at most `ceil(w_j / w_i) + 1` releases of each other
//! class: nothing starves. A class that was idle gains no credit for it.
//!
//! # Each request is answered once
//!
//! `handle_arrival` gives a [`Ticket`] or rejects. A ticket ends in exactly one of: completed or cancelled
//! ([`Pipeline::handle_completion`], [`Pipeline::handle_cancel`]), or expired in its queue ([`Pipeline::handle_timeout`]).
//! A ticket that has ended is never valid again. In numbers, for each class and at any moment:
//! `arrivals = completions + rejections + errors + queued + in_service`.

mod tickets;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use weal_model::{AppSpec, ClassName, FlowAllocation, LatencyHistogram, OverloadLimit, PoolSpec, Time};
use weal_protocol::gateway::Unavailable;

pub use tickets::{ClassIndex, Ticket};
use tickets::{Phase, Request, Tickets};

/// Weights are kept within this range: below it a pass would jump further than an f64 counts single requests.
const WEIGHTS: (f64, f64) = (1e-6, 1e9);

/// Sizes are kept within this range, so that a wrong one neither lets everything pass nor blocks everything.
const SIZES: (f64, f64) = (0.01, 100.0);

/// Passes are counted from zero again beyond this, long before an f64 loses sight of `1 / w`.
const REBASE_AT: f64 = (1u64 << 20) as f64;

/// What a pipeline works by. Complete: a class that is not in it takes no new requests.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PipelineLimits {
    /// Requests that may be outstanding, over all classes: `N`; `None` does not limit.
    pub seats: Option<u32>,
    /// Per class.
    pub classes: BTreeMap<ClassName, ClassLimits>,
}

/// What one class of a pipeline works by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClassLimits {
    /// Its share of releases while all queues have requests, relative to the others.
    pub weight: f64,
    /// Seats that one request of it takes: 1, or more or less than that where seats are counted by their power.
    pub size: f64,
    /// Requests that may wait.
    pub queue_limit: u32,
}

impl PipelineLimits {
    /// What `planned`, made for some gateway, says for its cluster of `app`. Without a plan for each of its flows nothing is limited: a
    /// wrong limit does more harm than none for a cycle.
    pub fn planned<'a>(pool: &PoolSpec, app: &AppSpec, planned: impl Fn(&ClassName) -> Option<&'a FlowAllocation>) -> Self {
        let classes: BTreeSet<&ClassName> = app.routes.iter().map(|route| &route.class).collect();
        let flows: Vec<Option<&FlowAllocation>> = classes.iter().map(|class| planned(class)).collect();
        let all: Option<Vec<&FlowAllocation>> = flows.iter().copied().collect();
        let sizes = all.as_ref().map_or_else(|| vec![1.0; flows.len()], |all| sizes(pool.overload_limit, all));
        let weight = |flow: &FlowAllocation| flow.weight.max(WEIGHTS.0);
        let limits = |(flow, size): (&Option<&FlowAllocation>, f64)| ClassLimits {
            weight: flow.map_or(1.0, weight),
            size,
            queue_limit: app.queue_limit,
        };
        Self {
            seats: all.filter(|_| pool.limits_seats()).map(|all| all.iter().map(|flow| flow.seats.max(1)).sum()),
            classes: classes.into_iter().cloned().zip(flows.iter().zip(sizes).map(limits)).collect(),
        }
    }

    /// As many seats for one more instance as each of the `open` ones has, until a plan says better.
    pub fn add_instance(&mut self, open: usize) {
        let share = |seats: u32| seats.div_ceil(u32::try_from(open.max(1)).unwrap_or(u32::MAX));
        self.seats = self.seats.map(|seats| seats.saturating_add(share(seats)));
    }
}

/// What one request of each flow of a cluster takes of their seats, in the order of `planned`: by power, `kappa` over its mean,
/// so that the seats of all together come to the same number.
fn sizes(limit: OverloadLimit, planned: &[&FlowAllocation]) -> Vec<f64> {
    let seats: f64 = planned.iter().map(|flow| f64::from(flow.seats)).sum();
    let power: f64 = planned.iter().map(|flow| f64::from(flow.seats) * flow.seat_power.0).sum();
    let mean = power / seats;
    // A flow of which nothing is known makes a mean of the others too low to go by.
    let known = planned.iter().all(|flow| flow.seat_power.0 > 0.0);
    let by_power = limit == OverloadLimit::Power && known && mean.is_finite() && mean > 0.0;
    planned.iter().map(|flow| if by_power { flow.seat_power.0 / mean } else { 1.0 }).collect()
}

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

/// What happened in one class since the pipeline was made. Counters only grow.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ClassCounters {
    /// Requests that came in.
    pub arrivals: u64,
    /// Requests served.
    pub completions: u64,
    /// Requests that found the queue full or expired in it.
    pub rejections: u64,
    /// Requests that failed in service, or were cancelled in the queue or in service.
    pub errors: u64,
    /// From arrival to completion, of those served.
    pub response_time: LatencyHistogram,
    /// From dispatch to completion, of those served.
    pub service_time: LatencyHistogram,
    /// Integral of the queue length over time, in request-seconds.
    pub queue_integral_s: f64,
    /// Integral of the outstanding requests over time, in request-seconds.
    pub in_service_integral_s: f64,
}

/// The queues, the scheduler and the limiter of one (gateway, cluster).
#[derive(Debug, Default)]
pub struct Pipeline {
    seats: Option<u32>,
    /// Invariant: an entry is never removed, so that a [`ClassIndex`] stays valid.
    classes: Vec<Class>,
    tickets: Tickets,
    /// Queued requests by deadline. Invariant: holds exactly the queued ones.
    deadlines: BTreeSet<(Time, Ticket)>,
    /// Sum over classes.
    in_service: u32,
    /// Sum over classes.
    queued: u32,
    /// `V` above. Invariant: never falls, except that all passes are moved along with it.
    virtual_time: f64,
    /// The latest moment seen: an earlier `now` counts as this one.
    now: Time,
}

#[derive(Debug)]
struct Class {
    name: ClassName,
    /// Invariant: within [`WEIGHTS`].
    weight: f64,
    /// Invariant: within [`SIZES`].
    size: f64,
    queue_limit: u32,
    /// `p` above.
    pass: f64,
    /// Waiting requests in order of arrival, with some that ended in between. Invariant: the front one waits.
    queue: VecDeque<Ticket>,
    queued: u32,
    in_service: u32,
    /// The moment up to which the integrals are complete.
    integrated: Time,
    counters: ClassCounters,
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
            let weight = sane_weight(class_limits.weight);
            match self.class(name) {
                Some(ClassIndex(index)) => {
                    let class = &mut self.classes[index as usize];
                    let ahead = (class.pass - self.virtual_time).max(0.0);
                    class.pass = self.virtual_time + ahead * class.weight / weight;
                    (class.weight, class.queue_limit) = (weight, class_limits.queue_limit);
                    class.size = sane_size(class_limits.size);
                }
                None => self.classes.push(Class::new(name.clone(), class_limits, self.now)),
            }
        }
    }

    /// Where `name` is.
    pub fn class(&self, name: &ClassName) -> Option<ClassIndex> {
        self.classes.iter().position(|class| class.name == *name).map(|index| ClassIndex(index as u32))
    }

    /// A request comes in and is refused at once.
    pub fn handle_refusal(&mut self, now: Time, class: ClassIndex) {
        self.advance(now);
        let counters = &mut self.classes[class.0 as usize].counters;
        counters.arrivals += 1;
        counters.rejections += 1;
    }

    /// A request comes in. It may go on once [`Pipeline::poll_dispatch`] names its ticket; if that has not happened at
    /// `deadline`, it expires.
    pub fn handle_arrival(&mut self, now: Time, class: ClassIndex, deadline: Time) -> Result<Ticket, Rejection> {
        self.advance(now);
        let passes_straight = self.queued == 0 && self.has_seat(class);
        let entry = &mut self.classes[class.0 as usize];
        entry.counters.arrivals += 1;
        if entry.queued >= entry.queue_limit && !passes_straight {
            entry.counters.rejections += 1;
            return Err(Rejection::QueueFull);
        }
        entry.integrate(self.now);
        if entry.queued == 0 {
            entry.pass = entry.pass.max(self.virtual_time);
        }
        entry.queued += 1;
        self.queued += 1;
        let ticket = self.tickets.insert(Request { class, arrived: self.now, phase: Phase::Queued { deadline } });
        entry.queue.push_back(ticket);
        self.deadlines.insert((deadline, ticket));
        Ok(ticket)
    }

    /// The next request that may go to an instance; it is outstanding from now on. `None` when no seat is free or nothing
    /// waits. Call it only when some instance can take a request.
    pub fn poll_dispatch(&mut self, now: Time) -> Option<Dispatch> {
        self.advance(now);
        let class = self.next_class().filter(|&class| self.has_seat(class))?;
        self.take_turn(class);
        let ticket = self.classes[class.0 as usize].queue.pop_front().expect("a queue with waiting requests has a front");
        let request = self.tickets.get_mut(ticket).expect("the front of a queue waits");
        if let Phase::Queued { deadline } = request.phase {
            self.deadlines.remove(&(deadline, ticket));
        }
        request.phase = Phase::InService { dispatched: self.now };
        let waited = self.now.since(request.arrived);
        self.left_queue(class);
        self.in_service += 1;
        self.classes[class.0 as usize].in_service += 1;
        Some(Dispatch { ticket, class, waited })
    }

    /// A request that was dispatched has ended; its seat is free. False when the ticket had ended before or is still queued.
    pub fn handle_completion(&mut self, now: Time, ticket: Ticket, outcome: RequestOutcome) -> bool {
        self.advance(now);
        let Some(&Request { class, arrived, phase: Phase::InService { dispatched } }) = self.tickets.get(ticket) else {
            return false;
        };
        self.tickets.remove(ticket);
        self.in_service -= 1;
        let entry = &mut self.classes[class.0 as usize];
        entry.integrate(self.now);
        entry.in_service -= 1;
        match outcome {
            RequestOutcome::Served => {
                entry.counters.completions += 1;
                entry.counters.response_time.record(self.now.since(arrived));
                entry.counters.service_time.record(self.now.since(dispatched));
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
                self.classes[class.0 as usize].counters.errors += 1;
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
            self.classes[class.0 as usize].counters.rejections += 1;
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

    /// How long the oldest of the waiting has waited; zero when nothing waits.
    pub fn oldest_wait(&self, now: Time) -> Duration {
        let fronts = self.classes.iter().filter_map(|class| self.tickets.get(*class.queue.front()?));
        fronts.map(|request| now.since(request.arrived)).max().unwrap_or_default()
    }

    /// Requests of a class that wait, how many may, and seats over all classes.
    pub fn limits_of(&self, class: ClassIndex) -> (u32, u32, Option<u32>) {
        let entry = &self.classes[class.0 as usize];
        (entry.queued, entry.queue_limit, self.seats)
    }

    /// Every class with its counters complete up to `now`, the requests waiting and outstanding, and the time that the
    /// oldest of the waiting has waited.
    pub fn observe(&mut self, now: Time) -> impl Iterator<Item = ClassObservation<'_>> {
        self.advance(now);
        let now = self.now;
        let tickets = &self.tickets;
        self.classes.iter_mut().enumerate().map(move |(index, class)| {
            class.integrate(now);
            let oldest = class.queue.front().and_then(|&ticket| tickets.get(ticket));
            ClassObservation {
                index: ClassIndex(index as u32),
                name: &class.name,
                counters: &class.counters,
                queued: class.queued,
                in_service: class.in_service,
                oldest_wait: oldest.map(|request| now.since(request.arrived)).unwrap_or_default(),
            }
        })
    }

    fn advance(&mut self, now: Time) {
        self.now = self.now.max(now);
    }

    /// True when one more request of `class` may be outstanding beside those that are. One that is larger than all the seats
    /// goes alone.
    fn has_seat(&self, class: ClassIndex) -> bool {
        let Some(seats) = self.seats else { return true };
        let occupied: f64 = self.classes.iter().map(|class| class.size * f64::from(class.in_service)).sum();
        let size = self.classes[class.0 as usize].size;
        occupied + size <= f64::from(seats) * (1.0 + 1e-9) || self.in_service == 0 && seats > 0
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
            if class.queued > 0 && best.is_none_or(|(pass, _)| class.pass < pass) {
                best = Some((class.pass, index as u32));
            }
        }
        best.map(|(_, index)| ClassIndex(index))
    }

    fn take_turn(&mut self, class: ClassIndex) {
        let entry = &mut self.classes[class.0 as usize];
        self.virtual_time = entry.pass;
        entry.pass += 1.0 / entry.weight;
        if self.virtual_time > REBASE_AT {
            for class in &mut self.classes {
                class.pass = (class.pass - self.virtual_time).max(0.0);
            }
            self.virtual_time = 0.0;
        }
    }

    /// Ends a request that waits; its entry in the queue is left behind unless it is in front.
    fn remove_queued(&mut self, ticket: Ticket) -> ClassIndex {
        let request = self.tickets.remove(ticket).expect("the caller saw it waiting");
        if let Phase::Queued { deadline } = request.phase {
            self.deadlines.remove(&(deadline, ticket));
        }
        self.left_queue(request.class);
        request.class
    }

    /// Restores the invariant of a class's queue after one request has left it, in amortised constant time.
    fn left_queue(&mut self, class: ClassIndex) {
        let entry = &mut self.classes[class.0 as usize];
        entry.integrate(self.now);
        entry.queued -= 1;
        self.queued -= 1;
        let waits = |ticket: &Ticket| matches!(self.tickets.get(*ticket), Some(Request { phase: Phase::Queued { .. }, .. }));
        while entry.queue.front().is_some_and(|front| !waits(front)) {
            entry.queue.pop_front();
        }
        // Requests cancelled behind a front that waits for long would pile up without bound.
        if entry.queue.len() > 2 * entry.queued as usize + 64 {
            entry.queue.retain(waits);
        }
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
    /// How long the oldest of the waiting has waited.
    pub oldest_wait: Duration,
}

impl Class {
    fn new(name: ClassName, limits: &ClassLimits, now: Time) -> Self {
        Self {
            name,
            weight: sane_weight(limits.weight),
            size: sane_size(limits.size),
            queue_limit: limits.queue_limit,
            pass: 0.0,
            queue: VecDeque::new(),
            queued: 0,
            in_service: 0,
            integrated: now,
            counters: ClassCounters::default(),
        }
    }

    /// Completes the integrals; to be called before a length changes.
    fn integrate(&mut self, now: Time) {
        let span_s = now.since(self.integrated).as_secs_f64();
        self.counters.queue_integral_s += span_s * f64::from(self.queued);
        self.counters.in_service_integral_s += span_s * f64::from(self.in_service);
        self.integrated = now;
    }
}

/// NaN counts as one seat.
fn sane_size(size: f64) -> f64 {
    if size.is_nan() { 1.0 } else { size.clamp(SIZES.0, SIZES.1) }
}

/// NaN and anything below the range count as the least weight: such a class is served last, never not at all.
fn sane_weight(weight: f64) -> f64 {
    if weight.is_nan() { WEIGHTS.0 } else { weight.clamp(WEIGHTS.0, WEIGHTS.1) }
}
