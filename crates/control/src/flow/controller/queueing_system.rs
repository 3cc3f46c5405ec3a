//! A small queueing system to close the loop over, for tests: clients, gateway queues, processor-sharing instances on nodes,
//! and imperfect measurements. It steps a millisecond at a time, deterministic from its seed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use weal_model::*;

use super::{Decision, plan_seats};
use crate::profile::Profiles;

const STEP_S: f64 = 0.001;
const STEPS: usize = 1000;

/// Clients of one flow.
#[derive(Debug, Clone)]
pub(super) struct Traffic {
    pub app: &'static str,
    pub class: &'static str,
    pub clients: Clients,
    /// CPU-seconds a request; exponentially distributed around it by the share `spread`.
    pub work_s: f64,
    pub spread: f64,
    /// Seconds that a request waits for something else before it computes.
    pub io_s: f64,
    /// CPU-seconds in another application, afterwards.
    pub behind: Option<(&'static str, f64)>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Clients {
    Closed { sessions: usize, think_s: f64 },
    Open { per_s: f64 },
}

#[derive(Debug, Clone)]
struct Request {
    flow: usize,
    arrived: f64,
    dispatched: f64,
    /// (instance, work left); the first is negative seconds to wait when the instance is `usize::MAX`.
    phases: VecDeque<(usize, f64)>,
}

pub(super) struct System {
    pub spec: PoolSpec,
    pub traffic: Vec<Traffic>,
    pub instances: Vec<(AppName, NodeName)>,
    pub snapshots: u64,
    /// Share by which measured CPU is off at random.
    pub noise: f64,
    /// Share of cycles in which an instance's CPU is not measured.
    pub missing: f64,
    /// True: instances' shares follow the plan, as cgroups make them.
    pub shares: bool,
    now: f64,
    rng: Pcg64,
    waking: Vec<(f64, usize)>,
    queues: Vec<VecDeque<Request>>,
    passes: Vec<f64>,
    running: Vec<Request>,
    pub plan: SeatPlan,
    pub cpu: Vec<CpuShare>,
    counters: Counters,
}

#[derive(Default)]
struct Counters {
    flows: Vec<FlowCounts>,
    cpu: Vec<f64>,
}

#[derive(Default, Clone)]
struct FlowCounts {
    arrivals: u64,
    completions: u64,
    response: LatencyHistogram,
    service: LatencyHistogram,
    queue: f64,
    in_service: f64,
}

impl System {
    pub fn new(spec: PoolSpec, instances: &[(&str, &str)], traffic: Vec<Traffic>, seed: u64) -> Self {
        let flows = traffic.len();
        let mut waking = Vec::new();
        for (f, traffic) in traffic.iter().enumerate() {
            match traffic.clients {
                Clients::Closed { sessions, .. } => waking.extend((0..sessions).map(|_| (0.0, f))),
                Clients::Open { .. } => waking.push((0.0, f)),
            }
        }
        Self {
            spec,
            instances: instances.iter().map(|&(app, node)| (app.into(), node.into())).collect(),
            snapshots: 0,
            noise: 0.03,
            missing: 0.0,
            shares: true,
            now: 0.0,
            rng: Pcg64::seed_from_u64(seed),
            waking,
            queues: vec![VecDeque::new(); flows],
            passes: vec![0.0; flows],
            running: Vec::new(),
            plan: SeatPlan::default(),
            cpu: Vec::new(),
            counters: Counters { flows: vec![FlowCounts::default(); flows], cpu: vec![0.0; instances.len()] },
            traffic,
        }
    }

    pub fn id(&self, f: usize) -> FlowId {
        FlowId { gateway: "gw".into(), app: self.traffic[f].app.into(), class: self.traffic[f].class.into() }
    }

    /// Runs `cycles` cycles of one second under the controller, whose decisions come into force one cycle late.
    pub fn run(&mut self, cycles: usize, profiles: &mut Profiles) -> Vec<(Snapshot, Decision)> {
        let mut history = Vec::new();
        let mut pending: Option<Decision> = None;
        for _ in 0..cycles {
            let snapshot = self.cycle();
            if let Some(decision) = pending.take() {
                (self.plan, self.cpu) = (decision.plan, decision.shares);
                self.rebase();
            }
            profiles.update(&snapshot, &self.spec);
            let decision = plan_seats(&snapshot, &self.spec, profiles, &self.plan);
            pending = Some(decision.clone());
            history.push((snapshot, decision));
        }
        history
    }

    /// A new weight replaces the old one's pending turn.
    fn rebase(&mut self) {
        let least = self.passes.iter().copied().fold(f64::INFINITY, f64::min);
        for f in 0..self.passes.len() {
            self.passes[f] = (self.passes[f] - least).min(1.0 / self.allocated(f).1);
        }
    }

    /// One second, measured.
    pub fn cycle(&mut self) -> Snapshot {
        for _ in 0..STEPS {
            self.step();
        }
        self.snapshot()
    }

    fn step(&mut self) {
        self.now += STEP_S;
        self.wake();
        self.dispatch();
        self.compute();
        for (f, counts) in self.counters.flows.iter_mut().enumerate() {
            counts.queue += self.queues[f].len() as f64 / STEPS as f64;
            counts.in_service += self.running.iter().filter(|r| r.flow == f).count() as f64 / STEPS as f64;
        }
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.rng.random::<f64>()).ln()
    }

    fn wake(&mut self) {
        let due: Vec<usize> = (0..self.waking.len()).rev().filter(|&i| self.waking[i].0 <= self.now).collect();
        for i in due {
            let (at, f) = self.waking.swap_remove(i);
            if let Clients::Open { per_s } = self.traffic[f].clients {
                let next = at.max(self.now - STEP_S) + self.exponential(1.0 / per_s);
                self.waking.push((next, f));
            }
            self.counters.flows[f].arrivals += 1;
            let request = Request { flow: f, arrived: self.now, dispatched: 0.0, phases: VecDeque::new() };
            self.queues[f].push_back(request);
        }
    }

    fn allocated(&self, f: usize) -> (f64, f64) {
        let id = self.id(f);
        self.plan.flows.iter().find(|flow| flow.id == id).map_or((2.0, 1.0), |flow| (f64::from(flow.seats), flow.weight))
    }

    /// Weighted round robin by virtual passes, with one limit per application.
    fn dispatch(&mut self) {
        let apps: BTreeSet<&str> = self.traffic.iter().map(|t| t.app).collect();
        for app in apps {
            let own: Vec<usize> = (0..self.traffic.len()).filter(|&f| self.traffic[f].app == app).collect();
            let seats: f64 = own.iter().map(|&f| self.allocated(f).0).sum();
            loop {
                let used = self.running.iter().filter(|r| own.contains(&r.flow)).count() as f64;
                let waiting = own.iter().copied().filter(|&f| !self.queues[f].is_empty());
                let Some(f) = waiting.min_by(|&a, &b| self.passes[a].total_cmp(&self.passes[b])).filter(|_| used < seats) else {
                    break;
                };
                let pass = self.passes[f];
                // Who was absent does not save up turns.
                own.iter().filter(|&&g| self.queues[g].is_empty()).for_each(|&g| self.passes[g] = self.passes[g].max(pass));
                self.passes[f] += 1.0 / self.allocated(f).1;
                let request = self.queues[f].pop_front().expect("it is not empty");
                self.start(request);
            }
        }
    }

    fn start(&mut self, mut request: Request) {
        let traffic = self.traffic[request.flow].clone();
        request.dispatched = self.now;
        if traffic.io_s > 0.0 {
            request.phases.push_back((usize::MAX, traffic.io_s));
        }
        for (app, work_s) in std::iter::once((traffic.app, traffic.work_s)).chain(traffic.behind) {
            let work = work_s * (1.0 - traffic.spread) + self.exponential(work_s * traffic.spread);
            let home = self.least_loaded(app);
            request.phases.push_back((home, work));
        }
        self.running.push(request);
    }

    fn least_loaded(&self, app: &str) -> usize {
        let load = |i: usize| self.running.iter().filter(|r| r.phases.iter().any(|phase| phase.0 == i)).count();
        let weight = |i: usize| self.share(i).max(1e-3);
        (0..self.instances.len())
            .filter(|&i| self.instances[i].0.as_str() == app)
            .min_by(|&a, &b| ((load(a) + 1) as f64 / weight(a)).total_cmp(&((load(b) + 1) as f64 / weight(b))))
            .expect("every application has an instance")
    }

    fn instance_id(i: usize) -> InstanceId {
        format!("i-{i:02}").into()
    }

    fn share(&self, i: usize) -> f64 {
        let id = Self::instance_id(i);
        let planned = self.cpu.iter().find(|share| share.instance == id).map(|share| share.cpu.0);
        planned.filter(|_| self.shares).unwrap_or(1.0)
    }

    /// Shares each node among its busy instances by weight, and an instance among its requests, at most one core each.
    fn compute(&mut self) {
        let mut at: Vec<usize> = vec![0; self.instances.len()];
        for request in &self.running {
            if let Some(count) = at.get_mut(request.phases[0].0) {
                *count += 1;
            }
        }
        let mut speed = vec![0.0; self.instances.len()];
        for node in self.spec.nodes.clone() {
            let mut open: Vec<usize> = (0..at.len()).filter(|&i| at[i] > 0 && self.instances[i].1 == node.name).collect();
            let mut left = node.cpu.0;
            while !open.is_empty() && left > 1e-9 {
                let weights: f64 = open.iter().map(|&i| self.share(i)).sum();
                let sated: Vec<usize> =
                    open.iter().copied().filter(|&i| left * self.share(i) / weights >= at[i] as f64 - 1e-12).collect();
                if sated.is_empty() {
                    open.iter().for_each(|&i| speed[i] = left * self.share(i) / weights);
                    break;
                }
                sated.iter().for_each(|&i| speed[i] = at[i] as f64);
                left -= sated.iter().map(|&i| at[i] as f64).sum::<f64>();
                open.retain(|i| !sated.contains(i));
            }
        }
        for request in &mut self.running {
            let (place, left) = &mut request.phases[0];
            let pace = if *place == usize::MAX { 1.0 } else { speed[*place] / at[*place] as f64 };
            let used = (pace * STEP_S).min(*left);
            *left -= used;
            if let Some(cpu) = self.counters.cpu.get_mut(*place) {
                *cpu += used;
            }
            if *left <= 1e-12 {
                request.phases.pop_front();
            }
        }
        let (done, running) = std::mem::take(&mut self.running).into_iter().partition(|r| r.phases.is_empty());
        self.running = running;
        for request in done {
            self.complete(request);
        }
    }

    fn complete(&mut self, request: Request) {
        let counts = &mut self.counters.flows[request.flow];
        counts.completions += 1;
        counts.response.record(Duration::from_secs_f64(self.now - request.arrived + STEP_S));
        counts.service.record(Duration::from_secs_f64(self.now - request.dispatched + STEP_S));
        if let Clients::Closed { think_s, .. } = self.traffic[request.flow].clients {
            let think = if think_s > 0.0 { self.exponential(think_s) } else { 0.0 };
            self.waking.push((self.now + think, request.flow));
        }
    }

    fn snapshot(&mut self) -> Snapshot {
        self.snapshots += 1;
        let cpu: Vec<f64> = self.counters.cpu.iter_mut().map(std::mem::take).collect();
        let flows: Vec<FlowCounts> = self.counters.flows.iter_mut().map(std::mem::take).collect();
        let measured: Vec<f64> =
            cpu.iter().map(|cpu| cpu * (1.0 + self.noise * (2.0 * self.rng.random::<f64>() - 1.0))).collect();
        let lost: Vec<bool> = cpu.iter().map(|_| self.rng.random::<f64>() < self.missing).collect();
        let instance = |(i, (app, node)): (usize, &(AppName, NodeName))| InstanceObservation {
            cpu_used: (!lost[i]).then(|| Cpu(measured[i])),
            ..InstanceObservation::unmeasured(Self::instance_id(i), app.clone(), node.clone(), InstanceState::Ready)
        };
        let node = |node: &NodeSpec| NodeObservation {
            name: node.name.clone(),
            up: true,
            cpu_capacity: node.cpu,
            cpu_used: self.instances.iter().zip(&measured).filter(|(i, _)| i.1 == node.name).map(|(_, cpu)| Cpu(*cpu)).sum(),
            memory_capacity: Bytes::gib(1),
            memory_used: Bytes(0),
            cpu_pressure: None,
        };
        let flow = |(f, counts): (usize, &FlowCounts)| FlowObservation {
            id: self.id(f),
            arrivals: counts.arrivals,
            completions: counts.completions,
            rejections: 0,
            errors: 0,
            response_time: counts.response.clone(),
            service_time: counts.service.clone(),
            queue_mean: counts.queue,
            in_service_mean: counts.in_service,
            seats: self.allocated(f).0,
            hanging: 0,
            at_clients: 0,
            oldest_wait_s: self.queues[f].front().map_or(0.0, |oldest| self.now - oldest.arrived),
        };
        let mut flows: Vec<FlowObservation> = flows.iter().enumerate().map(flow).collect();
        flows.sort_by(|a, b| a.id.cmp(&b.id));
        Snapshot {
            generation: self.snapshots,
            time: Time::from_secs_f64(self.now),
            window_s: 1.0,
            nodes: self.spec.nodes.iter().map(node).collect(),
            instances: self.instances.iter().enumerate().map(instance).collect(),
            flows,
            jobs: Vec::new(),
        }
    }
}

/// A pool of these nodes (name, cores), classes (name, goal, importance) and applications (name, classes, needs).
pub(super) fn spec(nodes: &[(&str, f64)], classes: &[(&str, &str, &str)], apps: &[(&str, &[&str], &[&str])]) -> PoolSpec {
    let class = |&(name, goal, importance): &(&str, &str, &str)| {
        let goal = (goal != "none").then(|| goal.parse().unwrap());
        ServiceClass::new(name.into(), goal, Importance::from_word(importance).unwrap())
    };
    PoolSpec {
        nodes: nodes
            .iter()
            .map(|&(name, cpu)| NodeSpec { name: name.into(), cpu: Cpu(cpu), memory: Bytes::gib(1), utilization_limit: 0.95 })
            .collect(),
        classes: classes.iter().map(|c| (c.0.into(), class(c))).collect(),
        apps: apps.iter().map(|&(name, classes, needs)| (name.into(), app(name, classes, needs))).collect::<BTreeMap<_, _>>(),
        ..PoolSpec::example()
    }
}

fn app(name: &str, classes: &[&str], needs: &[&str]) -> AppSpec {
    let route = |class: &&str| RouteSpec { host: Some(format!("{class}.{name}")), ..RouteSpec::any((*class).into()) };
    AppSpec {
        instances: InstanceRange { min: 1, max: 4 },
        routes: classes.iter().map(route).collect(),
        needs: needs.iter().map(|&need| need.into()).collect(),
        queue_limit: 1000,
        ..AppSpec::example(name)
    }
}
