//! From everything the loop knows to the [`Status`] that users see.

use std::collections::{BTreeMap, BTreeSet};

use crate::flow::shares::CpuShares;
use weal_model::{
    AppKind, AppName, AppSample, AppSpec, AppState, AppStatus, Binding, Bytes, ClassName, Cpu, FlowAllocation, FlowSample,
    FlowStatus, GatewayName, Goal, HistorySample, InstanceId, InstanceState, InstanceStatus, JobPhase, JobSample, JobStatus,
    KeptAwake, LatencySummary, NodeName, NodeSample, NodeStatus, PlanSummary, PoolSpec, Report, RolloutPhase, RolloutStatus,
    Rung, SeatPlan, Snapshot, Status, Time, WorkFactor,
};
use weal_protocol::engine::{InstanceSeen, Observation, Revision};
use weal_protocol::gateway::GatewayCounters;

use super::gateway::flow_id;
use super::recent::{Recent, RecentFlow};
use super::tasks::{TaskState, state as task_state, waits_for};

/// Everything that a status is made from.
pub(super) struct Inputs<'a> {
    pub pool: &'a PoolSpec,
    pub time: Time,
    /// The same by the engine's clock.
    pub its_time: Time,
    pub config_generation: u64,
    pub config_error: Option<&'a str>,
    pub problems: Vec<String>,
    pub engine: Option<&'a Observation>,
    /// False when it does not answer.
    pub engine_up: bool,
    /// What the gateway says, while it answers.
    pub counters: Option<&'a GatewayCounters>,
    pub snapshot: Option<&'a Snapshot>,
    pub recent: &'a Recent,
    pub closed: &'a BTreeSet<InstanceId>,
    pub gateway: &'a GatewayName,
    pub seats: &'a SeatPlan,
    pub report: &'a Report,
    pub work_factors: &'a [WorkFactor],
    pub shares: &'a BTreeMap<InstanceId, Cpu>,
    pub plan: Option<&'a PlanSummary>,
    /// Why the last start of an application failed.
    pub failures: &'a BTreeMap<AppName, String>,
    /// Why a start that the last plan wanted was not begun.
    pub put_off: BTreeMap<AppName, &'static str>,
    /// What instances would be started from now.
    pub revisions: &'a BTreeMap<AppName, Revision>,
    /// How far replacements are.
    pub rollouts: BTreeMap<AppName, RolloutStatus>,
    /// Who was told to sleep.
    pub resting: &'a BTreeMap<AppName, Option<Rung>>,
    /// Jobs that are not over, and the last that are.
    pub jobs: Vec<JobStatus>,
}

impl Inputs<'_> {
    fn seats_lent(&self, app: &AppName) -> u32 {
        let mut clusters = self.counters.iter().flat_map(|counters| &counters.clusters);
        clusters.find(|cluster| cluster.app == *app).map_or(0, |cluster| cluster.seats_lent)
    }
}

/// What each instance was given, as CPU of its node. CpuShares are shares, which may add up to more than a node has where several
/// instances could each use what is left.
pub(super) fn fitted(shares: &CpuShares, agent: Option<&Observation>) -> BTreeMap<InstanceId, Cpu> {
    let mut fitted = BTreeMap::new();
    for node in agent.iter().flat_map(|agent| &agent.nodes) {
        let here = agent.iter().flat_map(|agent| &agent.instances).filter(|instance| instance.node == node.name);
        let here: Vec<(&InstanceId, Cpu)> = here.filter_map(|i| Some((&i.id, shares.given(&i.id)?))).collect();
        let given: Cpu = here.iter().map(|(_, cpu)| *cpu).sum();
        let scale = if given.0 > node.cpu_capacity.0 { node.cpu_capacity.0 / given.0 } else { 1.0 };
        fitted.extend(here.into_iter().map(|(id, cpu)| (id.clone(), cpu * scale)));
    }
    fitted
}

/// The whole pool, now.
pub(super) fn status(inputs: &Inputs<'_>) -> Status {
    let pool = inputs.pool;
    let flows = flows(inputs);
    let instances: &[InstanceSeen] = inputs.engine.map_or(&[], |agent| &agent.instances);
    Status {
        pool: pool.name.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        time: inputs.time,
        config_generation: inputs.config_generation,
        config_error: inputs.config_error.map(str::to_owned),
        control: pool.control,
        placement: pool.placement,
        listen: format!("http://{}", pool.listen),
        api: pool.api_url(),
        limits: inputs.engine.map(|engine| engine.capabilities.losses.clone()).unwrap_or_default(),
        problems: inputs.problems.clone(),
        nodes: pool.nodes.iter().map(|node| node_status(&node.name, inputs)).collect(),
        apps: pool.apps.values().map(|app| app_status(app, instances, &flows, inputs)).collect(),
        flows,
        jobs: inputs.jobs.clone(),
        plan: inputs.plan.cloned(),
    }
}

fn node_status(name: &NodeName, inputs: &Inputs<'_>) -> NodeStatus {
    let spec = inputs.pool.nodes.iter().find(|node| node.name == *name);
    let seen = inputs.snapshot.and_then(|snapshot| snapshot.nodes.iter().find(|node| node.name == *name));
    let counters = inputs.engine.and_then(|agent| agent.nodes.iter().find(|node| node.name == *name));
    let instances = inputs.engine.map_or(&[][..], |agent| &agent.instances);
    let here = instances.iter().filter(|instance| instance.node == *name);
    NodeStatus {
        name: name.clone(),
        up: inputs.engine_up && (seen.is_none_or(|node| node.up)),
        cpu_capacity: seen.map_or_else(|| spec.map_or(Cpu(0.0), |spec| spec.cpu), |node| node.cpu_capacity),
        cpu_used: seen.map_or(Cpu(0.0), |node| node.cpu_used),
        cpu_allocated: here.filter_map(|instance| inputs.shares.get(&instance.id).copied()).sum(),
        memory_capacity: seen.map_or_else(|| spec.map_or(Bytes(0), |spec| spec.memory), |node| node.memory_capacity),
        memory_used: seen.map_or(Bytes(0), |node| node.memory_used),
        memory_reserve: counters.map_or(Bytes(0), |node| node.memory_reserve),
        parked_for_reserve: counters.map_or(0, |node| node.parked_for_reserve),
    }
}

fn app_status(app: &AppSpec, instances: &[InstanceSeen], flows: &[FlowStatus], inputs: &Inputs<'_>) -> AppStatus {
    let mine: Vec<InstanceStatus> = instances.iter().filter(|i| i.app == app.name).map(|i| instance_status(i, inputs)).collect();
    let explained = inputs.report.apps.get(&app.name);
    let rollout = inputs.rollouts.get(&app.name).cloned();
    let (state, detail) = beside_rollout(app_state(app, &mine, inputs), rollout.as_ref());
    let kept_awake = kept_awake(app, inputs);
    let detail = match kept_awake {
        Some(kept) if detail.is_empty() => kept.phrase(inputs.time),
        _ => detail,
    };
    let utilities = flows.iter().filter(|flow| flow.app == app.name).filter_map(|flow| flow.utility);
    AppStatus {
        name: app.name.clone(),
        kind: app.kind,
        state,
        detail,
        rollout,
        told_to_sleep: inputs.resting.contains_key(&app.name),
        kept_awake,
        min: app.instances.min,
        max: app.instances.max,
        cpu_used: mine.iter().map(|instance| instance.cpu_used).sum(),
        cpu_demand: explained.map_or(Cpu(0.0), |app| app.demand),
        cpu_allocated: mine.iter().map(|instance| instance.cpu_allocated).sum(),
        seats_lent: inputs.seats_lent(&app.name),
        utility: utilities.min_by(|a, b| a.0.total_cmp(&b.0)),
        instances: mine,
    }
}

/// What keeps an application awake, by the status' own clock.
fn kept_awake(app: &AppSpec, inputs: &Inputs<'_>) -> Option<KeptAwake> {
    app.awake.map(|kept| KeptAwake { until: inputs.time + kept.until.since(inputs.its_time), by: kept.by })
}

/// What is said of an application whose instances are being replaced: that a rollout is stuck comes before that the old version serves, and
/// why the new ones fail before why the old ones did.
fn beside_rollout((state, detail): (AppState, String), rollout: Option<&RolloutStatus>) -> (AppState, String) {
    match rollout {
        Some(rollout) if rollout.phase == RolloutPhase::Stuck => {
            (if state == AppState::Ready { AppState::Degraded } else { state }, rollout.detail.clone())
        }
        Some(rollout) if detail.is_empty() => (state, format!("rolling out: {}", rollout.detail)),
        _ => (state, detail),
    }
}

/// The word for an application and the sentence about it.
fn app_state(app: &AppSpec, instances: &[InstanceStatus], inputs: &Inputs<'_>) -> (AppState, String) {
    if app.halted {
        let left = if instances.is_empty() { "" } else { "; its instances finish their requests" };
        return (AppState::Stopped, format!("stopped by an order: `weal start {}` brings it back{left}", app.name));
    }
    let seen = inputs.engine.map_or(&[][..], |agent| &agent.instances);
    if app.kind == AppKind::Task {
        return task_words(app, instances, seen, inputs);
    }
    let count = |state: InstanceState| instances.iter().filter(|instance| instance.state == state).count() as u32;
    let ready = count(InstanceState::Ready);
    let at_rest = app.instances.min == 0 && instances.is_empty();
    if at_rest && inputs.failures.get(&app.name).is_none() {
        return (AppState::Stopped, "no instance is wanted now".into());
    }
    // Without a wish for instances (min = 0), an application at rest is as it should be.
    if ready >= app.instances.min && (ready > 0 || instances.iter().all(|i| i.state == InstanceState::Stopped)) {
        return if ready > 0 {
            (AppState::Ready, String::new())
        } else {
            (AppState::Stopped, "no instance is wanted now".into())
        };
    }
    if let Some(sleeping) = asleep(instances) {
        return (AppState::Asleep, sleeping);
    }
    if ready == 0 && count(InstanceState::Draining) > 0 {
        return (AppState::Ready, "goes to sleep as soon as its requests are done".into());
    }
    let failing = instances.iter().find(|instance| {
        matches!(instance.state, InstanceState::Failed | InstanceState::Backoff | InstanceState::Unhealthy)
            && !instance.detail.is_empty()
    });
    let told = failing.map(|instance| format!("{}: {}", instance.id, instance.detail));
    if ready > 0 {
        let detail = told.unwrap_or_else(|| format!("{ready} of at least {} instances ready", app.instances.min));
        return (AppState::Degraded, detail);
    }
    if let Some(told) = told {
        return (AppState::Failed, told);
    }
    if let Some(failure) = inputs.failures.get(&app.name) {
        return (AppState::Failed, failure.clone());
    }
    if let Some(waits) = waits(app, seen, inputs) {
        return (AppState::Waiting, waits);
    }
    if let Some(one) = instances.iter().find(|one| one.state == InstanceState::Starting && !one.detail.is_empty()) {
        return (AppState::Starting, format!("{}: {}", one.id, one.detail));
    }
    if instances.iter().any(|instance| instance.state.is_active()) {
        return (AppState::Starting, "started, not ready yet".into());
    }
    if let Some(why) = inputs.put_off.get(&app.name) {
        return (AppState::Starting, (*why).to_owned());
    }
    let reason = inputs.report.apps.get(&app.name).filter(|app| !app.text.is_empty()).map(|app| app.text.clone());
    (AppState::Starting, reason.unwrap_or_else(|| "not started yet".into()))
}

/// Whom `app` waits for before it starts; `None` when for nobody.
fn waits(app: &AppSpec, seen: &[InstanceSeen], inputs: &Inputs<'_>) -> Option<String> {
    let unready = unready_need(app, seen).map(|missing| format!("needs {missing}, which is not ready"));
    unready.or_else(|| waits_for(app, seen, inputs.revisions))
}

/// The same for a task.
fn task_words(app: &AppSpec, instances: &[InstanceStatus], seen: &[InstanceSeen], inputs: &Inputs<'_>) -> (AppState, String) {
    match task_state(&app.name, seen, inputs.revisions.get(&app.name)) {
        TaskState::Done => (AppState::Done, String::new()),
        TaskState::Failed(how) => (AppState::Failed, how),
        TaskState::Open => match (inputs.failures.get(&app.name), waits(app, seen, inputs)) {
            (Some(failure), _) => (AppState::Failed, failure.clone()),
            _ if instances.iter().any(|one| one.state.is_active()) => (AppState::Running, "runs once for this deploy".to_owned()),
            (None, Some(waits)) => (AppState::Waiting, waits),
            (None, None) => (AppState::Starting, "not started yet".to_owned()),
        },
    }
}

/// How an application sleeps of which nothing is awake; `None` when something is or nothing sleeps.
fn asleep(instances: &[InstanceStatus]) -> Option<String> {
    let sleeping: Vec<&InstanceStatus> = instances.iter().filter(|instance| instance.state.is_asleep()).collect();
    if sleeping.is_empty() || instances.iter().any(|i| i.state.is_active() || i.state == InstanceState::Draining) {
        return None;
    }
    let tell = |instance: &&InstanceStatus| {
        let rung = instance.state.rung().map_or("", weal_model::Rung::as_str);
        let woke = instance.last_wake_ms.map_or_else(String::new, |ms| format!(", last woken in {ms:.0} ms"));
        format!("{} is {rung} with {} in memory and {} in swap{woke}", instance.id, instance.memory_used, instance.swap_used)
    };
    Some(sleeping.iter().map(tell).collect::<Vec<_>>().join("; "))
}

/// The first application that `app` needs and that has no ready instance.
pub(super) fn unready_need<'a>(app: &'a AppSpec, instances: &[InstanceSeen]) -> Option<&'a AppName> {
    let ready = |name: &AppName| instances.iter().any(|i| i.app == *name && i.state == InstanceState::Ready);
    app.needs.iter().find(|needed| !ready(needed))
}

fn instance_status(instance: &InstanceSeen, inputs: &Inputs<'_>) -> InstanceStatus {
    let id = &instance.id;
    let seen = inputs.snapshot.and_then(|snapshot| snapshot.instances.iter().find(|seen| seen.id == *id));
    let draining = inputs.closed.contains(id) && instance.state == InstanceState::Ready;
    InstanceStatus {
        id: id.clone(),
        node: instance.node.clone(),
        state: if draining { InstanceState::Draining } else { instance.state },
        detail: instance.detail.clone(),
        pid: instance.pid,
        address: instance.address.to_string(),
        cpu_used: seen.and_then(|seen| seen.cpu_used).unwrap_or_default(),
        cpu_allocated: inputs.shares.get(id).copied().unwrap_or_default(),
        memory_used: instance.memory_used.unwrap_or_default(),
        swap_used: instance.swap_used.unwrap_or_default(),
        last_wake_ms: instance.last_wake_s.map(|seconds| seconds * 1e3),
        in_flight: seen.map_or(0, |seen| seen.in_flight),
        restarts: instance.restarts,
        since: instance.since,
    }
}

fn flows(inputs: &Inputs<'_>) -> Vec<FlowStatus> {
    let recent = inputs.recent.flows();
    let mut flows = Vec::new();
    for app in inputs.pool.apps.values() {
        let classes: BTreeSet<&ClassName> = app.routes.iter().map(|route| &route.class).collect();
        for class in classes {
            let id = flow_id(inputs.gateway, &app.name, class);
            let seen = recent.get(&id).cloned().unwrap_or_else(|| RecentFlow::empty(id));
            flows.push(flow_status(app, class, &seen, inputs));
        }
    }
    flows
}

fn flow_status(app: &AppSpec, class: &ClassName, recent: &RecentFlow, inputs: &Inputs<'_>) -> FlowStatus {
    let id = flow_id(inputs.gateway, &app.name, class);
    let (goal, importance) = match inputs.pool.classes.get(class) {
        Some(class) => (class.goal, class.importance),
        None => Default::default(),
    };
    let planned: Option<&FlowAllocation> = inputs.seats.flows.iter().find(|flow| flow.id == id);
    let explained = inputs.report.flows.iter().find(|flow| flow.id == id);
    let work_factors: Vec<WorkFactor> = inputs.work_factors.iter().filter(|factor| factor.flow == id).cloned().collect();
    let achieved = achieved(goal, recent);
    let throughput_per_s = recent.per_s(recent.flow.completions);
    FlowStatus {
        app: app.name.clone(),
        class: class.clone(),
        goal,
        goal_text: goal.map(|goal| goal.to_string()).unwrap_or_default(),
        importance,
        achieved: achieved.map(|value| if matches!(goal, Some(Goal::Throughput { .. })) { value } else { value * 1e3 }),
        utility: achieved.and_then(|value| Some(goal?.utility(value, importance))),
        predicted_utility: planned.filter(|_| goal.is_some()).map(|planned| planned.predicted),
        arrival_per_s: recent.per_s(recent.flow.arrivals),
        throughput_per_s,
        rejected_per_s: recent.per_s(recent.flow.rejections),
        errors_per_s: recent.per_s(recent.flow.errors),
        response: LatencySummary::of(&recent.flow.response_time),
        service: LatencySummary::of(&recent.flow.service_time),
        queue_mean: recent.flow.queue_mean,
        in_service_mean: recent.flow.in_service_mean,
        seats: planned.map_or(0, |planned| planned.seats),
        hanging: recent.flow.hanging,
        at_clients: recent.flow.at_clients,
        weight: planned.map_or(1.0, |planned| planned.weight),
        cpu_used: work_factors.iter().map(|factor| Cpu(factor.work.0 * throughput_per_s)).sum(),
        cpu_allocated: planned.map_or(Cpu(0.0), |planned| planned.allocation),
        work_factors,
        binding: explained.map_or(Binding::Unmeasured, |explained| explained.binding.clone()),
        id,
    }
}

/// What the goal is about, in seconds or requests per second; the mean response time without a goal.
fn achieved(goal: Option<Goal>, recent: &RecentFlow) -> Option<f64> {
    match goal {
        None => recent.flow.response_time.mean_s(),
        Some(goal @ (Goal::Mean { .. } | Goal::Percentile { .. })) => {
            goal.achieved_s(&recent.flow.response_time, recent.flow.rejections, recent.flow.oldest_wait_s)
        }
        // Without arrivals nobody asked for any throughput.
        Some(Goal::Throughput { .. }) => (recent.flow.arrivals > 0).then(|| recent.per_s(recent.flow.completions)),
    }
}

/// The status as a sample for the history.
pub(super) fn sample(status: &Status, span_s: f64) -> HistorySample {
    let flow = |flow: &FlowStatus| FlowSample {
        app: flow.app.clone(),
        class: flow.class.clone(),
        achieved: flow.achieved,
        utility: flow.utility,
        seats: f64::from(flow.seats),
        queue_mean: flow.queue_mean,
        arrival_per_s: flow.arrival_per_s,
        throughput_per_s: flow.throughput_per_s,
        rejected_per_s: flow.rejected_per_s,
        cpu_allocated: flow.cpu_allocated,
    };
    let node = |node: &NodeStatus| NodeSample {
        name: node.name.clone(),
        cpu_capacity: node.cpu_capacity,
        cpu_used: node.cpu_used,
        cpu_allocated: node.cpu_allocated,
    };
    let app = |app: &AppStatus| AppSample {
        name: app.name.clone(),
        ready: app.instances.iter().filter(|instance| instance.state == InstanceState::Ready).count() as f64,
        cpu_used: app.cpu_used,
        cpu_allocated: app.cpu_allocated,
    };
    HistorySample {
        time: status.time,
        span_s,
        flows: status.flows.iter().map(flow).collect(),
        nodes: status.nodes.iter().map(node).collect(),
        apps: status.apps.iter().map(app).collect(),
        jobs: job_samples(status),
    }
}

/// Those that are not over, those that have begun before those that wait.
fn job_samples(status: &Status) -> Vec<JobSample> {
    let mut open: Vec<&JobStatus> = status.jobs.iter().filter(|job| !job.state.is_over()).collect();
    open.sort_by_key(|job| job.state == JobPhase::Waiting);
    let sample = |job: &JobStatus| JobSample {
        id: job.id.clone(),
        state: job.state,
        node: job.node.clone(),
        cpu_used: job.cpu_used,
        cpu_allocated: job.cpu_allocated,
        utility: job.utility,
    };
    open.into_iter().take(HistorySample::JOBS).map(sample).collect()
}
