//! A node's CPU: shared among its instances by their shares, work-conserving, and within an instance among its requests in equal
//! parts; a request uses at most one core.
//!
//! A node is a machine of its own, or a *slice* of one with more cores, as the kernel makes slices: it has a quota for each period, uses
//! up to all cores of the machine at once until the quota is used up, and then nothing until the next period. A single request on an idle
//! slice of 0.4 cores so runs as fast as on a whole core, which a model of 0.4 slow cores would miss. Limits of instances work alike. The
//! slices of a machine share its cores ([`super::cores`]): requests on three slices of two cores are in each other's way.
//!
//! When a group is made, the kernel draws the moment at which its periods begin ("so that timers interleave", Linux 6.18). So the jobs of a slice do
//! not all run at the beginning of the slice's period, and slices are not all throttled together ([`Processor::with_phases`]).
//!
//! Requests of an instance that share it equally are done in the order of `work + what each had got when it came` ([`Tenant::attained`]),
//! so that nothing has to be changed per request as time goes on.

use std::collections::{BTreeMap, BTreeSet};

use rand::RngExt;
use weal_rng::Rng;

use super::event::TaskId;

/// The kernel's period for CPU quotas, in seconds.
const PERIOD_S: f64 = 0.1;
/// By how much a quota is overdrawn before who uses it is stopped: the kernel looks at each tick of 4 ms (HZ = 250), half of one later
/// on average. The next period pays it back.
const OVERDRAFT_S: f64 = 0.002;
/// CPU-seconds that sums of many steps may leave over.
const ROUNDING_S: f64 = 1e-9;

/// One node's CPU.
#[derive(Debug, Clone)]
pub struct Processor {
    /// Cores that can be used at once.
    cores: f64,
    /// Work done per CPU-second: below 1 on a node that is slow.
    speed: f64,
    /// For a slice: its quota.
    quota: Option<Quota>,
    /// When the next period of any quota here begins. Invariant: not after any [`Quota::ends_s`].
    refill_s: f64,
    /// Draws when the periods of each tenant begin; without it they all begin at 0.
    phases: Option<Rng>,
    /// What runs there, by instance.
    tenants: BTreeMap<usize, Tenant>,
    updated_s: f64,
    used: f64,
}

/// CPU-seconds per period, and what is left of them.
#[derive(Debug, Clone, Copy)]
struct Quota {
    whole: f64,
    left: f64,
    /// Periods begin so long after each multiple of [`PERIOD_S`].
    phase_s: f64,
    /// When the current period ends.
    ends_s: f64,
}

#[derive(Debug, Clone)]
struct Tenant {
    share: f64,
    /// The most cores that it can use.
    most: f64,
    /// For an instance on a slice: its quota.
    quota: Option<Quota>,
    /// When periods of its quota begin, whichever quota it has.
    phase_s: f64,
    /// Suspended: its requests stay as they are.
    frozen: bool,
    /// CPU-seconds of work that each request present since the beginning would have got.
    attained: f64,
    /// Requests by the value of `attained` at which they are done, whose bits are in its order.
    tasks: BTreeSet<(u64, TaskId)>,
    /// CPU-seconds used so far.
    used: f64,
}

/// The one tenant of a [`link`].
pub const EVERYBODY: usize = 0;

/// A network link: what is under way shares it evenly. Work is measured in seconds that it would take alone.
pub fn link() -> Processor {
    let mut link = Processor::whole(1.0);
    link.add(EVERYBODY);
    link
}

impl Quota {
    fn new(cores: f64, phase_s: f64, now_s: f64) -> Self {
        Self { whole: cores * PERIOD_S, left: cores * PERIOD_S, phase_s, ends_s: period_end_s(phase_s, now_s) }
    }

    fn spendable(&self) -> f64 {
        self.left + OVERDRAFT_S
    }

    fn is_empty(&self) -> bool {
        self.spendable() <= ROUNDING_S
    }

    /// A period has begun, if one has.
    fn refill(&mut self, now_s: f64) {
        if now_s >= self.ends_s {
            self.left = (self.left + self.whole).min(self.whole);
            self.ends_s = period_end_s(self.phase_s, now_s);
        }
    }
}

/// The first end of a period after `now_s`.
fn period_end_s(phase_s: f64, now_s: f64) -> f64 {
    let end_s = phase_s + (((now_s - phase_s) / PERIOD_S).floor() + 1.0) * PERIOD_S;
    if end_s > now_s { end_s } else { end_s + PERIOD_S }
}

impl Processor {
    /// A machine of its own with so many cores.
    pub fn whole(cores: f64) -> Self {
        let (tenants, refill_s) = (BTreeMap::new(), f64::INFINITY);
        Self { cores, speed: 1.0, quota: None, refill_s, phases: None, tenants, updated_s: 0.0, used: 0.0 }
    }

    /// A slice of `cores` of a machine with `of` cores.
    pub fn slice(cores: f64, of: u32) -> Self {
        let quota = Quota::new(cores, 0.0, 0.0);
        Self { quota: Some(quota), refill_s: quota.ends_s, ..Self::whole(f64::from(of)) }
    }

    /// A slice whose periods, and those of its tenants, begin at moments drawn by `phases`, each at its own.
    pub fn with_phases(mut self, mut phases: Rng) -> Self {
        if let Some(quota) = &mut self.quota {
            quota.phase_s = draw_phase_s(&mut phases);
            quota.ends_s = period_end_s(quota.phase_s, self.updated_s);
            self.refill_s = quota.ends_s;
        }
        self.phases = Some(phases);
        self
    }

    pub fn add(&mut self, instance: usize) {
        let tenant = Tenant {
            share: 1.0,
            most: f64::INFINITY,
            quota: None,
            phase_s: self.phases.as_mut().map_or(0.0, draw_phase_s),
            frozen: false,
            attained: 0.0,
            tasks: BTreeSet::new(),
            used: 0.0,
        };
        self.tenants.insert(instance, tenant);
    }

    /// Takes an instance away, with what it still had to do.
    pub fn remove(&mut self, now_s: f64, instance: usize) -> Vec<TaskId> {
        self.advance(now_s);
        let tenant = self.tenants.remove(&instance);
        tenant.map_or(Vec::new(), |tenant| tenant.tasks.into_iter().map(|(_, task)| task).collect())
    }

    /// Gives an instance a share, and the most cores that it may use.
    pub fn set_share(&mut self, now_s: f64, instance: usize, share: f64, limit: Option<f64>) {
        self.advance(now_s);
        let in_quotas = self.quota.is_some();
        let Some(tenant) = self.tenants.get_mut(&instance) else { return };
        tenant.share = share.max(1e-3);
        tenant.most = limit.filter(|_| !in_quotas).unwrap_or(f64::INFINITY);
        tenant.quota = limit.filter(|_| in_quotas).map(|cores| {
            let left = tenant.quota.map_or(cores * PERIOD_S, |quota| quota.left.min(cores * PERIOD_S));
            Quota { left, ..Quota::new(cores, tenant.phase_s, now_s) }
        });
        self.refill_s = tenant.quota.map_or(self.refill_s, |quota| self.refill_s.min(quota.ends_s));
    }

    /// The cores that it can use from now on; whether these are others than before.
    pub fn set_cores(&mut self, cores: f64) -> bool {
        std::mem::replace(&mut self.cores, cores) != cores
    }

    /// What it is of its machine, as slices share by it.
    pub fn size(&self) -> f64 {
        self.quota.map_or(self.cores, |quota| quota.whole)
    }

    /// Cores that it would use now if it had them all.
    pub fn wish(&self) -> f64 {
        if self.quota.is_some_and(|quota| quota.is_empty()) { 0.0 } else { self.tenants.values().map(Tenant::wish).sum() }
    }

    pub fn set_speed(&mut self, now_s: f64, speed: f64) {
        self.advance(now_s);
        self.speed = speed;
    }

    pub fn freeze(&mut self, now_s: f64, instance: usize, frozen: bool) {
        self.advance(now_s);
        if let Some(tenant) = self.tenants.get_mut(&instance) {
            tenant.frozen = frozen;
        }
    }

    pub fn is_frozen(&self, instance: usize) -> bool {
        self.tenants.get(&instance).is_some_and(|tenant| tenant.frozen)
    }

    /// Something with `work` CPU-seconds begins. False when the instance is not here.
    pub fn begin(&mut self, now_s: f64, instance: usize, task: TaskId, work: f64) -> bool {
        self.advance(now_s);
        let Some(tenant) = self.tenants.get_mut(&instance) else { return false };
        if tenant.tasks.is_empty() {
            // Nothing refers to it: it begins again, so that it stays small.
            tenant.attained = 0.0;
        }
        tenant.tasks.insert(((tenant.attained + work.max(0.0)).to_bits(), task));
        true
    }

    /// CPU-seconds that an instance has used since it is there.
    pub fn used_by(&mut self, now_s: f64, instance: usize) -> Option<f64> {
        self.advance(now_s);
        self.tenants.get(&instance).map(|tenant| tenant.used)
    }

    /// CPU-seconds of work that what a tenant has begun still needs; of one that is not here, nothing.
    pub fn left_of(&self, now_s: f64, instance: usize) -> f64 {
        let Some(tenant) = self.tenants.get(&instance) else { return 0.0 };
        let rate =
            self.rates().into_iter().zip(self.tenants.keys()).find(|(_, key)| **key == instance).map_or(0.0, |(rate, _)| rate);
        let span = (now_s - self.updated_s).max(0.0);
        let attained = tenant.attained + span * rate * self.speed / (tenant.tasks.len() as f64).max(1.0);
        tenant.tasks.iter().map(|&(at, _)| (f64::from_bits(at) - attained).max(0.0)).sum()
    }

    /// CPU-seconds that all instances have used so far.
    pub fn used(&mut self, now_s: f64) -> f64 {
        self.advance(now_s);
        self.used
    }

    /// What is done by now.
    pub fn take_done(&mut self, now_s: f64, done: &mut Vec<TaskId>) {
        self.advance(now_s);
        for tenant in self.tenants.values_mut() {
            while let Some(&(at, task)) = tenant.tasks.first() {
                if f64::from_bits(at) > tenant.attained + ROUNDING_S {
                    break;
                }
                tenant.tasks.pop_first();
                done.push(task);
            }
        }
    }

    /// When something is done, or speeds change, if nothing comes in between.
    pub fn next_s(&self) -> f64 {
        let rates = self.rates();
        let mut next = f64::INFINITY;
        let mut throttled = false;
        for (tenant, &rate) in self.tenants.values().zip(&rates) {
            let Some(&(at, _)) = tenant.tasks.first().filter(|_| !tenant.frozen) else { continue };
            let each = rate * self.speed / tenant.tasks.len() as f64;
            if each > 0.0 {
                next = next.min((f64::from_bits(at) - tenant.attained).max(0.0) / each);
            }
            throttled |= rate == 0.0;
            if let Some(quota) = tenant.quota.filter(|_| rate > 0.0) {
                next = next.min(quota.spendable() / rate);
            }
        }
        let total: f64 = rates.iter().sum();
        if let Some(quota) = self.quota {
            if total > 0.0 {
                next = next.min(quota.spendable() / total);
            }
            if total > 0.0 || throttled {
                next = next.min(self.refill_s - self.updated_s);
            }
        }
        self.updated_s + next.max(0.0)
    }

    /// Works until now.
    pub fn advance(&mut self, now_s: f64) {
        let span = now_s - self.updated_s;
        if span > 0.0 {
            self.updated_s = now_s;
            self.work_for(span);
        }
        if now_s >= self.refill_s {
            self.refill(now_s);
        }
    }

    fn work_for(&mut self, span: f64) {
        if self.tenants.values().all(|tenant| tenant.tasks.is_empty()) {
            return;
        }
        let rates = self.rates();
        for (tenant, rate) in self.tenants.values_mut().zip(rates) {
            if rate > 0.0 {
                tenant.attained += span * rate * self.speed / tenant.tasks.len() as f64;
                tenant.used += span * rate;
                self.used += span * rate;
                for quota in [&mut self.quota, &mut tenant.quota].into_iter().flatten() {
                    quota.left = (quota.left - span * rate).max(-OVERDRAFT_S);
                }
            }
        }
    }

    fn refill(&mut self, now_s: f64) {
        self.refill_s = f64::INFINITY;
        let quotas = self.tenants.values_mut().map(|tenant| &mut tenant.quota).chain([&mut self.quota]);
        for quota in quotas.flatten() {
            quota.refill(now_s);
            self.refill_s = self.refill_s.min(quota.ends_s);
        }
    }

    /// Cores of each tenant: shares of what is left, until nobody is below both its wish and its share.
    fn rates(&self) -> Vec<f64> {
        let cores = if self.quota.is_some_and(|quota| quota.is_empty()) { 0.0 } else { self.cores };
        divide(cores, self.tenants.values().map(|tenant| (tenant.wish(), tenant.share)))
    }
}

impl Tenant {
    /// Cores that it would use now if it had them all.
    fn wish(&self) -> f64 {
        let stopped = self.frozen || self.quota.is_some_and(|quota| quota.is_empty());
        if stopped { 0.0 } else { self.most.min(self.tasks.len() as f64) }
    }
}

fn draw_phase_s(phases: &mut Rng) -> f64 {
    PERIOD_S * phases.random::<f64>()
}

/// `cores` for those who wish for some, by their shares: none gets more than it wishes for, and what one leaves the others have.
pub fn divide(cores: f64, wishes: impl Iterator<Item = (f64, f64)>) -> Vec<f64> {
    let wishes: Vec<(f64, f64)> = wishes.collect();
    let mut given = vec![0.0; wishes.len()];
    let mut left = cores;
    let mut open: Vec<(usize, f64, f64)> =
        wishes.into_iter().enumerate().map(|(i, (wish, share))| (i, wish, share)).filter(|&(_, wish, _)| wish > 0.0).collect();
    while !open.is_empty() && left > 1e-12 {
        let total: f64 = open.iter().map(|&(_, _, share)| share).sum();
        let fits = |wish: f64, share: f64| wish <= left * share / total;
        if !open.iter().any(|&(_, wish, share)| fits(wish, share)) {
            open.iter().for_each(|&(i, _, share)| given[i] = left * share / total);
            break;
        }
        let mut taken = 0.0;
        open.retain(|&(i, wish, share)| {
            let sated = fits(wish, share);
            if sated {
                given[i] = wish;
                taken += wish;
            }
            !sated
        });
        left -= taken;
    }
    given
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done_by(processor: &mut Processor, now_s: f64) -> Vec<TaskId> {
        let mut done = Vec::new();
        processor.take_done(now_s, &mut done);
        done
    }

    /// Runs from one change to the next; when each task was done.
    fn run(processor: &mut Processor) -> Vec<(TaskId, f64)> {
        let mut ends = Vec::new();
        while processor.next_s().is_finite() {
            let now_s = processor.next_s();
            ends.extend(done_by(processor, now_s).into_iter().map(|task| (task, now_s)));
        }
        ends
    }

    #[test]
    fn shares_count_only_while_there_is_not_enough() {
        let mut processor = Processor::whole(1.0);
        processor.add(0);
        processor.add(1);
        processor.set_share(0.0, 0, 3.0, None);
        processor.begin(0.0, 0, 10, 3.0);
        assert_eq!(processor.next_s(), 3.0);
        processor.begin(0.0, 1, 11, 2.0);
        assert!((processor.next_s() - 4.0).abs() < 1e-9, "three quarters of a core for 3 s of work");
        assert_eq!(done_by(&mut processor, 4.0), [10]);
        assert!((processor.next_s() - 5.0).abs() < 1e-9, "the rest alone at full speed");
        assert!((processor.used_by(4.0, 1).unwrap() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_request_uses_one_core_and_an_instance_no_more_than_its_limit() {
        let mut processor = Processor::whole(8.0);
        processor.add(0);
        processor.set_share(0.0, 0, 1.0, Some(1.5));
        for task in 0..3 {
            processor.begin(0.0, 0, task, 1.0);
        }
        assert!((processor.next_s() - 2.0).abs() < 1e-9);
        assert_eq!(processor.remove(1.0, 0).len(), 3);
        assert_eq!(processor.next_s(), f64::INFINITY);
    }

    #[test]
    fn a_slice_runs_at_full_speed_until_its_quota_is_used_up() {
        let mut processor = Processor::slice(0.4, 2);
        processor.add(0);
        processor.begin(0.0, 0, 1, 0.03);
        assert_eq!(run(&mut processor), [(1, 0.03)], "well within 40 ms a period");
        processor.begin(0.1, 0, 2, 0.05);
        let ends = run(&mut processor);
        assert!((ends[0].1 - 0.208).abs() < 1e-6, "40 ms and half a tick, then 8 ms of the next period: {ends:?}");
    }

    #[test]
    fn a_busy_slice_gives_its_whole_quota_and_no_more() {
        let mut processor = Processor::slice(0.4, 2);
        for instance in 0..2 {
            processor.add(instance);
            for task in 0..10 {
                processor.begin(0.0, instance, 100 * instance as u64 + task, 0.1);
            }
        }
        processor.set_share(0.0, 1, 1.0, Some(0.1));
        let ends = run(&mut processor);
        let last_of =
            |instance: u64| ends.iter().filter(|(task, _)| task / 100 == instance).map(|&(_, at)| at).fold(0.0, f64::max);
        assert!((last_of(1) - 10.0).abs() < 0.25, "1 s of work at 0.1 cores: {}", last_of(1));
        assert!((last_of(0) - 1.0 / 0.3).abs() < 0.15, "1 s of work at the rest: {}", last_of(0));
        assert!((processor.used(20.0) - 2.0).abs() < 1e-6);
    }

    /// A slice of one core, half of which its two tenants may use; each of them computes for seconds.
    fn slice_of_two_tenants(seed: u64) -> Processor {
        let mut slice = Processor::slice(1.0, 2).with_phases(weal_rng::stream(seed, "periods"));
        for tenant in 0..2 {
            slice.add(tenant);
            slice.set_share(0.0, tenant, 1.0, Some(0.25));
            slice.begin(0.0, tenant, tenant as u64, 5.0);
        }
        slice
    }

    #[test]
    fn periods_of_tenants_begin_at_moments_of_their_own() {
        // Side by side, both would be throttled for three quarters of each period.
        let at_once_s = |seed: u64| {
            let (mut slice, mut before, mut both_s) = (slice_of_two_tenants(seed), [0.0; 2], 0.0);
            for step in 1..=2_000 {
                let used = [0, 1].map(|tenant| slice.used_by(f64::from(step) * 1e-3, tenant).unwrap());
                both_s += if used[0] > before[0] && used[1] > before[1] { 1e-3 } else { 0.0 };
                before = used;
            }
            both_s
        };
        let spans: Vec<f64> = (0..20).map(at_once_s).collect();
        let mean_s = spans.iter().sum::<f64>() / 20.0;
        // 2 s have 20 periods with 25 ms of each. With independent phases these overlap by 25 ms * 25/100 on average: 0.125 s in all.
        assert!((0.06..0.25).contains(&mean_s), "{spans:?}");
        assert!(spans.iter().any(|&span_s| span_s < 0.03) && spans.iter().any(|&span_s| span_s > 0.2), "{spans:?}");
    }

    #[test]
    fn a_quota_is_worth_the_same_whenever_its_periods_begin() {
        for seed in 0..20 {
            let mut slice = slice_of_two_tenants(seed);
            while slice.next_s() < 4.0 {
                let now_s = slice.next_s();
                slice.advance(now_s);
            }
            for tenant in 0..2 {
                let used_s = slice.used_by(4.0, tenant).unwrap();
                assert!((0.97..=1.03).contains(&used_s), "4 s at 0.25 cores, give or take a period: {used_s}");
            }
        }
    }

    #[test]
    fn a_frozen_instance_keeps_what_it_had_and_goes_on_later() {
        let mut processor = Processor::whole(1.0);
        processor.add(0);
        processor.begin(0.0, 0, 1, 2.0);
        processor.freeze(1.0, 0, true);
        assert_eq!(processor.next_s(), f64::INFINITY);
        processor.freeze(5.0, 0, false);
        assert_eq!(processor.next_s(), 6.0);
    }
}
