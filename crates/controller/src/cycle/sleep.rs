//! Sleep: who was told to, who was asked for meanwhile, and what a machine cannot do.
//!
//! That an instance goes to sleep is the plan's word, and that it wakes is the gateway's and the agent's: a request does not wait
//! for a controller. What is here brings the two together. A request that comes while an instance drains calls the sleep off;
//! one that gets into a frozen instance all the same has it resumed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;
use weal_control::flow::crowd;
use weal_engine::Engine;
use weal_model::{Action, AppName, EventKind, InstanceId, InstanceObservation, InstanceState, PoolSpec, Rung, Time};
use weal_protocol::gateway::Standby;
use weal_protocol::node::{AgentObservation, InstanceCounters, InstanceEvent, asked_ago, is_wanted};

use super::Loop;
use super::observe::{self, Known};
use crate::board::Note;
use weal_protocol::controller::{ApiError, SleepTaken, WakeTaken};

/// After an agent could not put an application on a rung, it is not asked to for so long: what is missing (a working set, swap) may
/// come.
const REFUSED_FOR: Duration = Duration::from_secs(60);

/// Under which key the store has who was told to sleep.
pub(crate) const RESTING: &str = "resting";

/// What the loop remembers about sleep.
#[derive(Debug, Default)]
pub(super) struct Sleep {
    /// Told to sleep by a person, and how deep at most, until somebody asks for them.
    pub resting: BTreeMap<AppName, Option<Rung>>,
    /// How that was, if this controller was told.
    told: BTreeMap<AppName, Told>,
    /// Started to stand by: [`weal_model::Plan::ahead`] of the last plan.
    pub ahead: BTreeSet<InstanceId>,
    refused: BTreeMap<(AppName, Rung), Instant>,
    /// Woken by the gateway because of a crowd, and when.
    woken: BTreeMap<InstanceId, Instant>,
    /// [`Self::resting`] as it is stored.
    kept: BTreeMap<AppName, Option<Rung>>,
}

/// An application was told to sleep.
#[derive(Debug)]
struct Told {
    when: Instant,
    /// The same by the clock that events have.
    time: Time,
    /// Instances that have been awake ever since: that they got ready was before.
    awake: BTreeSet<InstanceId>,
}

impl Sleep {
    /// Goes on with who was told to sleep while an earlier controller ran.
    pub fn with_resting(resting: BTreeMap<AppName, Option<Rung>>) -> Self {
        Self { kept: resting.clone(), resting, ..Self::default() }
    }

    /// Rungs that are not to be tried now.
    pub fn refused(&self) -> BTreeSet<(AppName, Rung)> {
        let now = Instant::now();
        self.refused.iter().filter(|(_, until)| **until > now).map(|(refused, _)| refused.clone()).collect()
    }

    pub fn refuse(&mut self, app: &AppName, rung: Rung) {
        self.refused.insert((app.clone(), rung), Instant::now() + REFUSED_FOR);
    }

    /// Whoever was told to sleep and is ready again was asked for, but for those that get ready to stand by.
    pub fn handle_events<'a>(&mut self, events: impl Iterator<Item = &'a InstanceEvent>) {
        for event in events {
            let told = self.told.get_mut(&event.app);
            if told.as_ref().is_some_and(|told| event.time <= told.time) {
                continue;
            }
            if event.state != InstanceState::Ready {
                told.map(|told| told.awake.remove(&event.instance));
            } else if !told.is_some_and(|told| told.awake.contains(&event.instance)) && !self.ahead.contains(&event.instance) {
                self.resting.remove(&event.app);
            }
        }
    }

    /// Whether the gateway had it woken so short a time ago that no cycle has measured the crowd yet.
    pub fn was_just_woken(&self, instance: &InstanceId, flow_cycle: Duration) -> bool {
        self.woken.get(instance).is_some_and(|when| when.elapsed() < flow_cycle * crowd::CYCLES_AWAKE)
    }

    /// What placement may do with those who were told to sleep: all of it.
    pub fn relax(&self, pool: &mut PoolSpec) {
        for app in self.resting.keys() {
            if let Some(spec) = pool.apps.get_mut(app) {
                (spec.instances.min, spec.manual, spec.pinned) = (0, false, false);
            }
        }
    }
}

/// The rungs that instances can sleep on here.
pub(super) fn rungs(agent: &AgentObservation) -> Vec<Rung> {
    let no_swap = agent.limits.iter().any(|limit| limit.contains("but not parked"));
    if no_swap { vec![Rung::Suspended] } else { Rung::ALL.to_vec() }
}

impl<E: Engine> Loop<E> {
    /// Puts an application to sleep until somebody asks for it.
    pub(super) async fn take_sleep(&mut self, app: &AppName, rung: Option<Rung>) -> Result<SleepTaken, ApiError> {
        let refuse = |error: String| Err(ApiError { error });
        self.observe_agent().await;
        let (Some(desired), Some(agent)) = (&self.desired, &self.agent) else {
            return refuse("nothing is known of this machine yet".to_owned());
        };
        let pool = &desired.spec;
        if !pool.control || !pool.placement.knows_goals() || !pool.enactment.sleeps() {
            let enactment = pool.enactment.as_str();
            return refuse(format!("nothing sleeps in this pool (enactment = \"{enactment}\", control, placement)"));
        }
        if let Some(rung) = rung.filter(|rung| !rungs(agent).contains(rung)) {
            return refuse(format!("no instance can be {} here: see weal doctor", rung.as_str()));
        }
        let awake = |app: &AppName| agent.instances.iter().any(|seen| seen.spec.app == *app && seen.state.is_active());
        if let Some(other) = pool.apps.values().find(|other| other.needs.contains(app) && awake(&other.name)) {
            return refuse(format!("`{}` is awake and needs it", other.name));
        }
        let mine = || agent.instances.iter().filter(|seen| seen.spec.app == *app);
        let instances: Vec<InstanceId> = mine().map(|seen| seen.spec.id.clone()).collect();
        if instances.is_empty() {
            return refuse(format!("`{app}` has no instance that could sleep"));
        }
        let awake = mine().filter(|seen| seen.state.is_active()).map(|seen| seen.spec.id.clone()).collect();
        self.sleep.resting.insert(app.clone(), rung);
        self.sleep.told.insert(app.clone(), Told { when: Instant::now(), time: crate::clock::now(), awake });
        self.keep_resting();
        let how = rung.map_or_else(String::new, |rung| format!(", {}", rung.as_str()));
        self.board.note(Note::info(EventKind::Plan, format!("{app} was told to sleep{how}")).app(app));
        self.placement_cycle().await;
        Ok(SleepTaken { app: app.clone(), instances })
    }

    /// Who was told to sleep is not woken because a controller ends.
    pub(super) fn keep_resting(&mut self) {
        if self.sleep.kept != self.sleep.resting {
            self.board.store.save_value(RESTING, &self.sleep.resting);
            self.sleep.kept.clone_from(&self.sleep.resting);
        }
    }

    /// Whom a gateway may have woken when a crowd comes.
    pub(super) fn standbys(&self) -> BTreeMap<AppName, Standby> {
        let (Some(desired), Some(agent), Some(snapshot)) = (&self.desired, &self.agent, &self.snapshot) else {
            return BTreeMap::new();
        };
        if !agent.instances.iter().any(|seen| seen.state.is_asleep()) {
            return BTreeMap::new();
        }
        let known = Known { closed: &self.operations.closed(), seats: &self.seats };
        let present = observe::present(snapshot, agent, &known);
        let is_free =
            |seen: &InstanceObservation| !self.operations.contains(&seen.id) && !self.sleep.resting.contains_key(&seen.app);
        crowd::standbys(&present, &desired.spec, is_free)
    }

    /// Takes note of those who got ready without a plan's word: a crowd waited at the gateway.
    pub(super) fn heed_crowds(&mut self, ready: &[&InstanceEvent]) {
        for event in ready.iter().filter(|event| self.gateway.may_have_woken(&event.instance)) {
            self.sleep.woken.retain(|_, when| when.elapsed() < REFUSED_FOR);
            self.sleep.woken.insert(event.instance.clone(), Instant::now());
            let others = |seen: &InstanceCounters| seen.spec.app == event.app && seen.spec.id != event.instance;
            let awake = |seen: &InstanceCounters| others(seen) && seen.state.is_active();
            let is_crowd = self.agent.as_ref().is_some_and(|agent| agent.instances.iter().any(awake));
            let who = if is_crowd { "a crowd waits" } else { "somebody asks" };
            let text = format!("{} was woken by the gateway: {who} for {}", event.instance, event.app);
            self.board.note(Note::info(EventKind::Plan, text).app(&event.app).instance(&event.instance));
        }
    }

    /// Wakes the cheapest sleeping instance of an application.
    pub(super) async fn take_wake(&mut self, app: &AppName) -> Result<WakeTaken, ApiError> {
        self.sleep.resting.remove(app);
        self.keep_resting();
        self.decider.handle_wanted(app);
        let (Some(desired), true) = (self.desired.clone(), self.observe_agent().await) else {
            return Err(ApiError { error: "the node agent does not answer".to_owned() });
        };
        self.call_off(app, &format!("`{app}` is to be awake"));
        let instances = self.agent.as_ref().map_or(&[][..], |agent| &agent.instances);
        let mine = || instances.iter().filter(|seen| seen.spec.app == *app);
        let wake_s = |seen: &InstanceCounters, rung| seen.costs.of(rung).wake_s.unwrap_or(f64::MAX);
        let cheapest = mine().filter_map(|seen| Some((seen.state.rung()?, seen)));
        let cheapest = cheapest.min_by(|a, b| a.0.cmp(&b.0).then(wake_s(a.1, a.0).total_cmp(&wake_s(b.1, b.0))));
        let awake = mine().find(|seen| seen.state.is_active()).map(|seen| seen.spec.id.clone());
        let taken = match (awake, cheapest) {
            (Some(instance), _) => WakeTaken { app: app.clone(), instance: Some(instance), from: None },
            (None, Some((rung, seen))) => {
                let instance = seen.spec.id.clone();
                self.begin(
                    &desired.spec,
                    Action::Resume { instance: instance.clone(), app: app.clone() },
                    "somebody said so".to_owned(),
                );
                WakeTaken { app: app.clone(), instance: Some(instance), from: Some(rung) }
            }
            (None, None) => WakeTaken { app: app.clone(), instance: None, from: None },
        };
        self.tell_gateway().await;
        self.want_plan();
        Ok(taken)
    }

    /// What remains of an error after sleep has learnt from it: that somebody wants an instance is none. Who was told to sleep after it was
    /// asked for is told again by the plan that follows, until the agent has seen that nobody else asks.
    pub(super) fn heed_refusal(
        &mut self,
        action: &Action,
        app: Option<&AppName>,
        error: Option<String>,
        at: Instant,
    ) -> Option<String> {
        let (Action::Sleep { instance, rung, .. }, Some(app), Some(error)) = (action, app, &error) else { return error };
        if !is_wanted(error) {
            self.sleep.refuse(app, *rung);
            return Some(error.clone());
        }
        let told = self.sleep.told.get(app).filter(|_| self.sleep.resting.contains_key(app));
        if told.zip(asked_ago(error)).is_some_and(|(told, ago)| at.saturating_duration_since(told.when) < ago) {
            return None;
        }
        self.sleep.resting.remove(app);
        self.decider.handle_wanted(app);
        self.board.note(Note::info(EventKind::Plan, format!("{instance} stays awake: {error}")).app(app).instance(instance));
        None
    }

    /// An application has been idle for as long as its config says, and more of it runs than must.
    pub(super) fn somebody_may_sleep(&self) -> bool {
        let (Some(desired), Some(snapshot)) = (&self.desired, &self.snapshot) else { return false };
        let idle_s = self.decider.idle_s(snapshot, &desired.spec);
        let ready = |app: &AppName| {
            let mine = snapshot.instances.iter().filter(|seen| seen.app == *app && seen.state == InstanceState::Ready);
            mine.filter(|seen| !self.operations.contains(&seen.id)).count() as u32
        };
        desired.spec.apps.values().any(|app| {
            let idle = app.sleep_after_s.is_some_and(|after| idle_s.get(&app.name).is_some_and(|idle_s| *idle_s >= after));
            idle && ready(&app.name) > app.instances.min
        })
    }

    /// Lets the instances of an application that drain for their sleep go on.
    fn call_off(&mut self, app: &AppName, why: &str) {
        let of_app = |id: &InstanceId| weal_model::naming::parts(id).is_some_and(|(name, _)| name == *app);
        for instance in self.operations.call_off(|id| of_app(id)) {
            self.board.note(Note::info(EventKind::Plan, format!("{instance} stays awake: {why}")).app(app).instance(&instance));
        }
    }

    /// An instance that drains for its sleep and was asked for stays awake; one that sleeps with requests in it is resumed.
    pub(super) fn heed_requests(&mut self) {
        let (Some(desired), Some(agent)) = (self.desired.clone(), self.agent.clone()) else { return };
        let app_of = |instance: &InstanceId| {
            agent.instances.iter().find(|seen| seen.spec.id == *instance).map(|seen| seen.spec.app.clone())
        };
        let counters = self.counters.clone();
        let wanted = counters.as_ref().map_or_else(Vec::new, |counters| self.operations.poll_wanted(counters));
        for instance in wanted {
            let app = app_of(&instance);
            let mut note = Note::info(EventKind::Plan, format!("{instance} stays awake: it was asked for")).instance(&instance);
            if let Some(app) = &app {
                self.sleep.resting.remove(app);
                self.decider.handle_wanted(app);
                note = note.app(app);
            }
            self.board.note(note);
        }
        for instance in self.operations.poll_unheard(counters.as_deref()) {
            let text = format!("{instance} stays awake: the gateway has not said that nothing is at it");
            let mut note = Note::info(EventKind::Plan, text).instance(&instance);
            if let Some(app) = &app_of(&instance) {
                note = note.app(app);
            }
            self.board.note(note);
        }
        let Some(counters) = counters else { return };
        let holds = |id: &InstanceId| counters.instances.iter().any(|seen| seen.instance == *id && seen.in_flight > 0);
        for seen in agent.instances.iter().filter(|seen| seen.state.is_asleep() && holds(&seen.spec.id)) {
            let action = Action::Resume { instance: seen.spec.id.clone(), app: seen.spec.app.clone() };
            self.begin(&desired.spec, action, "requests are at it".to_owned());
        }
    }
}
