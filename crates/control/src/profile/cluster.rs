//! What requests use in one cluster.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use weal_model::{
    AppName, Cpu, FlowId, FlowObservation, InstanceId, InstanceObservation, InstanceState, Snapshot, Work, WorkFactor,
};

use super::flow::FlowProfile;
use super::place::Surroundings;
use super::regression::{Coefficient, Regression};

/// What a request can use up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Resource {
    /// Core-seconds.
    Cpu,
    /// Bytes read and written.
    Disk,
    /// Bytes received and sent.
    Network,
    /// Its stand-in: CPU time per request that grows with what the neighbours do, as it does when caches and memory buses
    /// are contended. Measured as the CPU that requests used over what they would have used at the lowest work factors known.
    MemoryBandwidth,
    /// None of the others: locks, a pool of threads, a remote service.
    Concurrency,
}

/// One cluster's profile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClusterProfile {
    /// The flows behind regressors 1, 2, ...; regressor 0 counts instances.
    flows: Vec<FlowId>,
    costs: BTreeMap<Resource, Regression>,
    /// The highest rate at which each resource was ever used, slowly forgotten.
    peaks: BTreeMap<Resource, f64>,
    /// The rate at which each was used last.
    rates: BTreeMap<Resource, f64>,
    /// The lowest CPU cost of a request of each flow that was known for sure, slowly forgotten.
    #[serde(default)]
    lowest: Vec<Option<f64>>,
    /// CPU used last, over what the same requests would have used at their lowest costs.
    #[serde(default = "one")]
    dearness: f64,
    bottleneck: Option<Resource>,
    stretch: f64,
    grip: f64,
    /// Instances that had started when it was last updated.
    #[serde(default)]
    started: BTreeSet<InstanceId>,
}

/// What a cluster's flows were to get and what they got in a cycle.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Held {
    /// CPU, absolute or as a part of what its group was to get.
    pub planned: f64,
    /// The same of what was got, at the same work factors.
    pub got: f64,
    pub completions: f64,
}

impl Default for ClusterProfile {
    fn default() -> Self {
        Self {
            flows: Vec::new(),
            costs: BTreeMap::new(),
            peaks: BTreeMap::new(),
            rates: BTreeMap::new(),
            lowest: Vec::new(),
            dearness: 1.0,
            bottleneck: None,
            stretch: 1.0,
            grip: 1.0,
            started: BTreeSet::new(),
        }
    }
}

/// With more instances that have just started than this part of the others, a window says nothing of what requests use.
const MOST_STARTERS: f64 = 0.34;
/// Disk or network within this share of its highest rate ever counts as used up.
const NEAR_PEAK: f64 = 0.9;
/// A CPU this busy is used up: the rest is lost between requests.
const BUSY: f64 = 0.9;
/// Requests that take so many times the shortest time that they ever took are held up by something.
const SLOWED: f64 = 1.5;
/// A cost whose 95% interval is narrower than this share of it is known for sure.
const SURE: f64 = 0.2;
/// Requests that cost so many times their lowest, beside neighbours who use this share of their nodes' CPU, wait for memory.
const DEARER: f64 = 2.0;
const CROWDED: f64 = 0.2;
/// Each cycle in which requests wait while CPU idles adds as large a part to the seats as idles, at most a tenth; more
/// overshoots before it shows.
const STRETCH_UP: f64 = 0.1;
/// A CPU that is used by this share or more has no part that more seats could use.
const ALL_USED: f64 = 0.95;
/// Shrinking is slower, so that the two do not chase each other.
const STRETCH_DOWN: f64 = 0.97;
/// Four times the seats of the model; beyond, the CPU is idle for a reason that seats do not remove.
const STRETCH_MOST: f64 = 4.0;
/// With more requests outstanding per core than this, fewer may do: the time in a seat cannot tell waiting for CPU from
/// waiting for something else, so it is tried out.
const CROWD: f64 = 2.0;
/// How fast a cluster's grip follows its throughput's distance from the plan, per cycle. A plan shows in the cycle after it, so
/// that 1 would swing for ever.
const GRIP_GAIN: f64 = 0.3;
/// With so many completions in a cycle the gain is halved: of a few, one more or less would move the grip for nothing.
const GRIP_DOUBT: f64 = 10.0;
/// A grip beyond this range means that CPU shares are not enforced, so that more of it would not help.
const GRIP: std::ops::RangeInclusive<f64> = 0.33..=3.0;

impl ClusterProfile {
    pub(super) fn update<'a>(&mut self, app: &AppName, loaders: impl Iterator<Item = &'a FlowObservation>, snapshot: &Snapshot) {
        let mut done = vec![0.0; self.flows.len() + 1];
        let mut unfinished = 0.0;
        for flow in loaders {
            unfinished += if flow.completions == 0 { flow.in_service_mean } else { 0.0 };
            let at = self.flows.iter().position(|id| *id == flow.id).unwrap_or_else(|| {
                self.flows.push(flow.id.clone());
                done.push(0.0);
                self.flows.len() - 1
            });
            done[at + 1] = flow.completions as f64 / snapshot.window_s;
        }
        let (up, starters) = self.split_starters(app, snapshot);
        // Of the requests nobody knows how many those answered that got ready just now.
        if starters > MOST_STARTERS * up.len() as f64 && done[1..].iter().any(|done| *done > 0.0) {
            return;
        }
        let instances = || up.iter();
        done[0] = instances().count() as f64;
        let power: f64 = snapshot.nodes.iter().map(|node| node.cpu_capacity.0).filter(|c| c.is_finite()).sum();
        let cpu = total(instances().map(|i| i.cpu_used.map(|cpu| cpu.0))).filter(|cpu| *cpu <= 2.0 * power.max(1.0));
        let disk = total(instances().map(|i| i.disk_bytes_per_s));
        let network = total(instances().map(|i| i.network_bytes_per_s));
        for (resource, rate) in [(Resource::Cpu, cpu), (Resource::Disk, disk), (Resource::Network, network)] {
            // Work without any completion belongs to requests that count later, not to idle instances.
            if done[1..].iter().any(|done| *done > 0.0) || unfinished < 0.01 {
                self.observe(resource, &done, rate);
            }
        }
        self.watch_cost(&done, cpu);
    }

    /// The instances that were up for the whole window, and the number of those that ended a start within it. What a start uses is
    /// neither for requests nor what an idle instance uses; that one became unhealthy, or woke, is no start.
    fn split_starters<'a>(&mut self, app: &AppName, snapshot: &'a Snapshot) -> (Vec<&'a InstanceObservation>, f64) {
        let begun_ns = snapshot.time.0.saturating_sub((snapshot.window_s * 1e9) as u64);
        let is_up = |state| matches!(state, InstanceState::Ready | InstanceState::Unhealthy | InstanceState::Draining);
        let mine = || snapshot.instances.iter().filter(|instance| instance.app == *app);
        let (up, starters): (Vec<_>, Vec<_>) = mine()
            .filter(|instance| is_up(instance.state))
            .partition(|instance| instance.since.0 <= begun_ns || self.started.contains(&instance.id));
        let has_started = |instance: &&InstanceObservation| is_up(instance.state) || instance.state.is_asleep();
        self.started = mine().filter(has_started).map(|instance| instance.id.clone()).collect();
        (up, starters.len() as f64)
    }

    /// `None` is a measurement that is missing: nothing is learnt, nothing is lost.
    fn observe(&mut self, resource: Resource, done: &[f64], rate: Option<f64>) {
        let Some(rate) = rate.filter(|_| done[0] > 0.0) else { return };
        self.costs.entry(resource).or_default().observe(done, rate);
        let peak = self.peaks.entry(resource).or_default();
        *peak = (*peak * 0.9999).max(rate);
        self.rates.insert(resource, rate);
    }

    fn watch_cost(&mut self, done: &[f64], cpu: Option<f64>) {
        let (Some(cpu), Some(costs)) = (cpu, self.costs.get(&Resource::Cpu)) else { return };
        self.lowest.resize(self.flows.len(), None);
        for (lowest, cost) in self.lowest.iter_mut().zip(costs.coefficients().iter().skip(1)) {
            let is_sure = cost.plus_minus.is_some_and(|interval| interval <= SURE * cost.value) && cost.tied_with.is_empty();
            if is_sure && cost.value > 0.0 {
                *lowest = Some(lowest.map_or(cost.value, |lowest| (lowest * 1.001).min(cost.value)));
            }
        }
        let at_lowest = done[1..].iter().zip(&self.lowest).map(|(done, lowest)| match lowest {
            Some(lowest) => Some(done * lowest),
            None => (*done == 0.0).then_some(0.0),
        });
        if let Some(at_lowest) = at_lowest.sum::<Option<f64>>().filter(|_| done[1..].iter().sum::<f64>() > 0.0) {
            self.dearness = cpu / at_lowest.max(1e-12);
        }
    }

    /// Finds the bottleneck and adapts the stretch, once the cluster's flows are up to date.
    pub(super) fn follow(&mut self, flows: &[&FlowProfile], place: &Surroundings) {
        let waiting: f64 = flows.iter().map(|flow| flow.queue()).sum();
        let outstanding: f64 = flows.iter().map(|flow| flow.in_service()).sum();
        let slowed = flows.iter().map(|flow| flow.held_up() * flow.in_service()).sum::<f64>() / outstanding.max(1e-9);
        let near_peak = |resource| {
            let rate = self.rates.get(&resource).copied().unwrap_or(0.0);
            rate > 1e6 && rate >= NEAR_PEAK * self.peaks.get(&resource).copied().unwrap_or(f64::INFINITY)
        };
        self.bottleneck = match () {
            () if outstanding < 0.1 => None,
            () if place.busy_together >= BUSY && self.dearness > DEARER && place.neighbours >= CROWDED => {
                Some(Resource::MemoryBandwidth)
            }
            () if place.busy_together >= BUSY => Some(Resource::Cpu),
            () if slowed < SLOWED => None,
            () if near_peak(Resource::Disk) => Some(Resource::Disk),
            () if near_peak(Resource::Network) => Some(Resource::Network),
            () => Some(Resource::Concurrency),
        };
        let unused = if waiting > 0.5 { ALL_USED - place.busy_together } else { 0.0 };
        let crowded = place.busy_together >= 0.97 && place.crowd > CROWD;
        self.stretch = match (unused > 0.0, crowded) {
            (true, _) => (self.stretch * (1.0 + unused.min(STRETCH_UP))).min(STRETCH_MOST),
            (_, true) => (self.stretch * STRETCH_DOWN).max(1.0 / STRETCH_MOST),
            _ if waiting > 0.5 => self.stretch,
            _ => self.stretch + (1.0 - self.stretch) * (1.0 - STRETCH_DOWN),
        };
    }

    /// What one request of a flow uses of a resource; `None` for a flow or a resource never seen.
    pub fn cost(&self, resource: Resource, flow: &FlowId) -> Option<&Coefficient> {
        let at = self.flows.iter().position(|id| id == flow)?;
        self.costs.get(&resource)?.coefficients().get(at + 1)
    }

    /// The CPU that one instance uses without requests.
    pub fn idle_cpu(&self) -> Cpu {
        Cpu(self.costs.get(&Resource::Cpu).and_then(|cpu| cpu.coefficients().first()).map_or(0.0, |c| c.value))
    }

    /// See [`super::Profiles::bottleneck`].
    pub fn bottleneck(&self) -> Option<Resource> {
        self.bottleneck
    }

    /// See [`super::Profiles::stretch`].
    pub fn stretch(&self) -> f64 {
        self.stretch
    }

    /// See [`super::Profiles::grip`].
    pub fn grip(&self) -> f64 {
        self.grip
    }

    /// Adapts the grip of a cluster whose flows wait for CPU that other clusters use too.
    pub(super) fn hold(&mut self, held: &Held) {
        let error = (held.planned / held.got).ln().clamp(-0.5, 0.5);
        let gain = GRIP_GAIN * held.completions / (held.completions + GRIP_DOUBT);
        self.scale_grip((gain * error).exp());
    }

    /// Nobody competes: the grip goes back to 1.
    pub(super) fn let_go(&mut self) {
        self.scale_grip((-GRIP_GAIN * self.grip.ln()).exp());
    }

    pub(super) fn scale_grip(&mut self, factor: f64) {
        self.grip = (self.grip * factor).clamp(*GRIP.start(), *GRIP.end());
    }

    pub(super) fn factors(&self, app: &AppName, resource: Resource) -> Vec<WorkFactor> {
        let Some(costs) = self.costs.get(&resource) else { return Vec::new() };
        (self.flows.iter().zip(costs.coefficients().iter().skip(1)))
            .filter(|(_, coefficient)| coefficient.plus_minus.is_some())
            .map(|(flow, coefficient)| WorkFactor {
                flow: flow.clone(),
                app: app.clone(),
                work: Work(coefficient.value),
                plus_minus: Work(coefficient.plus_minus.unwrap_or(f64::INFINITY)),
                tied_with: coefficient.tied_with.iter().filter(|i| **i > 0).map(|i| self.flows[i - 1].clone()).collect(),
            })
            .collect()
    }
}

fn one() -> f64 {
    1.0
}

/// The sum, if every part of it is known and makes sense.
fn total(parts: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    parts.map(|part| part.filter(|part| part.is_finite() && *part >= 0.0)).sum()
}

impl std::fmt::Display for Resource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Cpu => "CPU",
            Self::Disk => "disk",
            Self::Network => "network",
            Self::MemoryBandwidth => "memory bandwidth",
            Self::Concurrency => "something other than CPU, disk and network",
        })
    }
}
