//! Sleep: who was told to, who was asked for meanwhile, and what a machine cannot do.
//!
//! The plan decides when an instance sleeps. The gateway and the node agent wake it, so that requests never wait for the controller. What
//! is here brings the two together: a request that comes while an instance drains calls its sleep off, and an instance that was frozen
//! with a request in it is resumed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use weal_model::{Action, AppName, EventKind, InstanceId, InstanceObservation, InstanceState, PoolSpec, Rung, Target, Time};
use weal_protocol::Refusal;
use weal_protocol::controller::{SleepTaken, WakeTaken};
use weal_protocol::engine::InstanceSeen;
use weal_protocol::gateway::Standby;
use weal_protocol::node::InstanceEvent;

use super::observe::{self, Known};
use super::{Cycle, Effect, Kept, Note};
use crate::flow::crowd;

/// After an application could not be put on a rung, that is not tried for so long: what is missing (a working set, swap) may come.
const REFUSED_FOR: Duration = Duration::from_secs(60);

/// What the loop remembers about sleep.
#[derive(Debug, Default)]
pub(super) struct Sleep {
    /// Told to sleep by a person, and how deep at most, until somebody asks for them.
    pub resting: BTreeMap<AppName, Option<Rung>>,
    /// How that was, if this loop was told.
    told: BTreeMap<AppName, Told>,
    /// Started to stand by: [`weal_model::Plan::ahead`] of the last plan.
    pub ahead: BTreeSet<InstanceId>,
    refused: BTreeMap<(AppName, Rung), Time>,
    /// Woken by the gateway because of a crowd, and when.
    woken: BTreeMap<InstanceId, Time>,
    /// [`Self::resting`] as it is stored.
    kept: BTreeMap<AppName, Option<Rung>>,
}

/// An application was told to sleep.
#[derive(Debug)]
struct Told {
    when: Time,
    /// The same by the engine's clock, as far as it is known.
    time: Time,
    /// What was observed of its instances then: state, and since when by the engine's clock. An instance that has left that state is not in it.
    seen: BTreeMap<InstanceId, (InstanceState, Time)>,
    /// Instances that have been awake ever since: that they got ready was before.
    awake: BTreeSet<InstanceId>,
}

impl Told {
    /// Whether an event was before the order: events may come later than an observation that shows what they say.
    fn is_old(&mut self, event: &InstanceEvent) -> bool {
        let Some((state, since)) = self.seen.get(&event.instance) else { return event.time <= self.time };
        let is_old = event.time < *since || event.state == *state;
        if !is_old {
            self.seen.remove(&event.instance);
            // What comes now is later, whatever the clocks say.
            self.time = self.time.min(event.time - Duration::from_nanos(1));
        }
        is_old
    }
}

impl Sleep {
    /// Goes on with who was told to sleep while an earlier controller ran.
    pub fn with_resting(resting: BTreeMap<AppName, Option<Rung>>) -> Self {
        Self { kept: resting.clone(), resting, ..Self::default() }
    }

    /// Rungs that are not to be tried now.
    pub fn refused(&self, now: Time) -> BTreeSet<(AppName, Rung)> {
        self.refused.iter().filter(|(_, until)| **until > now).map(|(refused, _)| refused.clone()).collect()
    }

    fn refuse(&mut self, now: Time, app: &AppName, rung: Rung) {
        self.refused.insert((app.clone(), rung), now + REFUSED_FOR);
    }

    /// An application that was told to sleep and is ready again was asked for, unless its instance gets ready to stand by.
    pub fn handle_events<'a>(&mut self, events: impl Iterator<Item = &'a InstanceEvent>) {
        for event in events {
            let mut told = self.told.get_mut(&event.app);
            if told.as_mut().is_some_and(|told| told.is_old(event)) {
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
    pub fn was_just_woken(&self, now: Time, instance: &InstanceId, flow_cycle: Duration) -> bool {
        self.woken.get(instance).is_some_and(|when| now.since(*when) < flow_cycle * crowd::CYCLES_AWAKE)
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

impl Cycle {
    pub(super) fn take_sleep(&mut self, now: Time, app: &AppName, rung: Option<Rung>) -> Result<SleepTaken, Refusal> {
        let (Some(pool), Some(seen)) = (self.pool(), self.engine.seen.clone()) else {
            return Err(Refusal::NotObserved);
        };
        if let Some(why) = self.no_such(app).or_else(|| self.engine.away(now)) {
            return Err(why);
        }
        if !pool.control || !pool.placement.knows_goals() || !pool.enactment.sleeps() {
            return Err(Refusal::NothingSleeps { enactment: pool.enactment.as_str().to_owned() });
        }
        if let Some(rung) = rung.filter(|rung| !seen.capabilities.rungs.contains(rung)) {
            return Err(Refusal::NoRung { rung, missing: "see weal doctor".to_owned() });
        }
        let mine = || seen.instances.iter().filter(|seen| seen.app == *app);
        let is_awake = |app: &AppName| seen.instances.iter().any(|seen| seen.app == *app && seen.state.is_active());
        if let Some(other) = pool.apps.values().find(|other| other.needs.contains(app) && is_awake(&other.name)) {
            return Err(Refusal::StillNeeded { by: other.name.clone() });
        }
        let instances: Vec<InstanceId> = mine().map(|seen| seen.id.clone()).collect();
        if instances.is_empty() {
            return Err(Refusal::NoInstances { app: app.clone() });
        }
        let awake = mine().filter(|seen| seen.state.is_active()).map(|seen| seen.id.clone()).collect();
        let seen = mine().map(|seen| (seen.id.clone(), (seen.state, seen.since))).collect();
        let told = Told { when: now, time: self.engine.its_time(now), seen, awake };
        self.sleep.resting.insert(app.clone(), rung);
        self.sleep.told.insert(app.clone(), told);
        self.keep_resting();
        let how = rung.map_or_else(String::new, |rung| format!(", {}", rung.as_str()));
        self.note(Note::info(EventKind::Plan, format!("{app} was told to sleep{how}")).app(app));
        self.timers.schedule_plan_at_once(now);
        Ok(SleepTaken { app: app.clone(), instances })
    }

    pub(super) fn take_wake(&mut self, now: Time, app: &AppName) -> Result<WakeTaken, Refusal> {
        if let Some(why) = self.no_such(app) {
            return Err(why);
        }
        self.sleep.resting.remove(app);
        self.keep_resting();
        let its_time = self.engine.its_time(now);
        self.learned.handle_wanted(its_time, app);
        if let Some(why) = self.engine.away(now) {
            return Err(why);
        }
        self.call_off(app, &format!("`{app}` is to be awake"));
        let mine = || self.engine.instances().iter().filter(|seen| seen.app == *app);
        let wake_s = |seen: &InstanceSeen, rung| seen.costs.of(rung).wake_s.unwrap_or(f64::MAX);
        let cheapest = mine().filter_map(|seen| Some((seen.state.rung()?, seen)));
        let cheapest = cheapest.min_by(|a, b| a.0.cmp(&b.0).then(wake_s(a.1, a.0).total_cmp(&wake_s(b.1, b.0))));
        let awake = mine().find(|seen| seen.state.is_active()).map(|seen| seen.id.clone());
        let taken = match (awake, cheapest) {
            (Some(instance), _) => WakeTaken { app: app.clone(), instance: Some(instance), from: None },
            (None, Some((rung, seen))) => {
                let instance = seen.id.clone();
                self.begin(now, Action::Resume { instance: instance.clone(), app: app.clone() }, "somebody said so");
                WakeTaken { app: app.clone(), instance: Some(instance), from: Some(rung) }
            }
            (None, None) => WakeTaken { app: app.clone(), instance: None, from: None },
        };
        self.push_gateway_config();
        self.timers.schedule_plan(now);
        Ok(taken)
    }

    /// Who was told to sleep is not woken because a controller ends.
    pub(super) fn keep_resting(&mut self) {
        if self.sleep.kept != self.sleep.resting {
            self.sleep.kept.clone_from(&self.sleep.resting);
            self.push(Effect::Keep(Kept::Resting(self.sleep.resting.clone())));
        }
    }

    /// Which instances a gateway may have woken when a crowd comes.
    pub(super) fn standbys(&self) -> BTreeMap<AppName, Standby> {
        let (Some(pool), Some(seen), Some(snapshot)) = (self.pool(), &self.engine.seen, &self.measured.snapshot) else {
            return BTreeMap::new();
        };
        if !seen.instances.iter().any(|seen| seen.state.is_asleep()) {
            return BTreeMap::new();
        }
        let known = Known { closed: &self.operations.closed(), seats: &self.seating.plan };
        let present = observe::present(snapshot, seen, &known);
        let is_free = |seen: &InstanceObservation| {
            !self.operations.contains_instance(&seen.id) && !self.sleep.resting.contains_key(&seen.app)
        };
        crowd::standbys(&present, &pool, is_free)
    }

    /// Takes note of those who got ready without a plan's word: a crowd waited at the gateway.
    pub(super) fn on_woken(&mut self, now: Time, ready: &[InstanceEvent]) {
        for event in ready.iter().filter(|event| self.gateway.may_have_woken(&event.instance)).cloned().collect::<Vec<_>>() {
            self.sleep.woken.retain(|_, when| now.since(*when) < REFUSED_FOR);
            self.sleep.woken.insert(event.instance.clone(), now);
            let is_other = |seen: &InstanceSeen| seen.app == event.app && seen.id != event.instance;
            let is_crowd = self.engine.instances().iter().any(|seen| is_other(seen) && seen.state.is_active());
            let who = if is_crowd { "a crowd waits" } else { "somebody asks" };
            let text = format!("{} was woken by the gateway: {who} for {}", event.instance, event.app);
            self.note(Note::info(EventKind::Plan, text).app(&event.app).instance(&event.instance));
        }
    }

    /// What remains of a refusal after sleep has learnt from it: that somebody wants an instance is no error. An application that was told
    /// to sleep after it was asked for is told again by the plan that follows, until the node agent has seen that nobody else asks.
    pub(super) fn on_refusal(&mut self, now: Time, action: &Action, refusal: Option<Refusal>) -> Option<Refusal> {
        let (Action::Sleep { instance, app, rung }, Some(refusal)) = (action, &refusal) else { return refusal };
        if !refusal.is_wanted() {
            self.sleep.refuse(now, app, *rung);
            return Some(refusal.clone());
        }
        let told = self.sleep.told.get(app).filter(|_| self.sleep.resting.contains_key(app));
        if let (Some(told), Refusal::AskedFor { ago_s }) = (told, refusal)
            && now.since(told.when).as_secs_f64() < *ago_s
        {
            return None;
        }
        self.sleep.resting.remove(app);
        let its_time = self.engine.its_time(now);
        self.learned.handle_wanted(its_time, app);
        self.note(Note::info(EventKind::Plan, format!("{instance} stays awake: {refusal}")).app(app).instance(instance));
        None
    }

    /// An application has been idle for as long as its config says, and more of it runs than must.
    pub(super) fn somebody_may_sleep(&self) -> bool {
        let (Some(config), Some(snapshot)) = (&self.config, &self.measured.snapshot) else { return false };
        let idle_s = self.learned.idle_s(snapshot, &config.pool);
        let ready = |app: &AppName| {
            let mine = snapshot.instances.iter().filter(|seen| seen.app == *app && seen.state == InstanceState::Ready);
            mine.filter(|seen| !self.operations.contains_instance(&seen.id)).count() as u32
        };
        config.pool.apps.values().any(|app| {
            let idle = app.sleep_after_s.is_some_and(|after| idle_s.get(&app.name).is_some_and(|idle_s| *idle_s >= after));
            idle && ready(&app.name) > app.instances.min
        })
    }

    /// Lets the instances of an application that drain for their sleep go on.
    fn call_off(&mut self, app: &AppName, why: &str) {
        for target in self.operations.call_off(app) {
            self.note(Note::info(EventKind::Plan, format!("{target} stays awake: {why}")).target(&target));
        }
    }

    /// An instance that drains for its sleep and was asked for stays awake; one that sleeps with requests in it is resumed.
    pub(super) fn on_requests(&mut self, now: Time) {
        let counters = self.gateway.fresh_counters(now);
        let wanted = counters.as_ref().map_or_else(Vec::new, |counters| self.operations.poll_wanted(now, counters));
        for target in wanted {
            self.on_wanted(now, &target);
        }
        for target in self.operations.poll_unheard(now, counters.as_deref()) {
            let text = format!("{target} stays awake: the gateway has not said that nothing is at it");
            self.note(Note::info(EventKind::Plan, text).target(&target));
        }
        let Some(counters) = counters else { return };
        let holds = |id: &InstanceId| counters.instances.iter().any(|seen| seen.instance == *id && seen.in_flight > 0);
        let asleep = self.engine.instances().iter().filter(|seen| seen.state.is_asleep() && holds(&seen.id));
        let resumes: Vec<Action> =
            asleep.map(|seen| Action::Resume { instance: seen.id.clone(), app: seen.app.clone() }).collect();
        for resume in resumes {
            self.begin(now, resume, "requests are at it");
        }
    }

    fn on_wanted(&mut self, now: Time, target: &Target) {
        if let Some(app) = target.app() {
            self.sleep.resting.remove(app);
            let its_time = self.engine.its_time(now);
            self.learned.handle_wanted(its_time, app);
        }
        self.note(Note::info(EventKind::Plan, format!("{target} stays awake: it was asked for")).target(target));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Time {
        Time::from_secs_f64(seconds)
    }

    fn event(seconds: f64, state: InstanceState) -> InstanceEvent {
        InstanceEvent {
            id: 1,
            time: at(seconds),
            instance: "shop-1".into(),
            app: "shop".into(),
            node: "n1".into(),
            state,
            detail: String::new(),
        }
    }

    /// `shop` was told to sleep when `shop-1` had been ready since 5 s by the engine's clock, which the loop takes for 4 s.
    fn told() -> Sleep {
        let seen = BTreeMap::from([("shop-1".into(), (InstanceState::Ready, at(5.0)))]);
        let told = Told { when: at(100.0), time: at(4.0), seen, awake: ["shop-1".into()].into() };
        Sleep { resting: [("shop".into(), None)].into(), told: [("shop".into(), told)].into(), ..Sleep::default() }
    }

    #[test]
    fn events_of_before_the_order_that_come_after_it_do_not_call_it_off() {
        let mut sleep = told();
        sleep.handle_events([event(4.5, InstanceState::Starting), event(5.001, InstanceState::Ready)].iter());
        assert!(sleep.resting.contains_key("shop"));
    }

    #[test]
    fn an_application_that_slept_and_is_ready_again_was_asked_for() {
        let mut sleep = told();
        sleep.handle_events([event(5.001, InstanceState::Ready), event(7.0, InstanceState::Suspended)].iter());
        assert!(sleep.resting.contains_key("shop"), "it sleeps");
        sleep.handle_events([event(9.0, InstanceState::Ready)].iter());
        assert!(!sleep.resting.contains_key("shop"));
    }
}
