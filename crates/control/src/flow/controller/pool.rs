//! A snapshot, its spec and its profiles as a seat problem.

use std::collections::{BTreeMap, BTreeSet};

use weal_model::{
    AppName, Cpu, CpuShare, FlowId, InstanceId, InstanceObservation, InstanceState, JobObservation, JobState, NodeName,
    NodeObservation, PoolSpec, Snapshot, Utility,
};

use super::super::seats::{Appetite, Host, SeatFlow, SeatProblem, SeatSolution, solve};
use crate::profile::{FlowProfile, Profiles, Usable};
use crate::queueing::FlowModel;

/// What an instance that competes for CPU may use beyond its load, besides what nobody uses there
/// ([`Profiles::slack`]). Without any, the rounding of the quota leaves CPU unused; much
/// more, and the crowd of the flow with more requests outstanding takes what was meant for others.
const LIMIT_SLACK: f64 = 1.02;

/// A flow's model in seats: `o = lambda * held_s`.
#[derive(Debug, Clone)]
pub(super) struct InSeats {
    pub(super) model: FlowModel,
    /// Seconds that a request holds its seat when the CPU is just busy: `S_0 * stretch`.
    pub(super) held_s: f64,
    best: Utility,
    /// Without a work factor nothing is known to be limited; the flow stays out of the solution.
    measured: bool,
}

impl InSeats {
    /// Requests per second of so many seats.
    pub(super) fn rate(&self, seats: f64) -> f64 {
        seats / self.held_s
    }
}

impl Appetite for InSeats {
    fn seats_for(&self, utility: Utility) -> f64 {
        if self.measured { self.model.rate_for(utility) * self.held_s } else { 0.0 }
    }

    fn utility_of(&self, seats: f64) -> Utility {
        self.model.utility_of(self.rate(seats))
    }

    fn best(&self) -> Utility {
        self.best
    }
}

/// The seat problem and what it was made from.
#[derive(Debug)]
pub(super) struct Pool<'a> {
    pub(super) problem: SeatProblem<InSeats>,
    /// Index of each cluster with ready instances.
    pub(super) clusters: BTreeMap<&'a AppName, usize>,
    /// The model of each flow that has one.
    pub(super) models: Vec<Option<FlowModel>>,
    /// `N` of each flow: requests in the system.
    there: Vec<f64>,
    /// CPU-seconds a request over all clusters, 0 where unknown.
    pub(super) work: Vec<f64>,
    /// Seats of a flow about which too little is known, else 0.
    pub(super) fallback: Vec<u32>,
    pub(super) node_names: Vec<&'a NodeName>,
    /// CPU used and usable of each node.
    use_of: Vec<(f64, f64)>,
    /// CPU that jobs on each node were given.
    jobs: Vec<f64>,
    /// Whether requests of each flow wait in the gateway.
    waits: Vec<bool>,
    /// Flows that miss their goals or are about to.
    short: Vec<bool>,
    pub(super) notes: Vec<String>,
    /// Own cluster of each flow, if it has ready instances.
    home: Vec<Option<usize>>,
    /// The utility of each flow that has a model, by what is measured.
    standing: Vec<Option<f64>>,
    /// Flows in each flow's own cluster.
    siblings: Vec<f64>,
    ready: Vec<&'a InstanceObservation>,
    idle: BTreeMap<&'a AppName, f64>,
    /// [`Profiles::grip`] of each flow's cluster.
    pub(super) grip: Vec<f64>,
}

/// Before anything is known of a flow, so many of its requests may be outstanding per ready instance: enough to keep it busy
/// for the one cycle that measuring takes. So many are its due also while nobody lacks CPU: a crowd that comes before the next cycle
/// finds each instance with a request to work on and one that waits, also where a node is less than the core that a request can use.
pub(super) const FIRST_SEATS: u32 = 2;
/// A node that uses this share of what plans may fill is full when requests wait.
const FULL: f64 = 0.85;
/// How much more of a full node is tried than was used: seats for just that would keep it there for ever, whatever it could give. More
/// promises flows what the node does not have.
const PROBE: f64 = 1.03;
/// A flow below this utility is about to miss its goal. Above it nobody needs a limit on others, and limits cost: two instances that
/// share a node wait about twice as long behind limits of half of it as side by side.
const NEAR_GOAL: f64 = 0.3;
/// Utilities that are no further apart are alike.
const ALIKE: f64 = 0.05;
/// Requests that want no more than this part of a node beyond what they get may have it of jobs at once.
const MAY_BURST: f64 = 0.05;
/// What has piled up beyond a plan is worked off in so many seconds: as long as profiles remember.
const SETTLE_S: f64 = 5.0;
/// And by at most so many times the planned rate.
const HASTE: f64 = 1.5;
/// An instance's share is never below this part of its node, or it could not even answer its health check.
const LEAST_SHARE: f64 = 0.02;

impl<'a> Pool<'a> {
    pub(super) fn of(snapshot: &'a Snapshot, spec: &'a PoolSpec, profiles: &Profiles, ids: &[FlowId]) -> Self {
        let nodes: Vec<&NodeObservation> = snapshot.nodes.iter().collect();
        let place: BTreeMap<&NodeName, usize> = nodes.iter().enumerate().map(|(m, node)| (&node.name, m)).collect();
        let is_up = |name: &NodeName| place.get(name).is_some_and(|&m| nodes[m].up);
        let ready: Vec<&InstanceObservation> = (snapshot.instances.iter())
            .filter(|i| i.state == InstanceState::Ready && spec.apps.contains_key(&i.app) && is_up(&i.node))
            .collect();
        let apps: BTreeSet<&AppName> = ready.iter().map(|i| &i.app).collect();
        let clusters: BTreeMap<&AppName, usize> = apps.into_iter().enumerate().map(|(d, app)| (app, d)).collect();
        let usable = Usable::of(spec);
        let use_of: Vec<(f64, f64)> = nodes.iter().map(|node| (used(node, profiles), usable.on(node))).collect();
        let awaited: BTreeSet<&AppName> = profiles.flows().iter().filter(|flow| waits(flow)).map(|flow| &flow.id.app).collect();
        let mut here: BTreeMap<&NodeName, Vec<&InstanceObservation>> = BTreeMap::new();
        for instance in snapshot.instances.iter().filter(|i| i.state.is_active()) {
            here.entry(&instance.node).or_default().push(instance);
        }
        let here = |node: &NodeObservation| here.get(&node.name).map_or(&[][..], Vec::as_slice);
        let mut notes = Vec::new();
        let mut pool = Self {
            problem: SeatProblem {
                flows: Vec::new(),
                clusters: hosts(&ready, &clusters, &place, spec),
                nodes: (nodes.iter().zip(&use_of))
                    .map(|(node, use_of)| capacity(node, *use_of, here(node), &snapshot.jobs, &awaited, profiles, &mut notes))
                    .collect(),
            },
            clusters,
            models: Vec::new(),
            there: Vec::new(),
            work: Vec::new(),
            fallback: Vec::new(),
            node_names: nodes.iter().map(|node| &node.name).collect(),
            notes,
            home: Vec::new(),
            standing: Vec::new(),
            siblings: Vec::new(),
            idle: spec.apps.keys().map(|app| (app, profiles.idle_cpu(app).0)).collect(),
            use_of,
            jobs: nodes.iter().map(|node| jobs_on(&node.name, &snapshot.jobs).0).collect(),
            waits: ids.iter().map(|id| profiles.flow(id).is_some_and(waits)).collect(),
            ready,
            short: ids.iter().map(|id| is_short(id, spec, profiles)).collect(),
            grip: ids.iter().map(|id| profiles.grip(&id.app)).collect(),
        };
        for id in ids {
            pool.add(id, spec, profiles);
        }
        pool.siblings = (pool.home.iter()).map(|home| pool.home.iter().filter(|other| *other == home).count() as f64).collect();
        pool
    }

    fn add(&mut self, id: &FlowId, spec: &PoolSpec, profiles: &Profiles) {
        let model = model(id, spec, profiles);
        let home = self.clusters.get(&id.app).copied();
        let loads: Vec<(usize, f64)> = (self.clusters.iter())
            .filter_map(|(app, &d)| Some((d, profiles.work(id, app)?.0)))
            .filter(|(_, work)| work.is_finite() && *work > 0.0)
            .collect();
        let measured = model.is_some() && home.is_some_and(|home| loads.iter().any(|load| load.0 == home));
        let there = profiles.flow(id).map_or(0.0, |flow| flow.population.or_zero().max(0.0));
        let usable = match model.clone() {
            // Whoever is there counts, as if none of them thought: that is right for one cycle anyway.
            Some(model) if !measured => FlowModel { clients: there, think_s: 0.0, ..model },
            Some(model) => model,
            None => unmeasured(id, spec),
        };
        let held_s = usable.floor_s * profiles.stretch(&id.app);
        let instances = self.ready.iter().filter(|i| i.app == id.app).count() as u32;
        self.fallback.push(if measured { 0 } else { FIRST_SEATS * instances.max(1) });
        self.work.push(loads.iter().map(|load| load.1).sum());
        self.home.push(home);
        let loads = if measured { loads.into_iter().map(|(d, work)| (d, work / held_s)).collect() } else { Vec::new() };
        let best = usable.best();
        self.problem.flows.push(SeatFlow { appetite: InSeats { model: usable, held_s, best, measured }, loads });
        let rate = profiles.flow(id).map(|flow| flow.throughput.or_zero());
        self.standing.push(model.as_ref().zip(rate).map(|(model, rate)| model.utility_of(rate).0));
        self.models.push(model);
        self.there.push(there);
    }

    /// The solution. Requests of a flow may seem to cost nothing beside those of others; such a flow has no part in the solution, and is
    /// planned to be as well off as the flows beside it. Were it planned by the seats that it has there, which are none, its weight
    /// would be next to nothing, none of its requests would be answered, and what one costs would never be known.
    pub(super) fn solve(&self) -> SeatSolution {
        let mut solution = solve(&self.problem);
        for f in (0..self.home.len()).filter(|&f| !self.measured(f) && self.models[f].is_some()) {
            let beside = (0..self.home.len()).filter(|&g| self.measured(g) && self.home[g] == self.home[f]);
            let level = beside.map(|g| solution.utilities[g].0).fold(Utility::AT_GOAL.0, f64::min);
            solution.utilities[f] = Utility(level.min(self.problem.flows[f].appetite.best.0));
        }
        solution
    }

    /// True when enough is known of the flow to plan for it.
    pub(super) fn measured(&self, f: usize) -> bool {
        self.problem.flows[f].appetite.measured
    }

    /// True when the flow's cluster has an instance that answers.
    pub(super) fn has_home(&self, f: usize) -> bool {
        self.home[f].is_some()
    }

    /// What the solution leaves of a node, or what nobody uses of it: the solution spends CPU on requests that would only come if
    /// answers were quicker, and where such clients do not exist the CPU is there for others.
    fn left(&self, solution: &SeatSolution) -> Vec<f64> {
        let mut left = self.problem.nodes.clone();
        for (hosts, loads) in self.problem.clusters.iter().zip(&solution.loads) {
            hosts.iter().zip(loads).for_each(|(host, load)| left[host.node] -= load);
        }
        let unused = self.use_of.iter().map(|&(used, usable)| if used < FULL * usable { usable - used } else { 0.0 });
        left.iter().zip(unused).map(|(left, unused)| left.max(unused)).collect()
    }

    fn clusters_at(&self) -> Vec<f64> {
        let mut counts = vec![0.0; self.problem.nodes.len()];
        self.problem.clusters.iter().flatten().for_each(|host| counts[host.node] += 1.0);
        counts
    }

    /// Seats that a flow can have of what nobody needs now: its cluster's even part of what is left of its nodes, and of what jobs have
    /// there, while nothing holds the flow back.
    pub(super) fn spare_seats(&self, solution: &SeatSolution, f: usize) -> f64 {
        let Some(home) = self.home[f] else { return 0.0 };
        let Some(&(_, power)) = self.problem.flows[f].loads.iter().find(|load| load.0 == home && load.1 > 0.0) else {
            return 0.0;
        };
        let (left, sharing) = (self.left(solution), self.clusters_at());
        let yields = |m: usize| if solution.stuck[f].is_none() { self.jobs[m] } else { 0.0 };
        let spare_of = |m: usize| (left[m] + yields(m)) / sharing[m];
        let spare: f64 = self.problem.clusters[home].iter().map(|host| spare_of(host.node)).sum();
        spare / self.siblings[f] / power
    }

    /// The weight: the planned rate `r`, or what the flow's clients send at its planned utility; for a flow without traffic, that of one client.
    ///
    /// A plan that comes true has `r t` requests in the system. As many as there are beyond that are worked off over [`SETTLE_S`], whatever
    /// the model takes their clients for: `r + (N - r t) / SETTLE_S`. In the plan's equilibrium that is `r`, and also for clients that do
    /// not think. Without it, clients who are taken for independent arrivals keep the rate that they were served at, for the model says
    /// that a little more of it would make their queue vanish. It is never more than [`HASTE`] times `r`: after a fault, what has piled up
    /// would hold up all others.
    pub(super) fn weight(&self, f: usize, rate: f64, utility: Utility) -> f64 {
        let model = &self.problem.flows[f].appetite.model;
        let rate = if self.measured(f) { rate } else { model.rate_for(utility) };
        let target_s = model.mean_target_s(utility).map(|target_s| target_s.max(model.floor_s));
        let one = || 1.0 / (target_s.unwrap_or(1.0).max(model.floor_s) + model.think_s);
        let piled_up = target_s.map_or(0.0, |target_s| self.there[f] - rate * target_s);
        let weight = if rate > 0.0 { (rate + piled_up / SETTLE_S).clamp(rate, HASTE * rate) } else { one() };
        let least = if model.goal.is_none() { 0.02 * model.most() } else { 0.0 };
        if weight.is_finite() { weight.max(least).clamp(1e-6, 1e9) } else { 1.0 }
    }

    /// Hosts of a group's cluster.
    pub(super) fn hosts(&self, mut group: std::ops::Range<usize>) -> u32 {
        group.find_map(|f| self.home[f]).map_or(0, |home| self.problem.clusters[home].len() as u32)
    }

    /// Applications whose flows wait for CPU on full nodes where another cluster does too, with the bottleneck that they wait at. A
    /// flow that could use more is not enough: each could, while a request ever waits for another, and a limit slows every request. Nor
    /// is a full node, while everybody there is well within its goal.
    pub(super) fn contended(&self, solution: &SeatSolution) -> BTreeMap<AppName, usize> {
        // A bottleneck as a whole: one of its nodes that is not full for want of requests there does not ease it.
        let is_full = |number: usize, nodes: &[usize]| {
            let (used, usable) = nodes.iter().map(|&m| self.use_of[m]).fold((0.0, 0.0), |sum, (a, b)| (sum.0 + a, sum.1 + b));
            let any = |flows: &[bool]| (0..flows.len()).any(|f| flows[f] && solution.stuck[f] == Some(number));
            any(&self.waits) && any(&self.short) && used >= FULL * usable
        };
        let bottlenecks = (0..).zip(&solution.bottlenecks).filter(|(number, bottleneck)| is_full(*number, &bottleneck.nodes));
        let full: BTreeSet<usize> = bottlenecks.flat_map(|(_, bottleneck)| bottleneck.nodes.iter().copied()).collect();
        let stuck = |d: usize| (0..self.home.len()).filter(|f| self.home[*f] == Some(d)).find_map(|f| solution.stuck[f]);
        let at = |d: usize, m: usize| self.problem.clusters[d].iter().any(|host| host.node == m);
        let others = |d: usize, m: usize| (0..self.problem.clusters.len()).any(|e| e != d && at(e, m) && stuck(e).is_some());
        let shares = |d: usize| full.iter().any(|&m| at(d, m) && others(d, m));
        let contended = self.clusters.iter().filter(|&(_, &d)| shares(d));
        contended.filter_map(|(app, &d)| Some(((*app).clone(), stuck(d)?))).collect()
    }

    /// The solution's loads, spread over hosts as evenly as the nodes allow: any feasible load serves the same seats, but one
    /// that leaves an instance nothing would hold up the requests that still reach it. By proportional fitting: nodes that are
    /// too full shrink what they carry, clusters that lack some grow theirs.
    fn spread(&self, solution: &SeatSolution) -> Vec<Vec<f64>> {
        let demand: Vec<f64> = solution.loads.iter().map(|loads| loads.iter().sum()).collect();
        let mut loads: Vec<Vec<f64>> = (self.problem.clusters.iter().zip(&demand))
            .map(|(hosts, demand)| hosts.iter().map(|host| (demand / hosts.len() as f64).min(host.limit)).collect())
            .collect();
        for _ in 0..60 {
            let mut used = vec![0.0; self.problem.nodes.len()];
            let pairs = self.problem.clusters.iter().zip(&loads).flat_map(|(hosts, loads)| hosts.iter().zip(loads));
            pairs.for_each(|(host, load)| used[host.node] += load);
            for ((hosts, loads), demand) in self.problem.clusters.iter().zip(&mut loads).zip(&demand) {
                for (host, load) in hosts.iter().zip(loads.iter_mut()) {
                    *load *= (self.problem.nodes[host.node] / used[host.node].max(1e-12)).min(1.0);
                }
                let missing = demand / loads.iter().sum::<f64>().max(1e-12);
                hosts.iter().zip(loads).for_each(|(host, load)| *load = (*load * missing).min(host.limit));
            }
        }
        loads
    }

    /// Clusters that may use what competitors leave on a node: those that are furthest from their goals.
    fn worst_off(&self, contended: &BTreeMap<AppName, usize>) -> BTreeSet<(usize, usize)> {
        let clusters = contended.keys().filter_map(|app| self.clusters.get(app));
        let standing = |d: usize| {
            let own = (0..self.home.len()).filter(|f| self.home[*f] == Some(d));
            own.filter_map(|f| self.standing[f]).fold(f64::INFINITY, f64::min)
        };
        let at: Vec<(usize, usize, f64)> = clusters
            .flat_map(|&d| self.problem.clusters[d].iter().map(move |host| (d, host.node)))
            .map(|(d, node)| (d, node, standing(d)))
            .collect();
        let lowest = |m: usize| at.iter().filter(|entry| entry.1 == m).map(|entry| entry.2).fold(f64::INFINITY, f64::min);
        at.iter().filter(|entry| entry.2 <= lowest(entry.1) + ALIKE).map(|entry| (entry.0, entry.1)).collect()
    }

    /// What instances count as beside jobs until the next cycle, where that is more than their CPU: a burst goes before jobs, which give way
    /// at once and get it back when it is over. A request also takes longer the less its instance counts, which no model of queues tells.
    /// Not while a plan holds requests back for the jobs' sake.
    pub(super) fn bursts(&self, solution: &SeatSolution) -> BTreeMap<InstanceId, Cpu> {
        let burst = |instance: &&InstanceObservation| {
            let m = self.node_names.iter().position(|name| **name == instance.node)?;
            let is_free =
                self.jobs[m] > 0.0 && self.held_back(solution, self.clusters[&instance.app]) <= MAY_BURST * self.use_of[m].1;
            is_free.then(|| (instance.id.clone(), Cpu(self.use_of[m].1)))
        };
        self.ready.iter().filter_map(burst).collect()
    }

    /// CPU that flows through a cluster could use beyond what they get, where CPU is what they lack.
    fn held_back(&self, solution: &SeatSolution, d: usize) -> f64 {
        let goes_through = |f: usize| self.home[f] == Some(d) || self.problem.flows[f].loads.iter().any(|load| load.0 == d);
        let beyond = |f: usize| {
            let flow = &self.problem.flows[f].appetite;
            (flow.model.most() - flow.rate(solution.seats[f])).max(0.0) * self.work[f]
        };
        (0..self.home.len()).filter(|&f| solution.stuck[f].is_some() && goes_through(f)).map(beyond).sum()
    }

    /// CPU per instance: its part of its cluster's load on its node, its idle use, and its part of what is left.
    pub(super) fn shares(
        &self,
        solution: &SeatSolution,
        contended: &BTreeMap<AppName, usize>,
        profiles: &Profiles,
    ) -> Vec<CpuShare> {
        let (left, spread, worst_off) = (self.left(solution), self.spread(solution), self.worst_off(contended));
        let count = |alike: &dyn Fn(&InstanceObservation) -> bool| self.ready.iter().filter(|i| alike(i)).count() as f64;
        let mut shares: Vec<CpuShare> = (self.ready.iter())
            .map(|instance| {
                let d = self.clusters[&instance.app];
                let m =
                    self.node_names.iter().position(|name| **name == instance.node).expect("ready instances are on known nodes");
                let host =
                    self.problem.clusters[d].iter().position(|host| host.node == m).expect("clusters list their instances");
                let same = count(&|i| i.node == instance.node && i.app == instance.app);
                let all = count(&|i| i.node == instance.node);
                let cpu = spread[d][host] * profiles.grip(&instance.app) / same + self.idle[&instance.app] + left[m] / all;
                let least = LEAST_SHARE * self.problem.nodes[m] / all;
                let cpu = Cpu(cpu.max(least));
                // Held back alone on its node, it would leave CPU to nobody. What is as large as the node limits nothing, and the kernel
                // refuses it.
                let competes = contended.contains_key(&instance.app) && all > same;
                let unused = if worst_off.contains(&(d, m)) { profiles.slack(&instance.node) } else { Cpu(0.0) };
                let limit = cpu * LIMIT_SLACK + unused;
                let limit = competes.then_some(limit).filter(|limit| limit.0 < self.problem.nodes[m]);
                CpuShare { instance: instance.id.clone(), cpu, limit }
            })
            .collect();
        shares.sort_by(|a, b| a.instance.cmp(&b.instance));
        shares
    }
}

fn hosts(
    ready: &[&InstanceObservation],
    clusters: &BTreeMap<&AppName, usize>,
    place: &BTreeMap<&NodeName, usize>,
    spec: &PoolSpec,
) -> Vec<Vec<Host>> {
    let mut hosts: Vec<BTreeMap<usize, f64>> = vec![BTreeMap::new(); clusters.len()];
    for instance in ready {
        let limit = spec.apps[&instance.app].cpu_limit.map_or(f64::INFINITY, |limit| limit.0);
        *hosts[clusters[&instance.app]].entry(place[&instance.node]).or_default() += limit;
    }
    hosts.into_iter().map(|hosts| hosts.into_iter().map(|(node, limit)| Host { node, limit }).collect()).collect()
}

/// What plans may fill of a node with requests: `rho Omega`, less what its instances use anyway and what others use there. Of
/// a node that is full while requests wait, what is really used is the better measure. Jobs count with what they were given: what they use
/// beyond that nobody else wanted, and they give it back at once.
fn capacity(
    node: &NodeObservation,
    (used, usable): (f64, f64),
    here: &[&InstanceObservation],
    jobs: &[JobObservation],
    awaited: &BTreeSet<&AppName>,
    profiles: &Profiles,
    notes: &mut Vec<String>,
) -> f64 {
    if !node.up || !usable.is_finite() || usable <= 0.0 {
        notes.push(format!("node {} counts as empty: it is down or its CPU is unknown", node.name));
        return 0.0;
    }
    let idle: f64 = here.iter().map(|i| profiles.idle_cpu(&i.app).0).sum();
    let measured: Option<f64> = here.iter().map(|i| i.cpu_used.map(|cpu| cpu.0)).sum();
    let others = measured.map_or(0.0, |own| (node.cpu_used.0 - own).max(0.0));
    let others = if others.is_finite() { others } else { 0.0 };
    let (given, most) = jobs_on(&node.name, jobs);
    let others = others - (others.min(most) - given).max(0.0);
    // Not pressure, nor that more seats did not help: the limits of competing instances make both, and what they hold back
    // would be taken for all that there is.
    let is_full = used >= FULL * usable && here.iter().any(|i| awaited.contains(&i.app));
    let whole = if is_full { (used * PROBE).min(usable.max(used)) } else { usable };
    (whole - idle - others).max(0.0)
}

/// CPU that the jobs which run on a node were given, and the most that they can use.
fn jobs_on(node: &NodeName, jobs: &[JobObservation]) -> (f64, f64) {
    let on = |job: &JobObservation| job.nodes.iter().filter(|name| *name == node).count() as f64;
    let most = |job: &JobObservation| job.spec.stages.iter().map(|stage| stage.max_speed.0).fold(0.0, f64::max);
    let running = jobs.iter().filter(|job| job.state == JobState::Running);
    let sum = running.map(|job| (on(job) * job.cpu.map_or(0.0, |cpu| cpu.0), on(job) * most(job)));
    let (given, most) = sum.fold((0.0, 0.0), |(given, most), job| (given + job.0, most + job.1));
    if given.is_finite() && most.is_finite() { (given, most) } else { (0.0, 0.0) }
}

fn is_short(id: &FlowId, spec: &PoolSpec, profiles: &Profiles) -> bool {
    let class = spec.classes.get(&id.class);
    let goal = class.and_then(|class| class.goal).zip(class.map(|class| class.importance));
    let achieved = profiles.flow(id).and_then(FlowProfile::achieved);
    goal.zip(achieved).is_some_and(|((goal, importance), achieved)| goal.utility(achieved, importance).0 < NEAR_GOAL)
}

fn waits(flow: &FlowProfile) -> bool {
    flow.queue() > 0.5
}

fn used(node: &NodeObservation, profiles: &Profiles) -> f64 {
    profiles.cpu_used(&node.name).unwrap_or_default().0.min(node.cpu_capacity.0)
}

pub(super) fn model(id: &FlowId, spec: &PoolSpec, profiles: &Profiles) -> Option<FlowModel> {
    let profile = profiles.flow(id)?;
    let work = profiles.total_work(id)?.0;
    let floor_s = profile.idle_service.get()?.max(1e-6);
    let (clients, think_s) = (profile.clients(), profile.think_s());
    let sound = work.is_finite() && clients.is_finite() && think_s.is_finite() && floor_s.is_finite();
    let quiet = profile.population.or_zero() < 1e-3 && profile.arrival.or_zero() < 1e-3;
    sound.then(|| FlowModel {
        clients: if quiet { 0.0 } else { clients.max(0.0) },
        think_s: think_s.max(0.0),
        floor_s,
        computing_s: profile.computing_s().clamp(1e-3 * floor_s, floor_s),
        tail: profile.tail_or_guess(),
        ..unmeasured(id, spec)
    })
}

fn unmeasured(id: &FlowId, spec: &PoolSpec) -> FlowModel {
    let class = spec.classes.get(&id.class);
    FlowModel {
        goal: class.and_then(|class| class.goal),
        importance: class.map(|class| class.importance).unwrap_or_default(),
        clients: 0.0,
        think_s: 0.0,
        floor_s: 0.01,
        computing_s: 0.01,
        tail: 1.0,
    }
}

#[cfg(test)]
mod tests {
    use weal_model::{Bytes, Importance, JobSpec, Stage, Time, Work};

    use super::*;

    fn job(cpu: f64, max_speed: f64) -> JobObservation {
        let stage = Stage { work: Work(100.0), max_speed: Cpu(max_speed), min_speed: Cpu(0.0), memory: Bytes::mib(1) };
        let spec = JobSpec {
            name: "report".into(),
            submitted: Time::ZERO,
            desired_start: Time::ZERO,
            deadline: Time::from_secs_f64(1000.0),
            importance: Importance::NORMAL,
            priority: 0,
            stages: vec![stage],
            tasks: 1,
        };
        JobObservation { spec, state: JobState::Running, done: Work(0.0), nodes: vec!["n1".into()], cpu: Some(Cpu(cpu)) }
    }

    #[test]
    fn a_job_takes_from_requests_what_it_was_given_and_not_what_it_finds() {
        let node = |cpu_used: f64| NodeObservation {
            name: "n1".into(),
            up: true,
            cpu_capacity: Cpu(2.0),
            cpu_used: Cpu(cpu_used),
            memory_capacity: Bytes::gib(1),
            memory_used: Bytes(0),
            cpu_pressure: None,
        };
        let left = |used: f64, jobs: &[JobObservation]| {
            capacity(&node(used), (used, 2.0), &[], jobs, &BTreeSet::new(), &Profiles::default(), &mut Vec::new())
        };
        assert_eq!(left(1.5, &[]), 0.5, "what nobody knows counts whole");
        assert_eq!(left(1.5, &[job(0.5, 2.0)]), 1.5, "it was given half a core and found another that was idle");
        assert_eq!(left(0.25, &[job(0.5, 2.0)]), 1.75, "it does not use what it was given");
        assert_eq!(left(1.5, &[job(0.5, 1.0)]), 1.0, "half a core is used by somebody else");
        assert_eq!(left(1.5, &[job(f64::NAN, 1.0)]), 0.5);
    }
}
