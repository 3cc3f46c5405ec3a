//! What a pipeline works by: its seats, and the limits of each class.

use std::collections::{BTreeMap, BTreeSet};

use weal_model::{AppSpec, ClassName, FlowAllocation, FlowPolicy, OverloadLimit, PoolSpec, ServiceClass};
use weal_protocol::gateway::FlowConfig;

/// Weights are kept within this range: below it a pass would jump further than an f64 counts single requests.
pub(super) const WEIGHTS: (f64, f64) = (1e-6, 1e9);

/// What a pipeline works by. Complete: a class that is not in it takes no new requests.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PipelineLimits {
    /// Requests that may be outstanding, over all classes: `N`; `None` does not limit.
    pub seats: Option<u32>,
    /// Per class.
    pub classes: BTreeMap<ClassName, ClassLimits>,
}

/// What one class of a pipeline works by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClassLimits {
    /// Its share of releases while all queues have requests, relative to the others.
    pub weight: f64,
    /// Seats that one request of it takes: 1, or more or less than that where seats are counted by their power.
    pub size: f64,
    /// Requests that may wait.
    pub queue_limit: u32,
    /// What its service class says of how its requests wait.
    pub policy: FlowPolicy,
}

impl Default for ClassLimits {
    /// As much as any other class, and nobody waits.
    fn default() -> Self {
        Self { weight: 1.0, size: 1.0, queue_limit: 0, policy: FlowPolicy::default() }
    }
}

impl ClassLimits {
    /// What a gateway was told of one of its flows.
    pub fn of(flow: &FlowConfig) -> Self {
        let FlowConfig { weight, size, queue_limit, policy, .. } = *flow;
        Self { weight, size, queue_limit, policy }
    }
}

impl PipelineLimits {
    /// What `planned`, made for some gateway, says for its cluster of `app`. Without a plan for each of its flows nothing is limited: a
    /// wrong limit does more harm than none for a cycle.
    pub fn planned<'a>(pool: &PoolSpec, app: &AppSpec, planned: impl Fn(&ClassName) -> Option<&'a FlowAllocation>) -> Self {
        let classes: BTreeSet<&ClassName> = app.routes.iter().map(|route| &route.class).collect();
        let flows: Vec<Option<&FlowAllocation>> = classes.iter().map(|class| planned(class)).collect();
        let all: Option<Vec<&FlowAllocation>> = flows.iter().copied().collect();
        let sizes = all.as_ref().map_or_else(|| vec![1.0; flows.len()], |all| sizes(pool.overload_limit, all));
        let weight = |flow: &FlowAllocation| flow.weight.max(WEIGHTS.0);
        let limits = |(class, (flow, size)): (&ClassName, (&Option<&FlowAllocation>, f64))| {
            let policy = pool.classes.get(class).map(ServiceClass::flow_policy).unwrap_or_default();
            (class.clone(), ClassLimits { weight: flow.map_or(1.0, weight), size, queue_limit: app.queue_limit, policy })
        };
        Self {
            seats: all.filter(|_| pool.limits_seats()).map(|all| all.iter().map(|flow| flow.seats.max(1)).sum()),
            classes: classes.into_iter().zip(flows.iter().zip(sizes)).map(limits).collect(),
        }
    }

    /// As many seats for one more instance as each of the `open` ones has, until a plan says better.
    pub fn add_instance(&mut self, open: usize) {
        let share = |seats: u32| seats.div_ceil(u32::try_from(open.max(1)).unwrap_or(u32::MAX));
        self.seats = self.seats.map(|seats| seats.saturating_add(share(seats)));
    }
}

/// What one request of each flow of a cluster takes of their seats, in the order of `planned`: by power, `kappa` over its mean,
/// so that the seats of all together come to the same number.
pub(super) fn sizes(limit: OverloadLimit, planned: &[&FlowAllocation]) -> Vec<f64> {
    let seats: f64 = planned.iter().map(|flow| f64::from(flow.seats)).sum();
    let power: f64 = planned.iter().map(|flow| f64::from(flow.seats) * flow.seat_power.0).sum();
    let mean = power / seats;
    // A flow of which nothing is known makes a mean of the others too low to go by.
    let known = planned.iter().all(|flow| flow.seat_power.0 > 0.0);
    let by_power = limit == OverloadLimit::Power && known && mean.is_finite() && mean > 0.0;
    planned.iter().map(|flow| if by_power { flow.seat_power.0 / mean } else { 1.0 }).collect()
}
