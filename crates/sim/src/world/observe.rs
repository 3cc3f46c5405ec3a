//! Snapshots of the simulated pool, and what faults do to them on their way to the controller.

use std::collections::BTreeMap;

use rand::RngExt;
use rand_distr::{Distribution, StandardNormal};
use weal_model::{
    Bytes, Cpu, FlowId, FlowObservation, InstanceObservation, InstanceState, LatencyHistogram, NodeObservation, Snapshot, Time,
};
use weal_protocol::gateway::FlowCounters;

use super::World;
use super::instances::Instance;
use weal_scenario::FaultKind;

/// A shorter window says nothing.
const SHORTEST_WINDOW_S: f64 = 0.05;

/// Counters at the last snapshot.
#[derive(Default)]
pub(super) struct Before {
    time_s: f64,
    flows: BTreeMap<FlowId, FlowCounters>,
    instances: BTreeMap<usize, f64>,
    nodes: BTreeMap<usize, f64>,
    /// How far the controller's clock is ahead.
    ahead_s: f64,
}

impl World<'_> {
    /// The truth about the time since the last snapshot.
    pub(super) fn observe(&mut self) -> Snapshot {
        let now_s = self.now_s();
        let window_s = (now_s - self.controller.before.time_s).max(1e-3);
        self.controller.before.time_s = now_s;
        self.controller.generation += 1;
        let mut snapshot = Snapshot { generation: self.controller.generation, time: self.now(), window_s, ..Snapshot::default() };
        self.refresh(&mut snapshot);
        let index: BTreeMap<_, _> = (0..self.instances.len()).map(|i| (self.instances[i].id.clone(), i)).collect();
        for observation in &mut snapshot.instances {
            let at = index[&observation.id];
            let used = self.nodes[self.instances[at].node].machine.used_by(now_s, at);
            let before = self.controller.before.instances.insert(at, used.unwrap_or(0.0)).unwrap_or(0.0);
            // One that began anew counts from nothing.
            observation.cpu_used = used.map(|used| Cpu(if used >= before { used - before } else { used } / window_s));
        }
        for (number, node) in self.nodes.iter_mut().enumerate() {
            let used = node.machine.used(now_s);
            let before = self.controller.before.nodes.insert(number, used).unwrap_or(0.0);
            if let Some(seen) = snapshot.nodes.iter_mut().find(|seen| seen.name == node.name) {
                seen.cpu_used = Cpu((used - before) / window_s);
            }
        }
        if self.gateway_up {
            snapshot.flows = (0..self.apps.len()).flat_map(|app| self.observe_flows(app, window_s)).collect();
            snapshot.flows.sort_by(|a, b| a.id.cmp(&b.id));
        }
        snapshot
    }

    /// The gateway counts anew.
    pub(super) fn forget_counters(&mut self) {
        self.controller.before.flows.clear();
    }

    /// Brings up to date what runs where, keeping what was measured.
    pub(super) fn refresh(&self, snapshot: &mut Snapshot) {
        let before = std::mem::take(&mut snapshot.instances);
        let present = self.instances.iter().filter(|instance| instance.state != InstanceState::Stopped);
        let old = |instance: &Instance| before.iter().find(|old| old.id == instance.id);
        snapshot.instances = present.map(|instance| self.observation(instance, old(instance))).collect();
        snapshot.instances.sort_by(|a, b| a.id.cmp(&b.id));
        let old_nodes = std::mem::take(&mut snapshot.nodes);
        for (number, (node, spec)) in self.nodes.iter().zip(&self.scenario.pool.nodes).enumerate() {
            snapshot.nodes.push(NodeObservation {
                name: node.name.clone(),
                up: node.up,
                cpu_capacity: spec.cpu,
                cpu_used: old_nodes.iter().find(|old| old.name == node.name).map_or(Cpu(0.0), |old| old.cpu_used),
                memory_capacity: spec.memory,
                memory_used: self.memory_held(number),
                cpu_pressure: None,
            });
        }
        snapshot.nodes.sort_by(|a, b| a.name.cmp(&b.name));
        snapshot.jobs = self.observe_jobs();
    }

    fn observation(&self, instance: &Instance, old: Option<&InstanceObservation>) -> InstanceObservation {
        let app = &self.scenario.pool.apps[&self.apps[instance.app].name];
        let closed = instance.is_closed() && instance.state == InstanceState::Ready;
        InstanceObservation {
            id: instance.id.clone(),
            app: app.name.clone(),
            node: self.nodes[instance.node].name.clone(),
            state: if closed { InstanceState::Draining } else { instance.state },
            cpu_used: old.and_then(|old| old.cpu_used),
            memory_used: Some(if instance.state.holds_memory() { app.memory } else { Bytes(0) }),
            disk_bytes_per_s: None,
            network_bytes_per_s: None,
            in_flight: instance.in_flight,
            since: Time::from_secs_f64(instance.since_s),
        }
    }

    fn observe_flows(&mut self, app: usize, window_s: f64) -> Vec<FlowObservation> {
        let now = self.now();
        let (seats, before) = (&self.controller.seats, &mut self.controller.before.flows);
        let mut flows = Vec::new();
        for flow in self.apps[app].flows(now) {
            let allotted = seats.flows.iter().find(|seats| seats.id == flow.id).map_or(0.0, |seats| f64::from(seats.seats));
            flows.push(difference(before.get(&flow.id), &flow, window_s, allotted));
            before.insert(flow.id.clone(), flow);
        }
        flows
    }

    /// What the controller gets to see of a snapshot; `None` when it gets nothing.
    pub(super) fn through_faults(&mut self, snapshot: Snapshot) -> Option<Snapshot> {
        let delay = self.lasting(FaultKind::Delay).map(|fault| fault.amount.max(0.0) as usize).max().unwrap_or(0);
        self.controller.delayed.push_back(snapshot);
        let mut snapshot = None;
        while self.controller.delayed.len() > delay {
            snapshot = self.controller.delayed.pop_front();
        }
        let mut snapshot = self.by_wrong_clock(snapshot?)?;
        let faults: Vec<_> = [FaultKind::Noise, FaultKind::Missing, FaultKind::Nan]
            .into_iter()
            .flat_map(|kind| self.lasting(kind).cloned().collect::<Vec<_>>())
            .collect();
        let rng = &mut self.faults.measurements;
        for fault in faults {
            let hit = |node: &str| fault.node.as_deref().is_none_or(|only| only == node);
            for instance in snapshot.instances.iter_mut().filter(|instance| hit(instance.node.as_str())) {
                instance.cpu_used = match fault.kind {
                    FaultKind::Noise => instance.cpu_used.map(|cpu| cpu * noise(rng, fault.amount)),
                    FaultKind::Missing if rng.random::<f64>() < fault.amount => None,
                    FaultKind::Nan if rng.random::<f64>() < fault.amount => Some(Cpu(f64::NAN)),
                    _ => instance.cpu_used,
                };
            }
            for node in snapshot.nodes.iter_mut().filter(|node| hit(node.name.as_str())) {
                if fault.kind == FaultKind::Noise {
                    node.cpu_used = node.cpu_used * noise(rng, fault.amount);
                } else if fault.kind == FaultKind::Nan && rng.random::<f64>() < fault.amount {
                    node.cpu_used = Cpu(f64::NAN);
                }
            }
        }
        Some(snapshot)
    }

    /// The snapshot as a controller measures it whose clock jumps: in the cycle of the jump its window is wrong, and its rates with it.
    fn by_wrong_clock(&mut self, mut snapshot: Snapshot) -> Option<Snapshot> {
        let ahead_s: f64 = self.lasting(FaultKind::ClockJump).map(|fault| fault.amount).sum();
        let jump_s = ahead_s - std::mem::replace(&mut self.controller.before.ahead_s, ahead_s);
        snapshot.time = Time::from_secs_f64(snapshot.time.as_secs_f64() + ahead_s);
        if jump_s == 0.0 {
            return Some(snapshot);
        }
        let window_s = snapshot.window_s + jump_s;
        if window_s < SHORTEST_WINDOW_S {
            return None;
        }
        let factor = snapshot.window_s / window_s;
        snapshot.window_s = window_s;
        snapshot.instances.iter_mut().for_each(|instance| instance.cpu_used = instance.cpu_used.map(|cpu| cpu * factor));
        snapshot.nodes.iter_mut().for_each(|node| node.cpu_used = node.cpu_used * factor);
        for flow in &mut snapshot.flows {
            flow.queue_mean *= factor;
            flow.in_service_mean *= factor;
        }
        Some(snapshot)
    }
}

/// Log-normal with median 1.
fn noise(rng: &mut weal_rng::Rng, size: f64) -> f64 {
    let normal: f64 = StandardNormal.sample(rng);
    (size * normal).exp()
}

/// What happened in a window; without `old` in all.
fn difference(old: Option<&FlowCounters>, new: &FlowCounters, window_s: f64, seats: f64) -> FlowObservation {
    let count = |of: fn(&FlowCounters) -> u64| of(new) - old.map_or(0, of);
    let mean = |of: fn(&FlowCounters) -> f64| (of(new) - old.map_or(0.0, of)) / window_s;
    let times = |of: fn(&FlowCounters) -> &LatencyHistogram| old.map_or_else(|| of(new).clone(), |old| of(new).since(of(old)));
    FlowObservation {
        id: new.id.clone(),
        arrivals: count(|flow| flow.arrivals),
        completions: count(|flow| flow.completions),
        rejections: count(|flow| flow.rejections),
        errors: count(|flow| flow.errors),
        response_time: times(|flow| &flow.response_time),
        service_time: times(|flow| &flow.service_time),
        queue_mean: mean(|flow| flow.queue_integral_s),
        in_service_mean: mean(|flow| flow.in_service_integral_s),
        seats,
        oldest_wait_s: new.oldest_wait_s,
    }
}
