//! From counters to a [`Snapshot`]: differences between two observations, robust to the restart of either side.
//!
//! Gateway and agent give counters that only grow, so a lost answer loses nothing. Three things can come between two
//! observations:
//!
//! - the gateway starts anew (`started` differs): its counters are what happened since then, and so is the window;
//! - the agent starts anew: its instances' counters go on, for they count from the instance's start;
//! - an instance starts anew (its counter falls): what it counted is what it used since then.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weal_model::{
    Cpu, FlowId, FlowObservation, InstanceId, InstanceObservation, InstanceState, JobObservation, LatencyHistogram,
    NodeObservation, NodeSpec, PoolSpec, SeatPlan, Snapshot, Time,
};
use weal_protocol::engine::{InstanceSeen, NodeSeen, Observation};
use weal_protocol::gateway::{FlowCounters, GatewayCounters};

/// A window shorter than this says nothing: two observations came too close together.
const SHORTEST_WINDOW_S: f64 = 0.05;
/// The share of a discovered node's CPU that plans may fill, where the config says nothing.
const DEFAULT_UTILIZATION_LIMIT: f64 = 0.95;

/// Remembers the last observations.
#[derive(Debug, Default)]
pub(super) struct Observer {
    gateway: Option<Arc<GatewayCounters>>,
    agent: Option<Arc<Observation>>,
    generation: u64,
}

/// What of the loop's own knowledge goes into a snapshot.
pub(super) struct Known<'a> {
    /// Instances that take no new requests; the agent knows nothing of it.
    pub closed: &'a BTreeSet<InstanceId>,
    /// The seats in force.
    pub seats: &'a SeatPlan,
    /// The jobs that a plan may decide about, sorted by name.
    pub jobs: &'a [JobObservation],
}

impl Observer {
    /// A snapshot from both sides' counters; `None` when the last one is only just over. The first one has no rates in it:
    /// what came before may be hours, and is no measurement of now. Without counters of a gateway there are no flows.
    pub fn observe(
        &mut self,
        gateway: Option<Arc<GatewayCounters>>,
        agent: Arc<Observation>,
        known: &Known<'_>,
    ) -> Option<Snapshot> {
        let before = self.agent.as_deref();
        let window_s = before.map_or(0.0, |before| window_s(before.time, agent.time));
        if before.is_some() && window_s < SHORTEST_WINDOW_S {
            // A clock that was set back: begin again from here.
            if before.is_some_and(|before| before.time > agent.time) {
                self.agent = Some(agent);
            }
            return None;
        }
        let (flows, flow_window_s) = match &gateway {
            Some(now) => flows(now, self.gateway.as_deref(), known),
            None => (Vec::new(), 0.0),
        };
        self.generation += 1;
        let snapshot = Snapshot {
            generation: self.generation,
            time: agent.time,
            // Rates of flows are over their own window, which differs only when one side answered late.
            window_s: if flows.is_empty() { window_s } else { flow_window_s },
            nodes: nodes(&agent, before, window_s),
            instances: instances(&agent, gateway.as_deref(), known, |now| measured(now, &agent, before, window_s)),
            flows,
            jobs: known.jobs.to_vec(),
        };
        self.agent = Some(agent);
        self.gateway = gateway.or(self.gateway.take());
        Some(snapshot)
    }

    /// `snapshot` with what runs according to `agent`, a later observation too close for new rates. It covers no time of its own, so
    /// that nothing is learnt from its rates twice.
    pub fn refresh(&mut self, snapshot: &Snapshot, agent: &Observation, known: &Known<'_>) -> Snapshot {
        self.generation += 1;
        Snapshot { generation: self.generation, ..present(snapshot, agent, known) }
    }
}

/// As [`Observer::refresh`], only to look at.
pub(super) fn present(snapshot: &Snapshot, agent: &Observation, known: &Known<'_>) -> Snapshot {
    let before = |id: &InstanceId| snapshot.instances.iter().find(|seen| seen.id == *id);
    let instances = instances(agent, None, known, |now| {
        before(&now.id).map_or_else(
            || measured(now, agent, None, 0.0),
            |before| InstanceObservation { state: now.state, since: now.since, ..before.clone() },
        )
    });
    // A new config may have brought nodes since.
    let mut nodes = nodes(agent, None, 0.0);
    for node in &mut nodes {
        if let Some(before) = snapshot.nodes.iter().find(|before| before.name == node.name) {
            (node.cpu_used, node.cpu_pressure) = (before.cpu_used, before.cpu_pressure);
        }
    }
    Snapshot { time: agent.time, window_s: 0.0, nodes, instances, jobs: known.jobs.to_vec(), ..snapshot.clone() }
}

fn instances(
    agent: &Observation,
    gateway: Option<&GatewayCounters>,
    known: &Known<'_>,
    measure: impl Fn(&InstanceSeen) -> InstanceObservation,
) -> Vec<InstanceObservation> {
    let in_flight: BTreeMap<&InstanceId, u32> =
        gateway.into_iter().flat_map(|g| &g.instances).map(|i| (&i.instance, i.in_flight)).collect();
    let seen = |now: &InstanceSeen| {
        let mut seen = measure(now);
        seen.in_flight = in_flight.get(&seen.id).copied().unwrap_or(seen.in_flight);
        if known.closed.contains(&seen.id) && seen.state == InstanceState::Ready {
            seen.state = InstanceState::Draining;
        }
        seen
    };
    let mut instances: Vec<_> = agent.instances.iter().map(seen).collect();
    instances.sort_by(|a, b| a.id.cmp(&b.id));
    instances
}

/// The nodes of an engine that finds them itself, as a config would name them.
pub(super) fn discovered_nodes(agent: &Observation, pool: &PoolSpec) -> Vec<NodeSpec> {
    let limit = pool.nodes.first().map_or(DEFAULT_UTILIZATION_LIMIT, |node| node.utilization_limit);
    let node = |seen: &NodeSeen| NodeSpec {
        name: seen.name.clone(),
        cpu: seen.cpu_capacity,
        memory: seen.memory_capacity,
        utilization_limit: limit,
    };
    agent.nodes.iter().map(node).collect()
}

fn nodes(agent: &Observation, before: Option<&Observation>, window_s: f64) -> Vec<NodeObservation> {
    let mut nodes: Vec<_> = agent.nodes.iter().map(|now| node(now, before, window_s)).collect();
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    nodes
}

/// Zero when the clock was set back.
fn window_s(from: Time, to: Time) -> f64 {
    to.since(from).as_secs_f64()
}

fn measured(now: &InstanceSeen, all_now: &Observation, all_before: Option<&Observation>, window_s: f64) -> InstanceObservation {
    let before = all_before.and_then(|all| all.instances.iter().find(|before| before.id == now.id));
    // An engine that began anew may have forgotten a part of what an instance had used, and the instance goes on.
    let goes_on =
        all_before.is_some_and(|all| all.began != all_now.began) && before.is_some_and(|b| b.cpu_seconds > now.cpu_seconds);
    let cpu_s = grown(now.cpu_seconds, before.map(|b| b.cpu_seconds)).filter(|_| all_before.is_some() && !goes_on);
    let disk_bytes = grown(now.disk_bytes.map(|b| b as f64), before.map(|b| b.disk_bytes.map(|b| b as f64)));
    InstanceObservation {
        id: now.id.clone(),
        app: now.app.clone(),
        node: now.node.clone(),
        state: now.state,
        cpu_used: cpu_s.map(|used| Cpu(used / window_s)),
        memory_used: now.memory_used,
        disk_bytes_per_s: disk_bytes.filter(|_| all_before.is_some()).map(|bytes| bytes / window_s),
        network_bytes_per_s: None,
        in_flight: 0,
        since: now.since,
    }
}

/// By how much a counter grew: all of it when its owner is new (`before` is `None`) or began again.
fn grown(now: Option<f64>, before: Option<Option<f64>>) -> Option<f64> {
    let now = now.filter(|value| value.is_finite())?;
    match before.map(|before| before.filter(|value| value.is_finite())) {
        None => Some(now),
        Some(None) => None,
        Some(Some(before)) if now >= before => Some(now - before),
        Some(Some(_)) => Some(now),
    }
}

fn node(now: &NodeSeen, all_before: Option<&Observation>, window_s: f64) -> NodeObservation {
    let before = all_before.and_then(|all| all.nodes.iter().find(|node| node.name == now.name));
    // A node that comes back brings the counters of its group along: unlike an instance's they do not begin with it. So one that falls says
    // nothing either: an engine that sums them up itself has begun anew.
    let per_s = |now: Option<f64>, before: Option<f64>| Some((now? - before?) / window_s).filter(|rate| *rate >= 0.0);
    let cpu_used = per_s(Some(now.cpu_seconds), before.map(|b| b.cpu_seconds));
    let pressure = per_s(now.cpu_pressure_seconds, before.and_then(|b| b.cpu_pressure_seconds));
    NodeObservation {
        name: now.name.clone(),
        up: now.up,
        cpu_capacity: now.cpu_capacity,
        cpu_used: Cpu(cpu_used.unwrap_or(0.0)),
        memory_capacity: now.memory_capacity,
        memory_used: now.memory_used,
        cpu_pressure: pressure.map(|share| share.clamp(0.0, 1.0)),
    }
}

/// The flows and the seconds that they cover.
fn flows(now: &GatewayCounters, before: Option<&GatewayCounters>, known: &Known<'_>) -> (Vec<FlowObservation>, f64) {
    let same_process = before.filter(|before| before.started == now.started);
    let from = match (before, same_process) {
        (_, Some(before)) => before.time,
        (Some(before), None) => now.started.max(before.time),
        // The first look: what came before may be hours, and is no measurement of now.
        (None, None) => return (Vec::new(), 0.0),
    };
    let window_s = window_s(from, now.time);
    if window_s < SHORTEST_WINDOW_S {
        return (Vec::new(), 0.0);
    }
    let earlier: BTreeMap<&FlowId, &FlowCounters> =
        same_process.into_iter().flat_map(|before| &before.flows).map(|flow| (&flow.id, flow)).collect();
    let mut flows: Vec<_> = now.flows.iter().map(|flow| flow_between(earlier.get(&flow.id).copied(), flow, window_s)).collect();
    for flow in &mut flows {
        let planned = known.seats.flows.iter().find(|planned| planned.id == flow.id);
        flow.seats = planned.map_or(0.0, |planned| f64::from(planned.seats));
    }
    flows.sort_by(|a, b| a.id.cmp(&b.id));
    (flows, window_s)
}

/// A flow between two counts of it, `before` and `now`, over the `window_s` seconds between them. Its seats are left to the caller.
pub fn flow_between(before: Option<&FlowCounters>, now: &FlowCounters, window_s: f64) -> FlowObservation {
    let count = |read: fn(&FlowCounters) -> u64| {
        let (now, before) = (read(now), before.map_or(0, read));
        now.checked_sub(before).unwrap_or(now)
    };
    let mean = |read: fn(&FlowCounters) -> f64| grown(Some(read(now)), before.map(|b| Some(read(b)))).unwrap_or(0.0) / window_s;
    let histogram = |read: fn(&FlowCounters) -> &LatencyHistogram| match before {
        Some(before) => read(now).since(read(before)),
        None => read(now).clone(),
    };
    FlowObservation {
        id: now.id.clone(),
        arrivals: count(|f| f.arrivals),
        completions: count(|f| f.completions),
        rejections: count(|f| f.rejections),
        errors: count(|f| f.errors),
        response_time: histogram(|f| &f.response_time),
        service_time: histogram(|f| &f.service_time),
        queue_mean: mean(|f| f.queue_integral_s),
        in_service_mean: mean(|f| f.in_service_integral_s),
        seats: 0.0,
        oldest_wait_s: now.oldest_wait_s,
        hanging: now.hanging,
        at_clients: now.at_clients,
    }
}

#[cfg(test)]
mod tests {
    use weal_model::{Bytes, StatusCounts};

    use super::*;

    fn agent(at_s: f64, nodes: &[(&str, f64)]) -> Observation {
        let node = |&(name, cpu_seconds): &(&str, f64)| NodeSeen {
            name: name.into(),
            up: true,
            cpu_capacity: Cpu(1.0),
            is_slice: false,
            memory_capacity: Bytes(1 << 30),
            cpu_seconds,
            memory_used: Bytes(0),
            cpu_pressure_seconds: None,
            memory_reserve: Bytes(0),
            parked_for_reserve: 0,
        };
        let time = Time::from_secs_f64(at_s);
        Observation { time, nodes: nodes.iter().map(node).collect(), ..Observation::default() }
    }

    /// A gateway that started at `started_s` and has one flow with so many answers since.
    fn gateway(at_s: f64, started_s: f64, completions: u64) -> GatewayCounters {
        let flow = FlowCounters {
            id: FlowId { gateway: "gw".into(), app: "shop".into(), class: "gold".into() },
            arrivals: completions,
            completions,
            rejections: 0,
            errors: 0,
            retries: 0,
            response_time: LatencyHistogram::default(),
            service_time: LatencyHistogram::default(),
            queue_integral_s: 0.5 * completions as f64,
            in_service_integral_s: 0.0,
            queued: 0,
            in_service: 0,
            late: 0,
            hanging: 0,
            at_clients: 0,
            oldest_wait_s: 0.0,
            responses: StatusCounts::default(),
        };
        let (started, time) = (Time::from_secs_f64(started_s), Time::from_secs_f64(at_s));
        GatewayCounters { version: 1, flows: vec![flow], ..GatewayCounters::none("gw".into(), started, time) }
    }

    fn observe(observer: &mut Observer, gateway: GatewayCounters, agent: Observation) -> Option<Snapshot> {
        observer.observe(
            Some(Arc::new(gateway)),
            Arc::new(agent),
            &Known { closed: &BTreeSet::new(), seats: &SeatPlan::default(), jobs: &[] },
        )
    }

    #[test]
    fn rates_are_differences_between_two_looks_and_the_first_has_none() {
        let mut observer = Observer::default();
        let first = observe(&mut observer, gateway(10.0, 0.0, 7000), agent(10.0, &[("n1", 50.0)])).unwrap();
        assert!(first.flows.is_empty() && first.nodes[0].cpu_used.0 == 0.0);
        let second = observe(&mut observer, gateway(12.0, 0.0, 7040), agent(12.0, &[("n1", 51.0)])).unwrap();
        assert_eq!((second.window_s, second.flows[0].completions, second.flows[0].queue_mean), (2.0, 40, 10.0));
        assert_eq!(second.nodes[0].cpu_used, Cpu(0.5));
    }

    #[test]
    fn a_gateway_that_starts_anew_counts_from_its_start() {
        let mut observer = Observer::default();
        observe(&mut observer, gateway(10.0, 0.0, 7000), agent(10.0, &[])).unwrap();
        let snapshot = observe(&mut observer, gateway(12.0, 11.0, 30), agent(12.0, &[])).unwrap();
        assert_eq!((snapshot.window_s, snapshot.flows[0].completions), (1.0, 30));
    }

    #[test]
    fn a_node_that_comes_back_has_not_used_all_its_cpu_at_once() {
        let mut observer = Observer::default();
        observe(&mut observer, gateway(10.0, 0.0, 0), agent(10.0, &[("n1", 30.0)])).unwrap();
        observe(&mut observer, gateway(12.0, 0.0, 0), agent(12.0, &[])).unwrap();
        let back = observe(&mut observer, gateway(14.0, 0.0, 0), agent(14.0, &[("n1", 30.1)])).unwrap();
        assert_eq!(back.nodes[0].cpu_used, Cpu(0.0));
        let next = observe(&mut observer, gateway(16.0, 0.0, 0), agent(16.0, &[("n1", 30.5)])).unwrap();
        assert!((next.nodes[0].cpu_used.0 - 0.2).abs() < 1e-9);
    }

    #[test]
    fn what_an_engine_forgets_when_it_begins_anew_was_not_used_now() {
        let web = |at_s: f64, began_s: f64, cpu_seconds: f64| {
            let instance = InstanceSeen { cpu_seconds: Some(cpu_seconds), ..InstanceSeen::example("web-1", "web", "n1") };
            let began = Time::from_secs_f64(began_s);
            Observation { began, instances: vec![instance], ..agent(at_s, &[("n1", cpu_seconds)]) }
        };
        let used = |later: Observation| {
            let mut observer = Observer::default();
            observe(&mut observer, gateway(10.0, 0.0, 0), web(10.0, 1.0, 9000.0)).unwrap();
            let seen = observe(&mut observer, gateway(12.0, 0.0, 0), later).unwrap();
            (seen.instances[0].cpu_used, seen.nodes[0].cpu_used)
        };
        assert_eq!(used(web(12.0, 11.0, 8999.5)), (None, Cpu(0.0)), "half a second was forgotten");
        assert_eq!(used(web(12.0, 11.0, 9001.0)), (Some(Cpu(0.5)), Cpu(0.5)), "nothing was");
        assert_eq!(used(web(12.0, 1.0, 0.5)), (Some(Cpu(0.25)), Cpu(0.0)), "the instance began again");
    }

    #[test]
    fn looks_too_close_or_with_a_clock_set_back_say_nothing_and_lose_nothing() {
        let mut observer = Observer::default();
        observe(&mut observer, gateway(10.0, 0.0, 100), agent(10.0, &[("n1", 1.0)])).unwrap();
        assert_eq!(observe(&mut observer, gateway(10.01, 0.0, 101), agent(10.01, &[("n1", 1.0)])), None);
        let later = observe(&mut observer, gateway(11.0, 0.0, 120), agent(11.0, &[("n1", 1.5)])).unwrap();
        assert_eq!((later.flows[0].completions, later.nodes[0].cpu_used), (20, Cpu(0.5)));
        assert_eq!(observe(&mut observer, gateway(5.0, 0.0, 130), agent(5.0, &[("n1", 1.6)])), None);
        let again = observe(&mut observer, gateway(7.0, 0.0, 140), agent(7.0, &[("n1", 2.0)])).unwrap();
        assert!((again.nodes[0].cpu_used.0 - 0.2).abs() < 1e-9);
    }

    #[test]
    fn a_counter_that_falls_began_again_and_one_that_is_missing_says_nothing() {
        assert_eq!(grown(Some(5.0), Some(Some(3.0))), Some(2.0));
        assert_eq!(grown(Some(1.0), Some(Some(3.0))), Some(1.0));
        assert_eq!(grown(Some(4.0), None), Some(4.0), "its owner is new");
        assert_eq!(grown(Some(4.0), Some(None)), None);
        assert_eq!(grown(None, Some(Some(3.0))), None);
        assert_eq!(grown(Some(f64::NAN), None), None);
        assert_eq!(grown(Some(4.0), Some(Some(f64::NAN))), None, "nobody knows what it was before");
    }
}
