//! The placement problem in dense indices: what the algorithms work on.
//!
//! Names become indices once, in `translate`, so that a pool of 100,000 nodes is arrays of numbers. `n` indexes nodes,
//! `m` applications, as in Carrera 5.3.1; a job is an application whose instances are its tasks.

use weal_model::{Cpu, Utility};

use crate::placement::policy::AppCosts;
use crate::utility::Curve;

/// One node.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Node {
    /// CPU that may be given out, in cores. Invariant: finite, not negative.
    pub cpu: f64,
    /// Memory for instances, in bytes.
    pub memory: u64,
}

/// What changes to one application cost, in utility of that application over the planning horizon.
///
/// A change is worth it only when it gains more than this; there is no other damping. Too small chases noise, too large
/// leaves a missed goal missed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChangeCost {
    /// Starting an instance from nothing.
    pub start: f64,
    /// Resuming one that stands by.
    pub resume: f64,
    /// Suspending or stopping one.
    pub remove: f64,
}

impl ChangeCost {
    /// What changes that take `costs` cost as utility lost over `horizon_s` seconds: while a change lasts, its application is without what it was to
    /// gain, and the CPU that it uses is lost to those it shares the pool with; either is at worst one unit of utility a second.
    pub fn measured(costs: AppCosts, horizon_s: f64) -> Self {
        let lost = |seconds: f64| if seconds.is_finite() { (seconds.max(0.0) / horizon_s.max(1.0)).min(1.0) } else { 1.0 };
        Self { start: lost(costs.start_s) + lost(costs.start_work.0), resume: lost(costs.resume_s), remove: lost(costs.remove_s) }
    }
}

impl Default for ChangeCost {
    fn default() -> Self {
        Self { start: 0.01, resume: 0.001, remove: 0.001 }
    }
}

/// One application.
#[derive(Debug, Clone, PartialEq)]
pub struct App {
    /// Memory per instance, in bytes.
    pub memory: u64,
    /// The most CPU that one instance can use, in cores; infinite when unlimited.
    pub instance_cpu: f64,
    /// CPU that every instance must get wherever it runs, in cores (a job's `omega_min`); usually 0.
    pub instance_min_cpu: f64,
    /// Fewest and most instances.
    pub instances: (u32, u32),
    /// Fewest and most nodes.
    pub nodes: (u32, u32),
    /// Most instances on one node. Invariant: at least 1.
    pub per_node: u32,
    /// Nodes that it may run on, sorted; `None` allows all.
    pub allowed: Option<Vec<u32>>,
    /// Its current instances are never removed.
    pub pinned: bool,
    /// Nothing about it changes, beyond bringing up the fewest instances.
    pub manual: bool,
    /// Applications that must be wherever this one is.
    pub together: Vec<u32>,
    /// Applications that must not be where this one is. Invariant: symmetric.
    pub apart: Vec<u32>,
    /// How well it fares with so much CPU.
    pub curve: Curve,
    /// By how large a part its demand may be more or less than `curve` says, as far as it was measured; usually 0. Invariant: finite, not
    /// negative.
    pub doubt: f64,
    /// Where it runs now: (node, instances), sorted by node. Invariant: one entry a node, no zero.
    pub current: Vec<(u32, u32)>,
    /// Where instances stand by: (node, instances), sorted by node.
    pub standby: Vec<(u32, u32)>,
    /// What changes cost.
    pub cost: ChangeCost,
}

impl App {
    /// An application without bounds or constraints.
    pub fn new(memory: u64, curve: Curve) -> Self {
        Self {
            memory,
            instance_cpu: f64::INFINITY,
            instance_min_cpu: 0.0,
            instances: (0, u32::MAX),
            nodes: (0, u32::MAX),
            per_node: 1,
            allowed: None,
            pinned: false,
            manual: false,
            together: Vec::new(),
            apart: Vec::new(),
            curve,
            doubt: 0.0,
            current: Vec::new(),
            standby: Vec::new(),
            cost: ChangeCost::default(),
        }
    }

    /// Its utility with `cpu` cores.
    pub fn utility(&self, cpu: f64) -> f64 {
        self.curve.utility_at(Cpu(cpu)).0
    }

    /// By how much its utility with `cpu` cores may be wrong, for its demand may be larger or smaller than it seems.
    pub fn doubt_at(&self, cpu: f64) -> f64 {
        if self.doubt <= 0.0 {
            return 0.0;
        }
        let utility = self.utility(cpu);
        (self.utility(cpu * (1.0 + self.doubt)) - utility).max(utility - self.utility(cpu / (1.0 + self.doubt)))
    }

    /// The least CPU for `utility`, in cores; its demand when that is out of reach.
    pub fn cpu_for(&self, utility: f64) -> f64 {
        self.curve.cpu_for(Utility(utility)).unwrap_or_else(|| self.curve.demand()).0
    }

    /// The CPU that brings it to its best utility, in cores.
    pub fn demand(&self) -> f64 {
        self.curve.demand().0
    }

    /// The best utility it can reach.
    pub fn best(&self) -> f64 {
        self.curve.best().0
    }

    /// Its utility without any CPU.
    pub fn worst(&self) -> f64 {
        self.curve.worst().0
    }

    /// Whether its list of nodes has `n`.
    pub fn allows(&self, n: u32) -> bool {
        self.allowed.as_ref().is_none_or(|nodes| nodes.binary_search(&n).is_ok())
    }

    /// How many instances run on `n` now.
    pub fn current_on(&self, n: u32) -> u32 {
        count_on(&self.current, n)
    }

    /// How many instances stand by on `n`.
    pub fn standby_on(&self, n: u32) -> u32 {
        count_on(&self.standby, n)
    }

    /// What one more instance on `n` costs.
    pub fn cost_of_adding(&self, n: u32) -> f64 {
        if self.standby_on(n) > 0 { self.cost.resume } else { self.cost.start }
    }
}

fn count_on(entries: &[(u32, u32)], n: u32) -> u32 {
    entries.binary_search_by_key(&n, |&(node, _)| node).map_or(0, |at| entries[at].1)
}

/// A whole placement problem.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Problem {
    /// The nodes.
    pub nodes: Vec<Node>,
    /// The applications.
    pub apps: Vec<App>,
    /// Utilities that differ by less count as equal: no change is made for it, whatever it costs.
    pub tolerance: f64,
}

impl Problem {
    /// The CPU of all nodes.
    pub fn cpu(&self) -> f64 {
        self.nodes.iter().map(|node| node.cpu).sum()
    }

    /// Below this, an amount of CPU counts as zero: a billionth of the mean node, far under any measurement.
    pub fn epsilon(&self) -> f64 {
        1e-9 * (self.cpu() / self.nodes.len().max(1) as f64).max(1e-3)
    }
}
