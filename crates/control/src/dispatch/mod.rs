//! Which instance a request goes to: the one with the fewest outstanding requests relative to its weight.
//!
//! Idle instances of similar weight are equally good: they take turns in proportion to their weights, each request moving its
//! instance's turn back by `1 / weight`. Without that, a quiet application would heat one instance and leave the others cold.
//!
//! With up to [`EXACT_UP_TO`] instances the least loaded is found exactly; with more, it is the less loaded of two drawn at
//! random, which keeps the choice cheap and the longest queue within `O(log log n)` of the mean (Mitzenmacher 2001).
//!
//! # Passive failure marking
//!
//! Nobody probes here; requests do. An instance whose connection is refused once, or that breaks off [`BREAKS_TO_MARK`]
//! requests in a row, is *marked*: it gets nothing for a span that doubles with each mark in a row, from [`FIRST_SPAN`] to
//! [`LONGEST_SPAN`]. Then it is on *probation*: one request at a time, until one is answered (the mark is lifted) or fails
//! (marked again). When every instance is marked, marks mean nothing and all of them are tried.

pub mod locality;
#[cfg(test)]
mod tests;

use std::time::Duration;

use weal_model::{InstanceId, Time};

/// Up to so many instances, all are compared. A comparison costs about a nanosecond, drawing twice about ten.
pub const EXACT_UP_TO: usize = 16;

/// Requests broken off in a row that mark an instance. One may be the request's own fault; a crash breaks off several.
pub const BREAKS_TO_MARK: u32 = 3;

/// An idle instance with at least this share of the heaviest one's weight is as good as any. Closer to 1 leaves lighter ones
/// cold while the load is low; closer to 0 sends requests to instances that were given almost nothing.
pub const SIMILAR: f64 = 0.25;

/// How long the first mark keeps an instance out: about the time of a quick restart.
pub const FIRST_SPAN: Duration = Duration::from_millis(500);

/// How long a mark keeps an instance out at most: longer would waste one that is back, shorter costs those that are not.
pub const LONGEST_SPAN: Duration = Duration::from_secs(30);

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

/// An instance of one dispatcher: valid while it is among the candidates or has requests outstanding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceIndex(u32);

impl InstanceIndex {
    /// Fit to index a table beside the dispatcher.
    pub fn slot(self) -> usize {
        self.0 as usize
    }
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

/// One instance since it became a candidate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct InstanceCounts<'a> {
    /// Which.
    pub instance: &'a InstanceId,
    /// Takes new requests.
    pub open: bool,
    /// Requests outstanding now.
    pub outstanding: u32,
    /// Requests it answered.
    pub completions: u64,
    /// Attempts refused or broken.
    pub failures: u64,
}

/// Chooses among the instances of one cluster.
#[derive(Debug)]
pub struct Dispatcher {
    /// Invariant: a slot is reused only when its instance is gone and has nothing outstanding.
    slots: Vec<Option<Instance>>,
    /// The slots that take new requests: present and not draining.
    open: Vec<u32>,
    /// The largest weight among the open.
    heaviest: f64,
    random: u64,
}

#[derive(Debug)]
struct Instance {
    id: InstanceId,
    weight: f64,
    draining: bool,
    /// False: no longer a candidate, kept for what is outstanding.
    present: bool,
    outstanding: u32,
    /// When its turn is among equals: requests given so far, each over the weight of its time.
    turn: f64,
    /// Invariant: at least 1 while marked, 0 otherwise.
    marks_in_a_row: u32,
    breaks_in_a_row: u32,
    /// Meaningless unless marked: when its probation begins.
    out_until: Time,
    completions: u64,
    failures: u64,
}

impl Dispatcher {
    /// Without candidates. The seed only serves choices among many.
    pub fn new(seed: u64) -> Self {
        Self { slots: Vec::new(), open: Vec::new(), heaviest: 0.0, random: seed | 1 }
    }

    /// Chooses among `candidates` from now on. Counts and marks of those that stay are kept.
    pub fn configure(&mut self, candidates: &[Candidate]) {
        for instance in self.slots.iter_mut().flatten() {
            instance.present = candidates.iter().any(|candidate| candidate.instance == instance.id);
        }
        for candidate in candidates {
            let known = self.slots.iter_mut().flatten().find(|instance| instance.id == candidate.instance);
            match known {
                Some(instance) => {
                    (instance.weight, instance.draining) = (sane_weight(candidate.weight), candidate.draining);
                }
                None => self.insert(candidate),
            }
        }
        for slot in &mut self.slots {
            slot.take_if(|instance| !instance.present && instance.outstanding == 0);
        }
        let takes = |slot: &Option<Instance>| slot.as_ref().is_some_and(|instance| instance.present && !instance.draining);
        self.open = (0..self.slots.len()).filter(|&slot| takes(&self.slots[slot])).map(|slot| slot as u32).collect();
        self.heaviest = self.slots.iter().filter(|slot| takes(slot)).flatten().map(|one| one.weight).fold(0.0, f64::max);
    }

    /// Where an instance is.
    pub fn find(&self, id: &InstanceId) -> Option<InstanceIndex> {
        let found = self.slots.iter().position(|slot| slot.as_ref().is_some_and(|instance| instance.id == *id));
        found.map(|slot| InstanceIndex(slot as u32))
    }

    /// True when [`Dispatcher::handle_dispatch`] without exclusions would find an instance.
    pub fn has_candidate(&self) -> bool {
        !self.open.is_empty()
    }

    /// Chooses an instance for one request, which is outstanding there until [`Dispatcher::handle_end`]. `excluded` are those
    /// that have already failed it. `None` when no other is left.
    pub fn handle_dispatch(&mut self, now: Time, excluded: &[InstanceIndex]) -> Option<InstanceIndex> {
        let healthy = self.choose(excluded, |instance| instance.takes_at(now));
        let chosen = healthy.or_else(|| self.choose(excluded, |_| true))?;
        let instance = self.slots[chosen].as_mut().expect("an open slot is taken");
        instance.outstanding += 1;
        instance.turn += 1.0 / instance.weight;
        Some(InstanceIndex(chosen as u32))
    }

    /// An attempt has ended.
    pub fn handle_end(&mut self, now: Time, index: InstanceIndex, attempt: Attempt) {
        let Some(instance) = self.slots.get_mut(index.slot()).and_then(Option::as_mut) else { return };
        instance.outstanding = instance.outstanding.saturating_sub(1);
        instance.note(now, attempt);
        if !instance.present && instance.outstanding == 0 {
            self.slots[index.slot()] = None;
        }
    }

    /// Every instance with its counts, those that drain included.
    pub fn counts(&self) -> impl Iterator<Item = InstanceCounts<'_>> {
        self.slots.iter().flatten().map(|instance| InstanceCounts {
            instance: &instance.id,
            open: instance.present && !instance.draining,
            outstanding: instance.outstanding,
            completions: instance.completions,
            failures: instance.failures,
        })
    }

    fn insert(&mut self, candidate: &Candidate) {
        // A new one does not have to catch up with what the others did before it came.
        let turn = self.slots.iter().flatten().map(|instance| instance.turn).fold(0.0, f64::max);
        let instance = Instance {
            id: candidate.instance.clone(),
            weight: sane_weight(candidate.weight),
            draining: candidate.draining,
            present: true,
            outstanding: 0,
            turn,
            marks_in_a_row: 0,
            breaks_in_a_row: 0,
            out_until: Time::ZERO,
            completions: 0,
            failures: 0,
        };
        match self.slots.iter_mut().find(|slot| slot.is_none()) {
            Some(slot) => *slot = Some(instance),
            None => self.slots.push(Some(instance)),
        }
    }

    fn choose(&mut self, excluded: &[InstanceIndex], takes: impl Fn(&Instance) -> bool) -> Option<usize> {
        if self.open.len() > EXACT_UP_TO
            && let Some(chosen) = self.better_of_two(excluded, &takes)
        {
            return Some(chosen);
        }
        self.least_loaded(excluded, &takes)
    }

    fn least_loaded(&self, excluded: &[InstanceIndex], takes: &impl Fn(&Instance) -> bool) -> Option<usize> {
        let slots = self.open.iter().map(|&slot| slot as usize);
        let loads = slots.filter_map(|slot| Some((self.load_at(slot, excluded, takes)?, slot)));
        loads.min_by(|(a, _), (b, _)| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1))).map(|(_, slot)| slot)
    }

    /// `None` when neither of the two may be taken: the caller then looks at all.
    fn better_of_two(&mut self, excluded: &[InstanceIndex], takes: &impl Fn(&Instance) -> bool) -> Option<usize> {
        let draws = [self.draw(), self.draw()].map(|random| self.open[(random % self.open.len() as u64) as usize] as usize);
        let loads = draws.map(|slot| self.load_at(slot, excluded, takes));
        match loads {
            [Some(first), Some(second)] => Some(draws[usize::from(second < first)]),
            [Some(_), None] => Some(draws[0]),
            [None, Some(_)] => Some(draws[1]),
            [None, None] => None,
        }
    }

    /// Its load and, among equals, its turn; `None` when it may not be taken.
    fn load_at(&self, slot: usize, excluded: &[InstanceIndex], takes: &impl Fn(&Instance) -> bool) -> Option<(f64, f64)> {
        let instance = self.slots[slot].as_ref()?;
        let allowed = takes(instance) && !excluded.iter().any(|index| index.slot() == slot);
        let as_good_as_any = instance.outstanding == 0 && instance.weight >= SIMILAR * self.heaviest;
        let load = if as_good_as_any { 0.0 } else { (f64::from(instance.outstanding) + 1.0) / instance.weight };
        allowed.then_some((load, instance.turn + 1.0 / instance.weight))
    }

    /// Xorshift64: good enough to spread load, and a replay draws the same.
    fn draw(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}

impl Instance {
    /// Not marked, or on probation with nothing outstanding.
    fn takes_at(&self, now: Time) -> bool {
        self.marks_in_a_row == 0 || (now >= self.out_until && self.outstanding == 0)
    }

    fn note(&mut self, now: Time, attempt: Attempt) {
        match attempt {
            Attempt::Answered => {
                self.completions += 1;
                (self.marks_in_a_row, self.breaks_in_a_row) = (0, 0);
            }
            Attempt::Refused => {
                self.failures += 1;
                self.mark(now);
            }
            Attempt::Broken => {
                self.failures += 1;
                self.breaks_in_a_row += 1;
                if self.breaks_in_a_row >= BREAKS_TO_MARK || self.marks_in_a_row > 0 {
                    self.mark(now);
                }
            }
            Attempt::Abandoned => {}
        }
    }

    fn mark(&mut self, now: Time) {
        // Requests that were outstanding when the mark came fail with it: they are no news.
        if self.marks_in_a_row > 0 && now < self.out_until {
            return;
        }
        let span = FIRST_SPAN.saturating_mul(1 << self.marks_in_a_row.min(16));
        self.out_until = now + span.min(LONGEST_SPAN);
        self.marks_in_a_row += 1;
        self.breaks_in_a_row = 0;
    }
}

/// An instance that was given (almost) nothing still takes a request when all others are full.
fn sane_weight(weight: f64) -> f64 {
    if weight.is_nan() { 1e-6 } else { weight.clamp(1e-6, 1e9) }
}
