//! The placement cycle: a plan from the freshest observation, judged, and turned into operations.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weal_model::{
    Action, AppName, AppSpec, Bytes, EventKind, InstanceState, Plan, PlanSummary, PoolSpec, Report, RolloutStatus, Rung,
    Snapshot, Time,
};
use weal_protocol::Refusal;
use weal_protocol::engine::{ActionOutcome, InstanceSeen, NodeSeen, Observation};

use super::effect::{Config, Effect, Ids, Kept, Note, PlanRequest, Planned};
use super::observe::Known;
use super::plans::{Basis, Decided, Pending, changes_jobs};
use super::rollout::{RolloutStep, View};
use super::state::{State, node_of};

impl State {
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
        let known = Known { closed: &closed, seats: &self.seating.plan, jobs: self.queue.planned() };
        let snapshot = self.measured.observer.refresh(&snapshot, &seen, &known);
        self.measured.snapshot = Some(snapshot.clone());

        self.placing.starts.handle_seen(&seen.instances, &self.engine.look);
        let mut taken = ids(&seen);
        taken.extend(self.operations.iter().filter_map(|(target, _)| target.instance().cloned()));
        let step = self.rollout_step(&config, &pool, &mut taken);
        let next_instance = self.placing.starts.next_numbers(&taken);
        let held = step.replacing.into_iter().chain(self.placing.starts.unseen()).collect();
        let mut request = self.plan_request(now, &pool, &snapshot, next_instance, held);
        let basis = pool.apps.is_empty().then(|| Basis::of(&request.snapshot, config.generation));
        let stands = basis.as_ref().is_some_and(|basis| self.placing.jobs_stand(now, basis));
        request.policy.jobs_stand = stands;
        self.placing.pending = Some(Pending {
            config: config.generation,
            snapshot: request.snapshot.clone(),
            jobs_stand: stands,
            basis,
            ahead: self.sleep.ahead.clone(),
            rollout: step.actions,
        });
        self.push(Effect::Plan(Box::new(request)));
    }

    /// The next steps of all replacements. New ids are added to those that are `taken`.
    fn rollout_step(&mut self, config: &Config, pool: &PoolSpec, taken: &mut Ids) -> RolloutStep {
        let mut rollout = std::mem::take(&mut self.placing.rollout);
        let mut starts = std::mem::take(&mut self.placing.starts);
        let failures = starts.failures().clone();
        let unseen = starts.unseen();
        let step = self.replacement(config, pool, &failures, &unseen, |view| {
            rollout.step(view, |app| {
                let id = starts.unused_id(app, taken);
                taken.insert(id.clone());
                id
            })
        });
        (self.placing.rollout, self.placing.starts) = (rollout, starts);
        step
    }

    /// How far each replacement is.
    pub(super) fn rollouts(&self) -> BTreeMap<AppName, RolloutStatus> {
        let (Some(config), Some(pool)) = (&self.config, self.pool()) else { return BTreeMap::new() };
        let of = |view: &View<'_>, app: &AppSpec| Some((app.name.clone(), self.placing.rollout.status(view, app)?));
        let starts = &self.placing.starts;
        self.replacement(config, &pool, starts.failures(), &starts.unseen(), |view| {
            pool.apps.values().filter_map(|app| of(view, app)).collect()
        })
    }

    /// Shows `look` what replacements look at.
    fn replacement<T>(
        &self,
        config: &Config,
        pool: &PoolSpec,
        failures: &BTreeMap<AppName, String>,
        unseen: &BTreeSet<AppName>,
        look: impl FnOnce(&View<'_>) -> T,
    ) -> T {
        look(&View {
            pool,
            instances: self.engine.instances(),
            revisions: &config.revisions,
            busy: &|id| self.operations.contains_instance(id),
            free: &|node| self.room(pool, node),
            failures,
            unseen,
        })
    }

    /// Everything that a plan for `pool` is made from now.
    pub(super) fn plan_request(
        &self,
        now: Time,
        pool: &PoolSpec,
        snapshot: &Snapshot,
        next_instance: BTreeMap<AppName, u64>,
        held: BTreeSet<AppName>,
    ) -> PlanRequest {
        let mut pool = without_ended(pool, self.engine.instances());
        self.sleep.relax(&mut pool);
        self.withhold(now, &mut pool);
        // What these lack is started by their replacement, or is being started already: a plan must not start it too.
        pool.apps.values_mut().filter(|app| held.contains(&app.name)).for_each(|app| app.instances.min = 0);
        let mut request = self.learned.plan_request(visible(snapshot, &pool), pool);
        let policy = &mut request.policy;
        policy.runs = self.queue.runs().clone();
        policy.saving = self.queue.saving();
        if let Some(can) = self.engine.capabilities() {
            policy.job_costs = policy.job_costs.where_possible(can.rungs.contains(&Rung::Parked), can.moves_jobs);
        }
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
                if !pending.jobs_stand {
                    self.keep_decided(now, pending.basis, &plan, &report);
                }
                self.take_plan(now, &pool, plan, report, planned.took_ms);
            }
            Err(why) => self.raise_problem("plan", format!("weal did not apply a placement plan: {why}")),
        }
        self.begin_all(now, actions);
        self.push_cpu_shares();
        self.push_reserves(&pool);
        self.push_gateway_config();
        self.show(false);
    }

    /// What a plan decided about jobs stands until something happens, if it is done with that. There is no `basis` beside applications: their loads change.
    fn keep_decided(&mut self, now: Time, basis: Option<Basis>, plan: &Plan, report: &Report) {
        let until = self.timers.schedule_look_again(now, report.look_again_s);
        let decided = basis.map(|basis| Decided { basis, until });
        self.placing.decided = decided.filter(|_| !changes_jobs(plan));
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
        self.seating.shares.handle_plan(&plan.shares, pool);
        if !plan.actions.is_empty() {
            self.push(Effect::Keep(Kept::Plan(Box::new((plan.clone(), report.clone())))));
        }
        self.sleep.ahead = plan.ahead.iter().cloned().collect();
        (self.placing.plan, self.placing.report) = (plan, report);
        self.clear_problem("plan", "weal applies placement plans again");
    }

    /// An action is done, or could not be.
    pub(super) fn handle_acted(&mut self, now: Time, outcome: ActionOutcome) {
        let ActionOutcome { action, took_s, refusal } = outcome;
        let target = action.target();
        if !matches!(action, Action::SetJobCpu { .. }) {
            self.operations.end(&target);
        }
        if let Action::Start { app, .. } = &action {
            self.placing.starts.handle_outcome(now, app, refusal.as_ref());
        }
        if let (Action::Start { instance, .. }, ticket) = (&action, self.engine.look.want()) {
            self.placing.starts.handle_over(instance, ticket);
        }
        self.handle_job_acted(now, &action, took_s, refusal.as_ref());
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
    pub(super) fn push_reserves(&mut self, pool: &PoolSpec) {
        let wanted = |node: &NodeSeen| {
            let reserve = self.placing.plan.reserves.iter().find(|reserve| reserve.node == node.name);
            reserve.map_or(Bytes(0), |reserve| reserve.memory)
        };
        let can = self.engine.capabilities().is_some_and(|can| can.reserves);
        let is_kept = self.engine.nodes().iter().all(|node| node.memory_reserve == wanted(node));
        if self.engine.setting_reserves {
            return;
        }
        if !pool.control || !can || is_kept {
            // It may keep them although it did not answer.
            return self.clear_problem("reserves", "no memory waits to be kept free any more");
        }
        self.engine.setting_reserves = true;
        self.push(Effect::SetReserves(self.placing.plan.reserves.clone()));
    }

    pub(super) fn handle_reserves_set(&mut self, result: Result<(), Refusal>) {
        self.engine.setting_reserves = false;
        match result {
            Ok(()) => self.clear_problem("reserves", &format!("{} keeps memory free again", self.engine.peer)),
            Err(error) => self.raise_problem("reserves", format!("{} could not keep memory free: {error}", self.engine.peer)),
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

    pub(super) fn handle_updated(&mut self, result: Result<Vec<ActionOutcome>, Refusal>) {
        let outcomes = match result {
            Ok(outcomes) => outcomes,
            Err(error) => {
                let text = format!("running instances did not get the new config: {error}");
                return self.note(Note::warning(EventKind::Config, text));
            }
        };
        for ActionOutcome { action, refusal, .. } in outcomes {
            if let Some(refusal) = refusal {
                let target = action.target();
                let text = format!("{target} did not get the new config: {refusal}");
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

/// Ids of instances that `seen` has.
fn ids(seen: &Observation) -> Ids {
    seen.instances.iter().map(|instance| instance.id.clone()).collect()
}
