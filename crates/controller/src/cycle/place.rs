//! The placement cycle: a plan from the freshest snapshot, judged, and turned into operations.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use weal_engine::{Engine, embedded};
use weal_model::{
    Action, AppName, Bytes, EventKind, InstanceId, InstanceState, NodeName, PlanSummary, PoolSpec, Rung, Snapshot, WhyNode,
};
use weal_protocol::node::{InstanceCounters, NodeCounters};

use super::decide::Placing;
use super::observe::Known;
use super::status::unready_need;
use super::{Done, Loop, Names, concerned};
use crate::board::Note;
use crate::clock;

/// After a failed start, an application is left alone for this long, doubled with each further failure.
const FIRST_HOLDOFF: Duration = Duration::from_secs(1);
const LONGEST_HOLDOFF: Duration = Duration::from_secs(60);

/// What became of starts: who must wait before the next try, and which names were used.
#[derive(Debug, Default)]
pub(super) struct Starts {
    failures: BTreeMap<AppName, String>,
    holdoffs: BTreeMap<AppName, (Instant, Duration)>,
    highest: BTreeMap<AppName, u64>,
}

impl Starts {
    /// Why the last start of an application failed.
    pub fn failures(&self) -> &BTreeMap<AppName, String> {
        &self.failures
    }

    /// A new config may have mended what failed.
    pub fn forget(&mut self) {
        self.failures.clear();
        self.holdoffs.clear();
    }

    fn may_start(&self, app: &AppName) -> bool {
        self.holdoffs.get(app).is_none_or(|(until, _)| Instant::now() >= *until)
    }

    fn handle_outcome(&mut self, app: &AppName, error: Option<&str>) {
        let Some(error) = error else {
            self.failures.remove(app);
            self.holdoffs.remove(app);
            return;
        };
        self.failures.insert(app.clone(), error.to_owned());
        let pause = self.holdoffs.get(app).map_or(FIRST_HOLDOFF, |(_, pause)| (*pause * 2).min(LONGEST_HOLDOFF));
        self.holdoffs.insert(app.clone(), (Instant::now() + pause, pause));
    }

    /// The number for each application's next instance.
    fn next(&self, taken: &Names) -> BTreeMap<AppName, u64> {
        let mut next: BTreeMap<AppName, u64> = self.highest.iter().map(|(app, highest)| (app.clone(), highest + 1)).collect();
        for (app, number) in taken.iter().filter_map(split) {
            let at_least = next.entry(app).or_insert(1);
            *at_least = (*at_least).max(number + 1);
        }
        next
    }

    /// Names that were used are not used again.
    fn handle_begun(&mut self, instance: &InstanceId) {
        if let Some((app, number)) = split(instance) {
            let highest = self.highest.entry(app).or_default();
            *highest = (*highest).max(number);
        }
    }

    /// An id that no instance has or had since the controller started.
    fn unused_id(&mut self, app: &AppName, taken: &Names) -> InstanceId {
        let number = |id: &InstanceId| split(id).filter(|(name, _)| name == app).map(|(_, number)| number);
        let highest = taken.iter().filter_map(number).max().unwrap_or(0).max(self.highest.get(app).copied().unwrap_or(0)) + 1;
        self.highest.insert(app.clone(), highest);
        weal_model::naming::instance_id(app, highest)
    }
}

/// `APP-NUMBER` in its parts.
fn split(instance: &InstanceId) -> Option<(AppName, u64)> {
    weal_model::naming::parts(instance)
}

impl<E: Engine> Loop<E> {
    /// Plans and begins what the plan says. Does nothing while the agent is away: what it would say may differ.
    pub(super) async fn placement_cycle(&mut self) {
        self.plan_due = None;
        self.last_plan = Some(Instant::now());
        if self.snapshot.is_none() {
            // The first config comes before the first flow cycle: what runs must not wait for its timer.
            self.flow_cycle(false).await;
        }
        if !self.observe_agent().await {
            return;
        }
        let (Some(desired), Some(agent), Some(snapshot)) = (self.desired.clone(), self.agent.clone(), self.snapshot.take())
        else {
            return;
        };
        let closed = self.operations.closed();
        let known = Known { closed: &closed, seats: &self.seats };
        let snapshot = self.observer.refresh(&snapshot, &agent, &known);
        self.snapshot = Some(snapshot.clone());

        let mut taken: Names = agent.instances.iter().map(|instance| instance.spec.id.clone()).collect();
        taken.extend(self.operations.iter().map(|(id, _)| id.clone()));
        let (starts, operations) = (&mut self.starts, &self.operations);
        let rolled = self.roll.step(
            &desired.spec,
            &agent.instances,
            embedded::fingerprint,
            |id| operations.contains(id),
            |app| {
                let id = starts.unused_id(app, &taken);
                taken.insert(id.clone());
                id
            },
        );
        let mut policy = policy(&desired.spec, &agent.instances);
        self.sleep.relax(&mut policy);
        let policy = Arc::new(policy);
        let visible = visible(&snapshot, &policy);
        let begun = Instant::now();
        let placing = Placing {
            pool: &policy,
            next_instance: &self.starts.next(&taken),
            held: &rolled.rolling,
            rungs: super::sleep::rungs(&agent),
            refused: self.sleep.refused(),
            ahead: &self.sleep.ahead,
            resting: &self.sleep.resting,
        };
        let planned = self.decider.place(&visible, &placing);
        let planned_in_ms = begun.elapsed().as_secs_f64() * 1e3;
        let mut actions = rolled.actions;
        match planned {
            Ok((plan, report)) => {
                self.plan_summary = Some(PlanSummary {
                    generation: plan.generation,
                    time: clock::now(),
                    planned_in_ms,
                    actions: plan.actions.len() as u32,
                    lowest_utility: report.lowest_utility,
                    upper_bound: report.upper_bound,
                });
                let reason = |action: &Action| {
                    let reason = report.reasons.iter().find(|reason| reason.action == *action);
                    reason.map(|reason| reason.text.clone()).unwrap_or_default()
                };
                actions.extend(plan.actions.iter().map(|action| (action.clone(), reason(action))));
                self.loads.handle_plan(&plan.loads, &desired.spec);
                if !plan.actions.is_empty() {
                    self.board.store.save_value("plan", &plan);
                    self.board.store.save_value("report", &report);
                }
                self.sleep.ahead = plan.ahead.iter().cloned().collect();
                self.plan = plan;
                self.plan_report = report;
                self.well("plan", "placement plans are sound again");
            }
            Err(findings) => self.trouble("plan", format!("a placement plan was not applied: {findings}")),
        }
        self.begin_all(&desired.spec, actions);
        self.tell_loads(&desired.spec).await;
        self.tell_reserves(&desired.spec).await;
        self.tell_gateway().await;
        self.show(false);
    }

    /// Why `app` is on `node`, or not; `None` before anything was measured, or when there is no such application.
    pub(super) fn why_node(&self, app: &AppName, node: &NodeName) -> Option<WhyNode> {
        let (desired, agent, snapshot) = (self.desired.as_ref()?, self.agent.as_ref()?, self.snapshot.as_ref()?);
        desired.spec.apps.get(app)?;
        let mut policy = policy(&desired.spec, &agent.instances);
        self.sleep.relax(&mut policy);
        let policy = Arc::new(policy);
        let placing = Placing {
            pool: &policy,
            next_instance: &BTreeMap::new(),
            held: &BTreeSet::new(),
            rungs: super::sleep::rungs(agent),
            refused: self.sleep.refused(),
            ahead: &self.sleep.ahead,
            resting: &self.sleep.resting,
        };
        Some(self.decider.why_node(&visible(snapshot, &policy), &placing, app, node))
    }

    /// Begins a plan's actions. Who is to go and stays for now, since something else is being done to it, still has its place: what was to
    /// come in its stead, of its application or on its node, is left to a later plan.
    fn begin_all(&mut self, pool: &Arc<PoolSpec>, actions: Vec<(Action, String)>) {
        let mut kept: Vec<(AppName, NodeName)> = Vec::new();
        for (action, reason) in actions {
            let place = self.place_of(&action);
            let taken = |place: &(AppName, NodeName)| kept.iter().any(|(app, node)| *app == place.0 || *node == place.1);
            match &action {
                Action::Start { .. } | Action::Resume { .. } if place.as_ref().is_some_and(taken) => continue,
                Action::Stop { instance, .. } | Action::Sleep { instance, .. } if self.operations.contains(instance) => {
                    kept.extend(place);
                }
                _ => {}
            }
            self.begin(pool, action, reason);
        }
    }

    /// The application and the node that an action on an instance is about.
    fn place_of(&self, action: &Action) -> Option<(AppName, NodeName)> {
        if let Action::Start { app, node, .. } = action {
            return Some((app.clone(), node.clone()));
        }
        let (instance, agent) = (concerned(action)?, self.agent.as_ref()?);
        let seen = agent.instances.iter().find(|seen| seen.spec.id == *instance)?;
        Some((seen.spec.app.clone(), seen.spec.node.clone()))
    }

    /// Begins one action, or leaves it to a later plan when it cannot be done yet.
    pub(super) fn begin(&mut self, pool: &Arc<PoolSpec>, action: Action, reason: String) {
        let Some(instance) = concerned(&action).cloned() else { return };
        let Some(agent) = &self.agent else { return };
        if let Action::Start { app, node, .. } = &action {
            let Some(spec) = pool.apps.get(app) else { return };
            let room = self.room(pool, node);
            if !self.starts.may_start(app) || unready_need(spec, &agent.instances).is_some() || room < spec.memory {
                return;
            }
        }
        let seen = agent.instances.iter().find(|seen| seen.spec.id == instance);
        let app = match &action {
            Action::Start { app, .. } => app.clone(),
            _ => match seen {
                Some(seen) => seen.spec.app.clone(),
                None => return,
            },
        };
        // Who makes room for a parked one may not be done yet.
        if let (Action::Resume { .. }, Some(seen)) = (&action, seen)
            && !seen.state.holds_memory()
            && self.room(pool, &seen.spec.node) < seen.spec.memory
        {
            return;
        }
        let closes = matches!(action, Action::Stop { .. } | Action::Sleep { .. });
        let is_told = self.sleep.resting.contains_key(&app);
        if closes && !is_told && self.sleep.was_just_woken(&instance, self.timing().0) {
            return;
        }
        let serves = seen.is_some_and(|seen| matches!(seen.state, InstanceState::Ready | InstanceState::Unhealthy));
        // As long as a request may take: whoever is still there afterwards is a stream without end.
        let longest_s = pool.apps.get(&app).map_or(30.0, |app| app.request_timeout_s);
        let has_routes = pool.apps.get(&app).is_none_or(|app| !app.routes.is_empty());
        let drain = (closes && serves && has_routes).then(|| Duration::from_secs_f64(longest_s.clamp(0.0, 600.0)));
        let Some(at_once) = self.operations.begin(&instance, action.clone(), reason.clone(), drain) else { return };
        if matches!(action, Action::Start { .. }) {
            self.starts.handle_begun(&instance);
        }
        self.board.note(plan_note(&action, &reason).app(&app).instance(&instance));
        self.actions_total += 1;
        if at_once {
            self.hand_over(Arc::clone(pool), instance, action);
        }
    }

    /// Memory of `node` that nothing holds, counted as placement counts it: by what each instance may use.
    fn room(&self, pool: &PoolSpec, node: &NodeName) -> Bytes {
        let capacity = pool.nodes.iter().find(|spec| spec.name == *node).map_or(Bytes(0), |spec| spec.memory);
        let instances = self.agent.as_ref().map_or(&[][..], |agent| &agent.instances);
        let here = instances.iter().filter(|seen| seen.spec.node == *node && seen.state.holds_memory());
        let held: Bytes = here.map(|seen| seen.spec.memory).sum();
        let begun = self.operations.iter().filter_map(|(id, operation)| match &operation.action {
            Action::Start { app, node: target, .. } if target == node => Some((id, app)),
            _ => None,
        });
        let coming: Bytes = begun
            .filter(|(id, _)| !instances.iter().any(|seen| seen.spec.id == **id))
            .filter_map(|(_, app)| pool.apps.get(app).map(|app| app.memory))
            .sum();
        capacity - held - coming
    }

    /// Gives an action to the engine, in a task of its own that reports back.
    fn hand_over(&self, pool: Arc<PoolSpec>, instance: InstanceId, action: Action) {
        let (engine, report) = (Arc::clone(&self.engine), self.done.0.clone());
        tokio::spawn(async move {
            let result = engine.apply(&pool, std::slice::from_ref(&action)).await;
            let (took_s, error) = match result {
                Ok(outcomes) => outcomes
                    .into_iter()
                    .next()
                    .map_or((0.0, None), |outcome| (outcome.took_s, outcome.refusal.map(|refusal| refusal.to_string()))),
                Err(error) => (0.0, Some(error.to_string())),
            };
            // The loop ends before its tasks do when weal stops.
            let _ = report.send(Done { instance, action, took_s, error, at: Instant::now() });
        });
    }

    /// Gives the engine what has been drained.
    pub(super) async fn hand_over_drained(&mut self) {
        let Some(desired) = self.desired.clone() else { return };
        for (instance, action) in self.operations.poll_drained(self.counters.as_deref()) {
            self.hand_over(Arc::clone(&desired.spec), instance, action);
        }
    }

    pub(super) async fn handle_done(&mut self, done: Done) {
        let Done { instance, action, took_s, error, at } = done;
        let operation = self.operations.end(&instance);
        if let Action::Start { app, .. } = &action {
            self.starts.handle_outcome(app, error.as_deref());
        }
        let seen = self.agent.as_ref().and_then(|agent| agent.instances.iter().find(|seen| seen.spec.id == instance));
        let app = match &action {
            Action::Start { app, .. } => Some(app.clone()),
            _ => seen.map(|seen| seen.spec.app.clone()),
        };
        let error = self.heed_refusal(&action, app.as_ref(), error, at);
        if let Some(error) = error {
            let what = verb(&action);
            let mut note = Note::warning(EventKind::Plan, format!("could not {what} {instance}: {error}")).instance(&instance);
            if let Some(app) = &app {
                note = note.app(app);
            }
            self.board.note(note);
        } else {
            tracing::debug!(%instance, ?action, took_s, reason = operation.map(|o| o.reason), "done");
        }
        self.observe_agent().await;
        self.tell_gateway().await;
        self.want_plan();
        self.show(false);
    }

    /// Tells the engine the shares that changed, of instances that are there.
    pub(super) async fn tell_loads(&mut self, pool: &PoolSpec) {
        let Some(agent) = self.agent.as_ref().filter(|_| pool.control) else { return };
        let there = |id: &InstanceId| agent.instances.iter().any(|seen| seen.spec.id == *id && seen.pid.is_some());
        let changed = self.loads.poll_changes(there);
        if changed.is_empty() {
            return;
        }
        match self.engine.set_loads(pool, &changed).await {
            Ok(()) => self.loads.handle_told(changed),
            Err(error) => tracing::warn!(%error, "the shares of CPU could not be set"),
        }
    }

    /// Tells the engine what memory is to be free until the next plan, where that is not what it keeps.
    async fn tell_reserves(&self, pool: &PoolSpec) {
        let Some(agent) = self.agent.as_ref().filter(|_| pool.control) else { return };
        let wanted = |node: &NodeCounters| {
            let reserve = self.plan.reserves.iter().find(|reserve| reserve.node == node.name);
            reserve.map_or(Bytes(0), |reserve| reserve.memory)
        };
        if agent.nodes.iter().all(|node| node.memory_reserve == wanted(node)) {
            return;
        }
        if let Err(error) = self.engine.set_reserves(&self.plan.reserves).await {
            tracing::warn!(%error, "what memory is to be free could not be told");
        }
    }

    /// Hands running instances what a new config changes without a restart: their health check, restarts and stop timeout.
    pub(super) async fn update_running(&mut self) {
        let (Some(desired), Some(agent)) = (self.desired.clone(), self.agent.clone()) else { return };
        let outdated = |seen: &&InstanceCounters| {
            desired.spec.apps.get(&seen.spec.app).is_some_and(|app| {
                let same = app.health == seen.spec.health
                    && app.restart == seen.spec.restart
                    && app.stop_timeout_s == seen.spec.stop_timeout_s
                    && app.on_resume == seen.spec.on_resume;
                !same && embedded::fingerprint(app) == seen.spec.revision
            })
        };
        let start = |seen: &InstanceCounters| Action::Start {
            instance: seen.spec.id.clone(),
            app: seen.spec.app.clone(),
            node: seen.spec.node.clone(),
        };
        let actions: Vec<Action> =
            agent.instances.iter().filter(|seen| !self.operations.contains(&seen.spec.id)).filter(outdated).map(start).collect();
        match self.engine.apply(&desired.spec, &actions).await {
            Ok(outcomes) => {
                for outcome in outcomes {
                    if let (Some(instance), Some(error)) = (concerned(&outcome.action), outcome.refusal) {
                        let text = format!("{instance} could not be told of the new config: {error}");
                        self.board.note(Note::warning(EventKind::Config, text).instance(instance));
                    }
                }
            }
            Err(error) => tracing::warn!(%error, "running instances could not be told of the new config"),
        }
    }
}

/// What placement may do now: the config, but for instances that ended for good. One that is not to be started again keeps
/// its place, or it would be started again under another name.
fn policy(pool: &PoolSpec, instances: &[InstanceCounters]) -> PoolSpec {
    let mut policy = pool.clone();
    for app in policy.apps.values_mut() {
        let ended = instances
            .iter()
            .filter(|seen| seen.spec.app == app.name)
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
    visible.nodes.retain(|node| policy.nodes.iter().any(|spec| spec.name == node.name));
    visible.instances.retain(|instance| {
        policy.apps.contains_key(&instance.app)
            && policy.nodes.iter().any(|spec| spec.name == instance.node)
            && !matches!(instance.state, InstanceState::Failed | InstanceState::Stopped)
    });
    visible
}

fn verb(action: &Action) -> &'static str {
    match action {
        Action::Start { .. } => "start",
        Action::Stop { .. } => "stop",
        Action::Sleep { rung: Rung::Suspended, .. } => "suspend",
        Action::Sleep { rung: Rung::Warm, .. } => "keep warm",
        Action::Sleep { rung: Rung::Parked, .. } => "park",
        Action::Resume { .. } => "resume",
        _ => "run the job of",
    }
}

fn plan_note(action: &Action, reason: &str) -> Note {
    let colon = if reason.is_empty() { "" } else { ": " };
    match action {
        Action::Start { instance, node, .. } => {
            Note::info(EventKind::Plan, format!("start {instance} on {node}{colon}{reason}")).node(node)
        }
        _ => {
            let instance = concerned(action).map(ToString::to_string).unwrap_or_default();
            Note::info(EventKind::Plan, format!("{} {instance}{colon}{reason}", verb(action)))
        }
    }
}
