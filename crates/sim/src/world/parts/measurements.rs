//! What was measured: counters as the controller sees them, with what faults did to them.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use rand_distr::{Distribution, StandardNormal};
use weal_model::{FlowId, Time};
use weal_protocol::engine::Observation;
use weal_protocol::gateway::FlowCounters;
use weal_rng::Rng;
use weal_scenario::FaultKind;

use super::app::ADDRESS;

/// The past, as far as measurements need it.
#[derive(Default)]
pub struct Measurements {
    /// When the pool was last measured for the report.
    pub time_s: f64,
    /// The counters then.
    pub flows: BTreeMap<FlowId, FlowCounters>,
    pub nodes: Vec<f64>,
    /// When the gateway began to count.
    pub gateway_began: Time,
    /// What instances and nodes have used, as it is measured.
    pub instances_measured: Vec<MeasuredCounter>,
    pub nodes_measured: Vec<MeasuredCounter>,
    /// Former counters, the newest last, as far as a delay may hold them back.
    pub delayed: VecDeque<(Vec<FlowCounters>, Observation)>,
}

/// A counter of CPU-seconds as a measurement has it.
#[derive(Debug, Clone, Copy)]
pub struct MeasuredCounter {
    pub truth: f64,
    pub seen: f64,
    /// What each second counts for until the next measurement.
    pub factor: f64,
    pub fault: Option<FaultKind>,
}

impl Default for MeasuredCounter {
    fn default() -> Self {
        Self { truth: 0.0, seen: 0.0, factor: 1.0, fault: None }
    }
}

impl MeasuredCounter {
    pub fn read(&mut self, truth: f64) -> Option<f64> {
        if truth < self.truth {
            // It began anew.
            (self.truth, self.seen) = (0.0, 0.0);
        }
        self.seen += (truth - self.truth) * self.factor;
        self.truth = truth;
        match self.fault {
            Some(FaultKind::Missing) => None,
            Some(FaultKind::Nan) => Some(f64::NAN),
            _ => Some(self.seen),
        }
    }
}

/// Where a simulated instance listens: each somewhere else, though nobody connects.
pub fn address(index: usize) -> SocketAddr {
    SocketAddr::new(ADDRESS.ip(), 1 + (index % usize::from(u16::MAX - 1)) as u16)
}

/// The present with the counters of the past.
pub fn hold_back(seen: &mut Observation, former: &Observation) {
    seen.time = former.time;
    for node in &mut seen.nodes {
        if let Some(before) = former.nodes.iter().find(|before| before.name == node.name) {
            node.cpu_seconds = before.cpu_seconds;
        }
    }
    for instance in &mut seen.instances {
        let before = former.instances.iter().find(|before| before.id == instance.id);
        instance.cpu_seconds = before.and_then(|before| before.cpu_seconds);
    }
}

/// The entry at `index`, which is there from now on.
pub fn grow<T: Default + Clone>(list: &mut Vec<T>, index: usize) -> &mut T {
    if list.len() <= index {
        list.resize(index + 1, T::default());
    }
    &mut list[index]
}

/// Log-normal with median 1.
pub fn noise(rng: &mut Rng, size: f64) -> f64 {
    let normal: f64 = StandardNormal.sample(rng);
    (size * normal).exp()
}
