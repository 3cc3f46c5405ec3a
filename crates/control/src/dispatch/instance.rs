//! One instance among which is chosen: what is outstanding there, and whether it fails.

use std::time::Duration;

use weal_model::{InstanceId, Time};

/// Requests broken off in a row that mark an instance. One may be the request's own fault; a crash breaks off several.
pub const BREAKS_TO_MARK: u32 = 3;

/// How long the first mark keeps an instance out: about the time of a quick restart.
pub const FIRST_SPAN: Duration = Duration::from_millis(500);

/// How long a mark keeps an instance out at most: longer would waste one that is back, shorter costs those that are not.
pub const LONGEST_SPAN: Duration = Duration::from_secs(30);

/// How often an instance that refuses connections is tried while its requests wait. Shorter costs connections in vain; longer is what requests
/// wait in vain.
pub const TRY_EVERY: Duration = Duration::from_millis(100);

/// How long requests wait for an instance that refuses connections, from the first refusal on. It is the time in which a controller that is
/// itself started again says whether the instance is gone. Longer would keep clients waiting for what does not come back; shorter would fail
/// requests that are served a moment later.
pub const BRIDGED: Duration = Duration::from_secs(5);

/// One instance to choose from.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// Its id. An instance that keeps it keeps its counts.
    pub instance: InstanceId,
    /// Its share of the load relative to the others.
    pub weight: f64,
    /// True: nothing new goes there.
    pub draining: bool,
}

/// How an attempt at an instance ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// It answered, whatever the status.
    Answered,
    /// No connection came about.
    Refused,
    /// It broke off before the end of its response.
    Broken,
    /// Ended for reasons that say nothing about the instance: the client left, or the time was up.
    Abandoned,
}

/// An instance that refuses connections.
#[derive(Debug, Clone, Copy)]
struct Refusing {
    since: Time,
    next_try: Time,
}

#[derive(Debug)]
pub(super) struct Instance {
    pub id: InstanceId,
    pub weight: f64,
    pub draining: bool,
    /// False: no longer a candidate, kept for what is outstanding.
    pub present: bool,
    pub outstanding: u32,
    /// When its turn is among equals: requests given so far, each over the weight of its time.
    pub turn: f64,
    /// Which life of an instance this is: nothing that an earlier one kept in memory is still there.
    pub life: u32,
    /// Invariant: at least 1 while marked, 0 otherwise.
    marks_in_a_row: u32,
    breaks_in_a_row: u32,
    /// Meaningless unless marked: when its probation begins.
    out_until: Time,
    /// `None` once it has taken a connection.
    refusing: Option<Refusing>,
    pub completions: u64,
    pub failures: u64,
}

impl Instance {
    pub fn new(candidate: &Candidate, turn: f64, life: u32) -> Self {
        Self {
            id: candidate.instance.clone(),
            weight: sane_weight(candidate.weight),
            draining: candidate.draining,
            present: true,
            outstanding: 0,
            turn,
            life,
            marks_in_a_row: 0,
            breaks_in_a_row: 0,
            out_until: Time::ZERO,
            refusing: None,
            completions: 0,
            failures: 0,
        }
    }

    pub fn configure(&mut self, candidate: &Candidate) {
        (self.weight, self.draining) = (sane_weight(candidate.weight), candidate.draining);
    }

    pub fn is_open(&self) -> bool {
        self.present && !self.draining
    }

    /// Not marked, or on probation with nothing outstanding.
    pub fn takes_at(&self, now: Time) -> bool {
        self.marks_in_a_row == 0 || (now >= self.out_until && self.outstanding == 0)
    }

    /// When its pause ends, while it refuses connections and was tried a moment ago.
    pub fn pauses_until(&self, now: Time) -> Option<Time> {
        self.refusing.map(|refusing| refusing.next_try).filter(|next_try| now < *next_try)
    }

    /// Until when requests wait for it although it refuses connections.
    pub fn bridged_until(&self, now: Time) -> Option<Time> {
        self.refusing.map(|refusing| refusing.since + BRIDGED).filter(|end| now < *end)
    }

    /// A request is sent to it: while it refuses connections, the next one only after a pause.
    pub fn note_try(&mut self, now: Time) {
        if let Some(refusing) = &mut self.refusing {
            refusing.next_try = now + TRY_EVERY;
        }
    }

    /// It takes connections.
    pub fn note_connection(&mut self) {
        self.refusing = None;
    }

    fn note_refusal(&mut self, now: Time) {
        let since = self.refusing.map_or(now, |refusing| refusing.since);
        self.refusing = Some(Refusing { since, next_try: now + TRY_EVERY });
    }

    /// Notes how an attempt ended. True when a life ends with it: it no longer listens, or breaks off whatever it gets.
    pub fn note(&mut self, now: Time, attempt: Attempt) -> bool {
        match attempt {
            Attempt::Answered => {
                self.completions += 1;
                (self.marks_in_a_row, self.breaks_in_a_row) = (0, 0);
                self.note_connection();
                false
            }
            Attempt::Refused => {
                self.failures += 1;
                self.note_refusal(now);
                self.mark(now)
            }
            Attempt::Broken => {
                self.failures += 1;
                self.breaks_in_a_row += 1;
                (self.breaks_in_a_row >= BREAKS_TO_MARK || self.marks_in_a_row > 0) && self.mark(now)
            }
            Attempt::Abandoned => false,
        }
    }

    /// True when it was not marked before.
    fn mark(&mut self, now: Time) -> bool {
        // Requests that were outstanding when the mark came fail with it: they are no news.
        if self.marks_in_a_row > 0 && now < self.out_until {
            return false;
        }
        let span = FIRST_SPAN.saturating_mul(1 << self.marks_in_a_row.min(16));
        self.out_until = now + span.min(LONGEST_SPAN);
        self.marks_in_a_row += 1;
        self.breaks_in_a_row = 0;
        self.marks_in_a_row == 1
    }
}

/// An instance that was given (almost) nothing still takes a request when all others are full.
fn sane_weight(weight: f64) -> f64 {
    if weight.is_nan() { 1e-6 } else { weight.clamp(1e-6, 1e9) }
}
