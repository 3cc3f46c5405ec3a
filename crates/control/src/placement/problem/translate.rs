//! From a snapshot and a policy to a [`Problem`] in dense indices.

use std::collections::{BTreeMap, BTreeSet};

use weal_model::{
    AppName, AppSpec, Bytes, Cpu, InstanceId, InstanceObservation, InstanceState, NodeName, NodeObservation, NodeSpec, Snapshot,
    Time,
};

use super::dense::{App, ChangeCost, Node, Problem};
use super::jobs::Jobs;
use crate::placement::policy::Policy;
use crate::utility::Curve;

/// What a start costs, besides what it costs others and in proportion to that, where an application may run only once and does: nobody
/// answers until it is ready elsewhere, and who waits that long misses the goal many times over, which weighs as much as its importance.
/// Less lets it move for what a good response time could still gain, much more leaves it where it misses its goal.
const OUTAGE: f64 = 10.0;

/// A problem with the names behind its indices.
#[derive(Debug)]
pub(in crate::placement) struct Translation<'a> {
    pub problem: Problem,
    /// By node index.
    pub nodes: Vec<NodeName>,
    /// By application index.
    pub apps: Vec<&'a AppSpec>,
    /// Instances that count as running, by application, then node.
    pub active: BTreeMap<(u32, u32), Vec<&'a InstanceObservation>>,
    /// Instances that stand by, by application, then node; suspended before parked.
    pub standby: BTreeMap<(u32, u32), Vec<&'a InstanceObservation>>,
    /// Instances that were started to stand by and do not yet, by application, then node.
    pub rising: BTreeMap<(u32, u32), Vec<&'a InstanceObservation>>,
    /// How many of each application ended by themselves and are left alone.
    pub ended: Vec<u32>,
    /// Applications of which some instance is on its way to sleep or to its end.
    pub leaving: BTreeSet<u32>,
    /// Memory of each node that these still hold, in bytes. Plans have it when they are gone.
    pub leaving_memory: Vec<u64>,
    /// When the snapshot was taken.
    pub now: Time,
    /// Instances of applications or on nodes that the pool does not have any more.
    pub orphans: Vec<&'a InstanceObservation>,
    /// Memory held by standby instances per node, in bytes.
    pub standby_memory: Vec<u64>,
    /// The unfinished jobs. Those that run are in the problem too, behind the applications.
    pub jobs: Jobs,
    /// What could not be used of the snapshot.
    pub notes: Vec<String>,
}

impl<'a> Translation<'a> {
    /// Index of a node.
    pub fn node_index(&self, name: &NodeName) -> Option<u32> {
        self.nodes.binary_search(name).ok().map(|at| at as u32)
    }

    /// Index of an application.
    pub fn app_index(&self, name: &AppName) -> Option<u32> {
        self.apps.binary_search_by(|app| app.name.cmp(name)).ok().map(|at| at as u32)
    }

    /// The share of a node's memory that is taken, by what runs and by what stands by.
    pub fn taken(&self, n: u32) -> f64 {
        let running = self.active.iter().filter(|((_, node), _)| *node == n);
        let running: u64 = running.map(|((m, _), list)| self.apps[*m as usize].memory.0.saturating_mul(list.len() as u64)).sum();
        let memory = self.problem.nodes[n as usize].memory.max(1);
        (running.saturating_add(self.standby_memory[n as usize]) as f64 / memory as f64).min(1.0)
    }

    /// [`asleep_memory`] of one that stands by on `n`, in bytes.
    pub fn asleep_memory(&self, n: u32, instance: &InstanceObservation, memory: u64) -> u64 {
        let node = Bytes(self.problem.nodes[n as usize].memory);
        asleep_memory(instance.memory_used, Bytes(memory), node).0
    }

    /// Every instance that counts for something.
    pub fn all(&self) -> impl Iterator<Item = &'a InstanceObservation> {
        self.active.values().chain(self.standby.values()).chain(self.rising.values()).flatten().copied()
    }

    /// How many instances each application may have is left open: see [`Self::limit_instances`].
    pub fn of(snapshot: &'a Snapshot, policy: &'a Policy) -> Self {
        let mut notes = Vec::new();
        let mut named: Vec<(NodeName, Node)> =
            policy.pool.nodes.iter().filter_map(|spec| node(spec, snapshot, &mut notes)).collect();
        named.sort_by(|a, b| a.0.cmp(&b.0));
        let (nodes, capacities): (Vec<_>, Vec<_>) = named.into_iter().unzip();
        let mut translation = Self {
            problem: Problem { nodes: capacities, apps: Vec::new(), tolerance: policy.tolerance },
            standby_memory: vec![0; nodes.len()],
            leaving_memory: vec![0; nodes.len()],
            nodes,
            apps: policy.pool.apps.values().collect(),
            active: BTreeMap::new(),
            standby: BTreeMap::new(),
            rising: BTreeMap::new(),
            ended: Vec::new(),
            leaving: BTreeSet::new(),
            now: snapshot.time,
            orphans: Vec::new(),
            jobs: Jobs::default(),
            notes,
        };
        translation.ended = translation.sort_instances(snapshot, &policy.ahead);
        translation.problem.apps = (0u32..).zip(&translation.apps).map(|(m, spec)| translation.app(policy, m, spec)).collect();
        translation.note_unmeasured(policy);
        let most_cpu = translation.problem.nodes.iter().map(|node| node.cpu).fold(0.0, f64::max);
        translation.jobs = Jobs::of(snapshot, policy, most_cpu, |name| translation.node_index(name));
        let residents = translation.jobs.residents(snapshot.time.as_secs_f64(), policy.pool.timing.placement_cycle_s.max(1.0));
        translation.problem.apps.extend(residents);
        translation
    }

    /// Says how many instances of `m` may run, those included that ended by themselves and are left alone.
    pub fn limit_instances(&mut self, m: u32, (fewest, most): (u32, u32)) {
        let (app, ended) = (&mut self.problem.apps[m as usize], self.ended[m as usize]);
        app.instances = (fewest.saturating_sub(ended), most.saturating_sub(ended));
        if app.instances.1 == 1 && !app.current.is_empty() {
            let importance = app.best().max(1.0);
            app.cost.start = (app.cost.start + OUTAGE * importance * app.cost.start).min(importance);
        }
    }

    // Counts each instance as what it is; returns how many of each application ended by themselves and are left alone.
    fn sort_instances(&mut self, snapshot: &'a Snapshot, ahead: &BTreeSet<InstanceId>) -> Vec<u32> {
        let mut ended = vec![0; self.apps.len()];
        for instance in &snapshot.instances {
            let (m, n) = (self.app_index(&instance.app), self.node_index(&instance.node));
            let (Some(m), Some(n)) = (m, n) else {
                // On a node that does not answer nothing can be stopped; it is counted again when the node is back.
                if m.is_none() && n.is_some() || reachable(snapshot, &instance.node) {
                    self.orphans.push(instance);
                }
                continue;
            };
            let memory = self.apps[m as usize].memory.0;
            match instance.state {
                state if state.is_active() && ahead.contains(&instance.id) => {
                    self.rising.entry((m, n)).or_default().push(instance);
                    self.standby_memory[n as usize] += memory;
                }
                state if state.is_active() => self.active.entry((m, n)).or_default().push(instance),
                InstanceState::Suspended | InstanceState::Warm => {
                    self.standby.entry((m, n)).or_default().push(instance);
                    let held = self.asleep_memory(n, instance, memory);
                    self.standby_memory[n as usize] = self.standby_memory[n as usize].saturating_add(held);
                }
                InstanceState::Parked => self.standby.entry((m, n)).or_default().push(instance),
                InstanceState::Draining | InstanceState::Stopping => {
                    self.leaving.insert(m);
                    let (node, leaving) = (&mut self.problem.nodes[n as usize], &mut self.leaving_memory[n as usize]);
                    let held = memory.min(node.memory);
                    (node.memory, *leaving) = (node.memory - held, leaving.saturating_add(held));
                }
                InstanceState::Failed | InstanceState::Stopped => ended[m as usize] += 1,
                _ => {}
            }
        }
        for instances in self.standby.values_mut() {
            instances.sort_by_key(|instance| (instance.state.rung(), instance.id.clone()));
        }
        ended
    }

    fn app(&self, policy: &Policy, m: u32, spec: &AppSpec) -> App {
        let demand = policy.demands.get(&spec.name);
        let curve = demand.cloned().unwrap_or_else(|| Curve::constant(weal_model::Utility::AT_GOAL));
        let mut app = App::new(spec.memory.0, curve);
        app.doubt = policy.doubts.get(&spec.name).copied().filter(|doubt| doubt.is_finite()).unwrap_or(0.0).max(0.0);
        app.per_node = spec.per_node.max(1);
        app.instance_cpu = spec.cpu_limit.map_or(f64::INFINITY, |Cpu(cpu)| if cpu > 0.0 { cpu } else { f64::INFINITY });
        app.allowed = spec.nodes.as_ref().map(|names| names.iter().filter_map(|name| self.node_index(name)).collect());
        app.pinned = spec.pinned;
        app.manual = spec.manual || !policy.pool.control || policy.held.contains(&spec.name);
        app.together = spec.together.iter().filter_map(|other| self.app_index(other)).collect();
        app.apart = self.apart(spec);
        app.current = counts(&self.active, m);
        app.standby = counts(&self.standby, m);
        for &(n, count) in &counts(&self.rising, m) {
            match app.standby.binary_search_by_key(&n, |entry| entry.0) {
                Ok(at) => app.standby[at].1 += count,
                Err(at) => app.standby.insert(at, (n, count)),
            }
        }
        let costs = policy.costs.get(&spec.name).copied().unwrap_or_default();
        app.cost = ChangeCost::measured(costs, policy.horizon_s);
        app
    }

    // Made symmetric: it is enough that one of the two says it.
    fn apart(&self, spec: &AppSpec) -> Vec<u32> {
        let named =
            (0u32..).zip(&self.apps).filter(|(_, other)| spec.apart.contains(&other.name) || other.apart.contains(&spec.name));
        named.filter(|(_, other)| other.name != spec.name).map(|(other, _)| other).collect()
    }

    fn note_unmeasured(&mut self, policy: &Policy) {
        for (app, spec) in self.problem.apps.iter().zip(&self.apps) {
            let instances: u32 = app.current.iter().map(|entry| entry.1).sum();
            if !policy.demands.contains_key(&spec.name) && !spec.routes.is_empty() && instances > 0 {
                self.notes.push(format!("`{}`: no demand is known yet, so that it keeps what it has", spec.name));
            }
        }
    }
}

/// The memory that a sleeping instance holds which may use `limit`: as measured, unless that is more than its `node` has.
pub(crate) fn asleep_memory(measured: Option<Bytes>, limit: Bytes, node: Bytes) -> Bytes {
    measured.filter(|used| *used <= node).unwrap_or(limit)
}

fn reachable(snapshot: &Snapshot, name: &NodeName) -> bool {
    snapshot.nodes.iter().any(|node| node.name == *name && node.up)
}

fn counts(instances: &BTreeMap<(u32, u32), Vec<&InstanceObservation>>, m: u32) -> Vec<(u32, u32)> {
    instances.range((m, 0)..=(m, u32::MAX)).map(|(&(_, n), list)| (n, list.len() as u32)).collect()
}

// What plans may fill of a node; `None` when it does not answer.
fn node(spec: &NodeSpec, snapshot: &Snapshot, notes: &mut Vec<String>) -> Option<(NodeName, Node)> {
    let seen: Option<&NodeObservation> = snapshot.nodes.iter().find(|node| node.name == spec.name);
    let Some(seen) = seen.filter(|node| node.up) else {
        notes.push(format!("node `{}` does not answer: nothing is placed there", spec.name));
        return None;
    };
    if spec.measured_cpu(seen.cpu_capacity) != seen.cpu_capacity {
        notes.push(format!(
            "node `{}`: its CPU was measured as {}; the config's {} is used",
            spec.name, seen.cpu_capacity.0, spec.cpu
        ));
    }
    Some((spec.name.clone(), Node { cpu: spec.usable_cpu(seen.cpu_capacity).0, memory: seen.memory_capacity.0 }))
}
