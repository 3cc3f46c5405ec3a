//! What the gateway is told: from desired state, instances and seats to a [`GatewayConfig`], pushed when it differs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use weal_control::flow::{loads::Loads, pipeline};
use weal_gateway::api::{self, ClusterConfig, Endpoint, FlowConfig, GatewayConfig, GatewayCounters};
use weal_model::{
    AppName, AppSpec, ClassName, FlowAllocation, FlowId, GatewayName, InstanceId, InstanceState, PoolSpec, SeatPlan,
};
use weal_node::api::InstanceCounters;
use weal_rpc::Client;

/// The gateway of this machine, as `weal role gateway --name` names it.
pub(crate) const GATEWAY: &str = "gw";
/// The gateway answers from memory; longer than this it is stuck or away.
const CALL_TIMEOUT: Duration = Duration::from_secs(2);

/// What a [`GatewayConfig`] is made from.
pub(crate) struct Inputs<'a> {
    pub pool: &'a PoolSpec,
    pub instances: &'a [InstanceCounters],
    pub draining: &'a BTreeSet<InstanceId>,
    pub seats: &'a SeatPlan,
    pub loads: &'a Loads,
    /// Applications that had a ready instance when the seats were planned.
    pub seated: &'a BTreeSet<AppName>,
}

/// The connection to the gateway: what it was told, and whether it knows.
#[derive(Debug)]
pub(crate) struct GatewayLink {
    client: Client,
    /// What it was told last, whether or not it answered.
    told: Option<GatewayConfig>,
    /// The version that it has, as far as is known.
    in_force: u64,
}

impl GatewayLink {
    pub fn new(client: &Client) -> Self {
        Self { client: client.with_timeout(CALL_TIMEOUT), told: None, in_force: 0 }
    }

    /// Its counters.
    pub async fn observe(&mut self) -> Result<GatewayCounters, weal_rpc::Error> {
        let counters = self.client.call(api::OBSERVE, &()).await?;
        self.in_force = counters.version;
        Ok(counters)
    }

    /// Tells it what differs from what it knows, and says which version has it.
    pub async fn tell(&mut self, clusters: Vec<ClusterConfig>) -> Result<u64, weal_rpc::Error> {
        if let Some(told) = &self.told
            && told.version == self.in_force
            && told.clusters == clusters
        {
            return Ok(told.version);
        }
        let told_version = self.told.as_ref().map_or(0, |told| told.version);
        let config = GatewayConfig { version: told_version.max(self.in_force) + 1, clusters };
        let result = self.client.call(api::CONFIGURE, &config).await;
        self.told = Some(config);
        let ack = result?;
        self.in_force = ack.version;
        Ok(ack.version)
    }
}

/// One cluster per application with routes, and one without routes per application that is gone but still finishes requests.
pub(crate) fn clusters(inputs: &Inputs<'_>) -> Vec<ClusterConfig> {
    let with_routes = inputs.pool.apps.values().filter(|app| !app.routes.is_empty());
    let mut clusters: Vec<_> = with_routes.map(|app| cluster(app, inputs)).collect();
    let known = |app: &AppName| inputs.pool.apps.get(app).is_some_and(|app| !app.routes.is_empty());
    let gone: BTreeSet<&AppName> = inputs.instances.iter().map(|i| &i.spec.app).filter(|app| !known(app)).collect();
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
            });
        }
    }
    clusters
}

fn cluster(app: &AppSpec, inputs: &Inputs<'_>) -> ClusterConfig {
    let classes: BTreeSet<&ClassName> = app.routes.iter().map(|route| &route.class).collect();
    let planned = |class: &ClassName| {
        let id = flow_id(&app.name, class);
        inputs.seats.flows.iter().find(|flow| flow.id == id)
    };
    let all_planned = classes.iter().all(|class| planned(class).is_some());
    let mut flows: BTreeMap<ClassName, FlowConfig> =
        classes.iter().map(|&class| (class.clone(), flow(app, planned(class)))).collect();
    if all_planned {
        let planned: Vec<&FlowAllocation> = classes.iter().filter_map(|class| planned(class)).collect();
        let sizes = pipeline::sizes(inputs.pool.overload_limit, &planned);
        flows.values_mut().zip(sizes).for_each(|(flow, size)| flow.size = size);
    }
    // Without a plan for each flow, made for instances, nothing is limited: a wrong limit does more harm than none for a cycle,
    // and those who waited for a wake need more than the one seat that was planned for nobody.
    let all_planned = all_planned && inputs.seated.contains(&app.name);
    let seats = (inputs.pool.limits_seats() && all_planned).then(|| flows.values().map(|flow| flow.seats).sum());
    ClusterConfig {
        app: app.name.clone(),
        routes: app.routes.clone(),
        seats,
        flows,
        endpoints: endpoints(&app.name, inputs),
        request_timeout_s: app.request_timeout_s,
    }
}

fn flow(app: &AppSpec, planned: Option<&FlowAllocation>) -> FlowConfig {
    let queue_limit = app.queue_limit;
    match planned {
        Some(planned) => FlowConfig { weight: planned.weight.max(1e-6), seats: planned.seats.max(1), size: 1.0, queue_limit },
        None => FlowConfig { weight: 1.0, seats: 1, size: 1.0, queue_limit },
    }
}

/// Ready instances; when there are none, those that fail their health check: an overloaded instance that answers late is
/// better than none. What is drained stays listed until it is gone, so that its requests are finished and counted.
fn endpoints(app: &AppName, inputs: &Inputs<'_>) -> Vec<Endpoint> {
    let mine: Vec<_> = inputs.instances.iter().filter(|instance| instance.spec.app == *app).collect();
    let takes = |instance: &InstanceCounters, state| instance.state == state && !inputs.draining.contains(&instance.spec.id);
    let any_ready = mine.iter().any(|instance| takes(instance, InstanceState::Ready));
    let endpoint = |instance: &&InstanceCounters| {
        let open = match instance.state {
            InstanceState::Ready => true,
            InstanceState::Unhealthy => !any_ready,
            _ => return None,
        };
        Some(Endpoint {
            instance: instance.spec.id.clone(),
            address: instance.address,
            weight: inputs.loads.weight(&instance.spec.id, inputs.pool),
            draining: !open || inputs.draining.contains(&instance.spec.id),
        })
    };
    mine.iter().filter_map(endpoint).collect()
}

/// The flow of `class` to `app` through this machine's gateway.
pub(crate) fn flow_id(app: &AppName, class: &ClassName) -> FlowId {
    FlowId { gateway: GatewayName::from(GATEWAY), app: app.clone(), class: class.clone() }
}
