//! What a request really costs and how its clients behave, learnt from snapshots.
//!
//! [`Profiles`] is the controller's memory: `update` it with every snapshot, store it (it is serialisable), and read
//!
//! - [`Profiles::work`]: CPU-seconds per request of a flow in a cluster, by regression over cycles (`regression`'s module
//!   docs derive it), also in the clusters that the flow reaches only through `needs`;
//! - [`Profiles::flow`]: service time, think time, population, the tail of the response time ([`FlowProfile`]);
//! - [`Profiles::bottleneck`]: the resource that a cluster runs out of first;
//! - [`Profiles::stretch`]: how many more seats than the model says it takes to keep the CPU busy.
//!
//! ```text
//! profiles.update(&snapshot, &spec);
//! for factor in profiles.work_factors() { .. } // factor.work of CPU in factor.app for each request of factor.flow
//! ```
//!
//! Missing, negative and NaN measurements are left out; a window of an odd length, or a snapshot seen before, is ignored.

mod cluster;
mod flow;
mod place;
mod regression;
mod smooth;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use weal_model::{AppName, Cpu, FlowId, NodeName, PoolSpec, SeatPlan, Snapshot, Work, WorkFactor};

use cluster::Held;
pub use cluster::{ClusterProfile, Resource};
pub use flow::FlowProfile;
use place::Surroundings;
pub(crate) use place::Usable;
pub use place::reach;
pub use regression::{Coefficient, Regression};
pub use smooth::Smooth;

/// Everything learnt so far.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Profiles {
    generation: u64,
    clusters: BTreeMap<AppName, ClusterProfile>,
    /// Sorted by id.
    flows: Vec<FlowProfile>,
    /// CPU used on each node.
    nodes: BTreeMap<NodeName, Smooth>,
    /// [`Profiles::slack`] of each node, in cores.
    #[serde(default)]
    slack: BTreeMap<NodeName, f64>,
}

/// How much of what a node leaves unused the limits of its instances grow in a cycle.
const SLACK_GAIN: f64 = 0.5;
/// A node that uses this share of what plans may fill leaves nothing.
const USED_UP: f64 = 0.97;

/// Shorter windows hold too few requests, longer ones come from a clock that jumped or a controller that slept.
const WINDOW_S: std::ops::RangeInclusive<f64> = 0.05..=600.0;

impl Profiles {
    /// Learns from a snapshot.
    pub fn update(&mut self, snapshot: &Snapshot, spec: &PoolSpec) {
        let seen_before = snapshot.generation == self.generation && self.generation != 0;
        if seen_before || !WINDOW_S.contains(&snapshot.window_s) {
            return;
        }
        self.generation = snapshot.generation;
        self.clusters.retain(|app, _| spec.apps.contains_key(app));
        self.flows.retain(|flow| spec.apps.contains_key(&flow.id.app));
        self.nodes.retain(|name, _| snapshot.nodes.iter().any(|node| node.name == *name));
        let usable = Usable::of(spec);
        for node in snapshot.nodes.iter().filter(|node| node.up && node.cpu_used.0 >= 0.0) {
            self.nodes.entry(node.name.clone()).or_default().observe(node.cpu_used.0);
            let slack = self.slack.entry(node.name.clone()).or_default();
            let left = USED_UP * usable.on(node) - node.cpu_used.0;
            *slack = (*slack + SLACK_GAIN * left).clamp(0.0, node.cpu_capacity.0.max(0.0));
        }
        self.slack.retain(|name, _| self.nodes.contains_key(name));
        let reach = reach(spec);
        for app in spec.apps.keys() {
            let loaders = snapshot.flows.iter().filter(|flow| reach[&flow.id.app].contains(app));
            self.clusters.entry(app.clone()).or_default().update(app, loaders, snapshot);
        }
        for observation in &snapshot.flows {
            if !spec.apps.contains_key(&observation.id.app) {
                continue;
            }
            let work = self.total_work(&observation.id);
            let place = Surroundings::of(&observation.id.app, snapshot, spec);
            let goal = spec.classes.get(&observation.id.class).and_then(|class| class.goal);
            let at = match self.flows.binary_search_by(|flow| flow.id.cmp(&observation.id)) {
                Ok(at) => at,
                Err(at) => {
                    self.flows.insert(at, FlowProfile::new(observation.id.clone()));
                    at
                }
            };
            self.flows[at].update(observation, goal, work, &place, snapshot.window_s);
        }
        for app in spec.apps.keys() {
            let flows: Vec<&FlowProfile> = self.flows.iter().filter(|flow| flow.id.app == *app).collect();
            let place = Surroundings::of(app, snapshot, spec);
            if let Some(cluster) = self.clusters.get_mut(app) {
                cluster.follow(&flows, &place);
            }
        }
    }

    /// CPU-seconds that a request of `flow` costs in `app`; `None` before the first measurement.
    pub fn work(&self, flow: &FlowId, app: &AppName) -> Option<Work> {
        let coefficient = self.clusters.get(app)?.cost(Resource::Cpu, flow)?;
        coefficient.plus_minus.map(|_| Work(coefficient.value))
    }

    /// CPU-seconds that a request of `flow` costs over all clusters; `None` before the first measurement in its own.
    pub fn total_work(&self, flow: &FlowId) -> Option<Work> {
        self.work(flow, &flow.app)?;
        Some(self.clusters.keys().filter_map(|app| self.work(flow, app)).sum())
    }

    /// Every work factor, sorted by flow, then cluster.
    pub fn work_factors(&self) -> Vec<WorkFactor> {
        let mut factors: Vec<WorkFactor> =
            self.clusters.iter().flat_map(|(app, cluster)| cluster.factors(app, Resource::Cpu)).collect();
        factors.sort_by(|a, b| (&a.flow, &a.app).cmp(&(&b.flow, &b.app)));
        factors
    }

    /// A flow's profile; `None` before its first observation.
    pub fn flow(&self, id: &FlowId) -> Option<&FlowProfile> {
        self.flows.binary_search_by(|flow| flow.id.cmp(id)).ok().map(|at| &self.flows[at])
    }

    /// All flows seen so far, sorted by id.
    pub fn flows(&self) -> &[FlowProfile] {
        &self.flows
    }

    /// A cluster's profile.
    pub fn cluster(&self, app: &AppName) -> Option<&ClusterProfile> {
        self.clusters.get(app)
    }

    /// CPU that an instance of `app` uses without requests.
    pub fn idle_cpu(&self, app: &AppName) -> Cpu {
        self.clusters.get(app).map_or(Cpu(0.0), ClusterProfile::idle_cpu)
    }

    /// CPU used on a node lately; `None` before the first measurement.
    pub fn cpu_used(&self, node: &NodeName) -> Option<Cpu> {
        self.nodes.get(node)?.get().map(Cpu)
    }

    /// How far the limits of competing instances on a node lie beyond their loads, so that they hold back nobody while CPU is left:
    /// an integral term that grows while the node is not used up, and shrinks to nothing while it is.
    pub fn slack(&self, node: &NodeName) -> Cpu {
        Cpu(self.slack.get(node).copied().unwrap_or(0.0))
    }

    /// The resource that `app` runs out of first; `None` while it runs out of nothing that is measured.
    pub fn bottleneck(&self, app: &AppName) -> Option<Resource> {
        self.clusters.get(app)?.bottleneck()
    }

    /// Compares what flows got in `snapshot`, the newest, with what `plan`, made from it, gives them, and adapts the grip of each
    /// cluster in `contended`: those that wait for CPU on nodes where other clusters do too, with the number of the bottleneck
    /// that they share. Called by the flow cycle.
    ///
    /// The newest counts and not the smoothed ones: an integral term that acts on a mean of five cycles must be slow not to
    /// swing, and then takes half a minute to remove an error of 5%.
    pub(crate) fn hold(&mut self, plan: &SeatPlan, snapshot: &Snapshot, contended: &BTreeMap<AppName, usize>) {
        if !WINDOW_S.contains(&snapshot.window_s) {
            return;
        }
        let mut held: BTreeMap<&AppName, Held> = BTreeMap::new();
        for planned in &plan.flows {
            let Some(seen) = snapshot.flows.iter().find(|flow| flow.id == planned.id) else { continue };
            let Some(work) = self.total_work(&planned.id) else { continue };
            let held = held.entry(&planned.id.app).or_default();
            held.planned += planned.allocation.0;
            held.got += seen.completions as f64 / snapshot.window_s * work.0;
            held.completions += seen.completions as f64;
        }
        let mut groups: BTreeMap<usize, Vec<(&AppName, Held)>> = BTreeMap::new();
        for (app, held) in held {
            match contended.get(app).filter(|_| held.planned > 0.0 && held.got > 0.0) {
                Some(bottleneck) => groups.entry(*bottleneck).or_default().push((app, held)),
                None => self.clusters.get_mut(app).into_iter().for_each(ClusterProfile::let_go),
            }
        }
        groups.values().for_each(|group| self.divide(group));
    }

    /// Adapts the grips of clusters that share a bottleneck. What all of them lack alike is not a matter between them: with
    /// grips that grew together, no share and no limit would bind any more.
    fn divide(&mut self, group: &[(&AppName, Held)]) {
        let planned: f64 = group.iter().map(|(_, held)| held.planned).sum();
        let got: f64 = group.iter().map(|(_, held)| held.got).sum();
        for (app, held) in group {
            let Some(cluster) = self.clusters.get_mut(*app) else { continue };
            cluster.hold(&Held { planned: held.planned / planned, got: held.got / got, ..*held });
        }
        let mean = group.iter().map(|(app, held)| self.grip(app) * held.planned / planned).sum::<f64>();
        for (app, _) in group {
            self.clusters.get_mut(*app).into_iter().for_each(|cluster| cluster.scale_grip(1.0 / mean));
        }
    }

    /// Factor on `app`'s shares and seats where it competes with other clusters: above 1 when it got less than was planned.
    pub fn grip(&self, app: &AppName) -> f64 {
        self.clusters.get(app).map_or(1.0, ClusterProfile::grip)
    }

    /// Factor on the seats of `app`'s flows: requests that wait for something other than CPU leave it idle, so
    /// more of them must be outstanding to use it all.
    pub fn stretch(&self, app: &AppName) -> f64 {
        self.clusters.get(app).map_or(1.0, ClusterProfile::stretch)
    }
}
