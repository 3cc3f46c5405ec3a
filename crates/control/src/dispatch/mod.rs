//! Which instance a request goes to, by the rules that its application has chosen.
//!
//! | policy | choice |
//! | --- | --- |
//! | least loaded | the fewest outstanding requests relative to the weight |
//! | round robin | each in turn, by weight |
//! | power of two | the less loaded of two drawn at random (Mitzenmacher 2001) |
//! | URL hash | the least loaded of those that serve the name's part of the name space ([`locality`]) |
//! | LARD, LARD/R | the instance that served the name before, unless overloaded ([`lard`]) |
//! | bounded load | from the name's part on, the first with at most [`MOST_OVER_MEAN`] times its share of the load (Mirrokni et al. 2018) |
//!
//! Before all of them comes [`RequestKey::prefers`]: the instance to which a client's session belongs, while it takes requests.
//!
//! Idle instances of similar weight are equally good: they take turns in proportion to their weights, each request moving its
//! instance's turn back by `1 / weight`. Without that, a quiet application would heat one instance and leave the others cold.
//!
//! With up to [`EXACT_UP_TO`] instances the least loaded is found exactly; with more, it is the less loaded of two drawn at
//! random, which keeps the choice cheap and the longest queue within `O(log log n)` of the mean.
//!
//! # Passive failure marking
//!
//! Nothing probes here; requests do. An instance whose connection is refused once, or that breaks off [`BREAKS_TO_MARK`]
//! requests in a row, is *marked*: it gets nothing for a span that doubles with each mark in a row, from [`FIRST_SPAN`] to
//! [`LONGEST_SPAN`]. Then it is on *probation*: one request at a time, until one is answered (the mark is lifted) or fails
//! (marked again). When every instance is marked, marks mean nothing and all of them are tried.
//!
//! # When all refuse
//!
//! An instance that was killed refuses connections until a config leaves it out, or until it is started again at the same address. A request whose
//! connection was refused has surely not been begun with. So an instance that refuses is tried every [`TRY_EVERY`] only, and where all do,
//! nothing is chosen meanwhile: requests wait. That ends [`BRIDGED`] after the first refusal of the last one to begin. All are tried by every
//! request then, and each of them fails at once.

mod instance;
mod lard;
pub mod locality;
#[cfg(test)]
mod policies;
#[cfg(test)]
mod tests;

use weal_model::{DispatchPolicy, DispatchRules, InstanceId, Time};

use instance::Instance;
pub use instance::{Attempt, BREAKS_TO_MARK, BRIDGED, Candidate, FIRST_SPAN, LONGEST_SPAN, TRY_EVERY};
use lard::{Server, Servers, Thresholds};
use locality::ServerTable;

/// Up to so many instances, all are compared. A comparison costs about a nanosecond, drawing twice about ten.
pub const EXACT_UP_TO: usize = 16;

/// An idle instance with at least this share of the heaviest one's weight is as good as any. Closer to 1 leaves lighter ones
/// cold while the load is low; closer to 0 sends requests to instances that were given almost nothing.
pub const SIMILAR: f64 = 0.25;

/// With bounded loads, how much more than its share an instance may have: less moves more names, more lets loads differ further.
pub const MOST_OVER_MEAN: f64 = 1.25;

/// An instance of one dispatcher: valid while it is among the candidates or has requests outstanding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceIndex(u32);

impl InstanceIndex {
    /// Fit to index a table beside the dispatcher.
    pub fn slot(self) -> usize {
        self.0 as usize
    }
}

/// What of a request its instance is chosen by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequestKey {
    /// The number that stands for what it asks for ([`locality::hash_of`]); `None` goes to the least loaded.
    pub name: Option<u64>,
    /// The instance that its client's session belongs to.
    pub prefers: Option<InstanceIndex>,
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
    rules: DispatchRules,
    /// Seats of all instances together.
    seats: Option<u32>,
    /// Invariant: a slot is reused only when its instance is gone and has nothing outstanding.
    slots: Vec<Option<Instance>>,
    /// The slots that take new requests: present and not draining.
    open: Vec<u32>,
    servers: ServerTable,
    table: lard::Table,
    /// The largest weight among the open.
    heaviest: f64,
    /// Lives of instances so far.
    lives: u32,
    random: u64,
}

impl Dispatcher {
    /// Without candidates. The seed only serves choices among many.
    pub fn new(seed: u64) -> Self {
        Self {
            rules: DispatchRules::default(),
            seats: None,
            slots: Vec::new(),
            open: Vec::new(),
            servers: ServerTable::default(),
            table: lard::Table::default(),
            heaviest: 0.0,
            lives: 0,
            random: seed | 1,
        }
    }

    /// Chooses by `rules` from now on, for instances that have `seats` together.
    pub fn set_rules(&mut self, rules: &DispatchRules, seats: Option<u32>) {
        self.seats = seats;
        if self.rules != *rules {
            self.rules = rules.clone();
            self.table.clear();
        }
    }

    /// Chooses among `candidates` from now on. Counts and marks of those that stay are kept.
    pub fn configure(&mut self, now: Time, candidates: &[Candidate]) {
        for instance in self.slots.iter_mut().flatten() {
            instance.present = candidates.iter().any(|candidate| candidate.instance == instance.id);
        }
        for candidate in candidates {
            let known = self.slots.iter_mut().flatten().find(|instance| instance.id == candidate.instance);
            match known {
                Some(instance) => instance.configure(candidate),
                None => self.insert(candidate),
            }
        }
        for slot in &mut self.slots {
            slot.take_if(|instance| !instance.present && instance.outstanding == 0);
        }
        let numbered = || self.slots.iter().enumerate().filter_map(|(slot, entry)| Some((slot as u32, entry.as_ref()?)));
        self.open = numbered().filter(|(_, instance)| instance.is_open()).map(|(slot, _)| slot).collect();
        self.heaviest = numbered().filter(|(_, instance)| instance.is_open()).map(|(_, one)| one.weight).fold(0.0, f64::max);
        let present = numbered().filter(|(_, instance)| instance.present);
        self.servers.configure(now, present.map(|(slot, instance)| (slot, &instance.id)));
    }

    /// Where an instance is.
    pub fn find(&self, id: &InstanceId) -> Option<InstanceIndex> {
        let found = self.slots.iter().position(|slot| slot.as_ref().is_some_and(|instance| instance.id == *id));
        found.map(|slot| InstanceIndex(slot as u32))
    }

    /// The instance in a slot.
    pub fn at(&self, slot: usize) -> Option<InstanceIndex> {
        self.slots.get(slot)?.as_ref().map(|_| InstanceIndex(slot as u32))
    }

    /// True when some instance is there to take requests, even if it refuses connections for the moment.
    pub fn has_candidate(&self) -> bool {
        !self.open.is_empty()
    }

    /// True when [`Dispatcher::handle_dispatch`] without exclusions would find an instance.
    pub fn can_dispatch(&self, now: Time) -> bool {
        self.open_instances().any(|instance| instance.pauses_until(now).is_none())
            || self.has_candidate() && !self.may_come_back(now)
    }

    /// When an instance may be tried again; `None` when one may be now, or there is none.
    pub fn poll_try(&self, now: Time) -> Option<Time> {
        if self.can_dispatch(now) {
            return None;
        }
        let next_try = self.open_instances().filter_map(|instance| instance.pauses_until(now)).min();
        next_try.into_iter().chain(self.bridged_until(now)).min()
    }

    /// True when an instance that refuses connections may be there again in a moment.
    pub fn may_come_back(&self, now: Time) -> bool {
        self.bridged_until(now).is_some()
    }

    fn bridged_until(&self, now: Time) -> Option<Time> {
        self.open_instances().filter_map(|instance| instance.bridged_until(now)).max()
    }

    /// An instance has taken a connection: it listens.
    pub fn handle_connection(&mut self, index: InstanceIndex) {
        if let Some(instance) = self.slots.get_mut(index.slot()).and_then(Option::as_mut) {
            instance.note_connection();
        }
    }

    /// Chooses an instance for one request, which is outstanding there until [`Dispatcher::handle_end`]. `excluded` are those
    /// that have already failed it. `None` when no other is left.
    pub fn handle_dispatch(&mut self, now: Time, key: RequestKey, excluded: &[InstanceIndex]) -> Option<InstanceIndex> {
        let waits = self.may_come_back(now);
        let may_try = |instance: &Instance| !waits || instance.pauses_until(now).is_none();
        let healthy = self.choose(now, key, excluded, |instance| instance.takes_at(now) && may_try(instance));
        let chosen = healthy.or_else(|| self.choose(now, key, excluded, may_try))?;
        let instance = self.slots[chosen].as_mut().expect("an open slot is taken");
        instance.note_try(now);
        instance.outstanding += 1;
        instance.turn += 1.0 / instance.weight;
        Some(InstanceIndex(chosen as u32))
    }

    /// An attempt has ended.
    pub fn handle_end(&mut self, now: Time, index: InstanceIndex, attempt: Attempt) {
        let Some(instance) = self.slots.get_mut(index.slot()).and_then(Option::as_mut) else { return };
        instance.outstanding = instance.outstanding.saturating_sub(1);
        if instance.note(now, attempt) {
            self.lives += 1;
            instance.life = self.lives;
        }
        if !instance.present && instance.outstanding == 0 {
            self.slots[index.slot()] = None;
        }
    }

    /// Every instance with its counts, those that drain included.
    pub fn counts(&self) -> impl Iterator<Item = InstanceCounts<'_>> {
        self.slots.iter().flatten().map(|instance| InstanceCounts {
            instance: &instance.id,
            open: instance.is_open(),
            outstanding: instance.outstanding,
            completions: instance.completions,
            failures: instance.failures,
        })
    }

    fn open_instances(&self) -> impl Iterator<Item = &Instance> {
        self.open.iter().filter_map(|&slot| self.slots[slot as usize].as_ref())
    }

    fn insert(&mut self, candidate: &Candidate) {
        // A new one does not have to catch up with what the others did before it came.
        let turn = self.slots.iter().flatten().map(|instance| instance.turn).fold(0.0, f64::max);
        self.lives += 1;
        let instance = Instance::new(candidate, turn, self.lives);
        match self.slots.iter_mut().find(|slot| slot.is_none()) {
            Some(slot) => *slot = Some(instance),
            None => self.slots.push(Some(instance)),
        }
    }

    fn choose(
        &mut self,
        now: Time,
        key: RequestKey,
        excluded: &[InstanceIndex],
        takes: impl Fn(&Instance) -> bool,
    ) -> Option<usize> {
        if self.open.is_empty() {
            return None;
        }
        let preferred = key.prefers.map(InstanceIndex::slot).filter(|&slot| self.may_take(slot, excluded, &takes).is_some());
        if preferred.is_some() {
            return preferred;
        }
        match (self.rules.policy, key.name) {
            (DispatchPolicy::RoundRobin, _) => self.next_in_turn(excluded, &takes),
            (DispatchPolicy::UrlHash, Some(name)) => self.least_loaded_of_part(name, excluded, &takes),
            (DispatchPolicy::BoundedLoad, Some(name)) => self.first_within_bound(name, excluded, &takes),
            (DispatchPolicy::Lard, Some(name)) => self.by_table(now, name, 1, excluded, &takes),
            (DispatchPolicy::LardR, Some(name)) => self.by_table(now, name, self.rules.replication as usize, excluded, &takes),
            (policy, _) if policy == DispatchPolicy::PowerOfTwo || self.open.len() > EXACT_UP_TO => {
                self.better_of_two(excluded, &takes).or_else(|| self.least_loaded(excluded, &takes))
            }
            _ => self.least_loaded(excluded, &takes),
        }
    }

    fn next_in_turn(&self, excluded: &[InstanceIndex], takes: &impl Fn(&Instance) -> bool) -> Option<usize> {
        let slots = self.open.iter().map(|&slot| slot as usize);
        let turn = |slot| self.may_take(slot, excluded, takes).map(|instance| instance.turn + 1.0 / instance.weight);
        slots.filter_map(|slot| Some((turn(slot)?, slot))).min_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, slot)| slot)
    }

    fn least_loaded_of_part(&self, name: u64, excluded: &[InstanceIndex], takes: &impl Fn(&Instance) -> bool) -> Option<usize> {
        let loads = self.following(name).filter_map(|slot| Some((self.load_at(slot, excluded, takes)?, slot)));
        least(loads.take(self.rules.replication.max(1) as usize))
    }

    /// Where all have more than the bound, which is so only because some may not be taken, it is the least loaded.
    fn first_within_bound(&self, name: u64, excluded: &[InstanceIndex], takes: &impl Fn(&Instance) -> bool) -> Option<usize> {
        let weight: f64 = self.open_instances().map(|instance| instance.weight).sum();
        let total: u32 = self.open_instances().map(|instance| instance.outstanding).sum();
        let mean = f64::from(total + 1) / weight;
        let is_within = |slot: usize| {
            let instance = self.may_take(slot, excluded, takes)?;
            let bound = (MOST_OVER_MEAN * mean * instance.weight).ceil();
            Some(f64::from(instance.outstanding) + 1.0 <= bound)
        };
        let first = self.following(name).find(|&slot| is_within(slot) == Some(true));
        first.or_else(|| self.least_loaded(excluded, takes))
    }

    fn by_table(
        &mut self,
        now: Time,
        name: u64,
        replicas: usize,
        excluded: &[InstanceIndex],
        takes: &impl Fn(&Instance) -> bool,
    ) -> Option<usize> {
        let mut table = std::mem::take(&mut self.table);
        let thresholds = Thresholds::of(self.seats, self.open.len());
        let chosen = table.choose(now, name, replicas, thresholds, &Choice { dispatcher: self, excluded, takes });
        self.table = table;
        chosen.map(|server| server.slot as usize)
    }

    /// The candidates from a name's part of the name space on.
    fn following(&self, name: u64) -> impl Iterator<Item = usize> {
        let count = self.servers.count();
        let part = if count == 0 { 0 } else { locality::part_of(self.rules.hash, name, count) };
        locality::from(part, count).filter_map(|place| self.servers.slot(place))
    }

    fn least_loaded(&self, excluded: &[InstanceIndex], takes: &impl Fn(&Instance) -> bool) -> Option<usize> {
        let slots = self.open.iter().map(|&slot| slot as usize);
        least(slots.filter_map(|slot| Some((self.load_at(slot, excluded, takes)?, slot))))
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
        let instance = self.may_take(slot, excluded, takes)?;
        let as_good_as_any = instance.outstanding == 0 && instance.weight >= SIMILAR * self.heaviest;
        let load = if as_good_as_any { 0.0 } else { (f64::from(instance.outstanding) + 1.0) / instance.weight };
        Some((load, instance.turn + 1.0 / instance.weight))
    }

    fn may_take(&self, slot: usize, excluded: &[InstanceIndex], takes: &impl Fn(&Instance) -> bool) -> Option<&Instance> {
        let instance = self.slots.get(slot)?.as_ref().filter(|instance| instance.is_open())?;
        (takes(instance) && !excluded.iter().any(|index| index.slot() == slot)).then_some(instance)
    }

    /// Xorshift64: good enough to spread load, and a replay draws the same.
    fn draw(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}

/// The slot with the least load and, among equals, the next turn.
fn least(loads: impl Iterator<Item = ((f64, f64), usize)>) -> Option<usize> {
    loads.min_by(|(a, _), (b, _)| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1))).map(|(_, slot)| slot)
}

/// The instances of one choice, as a table sees them.
struct Choice<'a, F> {
    dispatcher: &'a Dispatcher,
    excluded: &'a [InstanceIndex],
    takes: &'a F,
}

impl<F: Fn(&Instance) -> bool> Servers for Choice<'_, F> {
    fn load(&self, server: Server) -> Option<f64> {
        let instance = self.dispatcher.may_take(server.slot as usize, self.excluded, self.takes)?;
        (instance.life == server.life).then_some(f64::from(instance.outstanding))
    }

    fn least_loaded(&self) -> Option<Server> {
        let slot = self.dispatcher.least_loaded(self.excluded, self.takes)?;
        let instance = self.dispatcher.slots[slot].as_ref()?;
        Some(Server { slot: slot as u32, life: instance.life })
    }
}
