//! The controller's cycles: what is decided when, and what it remembers, as the one of `weal up` does it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use weal_control::check;
use weal_control::flow::controller::{demand_curves, demand_doubts, plan_seats};
use weal_control::flow::crowd;
use weal_control::flow::loads::Loads;
use weal_control::flow::pipeline::{ClassLimits, Limits};
use weal_control::jobs::Costs;
use weal_control::placement::baselines::Autoscaler;
use weal_control::placement::restless::Restless;
use weal_control::placement::{self, AppCosts, Iterations, Policy};
use weal_control::profile::Profiles;
use weal_model::{
    Action, AppName, ClassName, InstanceId, InstanceState, NodeName, Plan, PoolSpec, Report, Rung, SeatPlan, SleepCosts,
    Snapshot, Time,
};
use weal_protocol::gateway::{ClusterConfig, Endpoint, FlowConfig, GatewayConfig, Standby};

use super::instances::Instance;
use super::observe::Before;
use super::{Event, World};

/// Events that come together make one plan; between two plans there is a pause, however many events there are.
const PLAN_DELAY_S: f64 = 0.05;
const PLAN_PAUSE_S: f64 = 0.5;
/// What was learnt is stored so often; a new controller goes on from there.
const STORE_S: f64 = 30.0;
/// After a failed start an application is left alone for this long, doubled with each further failure.
const HOLDOFF_S: (f64, f64) = (1.0, 60.0);

/// What the controller remembers.
pub(super) struct Controller {
    pub up: bool,
    profiles: Profiles,
    stored: (f64, Profiles),
    pub seats: SeatPlan,
    pub snapshot: Option<Snapshot>,
    /// Snapshots that a delay holds back, the newest last.
    pub delayed: VecDeque<Snapshot>,
    pub generation: u64,
    pub before: Before,
    pub loads: Loads,
    last_request: BTreeMap<AppName, Time>,
    /// What starts and sleeping took, which the node agent knows: a new controller has it from there.
    start_took_s: BTreeMap<AppName, f64>,
    sleep_costs: BTreeMap<AppName, SleepCosts>,
    holdoffs: BTreeMap<AppName, (f64, f64)>,
    /// The highest number among each application's instances so far.
    numbers: BTreeMap<AppName, u64>,
    autoscaler: Autoscaler,
    restless: Restless,
    /// Instances that were started to stand by.
    ahead: BTreeSet<InstanceId>,
    /// When the gateway had instances woken for a crowd.
    woken: BTreeMap<InstanceId, f64>,
    /// Those that it was told last to have woken for a crowd.
    standbys: BTreeMap<AppName, Standby>,
    plan_due_s: Option<f64>,
    last_plan_s: f64,
}

impl Controller {
    pub fn new() -> Self {
        Self {
            up: true,
            profiles: Profiles::default(),
            stored: (0.0, Profiles::default()),
            seats: SeatPlan::default(),
            snapshot: None,
            delayed: VecDeque::new(),
            generation: 0,
            before: Before::default(),
            loads: Loads::default(),
            last_request: BTreeMap::new(),
            start_took_s: BTreeMap::new(),
            sleep_costs: BTreeMap::new(),
            holdoffs: BTreeMap::new(),
            numbers: BTreeMap::new(),
            autoscaler: Autoscaler::default(),
            restless: Restless::default(),
            ahead: BTreeSet::new(),
            woken: BTreeMap::new(),
            standbys: BTreeMap::new(),
            plan_due_s: None,
            last_plan_s: f64::NEG_INFINITY,
        }
    }

    /// A new process: it has what was stored, and what the node agent knows of what runs. What it saw last is kept for the truth's sake.
    pub fn restart(&mut self) {
        self.up = true;
        self.profiles = self.stored.1.clone();
        self.seats = SeatPlan::default();
        self.snapshot = None;
        self.delayed.clear();
        self.loads = Loads::default();
        (self.last_request, self.holdoffs) = Default::default();
        self.autoscaler = Autoscaler::default();
        self.restless = Restless::default();
        self.ahead.clear();
        self.woken.clear();
        self.plan_due_s = None;
    }

    pub fn may_start(&self, app: &AppName, now_s: f64) -> bool {
        self.holdoffs.get(app).is_none_or(|&(until_s, _)| now_s >= until_s)
    }

    pub fn started(&mut self, app: &AppName, took_s: f64) {
        self.start_took_s.insert(app.clone(), took_s);
        self.holdoffs.remove(app);
    }

    /// What going to sleep on a rung takes, or what waking from there does.
    pub fn handle_slept(&mut self, app: &AppName, rung: Rung, took_s: f64) {
        self.sleep_costs.entry(app.clone()).or_default().of_mut(rung).sleep_s = Some(took_s);
    }

    /// See [`Self::handle_slept`].
    pub fn handle_resumed(&mut self, app: &AppName, rung: Rung, took_s: f64) {
        self.sleep_costs.entry(app.clone()).or_default().of_mut(rung).wake_s = Some(took_s);
    }

    /// What changes to an application were measured to take.
    fn costs(&self, app: &AppName) -> AppCosts {
        let sleep = self.sleep_costs.get(app).copied().unwrap_or_default();
        AppCosts::measured(self.start_took_s.get(app).copied(), sleep)
    }

    pub fn start_failed(&mut self, app: &AppName, now_s: f64) {
        let pause_s = self.holdoffs.get(app).map_or(HOLDOFF_S.0, |&(_, pause_s)| (2.0 * pause_s).min(HOLDOFF_S.1));
        self.holdoffs.insert(app.clone(), (now_s + pause_s, pause_s));
    }

    pub fn handle_woken(&mut self, id: &InstanceId, now_s: f64) {
        self.woken.insert(id.clone(), now_s);
    }

    /// Whether the gateway had it woken so short a time ago that no cycle has measured the crowd yet.
    pub fn was_just_woken(&self, id: &InstanceId, now_s: f64, flow_cycle_s: f64) -> bool {
        self.woken.get(id).is_some_and(|woken_s| now_s - woken_s < f64::from(crowd::CYCLES_AWAKE) * flow_cycle_s)
    }

    pub fn next_id(&self, app: &AppName) -> InstanceId {
        weal_model::naming::instance_id(app, self.numbers.get(app).copied().unwrap_or(0) + 1)
    }

    pub fn use_id(&mut self, app: &AppName, id: &InstanceId) {
        let number = weal_model::naming::parts(id).map_or(0, |(_, number)| number);
        let highest = self.numbers.entry(app.clone()).or_default();
        *highest = number.max(*highest);
    }

    /// Learns from a snapshot and decides seats. True when they are not enough for a goal.
    fn decide(&mut self, snapshot: &Snapshot, pool: &PoolSpec) -> bool {
        self.profiles.update(snapshot, pool);
        self.autoscaler.handle_snapshot(snapshot, pool);
        for flow in snapshot.flows.iter().filter(|flow| flow.arrivals > 0 || flow.population_mean() > 0.0) {
            self.last_request.insert(flow.id.app.clone(), snapshot.time);
        }
        self.seat(snapshot, pool)
    }

    /// Decides seats by what was learnt.
    fn seat(&mut self, snapshot: &Snapshot, pool: &PoolSpec) -> bool {
        let decision = plan_seats(snapshot, pool, &mut self.profiles, &self.seats);
        self.loads.handle_seats(&decision.loads, pool);
        self.seats = decision.plan;
        decision.misses
    }

    /// A placement plan, not judged yet.
    fn place(&self, snapshot: &Snapshot, pool: &PoolSpec, job_costs: Costs) -> (Plan, Report) {
        let mut policy = Policy::new(pool.clone());
        for (app, curve) in demand_curves(snapshot, pool, &self.profiles) {
            let idle_s = self.last_request.get(&app).map_or(0.0, |last| snapshot.time.since(*last).as_secs_f64());
            policy.idle_s.insert(app.clone(), idle_s);
            policy.demands.insert(app, curve);
        }
        policy.doubts = demand_doubts(snapshot, pool, &self.profiles);
        self.restless.doubt(&mut policy.doubts);
        policy.costs = pool.apps.keys().map(|app| (app.clone(), self.costs(app))).collect();
        policy.next_instance = self.numbers.iter().map(|(app, highest)| (app.clone(), highest + 1)).collect();
        policy.replicas = self.autoscaler.replicas();
        policy.ahead.clone_from(&self.ahead);
        policy.job_costs = job_costs;
        placement::plan(snapshot, &policy, Iterations::default())
    }
}

impl World<'_> {
    /// What runs before anybody asks: as many instances as must, ready; as after `weal up --detach`.
    pub(super) fn bring_up(&mut self) {
        for app in 0..self.apps.len() {
            for name in self.scenario.behaviours[self.apps[app].name.as_str()].initially.clone() {
                let node = self.nodes.iter().position(|node| node.name.as_str() == name).expect("checked when read");
                self.stand_up(app, node, None);
            }
        }
        // Each round brings up what needs nothing else, or what the round before has brought up; a pool has few such floors.
        for _ in 0..self.apps.len() {
            let snapshot = self.observe();
            let (plan, _) = self.controller.place(&snapshot, &self.scenario.pool, self.scenario.surroundings.job_costs());
            let mut begun = false;
            for action in &plan.actions {
                let Action::Start { instance, app, node } = action else { continue };
                let app = self.apps.iter().position(|entry| entry.name == *app);
                let node = self.nodes.iter().position(|entry| entry.name == *node);
                if let (Some(app), Some(node)) = (app, node) {
                    self.stand_up(app, node, Some(instance.clone()));
                    begun = true;
                }
            }
            if !begun {
                break;
            }
        }
    }

    /// An instance that was started before the run begins, and what that took.
    fn stand_up(&mut self, app: usize, node: usize, id: Option<InstanceId>) {
        let instance = self.add_instance(app, node, id);
        self.set_state(instance, InstanceState::Ready);
        let name = &self.apps[app].name;
        self.controller.started(name, self.scenario.behaviours[name.as_str()].changes.start_s);
    }

    pub(super) fn flow_cycle(&mut self) {
        let snapshot = self.observe();
        self.record(&snapshot);
        if !self.controller.up {
            return;
        }
        let mut misses = self.controller.snapshot.is_none() && !self.jobs.is_empty();
        if let Some(snapshot) = self.through_faults(snapshot) {
            if !snapshot.flows.is_empty() {
                misses |= self.controller.decide(&snapshot, &self.scenario.pool);
            }
            self.controller.snapshot = Some(snapshot);
        }
        self.tell_gateway();
        self.tell_loads();
        let now_s = self.now_s();
        if now_s - self.controller.stored.0 >= STORE_S {
            self.controller.stored = (now_s, self.controller.profiles.clone());
        }
        if misses || self.somebody_waits_for_an_instance() {
            self.want_plan();
        }
    }

    /// Seats and CPU for those that run now, by what was measured last: who has just got ready is not to wait for a flow cycle.
    pub(super) fn reseat(&mut self) {
        let Some(mut snapshot) = self.controller.snapshot.clone().filter(|_| self.controller.up) else { return };
        self.refresh(&mut snapshot);
        snapshot.window_s = 0.0;
        if !snapshot.flows.is_empty() {
            self.controller.seat(&snapshot, &self.scenario.pool);
            self.tell_loads();
        }
        self.tell_gateway();
    }

    /// Whom the gateway may have woken when a crowd comes.
    fn standbys(&self) -> BTreeMap<AppName, Standby> {
        let Some(Snapshot { nodes, instances, .. }) = &self.controller.snapshot else { return BTreeMap::new() };
        if !self.instances.iter().any(|instance| instance.state.is_asleep()) {
            return BTreeMap::new();
        }
        let mut snapshot = Snapshot { nodes: nodes.clone(), instances: instances.clone(), ..Snapshot::default() };
        self.refresh(&mut snapshot);
        let busy: BTreeSet<&InstanceId> =
            self.instances.iter().filter(|instance| instance.operation.is_some()).map(|instance| &instance.id).collect();
        crowd::standbys(&snapshot, &self.scenario.pool, |seen| !busy.contains(&seen.id))
    }

    /// Requests wait for an application that has nothing running.
    fn somebody_waits_for_an_instance(&self) -> bool {
        let live = |app: usize| self.instances.iter().any(|i| i.app == app && i.state.is_active());
        (0..self.apps.len()).any(|app| self.apps[app].admission.queued() > 0 && !live(app))
    }

    /// Seats and weights to the gateway. Without a plan for each flow of an application nothing is limited.
    pub(super) fn tell_gateway(&mut self) {
        if !self.gateway_up || !self.controller.up {
            return;
        }
        self.controller.standbys = self.standbys();
        let clusters = (0..self.apps.len()).filter_map(|app| self.cluster_config(app)).collect();
        self.configure_gateway(&GatewayConfig { version: 0, clusters });
    }

    /// What the gateway is told of one application, after a change of its instances.
    pub(super) fn tell_cluster(&mut self, app: usize) {
        if self.gateway_up
            && self.controller.up
            && let Some(config) = self.cluster_config(app)
        {
            self.configure_cluster(app, &config);
        }
    }

    /// One cluster, as the gateway sees it; `None` without routes.
    fn cluster_config(&self, app: usize) -> Option<ClusterConfig> {
        let name = &self.apps[app].name;
        let spec = &self.scenario.pool.apps[name];
        if spec.routes.is_empty() {
            return None;
        }
        let planned =
            |class: &ClassName| self.controller.seats.flows.iter().find(|flow| flow.id.app == *name && flow.id.class == *class);
        let Limits { seats, classes } = Limits::planned(&self.scenario.pool, spec, planned);
        let flow = |(class, ClassLimits { weight, size, queue_limit }): (ClassName, ClassLimits)| {
            let seats = planned(&class).map_or(1, |planned| planned.seats.max(1));
            (class, FlowConfig { weight, seats, size, queue_limit })
        };
        let own = || self.instances.iter().filter(|i| i.app == app && i.state != InstanceState::Stopped);
        let endpoint = |instance: &Instance| Endpoint {
            instance: instance.id.clone(),
            address: super::gateway::ADDRESS,
            weight: self.controller.loads.weight(&instance.id, &self.scenario.pool),
            draining: instance.is_closed(),
        };
        let still_asleep = |id: &InstanceId| own().any(|i| i.id == *id && i.state.is_asleep() && i.operation.is_none());
        let standby = self.controller.standbys.get(name).map(|Standby { after_s, instances }| Standby {
            after_s: *after_s,
            instances: instances.iter().filter(|id| still_asleep(id)).cloned().collect(),
        });
        let any_stops = own().any(Instance::is_to_stop);
        Some(ClusterConfig {
            app: name.clone(),
            routes: spec.routes.clone(),
            seats,
            flows: classes.into_iter().map(flow).collect(),
            endpoints: own().filter(|i| i.state == InstanceState::Ready).map(endpoint).collect(),
            request_timeout_s: spec.request_timeout_s,
            standby,
            wakeable: any_stops.then(|| own().filter(|i| !i.is_to_stop()).map(|i| i.id.clone()).collect()),
        })
    }

    /// Shares and limits to the nodes, where they changed.
    fn tell_loads(&mut self) {
        if !self.scenario.pool.control {
            return;
        }
        let now_s = self.now_s();
        let gone = |state| matches!(state, InstanceState::Stopped | InstanceState::Backoff);
        let there: BTreeMap<&InstanceId, usize> =
            self.instances.iter().enumerate().filter(|(_, i)| !gone(i.state)).map(|(index, i)| (&i.id, index)).collect();
        let changed = self.controller.loads.poll_changes(|id| there.contains_key(id));
        let shares: Vec<usize> = changed.iter().map(|load| there[&load.instance]).collect();
        for (&index, load) in shares.iter().zip(&changed) {
            let node = self.instances[index].node;
            self.nodes[node].machine.set_share(now_s, index, load.cpu.0, load.limit.map(|limit| limit.0));
            self.soil(node);
        }
        self.controller.loads.handle_told(changed);
    }

    /// Soon, and not too often.
    pub(super) fn want_plan(&mut self) {
        if !self.controller.up {
            return;
        }
        let due_s = (self.controller.last_plan_s + PLAN_PAUSE_S).max(self.now_s() + PLAN_DELAY_S);
        if self.controller.plan_due_s.is_none_or(|already_s| due_s < already_s) {
            self.controller.plan_due_s = Some(due_s);
            self.agenda.enter(due_s, Event::Plan);
        }
    }

    pub(super) fn plan_if_due(&mut self) {
        let now_s = self.now_s();
        if self.controller.up && self.controller.plan_due_s.is_some_and(|due_s| due_s <= now_s) {
            self.controller.plan_due_s = None;
            self.controller.last_plan_s = now_s;
            self.placement_cycle();
        }
    }

    fn placement_cycle(&mut self) {
        let Some(mut snapshot) = self.controller.snapshot.clone() else { return };
        // Measurements may be old; what runs where is known, as the agent reports it before each plan.
        self.refresh(&mut snapshot);
        let pool = &self.scenario.pool;
        let (plan, report) = self.controller.place(&snapshot, pool, self.scenario.surroundings.job_costs());
        let findings = check::check(&snapshot, pool, &plan);
        if !findings.is_empty() {
            let texts = findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            return self.oracle.note(self.agenda.now_s(), format!("a plan is unsound: {texts}"));
        }
        self.controller.restless.handle_plan(&plan, &snapshot, &self.controller.ahead);
        self.controller.loads.handle_plan(&plan.loads, pool);
        self.controller.ahead = plan.ahead.iter().cloned().collect();
        let mut kept = Vec::new();
        for action in &plan.actions {
            let place = self.place_of(action);
            let adds = matches!(action, Action::Start { .. } | Action::Resume { .. });
            if adds && place.is_some_and(|place| kept.iter().any(|&(app, node)| app == place.0 || node == place.1)) {
                continue;
            }
            if self.begin_action(action) {
                let why = report.reasons.iter().find(|reason| reason.action == *action).map_or("", |reason| reason.text.as_str());
                let moves = !matches!(action, Action::SetJobCpu { .. });
                self.recorder.note(self.agenda.now_s(), moves, format!("{}: {why}", told(action)));
            } else if !adds {
                // Who was to go stays for now, since something else is being done to it: what was to come in its stead waits.
                kept.extend(place);
            }
        }
        self.tell_loads();
        self.tell_gateway();
    }
}

fn told(action: &Action) -> String {
    match action {
        Action::Start { instance, node, .. } => format!("start {instance} on {node}"),
        Action::Stop { instance, .. } => format!("stop {instance}"),
        Action::Sleep { instance, rung, .. } => format!("put {instance} to sleep, {}", rung.as_str()),
        Action::Resume { instance, .. } => format!("resume {instance}"),
        Action::StartJob { job, nodes } => format!("start job {job} on {}", listed(nodes)),
        Action::SuspendJob { job } => format!("suspend job {job}"),
        Action::ResumeJob { job, nodes } => format!("resume job {job} on {}", listed(nodes)),
        Action::MigrateJob { job, nodes } => format!("move job {job} to {}", listed(nodes)),
        Action::SetJobCpu { job, cpu } => format!("give job {job} {:.2} CPU a task", cpu.0),
    }
}

/// The nodes of a job's tasks, each once.
fn listed(nodes: &[NodeName]) -> String {
    let names: BTreeSet<&str> = nodes.iter().map(NodeName::as_str).collect();
    names.into_iter().collect::<Vec<_>>().join(", ")
}
