//! The flow cycle: seats and weights of every flow from one snapshot (Pacifici section 3).
//!
//! ```text
//! profiles.update(&snapshot, &spec);                                    // profile
//! let decision = plan_seats(&snapshot, &spec, &mut profiles, &previous); // this module
//! // decision.plan:         seats and weights for the gateways
//! // decision.shares:       CPU per instance, to be enforced as shares between placement cycles
//! // decision.explanations: why each flow has what it has
//! let curves = demand_curves(&snapshot, &spec, &profiles);              // utility(CPU) per application, for the placement
//! let doubts = demand_doubts(&snapshot, &spec, &profiles);              // and how sure it is
//! ```
//!
//! # Why the loop settles
//!
//! With a backlog, a gateway's throughput is shared as its weights are, and by Little's law the response time of a flow with
//! `N` requests in the system is `R = N / lambda`. The target rate at utility `u` is `lambda(u) = C / (t(u) + Z)`, where the
//! measured `N` enters through `C = N + lambda Z`, and the capacity of a full node is what is measured to be used there. So
//! where weights in force equal the targets, `R = t(u)` for every flow, whatever the errors of the work factors: all are at
//! the same utility. For clients that do not think, `C = N` does not depend on what the controller did before, so one step
//! leads there and nothing can swing; a wrong `Z` is corrected over the cycles that [`crate::profile`] smooths.
//!
//! Flows in different clusters on shared nodes do not pass one queue. There it is the instances' CPU shares that decide,
//! which is why `shares` come with the plan. What they miss, because a request more or less is a large part of an instance or
//! because shares are not enforced, is made up for by an integral term on shares and seats, [`Profiles::grip`].
//!
//! # How many seats
//!
//! `o = lambda S_0 stretch`: as few as keep the CPU busy, because a request that waits in the gateway can still be overtaken
//! by a more important one. Fractions are rounded up once per cluster, or one core in use by 1.06 seats would idle, and
//! a cluster on full nodes has at least a seat for each of its hosts. What is
//! left of nodes that are not full is handed out as seats too, evenly among the clusters there, so that a burst between two
//! cycles is not held up beside an idle CPU. While there is a queue in front of an idle CPU, `stretch` grows
//! ([`crate::profile::Profiles::stretch`]).

mod explain;
mod pool;

use std::collections::BTreeMap;

use weal_model::{
    AppName, Cpu, CpuShare, FlowAllocation, FlowExplanation, FlowId, GatewayName, InstanceId, NodeName, PoolSpec, SeatPlan,
    Snapshot, Utility,
};

use super::seats::{SeatSolution, whole};
use crate::profile::Profiles;
use crate::queueing::FlowModel;
use crate::utility::Curve;
use pool::{FIRST_SEATS, Pool};

/// More seats than any gateway has connections for. Requests that use next to no CPU could have any number of them, and a gateway adds
/// up those of its flows.
const MOST_SEATS: u32 = 1 << 20;

/// What a flow cycle decides.
#[must_use = "seats that no gateway gets change nothing"]
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// Seats and weights, sorted by flow.
    pub plan: SeatPlan,
    /// Why, in the plan's order.
    pub explanations: Vec<FlowExplanation>,
    /// CPU per ready instance, sorted by instance: the shares that make the plan come true.
    pub shares: Vec<CpuShare>,
    /// What instances count as beside jobs on their nodes until the next cycle, where that is more than their CPU.
    pub bursts: BTreeMap<InstanceId, Cpu>,
    /// True when a flow is expected to miss its goal with the instances that there are: placement should not wait for its timer.
    pub misses: bool,
    /// What could not be used of the snapshot, and what was assumed instead.
    pub notes: Vec<String>,
}

/// Decides seats and weights. `profiles` must have seen `snapshot`, and takes note of the plan; `previous` is the plan in force (its default at first).
///
/// Flows come from the snapshot, and from the routes of `spec` for the gateways that the snapshot or `previous` names. A flow
/// keeps at least one seat whatever happens, so that no request waits for ever.
pub fn plan_seats(snapshot: &Snapshot, spec: &PoolSpec, profiles: &mut Profiles, previous: &SeatPlan) -> Decision {
    let ids = flows(snapshot, spec, previous);
    let pool = Pool::of(snapshot, spec, profiles, &ids);
    let solution = pool.solve();
    let before: BTreeMap<&FlowId, u32> = previous.flows.iter().map(|flow| (&flow.id, flow.seats)).collect();
    let seats = settle(&pool, &solution, &ids, &before);
    let plan = SeatPlan {
        generation: snapshot.generation,
        flows: (0..ids.len()).map(|f| allocation(&pool, &solution, &ids, f, seats[f])).collect(),
    };
    let explanations = (0..ids.len())
        .map(|f| explain::flow(&pool, &solution, profiles, &plan.flows[f], f, before.get(&ids[f]).copied().unwrap_or(0)))
        .collect();
    let misses = (0..ids.len()).any(|f| pool.measured(f) && solution.utilities[f] < Utility::AT_GOAL);
    let contended = pool.contended(&solution);
    let shares = pool.shares(&solution, &contended, profiles);
    let bursts = pool.bursts(&solution);
    let notes = pool.notes;
    profiles.hold(&plan, snapshot, &contended);
    Decision { plan, explanations, shares, bursts, misses, notes }
}

/// What each flow could expect of another pool: change a goal in `spec` or the CPU of a node in `snapshot` and compare. Flows
/// that nothing is known of yet are left out.
pub fn what_if(snapshot: &Snapshot, spec: &PoolSpec, profiles: &Profiles) -> BTreeMap<FlowId, Utility> {
    let ids = flows(snapshot, spec, &SeatPlan::default());
    let pool = Pool::of(snapshot, spec, profiles, &ids);
    let solution = pool.solve();
    ids.into_iter().enumerate().filter(|&(f, _)| pool.measured(f)).map(|(f, id)| (id, solution.utilities[f])).collect()
}

/// The shadow price of CPU on each node: by how much one more core there would raise the lowest utility.
pub fn utility_per_core(snapshot: &Snapshot, spec: &PoolSpec, profiles: &Profiles) -> BTreeMap<NodeName, f64> {
    let ids = flows(snapshot, spec, &SeatPlan::default());
    let mut pool = Pool::of(snapshot, spec, profiles, &ids);
    let lowest = |pool: &Pool| pool.solve().utilities.iter().map(|utility| utility.0).fold(f64::INFINITY, f64::min);
    let now = lowest(&pool);
    let mut prices = BTreeMap::new();
    for m in 0..pool.node_names.len() {
        let before = pool.problem.nodes[m];
        pool.problem.nodes[m] += 1.0;
        let gain = lowest(&pool) - now;
        prices.insert(pool.node_names[m].clone(), if gain.is_finite() { gain.max(0.0) } else { 0.0 });
        pool.problem.nodes[m] = before;
    }
    prices
}

/// utility(CPU) of each application with routes, or needed by one: what the placement needs to know of flows. The CPU
/// includes what instances use without requests. Applications without any measured flow are left out.
pub fn demand_curves(snapshot: &Snapshot, spec: &PoolSpec, profiles: &Profiles) -> BTreeMap<AppName, Curve> {
    let ids = flows(snapshot, spec, &SeatPlan::default());
    let pool = Pool::of(snapshot, spec, profiles, &ids);
    let mut members: BTreeMap<&AppName, Vec<Curve>> = BTreeMap::new();
    for (model, id) in pool.models.iter().zip(&ids) {
        let Some(model) = model else { continue };
        for app in spec.apps.keys() {
            if let Some(work) = profiles.work(id, app).filter(|work| work.0 > 0.0) {
                members.entry(app).or_default().push(model.curve(work));
            }
        }
    }
    members.into_iter().map(|(app, curves)| (app.clone(), Curve::of_group(&curves))).collect()
}

/// By how large a part each of the [`demand_curves`] may be wrong: the errors of its flows, which are independent of each other, by what they
/// weigh.
pub fn demand_doubts(snapshot: &Snapshot, spec: &PoolSpec, profiles: &Profiles) -> BTreeMap<AppName, f64> {
    let ids = flows(snapshot, spec, &SeatPlan::default());
    let doubt = |app: &AppName| {
        let weighed = ids.iter().filter_map(|id| {
            let (profile, work) = (profiles.flow(id)?, profiles.work(id, app)?);
            let used = work.0 * profile.throughput.or_zero().max(0.0);
            Some((used, used * profile.doubt().hypot(doubt_of_tail(id, spec, profiles))))
        });
        let (used, squares) = weighed.fold((0.0, 0.0), |(used, squares), (one, wrong)| (used + one, squares + wrong * wrong));
        (used > 0.0).then(|| squares.sqrt() / used)
    };
    spec.apps.keys().filter_map(|app| Some((app.clone(), doubt(app)?))).collect()
}

/// By how large a part a flow may need more CPU than it seems because the percentile that its goal is about is not known better.
fn doubt_of_tail(id: &FlowId, spec: &PoolSpec, profiles: &Profiles) -> f64 {
    let Some((model, profile)) = pool::model(id, spec, profiles).zip(profiles.flow(id)) else { return 0.0 };
    let worse = FlowModel { tail: model.tail * (1.0 + profile.tail_doubt()), ..model.clone() };
    let utility = Utility(model.utility_of(profile.throughput.or_zero()).0.min(worse.best().0));
    let (rate, more) = (model.rate_for(utility), worse.rate_for(utility));
    if rate > 0.0 { (more / rate - 1.0).clamp(0.0, 1.0) } else { 0.0 }
}

/// The flows to plan for, sorted.
fn flows(snapshot: &Snapshot, spec: &PoolSpec, previous: &SeatPlan) -> Vec<FlowId> {
    let seen = snapshot.flows.iter().map(|flow| &flow.id);
    let mut ids: Vec<FlowId> = seen.clone().filter(|id| spec.apps.contains_key(&id.app)).cloned().collect();
    let gateways: std::collections::BTreeSet<&GatewayName> =
        seen.chain(previous.flows.iter().map(|flow| &flow.id)).map(|id| &id.gateway).collect();
    for gateway in gateways {
        ids.extend(flows_of(spec, gateway));
    }
    ids.sort();
    ids.dedup();
    ids
}

/// The flows of a gateway: one per application and class that the routes name.
pub fn flows_of(spec: &PoolSpec, gateway: &GatewayName) -> Vec<FlowId> {
    let routes = spec.apps.values().flat_map(|app| app.routes.iter().map(|route| (&app.name, &route.class)));
    let mut ids: Vec<FlowId> =
        routes.map(|(app, class)| FlowId { gateway: gateway.clone(), app: app.clone(), class: class.clone() }).collect();
    ids.sort();
    ids.dedup();
    ids
}

/// Whole seats: the solver's, rounded up once per cluster, with what is left over, and not moved by noise.
fn settle(pool: &Pool, solution: &SeatSolution, ids: &[FlowId], before: &BTreeMap<&FlowId, u32>) -> Vec<u32> {
    let mut seats = whole(&pool.problem, solution, &vec![1; ids.len()]);
    let mut least = vec![1; ids.len()];
    let mut start = 0;
    for group in ids.chunk_by(|a, b| (&a.gateway, &a.app) == (&b.gateway, &b.app)) {
        let own = start..start + group.len();
        start = own.end;
        let wanted = own.clone().map(|f| solution.seats[f] * pool.grip[f].max(1.0)).sum::<f64>();
        let hosts = pool.hosts(own.clone());
        let wanted = if own.clone().any(|f| solution.stuck[f].is_some()) {
            // Each host needs a request to work on.
            wanted.max(f64::from(hosts))
        } else {
            least[own.clone()].fill((FIRST_SEATS * hosts).div_ceil(group.len() as u32).max(1));
            wanted
        };
        while own.clone().map(|f| f64::from(seats[f])).sum::<f64>() + 1e-6 < wanted {
            let most_short = own.clone().max_by(|&a, &b| {
                let short = |f: usize| solution.seats[f] * pool.grip[f].max(1.0) - f64::from(seats[f]);
                short(a).total_cmp(&short(b))
            });
            seats[most_short.expect("a group has a flow")] += 1;
        }
    }
    for (f, id) in ids.iter().enumerate() {
        let exact = solution.seats[f] * pool.grip[f].max(1.0) + pool.spare_seats(solution, f);
        let planned = seats[f].max(exact.floor() as u32).max(pool.fallback[f]).max(least[f]);
        // A tenth more or less of many seats is noise as much as one of few.
        let still = before.get(id).map_or(1.0, |kept| (f64::from(*kept) * 0.1).max(1.0));
        seats[f] = match before.get(id) {
            Some(&kept) if (exact - f64::from(kept)).abs() < 0.75 * still && f64::from(planned.abs_diff(kept)) <= still => {
                kept.max(least[f])
            }
            _ => planned,
        }
        .min(MOST_SEATS);
    }
    seats
}

fn allocation(pool: &Pool, solution: &SeatSolution, ids: &[FlowId], f: usize, seats: u32) -> FlowAllocation {
    let flow = &pool.problem.flows[f];
    let rate = flow.appetite.rate(solution.seats[f]);
    FlowAllocation {
        id: ids[f].clone(),
        seats,
        seat_power: Cpu(flow.loads.iter().map(|load| load.1).sum()),
        weight: pool.weight(f, rate, solution.utilities[f]),
        allocation: Cpu(rate * pool.work[f]),
        demand: Cpu(flow.appetite.model.most() * pool.work[f]),
        predicted: Utility(solution.utilities[f].0.min(1.0)),
    }
}

#[cfg(test)]
mod closed_loop;
#[cfg(test)]
mod queueing_system;
