//! Inner tiers: what the gateway is told of applications that others call through it.
//!
//! A request from outside that holds a seat of its flow `f` is in one place at a time while its calls come one after the other. So if `f` may
//! load the inner cluster `g` (Pacifici section 2: a request's class and its cluster determine its work in every tier), at most as many of
//! its calls are in `g` as it has seats:
//!
//! ```text
//! N_g  =  own seats  +  sum of seats(f) over flows f of other clusters that reach g  +  1
//! ```
//!
//! Calls of such requests never wait for a seat; requests that make several calls at once queue for it, by the weight of their class, which
//! is its seats among them. The one more is for calls that belong to no request from outside. Needs go in no circle, so a call that waits for
//! a seat never waits for its own request's.
//!
//! Calls are work of requests that are counted outside. So they are counted apart ([`GatewayCounters::inner`]), and no profile sees them:
//! the work factor of `f` in `g` is the regression of `g`'s CPU on `f`'s completions outside, as it is where calls bypass the gateway.
//!
//! [`GatewayCounters::inner`]: weal_protocol::gateway::GatewayCounters::inner

use std::collections::{BTreeMap, BTreeSet};

use weal_model::{AppName, AppSpec, ClassName, FlowAllocation, PoolSpec};
use weal_protocol::engine::InstanceSeen;
use weal_protocol::gateway::{FlowConfig, InnerTier};

use super::inputs::Inputs;
use crate::profile::reach;

/// The class of calls that bring none along.
const UNMARKED: &str = "default";

/// Who calls whom in a pool.
pub(super) struct Calls<'a> {
    needed: BTreeSet<&'a AppName>,
    /// Of each application, those that its requests may end in; empty where nobody needs anybody.
    reach: BTreeMap<AppName, BTreeSet<AppName>>,
}

impl<'a> Calls<'a> {
    pub fn of(pool: &'a PoolSpec) -> Self {
        let needed = pool.needed();
        let reach = if needed.is_empty() { BTreeMap::new() } else { reach(pool) };
        Self { needed, reach }
    }

    /// Whether requests come to `app` through the gateway.
    pub fn reach_at_all(&self, app: &AppSpec) -> bool {
        !app.routes.is_empty() || self.needed.contains(&app.name)
    }

    /// Whether requests to `caller` may end in calls to `app`, another one.
    fn lead_from(&self, caller: &AppName, app: &AppName) -> bool {
        caller != app && self.reach.get(caller).is_some_and(|reached| reached.contains(app))
    }
}

/// How applications that need `app` reach it; `None` when none does.
pub(super) fn tier(app: &AppSpec, calls: &Calls<'_>, inputs: &Inputs<'_>) -> Option<InnerTier> {
    if !calls.needed.contains(&app.name) {
        return None;
    }
    let unmarked = ClassName::from(UNMARKED);
    let mut seats = BTreeMap::from([(unmarked.clone(), 1)]);
    let callers = inputs.pool.apps.values().filter(|caller| calls.lead_from(&caller.name, &app.name));
    for route in callers.flat_map(|caller| &caller.routes) {
        seats.entry(route.class.clone()).or_default();
    }
    let leads_here = |flow: &&FlowAllocation| calls.lead_from(&flow.id.app, &app.name);
    for flow in inputs.seats.flows.iter().filter(leads_here) {
        *seats.entry(flow.id.class.clone()).or_default() += flow.seats.max(1);
    }
    let flow = |(class, seats): (ClassName, u32)| {
        let limits = FlowConfig { weight: f64::from(seats.max(1)), seats, queue_limit: app.queue_limit, ..FlowConfig::default() };
        (class, limits)
    };
    let flows = seats.into_iter().map(flow).collect();
    Some(InnerTier { http: app.speaks_http(), flows, unmarked, callers: callers_of(&app.name, inputs.pool, inputs.instances) })
}

/// The users of the instances that need `app`. One that has not listened yet calls as a client.
fn callers_of(app: &AppName, pool: &PoolSpec, instances: &[InstanceSeen]) -> BTreeSet<u32> {
    let needs_it = |caller: &AppName| pool.apps.get(caller).is_some_and(|caller| caller.needs.contains(app));
    instances.iter().filter(|seen| needs_it(&seen.app)).filter_map(|seen| seen.listener).collect()
}

/// Seats of the whole cluster: `own` for requests from outside, and those for calls. `None` limits nothing.
pub(super) fn seats(app: &AppSpec, own: Option<u32>, inner: Option<&InnerTier>) -> Option<u32> {
    let Some(inner) = inner else { return own };
    let calls: u32 = inner.flows.values().map(|flow| flow.seats).sum();
    // Nothing is planned yet for whoever calls it.
    let is_planned = inner.flows.iter().all(|(class, flow)| *class == inner.unmarked || flow.seats > 0);
    let own = own.filter(|_| is_planned)?;
    Some(if app.routes.is_empty() { calls } else { own.saturating_add(calls) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_users_of_those_that_need_an_application_call_it_without_bounds() {
        let mut pool = PoolSpec::example();
        let names: [(&str, &[&str]); 4] = [("api", &["db"]), ("db", &[]), ("shop", &["api"]), ("other", &[])];
        for (name, needs) in names {
            let needs = needs.iter().map(|&need| need.into()).collect();
            pool.apps.insert(name.into(), AppSpec { needs, ..AppSpec::example(name) });
        }
        let seen = |id: &str, app: &str, listener| InstanceSeen { listener, ..InstanceSeen::example(id, app, "n1") };
        let instances = [
            seen("api-1", "api", Some(1)),
            seen("shop-1", "shop", Some(2)),
            seen("shop-2", "shop", None),
            seen("other-1", "other", Some(3)),
            seen("gone-1", "gone", Some(4)),
        ];
        assert_eq!(callers_of(&"api".into(), &pool, &instances), [2].into());
        assert_eq!(callers_of(&"db".into(), &pool, &instances), [1].into(), "what a caller of a caller needs is not its own");
    }
}
