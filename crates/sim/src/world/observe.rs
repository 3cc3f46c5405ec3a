//! What the simulated engine and gateway say of themselves, and what faults do to it on its way to the controller.

use std::collections::BTreeMap;

use rand::RngExt;
use weal_control::cycle::flow_between;
use weal_model::{Bytes, Cpu, FlowObservation, InstanceObservation, InstanceState, NodeObservation, Rung, Snapshot, Time};
use weal_protocol::engine::{InstanceSeen, NodeSeen, Observation};
use weal_protocol::gateway::{FlowCounters, GatewayCounters};
use weal_protocol::{Capabilities, Refusal};
use weal_scenario::FaultKind;

use super::parts::absence::gateway_away;
use super::parts::event::GATEWAY;
use super::parts::instance::Instance;
use super::parts::measurements::{address, grow, hold_back, noise};
use super::state::World;

impl World<'_> {
    /// The truth about what runs, without what was measured.
    pub fn truth(&self) -> Snapshot {
        let present = self.instances.iter().filter(|instance| instance.state != InstanceState::Stopped);
        let mut instances: Vec<_> = present.map(|instance| self.instance_truth(instance)).collect();
        instances.sort_by(|a, b| a.id.cmp(&b.id));
        let nodes = self.nodes.iter().zip(&self.scenario.pool.nodes).enumerate();
        let mut nodes: Vec<_> = nodes
            .map(|(number, (node, spec))| NodeObservation {
                name: node.name.clone(),
                up: node.up,
                cpu_capacity: spec.cpu,
                cpu_used: Cpu(0.0),
                memory_capacity: spec.memory,
                memory_used: self.memory_held(number),
                cpu_pressure: None,
            })
            .collect();
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        Snapshot { time: self.now(), nodes, instances, ..Snapshot::default() }
    }

    fn instance_truth(&self, instance: &Instance) -> InstanceObservation {
        let app = &self.scenario.pool.apps[&self.apps[instance.app].name];
        InstanceObservation {
            id: instance.id.clone(),
            app: app.name.clone(),
            node: self.nodes[instance.node].name.clone(),
            state: instance.state,
            cpu_used: None,
            memory_used: Some(if instance.state.holds_memory() { app.memory } else { Bytes(0) }),
            disk_bytes_per_s: None,
            network_bytes_per_s: None,
            in_flight: instance.in_flight,
            since: Time::from_secs_f64(instance.since_s),
        }
    }

    /// Measures the pool for the report: the truth about the time since the last measurement. What faults do to measurements is drawn anew.
    pub fn measure_interval(&mut self) -> Snapshot {
        let (now, now_s) = (self.now(), self.now_s());
        let window_s = (now_s - self.measurements.time_s).max(1e-3);
        self.measurements.time_s = now_s;
        let mut snapshot = Snapshot { window_s, ..self.truth() };
        for (number, node) in self.nodes.iter_mut().enumerate() {
            let used = node.processor.used(now_s);
            let before = grow(&mut self.measurements.nodes, number);
            if let Some(seen) = snapshot.nodes.iter_mut().find(|seen| seen.name == node.name) {
                seen.cpu_used = Cpu((used - *before) / window_s);
            }
            *before = used;
        }
        if self.gateway_up {
            let flows: Vec<FlowCounters> = self.apps.iter_mut().flat_map(|app| app.flows(now)).collect();
            let seats = self.controller.seats();
            for flow in &flows {
                let planned = seats.and_then(|seats| seats.flows.iter().find(|seats| seats.id == flow.id));
                let seats = planned.map_or(0.0, |planned| f64::from(planned.seats));
                let measured = flow_between(self.measurements.flows.get(&flow.id), flow, window_s);
                snapshot.flows.push(FlowObservation { seats, ..measured });
            }
            self.measurements.flows = flows.into_iter().map(|flow| (flow.id.clone(), flow)).collect();
            snapshot.flows.sort_by(|a, b| a.id.cmp(&b.id));
        }
        self.draw_faults();
        if self.scenario.faults.iter().any(|fault| fault.kind == FaultKind::Delay) {
            self.remember();
        }
        snapshot
    }

    /// The gateway counts anew.
    pub fn forget_counters(&mut self) {
        self.measurements.gateway_began = self.its_time();
        self.measurements.flows.clear();
    }

    /// What the gateway has counted.
    pub fn counters(&mut self) -> Result<GatewayCounters, Refusal> {
        if !self.gateway_up {
            return Err(gateway_away());
        }
        let now = self.now();
        let (mut flows, mut instances, mut clusters) = (Vec::new(), Vec::new(), Vec::new());
        for app in &mut self.apps {
            clusters.push(app.admission.observe(now, &GATEWAY.into(), &mut flows, &mut instances));
        }
        let mut time = self.its_time();
        if let Some((former, seen)) = self.held_back() {
            (flows, time) = (former.clone(), seen.time);
        }
        let counted = GatewayCounters::none(GATEWAY.into(), self.measurements.gateway_began, time);
        Ok(GatewayCounters { version: self.gateway_version, flows, instances, clusters, ..counted })
    }

    /// What runs, with counters.
    pub fn observation(&mut self) -> Observation {
        let (now_s, time) = (self.now_s(), self.its_time());
        let mut nodes = Vec::with_capacity(self.nodes.len());
        for number in 0..self.nodes.len() {
            let memory_used = self.memory_held(number);
            let used = self.nodes[number].processor.used(now_s);
            let measured = grow(&mut self.measurements.nodes_measured, number).read(used);
            let (node, spec) = (&self.nodes[number], &self.scenario.pool.nodes[number]);
            nodes.push(NodeSeen {
                name: node.name.clone(),
                up: node.up,
                cpu_capacity: spec.cpu,
                is_slice: self.cores.is_some(),
                memory_capacity: spec.memory,
                cpu_seconds: measured.unwrap_or(f64::NAN),
                memory_used,
                cpu_pressure_seconds: None,
                memory_reserve: node.reserve,
                parked_for_reserve: node.parked_for_reserve,
            });
        }
        let present = (0..self.instances.len()).filter(|&index| self.instances[index].state != InstanceState::Stopped);
        let instances = present.collect::<Vec<_>>().into_iter().map(|index| self.instance_seen(index, now_s)).collect();
        let capabilities = self.capabilities();
        let mut seen = Observation { began: Time::ZERO, time, capabilities, nodes, instances, runs: self.runs() };
        if let Some((_, former)) = self.held_back() {
            hold_back(&mut seen, former);
        }
        seen
    }

    /// What can be done here: all that an engine may, unless the scenario's machines have no swap.
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::all("simulated");
        if !self.scenario.surroundings.has_swap() {
            capabilities.rungs.retain(|rung| *rung == Rung::Suspended);
            capabilities.reserves = false;
        }
        capabilities
    }

    fn instance_seen(&mut self, index: usize, now_s: f64) -> InstanceSeen {
        let node = self.instances[index].node;
        let used = self.nodes[node].processor.used_by(now_s, index);
        let measured = grow(&mut self.measurements.instances_measured, index);
        let cpu_seconds = used.and_then(|used| measured.read(used));
        let instance = &self.instances[index];
        let app = &self.scenario.pool.apps[&self.apps[instance.app].name];
        InstanceSeen {
            id: instance.id.clone(),
            app: app.name.clone(),
            node: self.nodes[instance.node].name.clone(),
            revision: instance.revision.clone(),
            state: instance.state,
            detail: String::new(),
            since: Time::from_secs_f64(instance.since_s),
            is_running: instance.state != InstanceState::Backoff,
            pid: None,
            address: address(index),
            needs: BTreeMap::new(),
            memory_limit: app.memory,
            cpu_seconds,
            memory_used: Some(if instance.state.holds_memory() { app.memory } else { Bytes(0) }),
            swap_used: None,
            disk_bytes: None,
            restarts: instance.restarts,
            start_took_s: instance.start_took_s,
            last_wake_s: Some(instance.last_wake_s).filter(|seconds| seconds.is_finite()),
            costs: self.sleep_costs[instance.app],
            keeps_awake: false,
            listener: None,
        }
    }

    /// What a delay shows instead of the present, if one lasts.
    fn held_back(&self) -> Option<&(Vec<FlowCounters>, Observation)> {
        let delay =
            self.lasting(FaultKind::Delay).map(|fault| fault.amount.max(0.0) as usize).max().filter(|&cycles| cycles > 0)?;
        let at = self.measurements.delayed.len().saturating_sub(delay + 1);
        self.measurements.delayed.get(at)
    }

    fn remember(&mut self) {
        let longest = self.scenario.faults.iter().filter(|fault| fault.kind == FaultKind::Delay);
        let longest = longest.map(|fault| fault.amount.max(0.0) as usize).max().unwrap_or(0);
        let now = self.now();
        let flows: Vec<FlowCounters> = self.apps.iter_mut().flat_map(|app| app.flows(now)).collect();
        let held = std::mem::take(&mut self.measurements.delayed);
        let seen = self.observation();
        self.measurements.delayed = held;
        self.measurements.delayed.push_back((flows, seen));
        while self.measurements.delayed.len() > longest + 1 {
            self.measurements.delayed.pop_front();
        }
    }

    /// Draws what faults do to each counter until the next measurement.
    fn draw_faults(&mut self) {
        let kinds = [FaultKind::Noise, FaultKind::Missing, FaultKind::Nan];
        let faults: Vec<_> = kinds.into_iter().flat_map(|kind| self.lasting(kind).cloned().collect::<Vec<_>>()).collect();
        let rng = &mut self.faults.measurements;
        let mut draw = |name: &str, is_node: bool| {
            let mut measured = (1.0, None);
            for fault in faults.iter().filter(|fault| fault.node.as_deref().is_none_or(|only| only == name)) {
                match fault.kind {
                    FaultKind::Noise => measured.0 *= noise(rng, fault.amount),
                    FaultKind::Missing if is_node => {}
                    kind if rng.random::<f64>() < fault.amount => measured.1 = Some(kind),
                    _ => {}
                }
            }
            measured
        };
        for (number, node) in self.nodes.iter().enumerate() {
            let entry = grow(&mut self.measurements.nodes_measured, number);
            (entry.factor, entry.fault) = draw(node.name.as_str(), true);
        }
        for (index, instance) in self.instances.iter().enumerate().filter(|(_, i)| i.state != InstanceState::Stopped) {
            let entry = grow(&mut self.measurements.instances_measured, index);
            (entry.factor, entry.fault) = draw(self.nodes[instance.node].name.as_str(), false);
        }
    }
}
