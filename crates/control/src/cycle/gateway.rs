//! What the gateway is told: from desired state, instances and seats to a [`ClusterConfig`]s.

mod inner;
mod inputs;

use std::collections::{BTreeMap, BTreeSet};

use weal_model::{AppName, AppSpec, ClassName, FlowId, GatewayName, InstanceId, InstanceState};
use weal_protocol::engine::InstanceSeen;
use weal_protocol::gateway::{ClusterConfig, Endpoint, FlowConfig, Unavailable};

use crate::flow::pipeline::{ClassLimits, PipelineLimits};

use inner::Calls;
pub(super) use inputs::Inputs;

/// One cluster per application with routes or that others need, and one without routes per application that is gone but still finishes requests.
pub(super) fn clusters(inputs: &Inputs<'_>) -> Vec<ClusterConfig> {
    let calls = Calls::of(inputs.pool);
    let reached = inputs.pool.apps.values().filter(|app| calls.reach_at_all(app));
    let mut clusters: Vec<_> = reached.map(|app| cluster(app, &calls, inputs)).collect();
    let known = |app: &AppName| inputs.pool.apps.get(app).is_some_and(|app| calls.reach_at_all(app));
    let gone: BTreeSet<&AppName> = inputs.instances.iter().map(|i| &i.app).filter(|app| !known(app)).collect();
    for app in gone {
        let endpoints = endpoints(app, inputs);
        if endpoints.iter().any(|endpoint| endpoint.draining) && !inputs.pool.apps.contains_key(app) {
            clusters.push(ClusterConfig {
                app: app.clone(),
                routes: Vec::new(),
                seats: None,
                flows: BTreeMap::new(),
                endpoints,
                request_timeout_s: 60.0,
                standby: None,
                wakeable: wakeable(app, inputs),
                http: weal_model::HttpRules::default(),
                unavailable: None,
                inner: None,
                calls: false,
            });
        }
    }
    clusters
}

fn cluster(app: &AppSpec, calls: &Calls<'_>, inputs: &Inputs<'_>) -> ClusterConfig {
    let planned = |class: &ClassName| {
        let id = flow_id(inputs.gateway, &app.name, class);
        inputs.seats.flows.iter().find(|flow| flow.id == id)
    };
    let PipelineLimits { seats, classes } = PipelineLimits::planned(inputs.pool, app, planned);
    let flow = |(class, limits): (ClassName, ClassLimits)| {
        let ClassLimits { weight, size, queue_limit, policy } = limits;
        let seats = planned(&class).map_or(1, |planned| planned.seats.max(1));
        let session_cookie = inputs.pool.classes.get(&class).and_then(|class| class.session_cookie.clone());
        (class, FlowConfig { weight, seats, size, queue_limit, policy, session_cookie })
    };
    let inner = inner::tier(app, calls, inputs);
    ClusterConfig {
        app: app.name.clone(),
        routes: app.routes.clone(),
        // Those who waited for a wake need more than the one seat that was planned for nobody.
        seats: inner::seats(app, seats, inner.as_ref()).filter(|_| inputs.seated.contains(&app.name)),
        flows: classes.into_iter().map(flow).collect(),
        endpoints: endpoints(&app.name, inputs),
        request_timeout_s: app.request_timeout_s,
        standby: inputs.standbys.get(&app.name).cloned(),
        wakeable: wakeable(&app.name, inputs),
        http: app.http.clone(),
        unavailable: unavailable(&app.name, inputs),
        inner,
        calls: !app.needs.is_empty(),
    }
}

/// After so many restarts without ever being ready, a program is taken for one that cannot run. One failure may come of a port that was
/// still taken, and the next try is less than a second away.
pub(super) const RESTARTS_IN_VAIN: u32 = 2;

/// Why nobody should wait for an instance; `None` while one runs, begins or can be woken.
fn unavailable(app: &AppName, inputs: &Inputs<'_>) -> Option<Unavailable> {
    let mine = || inputs.instances.iter().filter(|instance| instance.app == *app);
    let is_in_vain = |seen: &InstanceSeen| seen.start_took_s.is_none() && seen.restarts >= RESTARTS_IN_VAIN;
    let has_ended = |seen: &InstanceSeen| matches!(seen.state, InstanceState::Failed | InstanceState::Stopped);
    let is_looping =
        |seen: &InstanceSeen| matches!(seen.state, InstanceState::Backoff | InstanceState::Starting) && is_in_vain(seen);
    if inputs.pool.apps.get(app).is_some_and(|app| app.halted) {
        Some(Unavailable::Stopped)
    } else if mine().any(|seen| !has_ended(seen) && !is_looping(seen)) {
        None
    } else if inputs.broken.contains(app) {
        // A node agent tries again what it could not start, so that it may seem to loop.
        Some(Unavailable::CannotStart)
    } else if mine().any(is_looping) {
        Some(Unavailable::EndsAtOnce)
    } else {
        mine().any(|seen| seen.state == InstanceState::Failed).then_some(Unavailable::Ended)
    }
}

/// Who may be woken while others are about to be stopped; `None` when none is.
fn wakeable(app: &AppName, inputs: &Inputs<'_>) -> Option<Vec<InstanceId>> {
    let mine = || inputs.instances.iter().filter(|instance| instance.app == *app).map(|instance| &instance.id);
    let stays = |id: &&InstanceId| !inputs.stopping.contains(*id);
    let any_stops = mine().any(|id| !stays(&id));
    any_stops.then(|| mine().filter(stays).cloned().collect())
}

/// Ready instances; when there are none, those that fail their health check: an overloaded instance that answers late is
/// better than none. What is drained stays listed until it is gone, so that its requests are finished and counted.
fn endpoints(app: &AppName, inputs: &Inputs<'_>) -> Vec<Endpoint> {
    let mine: Vec<_> = inputs.instances.iter().filter(|instance| instance.app == *app).collect();
    let takes = |instance: &InstanceSeen, state| instance.state == state && !inputs.draining.contains(&instance.id);
    let any_ready = mine.iter().any(|instance| takes(instance, InstanceState::Ready));
    let endpoint = |instance: &&InstanceSeen| {
        let open = match instance.state {
            InstanceState::Ready => true,
            InstanceState::Unhealthy => !any_ready,
            _ => return None,
        };
        Some(Endpoint {
            instance: instance.id.clone(),
            address: instance.address,
            weight: inputs.shares.weight(&instance.id, inputs.pool),
            draining: !open || inputs.draining.contains(&instance.id),
            listener: instance.listener,
        })
    };
    mine.iter().filter_map(endpoint).collect()
}

/// The flow of `class` to `app` through `gateway`.
pub(super) fn flow_id(gateway: &GatewayName, app: &AppName, class: &ClassName) -> FlowId {
    FlowId { gateway: gateway.clone(), app: app.clone(), class: class.clone() }
}
