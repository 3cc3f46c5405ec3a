//! The placement cycle: a plan from the freshest observation, judged, and turned into operations.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use weal_model::{
    Action, AppName, Bytes, EventKind, InstanceState, JobObservation, JobState, NodeName, Plan, PlanSummary, PoolSpec, Report,
    Snapshot, Target, Time,
};
use weal_protocol::Refusal;
use weal_protocol::engine::{InstanceSeen, NodeSeen, Outcome};

use super::effect::{Effect, Ids, Kept, Note, PlanRequest, Planned};
use super::observe::Known;
use super::rollout::Rollout;
use super::starts::Starts;
use super::status::unready_need;
use super::{Cycle, learned, node_of, notes};
use crate::jobs::Job;

/// As long as a request may take at most: whoever is still there afterwards is a stream without end.
const LONGEST_DRAIN_S: f64 = 600.0;
/// For an application that is not in the config any more.
const DEFAULT_DRAIN_S: f64 = 30.0;

/// What was planned, and what is being planned.
#[derive(Debug, Default)]
pub(super) struct Placing {
    pub plan: Plan,
    pub report: Report,
    pub summary: Option<PlanSummary>,
    pub starts: Starts,
    pub rollout: Rollout,
    /// The plan that is being made.
    pending: Option<Pending>,
    /// Another plan was wanted meanwhile.
    again: bool,
}

/// A plan that is being made, beside the loop.
#[derive(Debug)]
struct Pending {
    /// The config that it is made for.
    config: u64,
    snapshot: Snapshot,
    /// Instances that were started to stand by, by the plan before.
    ahead: Ids,
    /// What the rollout wants, which goes before the plan's own actions.
    rollout: Vec<(Action, String)>,
}

impl Cycle {
    /// Looks at what runs, to plan by it. Nothing is planned while the engine is away: what it would say may differ.
    pub(super) fn begin_plan(&mut self, now: Time) {
        self.timers.handle_plan_begun(now);
        if self.placing.pending.is_some() {
            self.placing.again = true;
            return;
        }
        if self.measured.snapshot.is_none() {
            // The first config comes before the first flow cycle: what runs must not wait for its timer.
            self.begin_flow_cycle(now, false);
            return;
        }
        self.waiting.plan = Some(self.engine.look.want());
    }

    /// Asks for a plan by what runs now.
    pub(super) fn request_plan(&mut self, now: Time) {
        let (Some(config), Some(pool), Some(seen), Some(snapshot)) =
            (self.config.clone(), self.pool(), self.engine.seen.clone(), self.measured.snapshot.take())
        else {
            return;
        };
        let closed = self.operations.closed();
        let known = Known { closed: &closed, seats: &self.seating.plan };
        let snapshot = self.measured.observer.refresh(&snapshot, &seen, &known);
        self.measured.snapshot = Some(snapshot.clone());

        let mut taken = learned::ids(&seen);
        taken.extend(self.operations.iter().filter_map(|(target, _)| target.instance().cloned()));
        let (starts, operations) = (&mut self.placing.starts, &self.operations);
        let step = self.placing.rollout.step(
            &pool,
            &seen.instances,
            &config.revisions,
            |id| operations.contains_instance(id),
            |app| {
                let id = starts.unused_id(app, &taken);
                taken.insert(id.clone());
                id
            },
        );
        let next_instance = self.placing.starts.next_numbers(&taken);
        let request = self.plan_request(now, &pool, &snapshot, next_instance, step.replacing);
        self.placing.pending = Some(Pending {
            config: config.generation,
            snapshot: request.snapshot.clone(),
            ahead: self.sleep.ahead.clone(),
            rollout: step.actions,
        });
        self.push(Effect::Plan(Box::new(request)));
    }

    /// Everything that a plan for `pool` is made from now.
    pub(super) fn plan_request(
        &self,
        now: Time,
        pool: &PoolSpec,
        snapshot: &Snapshot,
        next_instance: BTreeMap<AppName, u64>,
        held: std::collections::BTreeSet<AppName>,
    ) -> PlanRequest {
        let mut pool = without_ended(pool, self.engine.instances());
        self.sleep.relax(&mut pool);
        let mut request = self.learned.plan_request(visible(snapshot, &pool), pool);
        let policy = &mut request.policy;
        (policy.next_instance, policy.held) = (next_instance, held);
        policy.rungs = self.engine.capabilities().map_or_else(Vec::new, |can| can.rungs.clone());
        policy.refused = self.sleep.refused(now);
        policy.ahead.clone_from(&self.sleep.ahead);
        policy.resting.clone_from(&self.sleep.resting);
        request
    }

    /// A plan was made: what it says is begun.
    pub(super) fn handle_planned(&mut self, now: Time, planned: Planned) {
        let Some(pending) = self.placing.pending.take_if(|pending| pending.snapshot.generation == planned.generation) else {
            return;
        };
        if std::mem::take(&mut self.placing.again) {
            self.timers.schedule_plan(now);
        }
        let config = self.config.as_ref().map_or(0, |config| config.generation);
        let Some(pool) = self.pool().filter(|_| pending.config == config) else {
            // A new config has come meanwhile: what was planned is for another pool.
            return self.timers.schedule_plan(now);
        };
        let mut actions = pending.rollout;
        match planned.result {
            Ok((plan, report)) => {
                self.learned.handle_plan(&plan, &pending.snapshot, &pending.ahead);
                actions.extend(plan.actions.iter().map(|action| (action.clone(), reason(&report, action))));
                self.take_plan(now, &pool, plan, report, planned.took_ms);
            }
            Err(findings) => self.raise_problem("plan", format!("a placement plan was not applied: {findings}")),
        }
        self.begin_all(now, actions);
        self.push_loads();
        self.push_reserves(&pool);
        self.push_gateway_config();
        self.show(false);
    }

    fn take_plan(&mut self, now: Time, pool: &PoolSpec, plan: Plan, report: Report, planned_in_ms: f64) {
        self.placing.summary = Some(PlanSummary {
            generation: plan.generation,
            time: now,
            planned_in_ms,
            actions: plan.actions.len() as u32,
            lowest_utility: report.lowest_utility,
            upper_bound: report.upper_bound,
        });
        self.seating.loads.handle_plan(&plan.loads, pool);
        if !plan.actions.is_empty() {
            self.push(Effect::Keep(Kept::Plan(Box::new((plan.clone(), report.clone())))));
        }
        self.sleep.ahead = plan.ahead.iter().cloned().collect();
        (self.placing.plan, self.placing.report) = (plan, report);
        self.clear_problem("plan", "placement plans are sound again");
    }

    /// Begins a plan's actions. A target that was to go but stays for now, since something else is being done to it, still has its place:
    /// what was to come in its stead, of its application or on its node, is left to a later plan.
    fn begin_all(&mut self, now: Time, actions: Vec<(Action, String)>) {
        let mut kept: Vec<(AppName, NodeName)> = Vec::new();
        for (action, reason) in actions {
            let place = self.place_of(&action);
            let taken = |place: &(AppName, NodeName)| kept.iter().any(|(app, node)| *app == place.0 || *node == place.1);
            match &action {
                Action::Start { .. } | Action::Resume { .. } if place.as_ref().is_some_and(taken) => continue,
                Action::Stop { .. } | Action::Sleep { .. } if self.operations.contains(&action.target()) => kept.extend(place),
                _ => {}
            }
            self.begin(now, action, &reason);
        }
    }

    /// The application and the node that an action on an instance is about.
    fn place_of(&self, action: &Action) -> Option<(AppName, NodeName)> {
        match action {
            Action::Start { app, node, .. } => Some((app.clone(), node.clone())),
            Action::Stop { instance, app } | Action::Sleep { instance, app, .. } | Action::Resume { instance, app } => {
                self.engine.instance(instance).map(|seen| (app.clone(), seen.node.clone()))
            }
            Action::StartJob { .. }
            | Action::SuspendJob { .. }
            | Action::ResumeJob { .. }
            | Action::MigrateJob { .. }
            | Action::SetJobCpu { .. } => None,
        }
    }

    /// Begins one action, or leaves it to a later plan when it cannot be done yet.
    pub(super) fn begin(&mut self, now: Time, action: Action, reason: &str) {
        let Some(pool) = self.pool() else { return };
        let target = action.target();
        if !self.may_begin(now, &pool, &action) {
            return;
        }
        if let Action::SetJobCpu { .. } = action {
            // It changes a number and lasts no time, so it is no operation: a job that is being started has its speed set too.
            return self.push(Effect::Act { pool, action });
        }
        let drain = self.drain(now, &pool, &action);
        let Some(at_once) = self.operations.begin(action.clone(), drain) else { return };
        if let (Action::Start { .. }, Some(instance)) = (&action, target.instance()) {
            self.placing.starts.handle_begun(instance);
        }
        self.note(notes::action(&action, reason).target(&target));
        self.counts.actions += 1;
        if at_once {
            self.push(Effect::Act { pool, action });
        }
    }

    /// Whether an action can be begun now.
    fn may_begin(&self, now: Time, pool: &PoolSpec, action: &Action) -> bool {
        match action {
            Action::Start { app, node, .. } => pool.apps.get(app).is_some_and(|spec| {
                let needs_are_ready = unready_need(spec, self.engine.instances()).is_none();
                self.placing.starts.may_start(now, app) && needs_are_ready && self.room(pool, node) >= spec.memory
            }),
            // What makes room for a parked one may not be done yet.
            Action::Resume { instance, .. } => self
                .engine
                .instance(instance)
                .is_some_and(|seen| seen.state.holds_memory() || self.room(pool, &seen.node) >= seen.memory_limit),
            Action::Stop { instance, app } | Action::Sleep { instance, app, .. } => {
                let is_told = self.sleep.resting.contains_key(app);
                let is_needed = !is_told && self.sleep.was_just_woken(now, instance, self.timers.flow_cycle());
                self.engine.instance(instance).is_some() && !is_needed
            }
            Action::StartJob { job, nodes } | Action::ResumeJob { job, nodes } | Action::MigrateJob { job, nodes } => {
                self.job(job).is_some_and(|seen| self.has_room_for(pool, seen, nodes))
            }
            Action::SuspendJob { job } => self.job(job).is_some_and(|seen| seen.state == JobState::Running),
            Action::SetJobCpu { job, .. } => self.job(job).is_some(),
        }
    }

    /// Until when an action waits for the requests of its instance at most; `None` when it need not.
    fn drain(&self, now: Time, pool: &PoolSpec, action: &Action) -> Option<Time> {
        let (Action::Stop { instance, app } | Action::Sleep { instance, app, .. }) = action else { return None };
        let seen = self.engine.instance(instance)?;
        let serves = matches!(seen.state, InstanceState::Ready | InstanceState::Unhealthy);
        let has_routes = pool.apps.get(app).is_none_or(|app| !app.routes.is_empty());
        let longest_s = pool.apps.get(app).map_or(DEFAULT_DRAIN_S, |app| app.request_timeout_s);
        (serves && has_routes).then(|| now + Duration::from_secs_f64(longest_s.clamp(0.0, LONGEST_DRAIN_S)))
    }

    fn job(&self, name: &weal_model::JobName) -> Option<&JobObservation> {
        self.engine.seen.as_ref()?.jobs.iter().find(|job| job.spec.name == *name)
    }

    fn has_room_for(&self, pool: &PoolSpec, job: &JobObservation, nodes: &[NodeName]) -> bool {
        let memory = memory_of(job);
        nodes.iter().all(|node| {
            let tasks = nodes.iter().filter(|other| *other == node).count() as u64;
            self.room(pool, node) >= Bytes(memory.0.saturating_mul(tasks))
        })
    }

    /// Memory of `node` that nothing holds, counted as placement counts it: by what each instance and each task may use.
    fn room(&self, pool: &PoolSpec, node: &NodeName) -> Bytes {
        let capacity = node_of(pool, node).map_or(Bytes(0), |spec| spec.memory);
        let instances = self.engine.instances();
        let here = instances.iter().filter(|seen| seen.node == *node && seen.state.holds_memory());
        let held: Bytes = here.map(|seen| seen.memory_limit).sum();
        let jobs: Bytes = self.engine.seen.iter().flat_map(|seen| &seen.jobs).map(|job| memory_on(job, node)).sum();
        let coming: Bytes =
            self.operations.iter().map(|(target, operation)| self.coming(pool, node, target, &operation.action)).sum();
        capacity - held - jobs - coming
    }

    /// Memory of `node` that an operation will take and that no observation shows yet.
    fn coming(&self, pool: &PoolSpec, node: &NodeName, target: &Target, action: &Action) -> Bytes {
        let tasks_on = |job: &weal_model::JobName, nodes: &[NodeName]| {
            let seen = self.job(job).filter(|seen| seen.state != JobState::Running);
            let tasks = nodes.iter().filter(|other| *other == node).count() as u64;
            seen.map_or(Bytes(0), |seen| Bytes(memory_of(seen).0.saturating_mul(tasks)))
        };
        match (target, action) {
            (Target::Instance { instance, app }, Action::Start { node: to, .. }) if to == node => {
                let is_there = self.engine.instance(instance).is_some();
                pool.apps.get(app).filter(|_| !is_there).map_or(Bytes(0), |app| app.memory)
            }
            (Target::Job { job }, Action::StartJob { nodes, .. } | Action::ResumeJob { nodes, .. }) => tasks_on(job, nodes),
            _ => Bytes(0),
        }
    }

    /// Gives the engine what has been drained.
    pub(super) fn hand_over_drained(&mut self, now: Time) {
        let Some(pool) = self.pool() else { return };
        let counters = self.gateway.fresh_counters(now);
        for action in self.operations.poll_drained(now, counters.as_deref()) {
            self.push(Effect::Act { pool: Arc::clone(&pool), action });
        }
    }

    /// An action is done, or could not be.
    pub(super) fn handle_acted(&mut self, now: Time, outcome: Outcome) {
        let Outcome { action, refusal, .. } = outcome;
        let target = action.target();
        if !matches!(action, Action::SetJobCpu { .. }) {
            self.operations.end(&target);
        }
        if let Action::Start { app, .. } = &action {
            self.placing.starts.handle_outcome(now, app, refusal.as_ref().map(ToString::to_string));
        }
        if let Some(refusal) = self.on_refusal(now, &action, refusal) {
            let text = format!("could not {} {target}: {refusal}", action.verb());
            self.note(Note::warning(EventKind::Plan, text).target(&target));
        }
        self.engine.look.want();
        self.push_gateway_config();
        self.timers.schedule_plan(now);
        self.show(false);
    }

    /// Tells the engine what memory is to be free until the next plan, where that is not what it keeps.
    fn push_reserves(&mut self, pool: &PoolSpec) {
        let wanted = |node: &NodeSeen| {
            let reserve = self.placing.plan.reserves.iter().find(|reserve| reserve.node == node.name);
            reserve.map_or(Bytes(0), |reserve| reserve.memory)
        };
        let can = self.engine.capabilities().is_some_and(|can| can.reserves);
        let is_kept = self.engine.nodes().iter().all(|node| node.memory_reserve == wanted(node));
        if pool.control && can && !is_kept && !self.engine.setting_reserves {
            self.engine.setting_reserves = true;
            self.push(Effect::SetReserves(self.placing.plan.reserves.clone()));
        }
    }

    pub(super) fn handle_reserves_set(&mut self, result: Result<(), Refusal>) {
        self.engine.setting_reserves = false;
        match result {
            Ok(()) => self.clear_problem("reserves", "memory is kept free again"),
            Err(error) => self.raise_problem("reserves", format!("no memory could be kept free: {error}")),
        }
    }

    /// Hands running instances what a new config changes without a restart: their health check, restarts and time-outs.
    pub(super) fn update_running(&mut self) {
        let (Some(config), Some(seen)) = (&self.config, &self.engine.seen) else { return };
        let is_outdated = |seen: &&InstanceSeen| {
            let revision = config.revisions.get(&seen.app);
            revision.is_some_and(|now| now.start == seen.revision.start && now.settings != seen.revision.settings)
        };
        let start =
            |seen: &InstanceSeen| Action::Start { instance: seen.id.clone(), app: seen.app.clone(), node: seen.node.clone() };
        let is_free = |seen: &&InstanceSeen| !self.operations.contains_instance(&seen.id);
        let starts: Vec<Action> = seen.instances.iter().filter(is_free).filter(is_outdated).map(start).collect();
        if !starts.is_empty() {
            let pool = Arc::clone(&config.pool);
            self.push(Effect::Update { pool, starts });
        }
    }

    pub(super) fn handle_updated(&mut self, result: Result<Vec<Outcome>, Refusal>) {
        let outcomes = match result {
            Ok(outcomes) => outcomes,
            Err(error) => {
                let text = format!("running instances could not be told of the new config: {error}");
                return self.note(Note::warning(EventKind::Config, text));
            }
        };
        for Outcome { action, refusal, .. } in outcomes {
            if let Some(refusal) = refusal {
                let target = action.target();
                let text = format!("{target} could not be told of the new config: {refusal}");
                self.note(Note::warning(EventKind::Config, text).target(&target));
            }
        }
    }
}

/// What placement may do now: the config, but for instances that ended for good. One that is not to be started again keeps
/// its place, or it would be started again under another name.
fn without_ended(pool: &PoolSpec, instances: &[InstanceSeen]) -> PoolSpec {
    let mut policy = pool.clone();
    for app in policy.apps.values_mut() {
        let ended = instances
            .iter()
            .filter(|seen| seen.app == app.name)
            .filter(|seen| matches!(seen.state, InstanceState::Failed | InstanceState::Stopped))
            .count() as u32;
        app.manual |= ended >= app.instances.max;
        app.instances.min = app.instances.min.saturating_sub(ended);
        app.instances.max = app.instances.max.saturating_sub(ended).max(1);
    }
    policy
}

/// The part of a snapshot that placement decides about.
fn visible(snapshot: &Snapshot, policy: &PoolSpec) -> Snapshot {
    let mut visible = snapshot.clone();
    visible.nodes.retain(|node| node_of(policy, &node.name).is_some());
    visible.instances.retain(|instance| {
        policy.apps.contains_key(&instance.app)
            && node_of(policy, &instance.node).is_some()
            && !matches!(instance.state, InstanceState::Failed | InstanceState::Stopped)
    });
    visible
}

fn reason(report: &Report, action: &Action) -> String {
    let reason = report.reasons.iter().find(|reason| reason.action == *action);
    reason.map(|reason| reason.text.clone()).unwrap_or_default()
}

/// Memory of one task of a job, in the stage that it is in.
fn memory_of(job: &JobObservation) -> Bytes {
    let stage = Job::observed(job, |_| None).stages_left().next().map(|(stage, _)| stage);
    stage.or(job.spec.stages.last().copied()).map_or(Bytes(0), |stage| stage.memory)
}

/// Memory that a job's tasks hold on a node.
fn memory_on(job: &JobObservation, node: &NodeName) -> Bytes {
    let runs = job.state == JobState::Running;
    let tasks = job.nodes.iter().filter(|at| runs && *at == node).count() as u64;
    if tasks == 0 { Bytes(0) } else { Bytes(memory_of(job).0.saturating_mul(tasks)) }
}
