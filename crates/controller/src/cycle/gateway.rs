//! What the gateway is told: from desired state, instances and seats to a [`GatewayConfig`], pushed when it differs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use weal_control::flow::loads::Loads;
use weal_control::flow::pipeline::{ClassLimits, Limits};
use weal_model::{AppName, AppSpec, ClassName, FlowId, GatewayName, InstanceId, InstanceState, PoolSpec, SeatPlan};
use weal_protocol::gateway::Standby;
use weal_protocol::gateway::{self, ClusterConfig, Endpoint, FlowConfig, GatewayConfig, GatewayCounters};
use weal_protocol::node::InstanceCounters;
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
    /// Those of them that are to be stopped.
    pub stopping: &'a BTreeSet<InstanceId>,
    pub seats: &'a SeatPlan,
    pub loads: &'a Loads,
    /// Applications that had a ready instance when the seats were planned.
    pub seated: &'a BTreeSet<AppName>,
    /// Whom the gateway may have woken for a crowd.
    pub standbys: &'a BTreeMap<AppName, Standby>,
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
        let counters = self.client.call(gateway::OBSERVE, &()).await?;
        self.in_force = counters.version;
        Ok(counters)
    }

    /// Whether it was told that it may have this instance woken.
    pub fn may_have_woken(&self, instance: &InstanceId) -> bool {
        let clusters = self.told.iter().flat_map(|told| &told.clusters);
        clusters.filter_map(|cluster| cluster.standby.as_ref()).any(|standby| standby.instances.contains(instance))
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
        let result = self.client.call(gateway::CONFIGURE, &config).await;
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
                standby: None,
                wakeable: wakeable(app, inputs),
            });
        }
    }
    clusters
}

fn cluster(app: &AppSpec, inputs: &Inputs<'_>) -> ClusterConfig {
    let planned = |class: &ClassName| {
        let id = flow_id(&app.name, class);
        inputs.seats.flows.iter().find(|flow| flow.id == id)
    };
    let Limits { seats, classes } = Limits::planned(inputs.pool, app, planned);
    let flow = |(class, limits): (ClassName, ClassLimits)| {
        let ClassLimits { weight, size, queue_limit } = limits;
        let seats = planned(&class).map_or(1, |planned| planned.seats.max(1));
        (class, FlowConfig { weight, seats, size, queue_limit })
    };
    ClusterConfig {
        app: app.name.clone(),
        routes: app.routes.clone(),
        // Those who waited for a wake need more than the one seat that was planned for nobody.
        seats: seats.filter(|_| inputs.seated.contains(&app.name)),
        flows: classes.into_iter().map(flow).collect(),
        endpoints: endpoints(&app.name, inputs),
        request_timeout_s: app.request_timeout_s,
        standby: inputs.standbys.get(&app.name).cloned(),
        wakeable: wakeable(&app.name, inputs),
    }
}

/// Who may be woken while others are about to be stopped; `None` when none is.
fn wakeable(app: &AppName, inputs: &Inputs<'_>) -> Option<Vec<InstanceId>> {
    let mine = || inputs.instances.iter().map(|instance| &instance.spec).filter(|spec| spec.app == *app);
    let stays = |id: &InstanceId| !inputs.stopping.contains(id);
    let any_stops = mine().any(|spec| !stays(&spec.id));
    any_stops.then(|| mine().filter(|spec| stays(&spec.id)).map(|spec| spec.id.clone()).collect())
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
