//! Sleep: which applications were told to, which were asked for meanwhile, and what a machine cannot do.
//!
//! The plan decides when an instance sleeps. The gateway and the node agent wake it, so that requests never wait for the controller. What
//! is here brings the two together: a request that comes while an instance drains calls its sleep off, and an instance that was frozen
//! with a request in it is resumed.

use weal_model::{Action, AppName, EventKind, InstanceId, InstanceState, PoolSpec, Rung, Target, Time};
use weal_protocol::Refusal;
use weal_protocol::controller::{SleepTaken, WakeTaken};
use weal_protocol::engine::InstanceSeen;
use weal_protocol::node::InstanceEvent;

use super::effect::{Effect, Kept, Note};
use super::rest::SleepOrder;
use super::state::State;

/// The setting by which no instance of `pool` sleeps, if one does that.
fn keeps_awake(pool: &PoolSpec) -> Option<String> {
    match pool {
        PoolSpec { control: false, .. } => Some("control = \"off\"".to_owned()),
        _ if !pool.placement.knows_goals() => Some(format!("placement = \"{}\"", pool.placement.word())),
        _ if !pool.enactment.sleeps() => Some(format!("enactment = \"{}\"", pool.enactment.as_str())),
        _ => None,
    }
}

impl State {
    pub(super) fn take_sleep(&mut self, now: Time, app: &AppName, rung: Option<Rung>) -> Result<SleepTaken, Refusal> {
        let (Some(pool), Some(seen)) = (self.pool(), self.engine.seen.clone()) else {
            return Err(Refusal::NotObserved);
        };
        if let Some(why) = self.no_such(app).or_else(|| self.engine.away(now)) {
            return Err(why);
        }
        if let Some(kept) = pool.apps.get(app).and_then(|app| app.awake) {
            return Err(Refusal::KeptAwake { app: app.clone(), how: kept.phrase(self.engine.its_time(now)) });
        }
        if pool.apps.get(app).is_some_and(|app| !app.sleep) {
            return Err(Refusal::NeverSleeps { app: app.clone() });
        }
        if let Some(setting) = keeps_awake(&pool) {
            return Err(Refusal::SleepIsOff { setting });
        }
        if let Some(rung) = rung.filter(|rung| !seen.capabilities.rungs.contains(rung)) {
            return Err(Refusal::NoRung { rung, missing: "`weal doctor` says what is missing".to_owned() });
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
        let order = SleepOrder { when: now, time: self.engine.its_time(now), seen, awake };
        self.sleep.handle_order(app, rung, order);
        self.keep_resting();
        let how = rung.map_or_else(String::new, |rung| format!(", no deeper than {}", rung.as_str()));
        self.note(Note::info(EventKind::Plan, format!("{app} goes to sleep by an order{how}")).app(app));
        self.timers.schedule_plan_at_once(now);
        Ok(SleepTaken { app: app.clone(), instances })
    }

    pub(super) fn take_wake(&mut self, now: Time, app: &AppName) -> Result<WakeTaken, Refusal> {
        if let Some(why) = self.no_such(app) {
            return Err(why);
        }
        self.end_rest(now, app, "its application was woken by an order");
        if let Some(why) = self.engine.away(now) {
            return Err(why);
        }
        let mine = || self.engine.instances().iter().filter(|seen| seen.app == *app);
        let wake_s = |seen: &InstanceSeen, rung| seen.costs.of(rung).wake_s.unwrap_or(f64::MAX);
        let cheapest = mine().filter_map(|seen| Some((seen.state.rung()?, seen)));
        let cheapest = cheapest.min_by(|a, b| a.0.cmp(&b.0).then(wake_s(a.1, a.0).total_cmp(&wake_s(b.1, b.0))));
        let awake = mine().find(|seen| seen.state.is_active()).map(|seen| seen.id.clone());
        let taken = match (awake, cheapest) {
            (Some(instance), _) => WakeTaken { app: app.clone(), instance: Some(instance), from: None },
            (None, Some((rung, seen))) => {
                let instance = seen.id.clone();
                self.begin(
                    now,
                    Action::Resume { instance: instance.clone(), app: app.clone() },
                    "its application was woken by an order",
                );
                WakeTaken { app: app.clone(), instance: Some(instance), from: Some(rung) }
            }
            (None, None) => WakeTaken { app: app.clone(), instance: None, from: None },
        };
        self.push_gateway_config();
        self.timers.schedule_plan(now);
        Ok(taken)
    }

    /// An order to sleep holds no longer, and instances that drain for their sleep stay awake.
    pub(super) fn end_rest(&mut self, now: Time, app: &AppName, why: &str) {
        self.sleep.resting.remove(app);
        self.keep_resting();
        let its_time = self.engine.its_time(now);
        self.learned.handle_wanted(its_time, app);
        self.call_off(app, why);
    }

    /// Who was told to sleep is not woken because a controller ends.
    pub(super) fn keep_resting(&mut self) {
        if let Some(resting) = self.sleep.poll_kept() {
            self.push(Effect::Keep(Kept::Resting(resting)));
        }
    }

    /// Takes note of those who got ready without a plan's word: a crowd waited at the gateway.
    pub(super) fn on_woken(&mut self, now: Time, ready: &[InstanceEvent]) {
        for event in ready.iter().filter(|event| self.gateway.may_have_woken(&event.instance)).cloned().collect::<Vec<_>>() {
            self.sleep.handle_woken(now, &event.instance);
            let is_other = |seen: &InstanceSeen| seen.app == event.app && seen.id != event.instance;
            let is_crowd = self.engine.instances().iter().any(|seen| is_other(seen) && seen.state.is_active());
            let why = if is_crowd { "its other instances have more requests than seats" } else { "a request came for it" };
            let text = format!("the gateway woke {}: {why}", event.instance);
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
        if let Refusal::AskedFor { ago_s } = refusal
            && self.sleep.was_told_within(now, app, *ago_s)
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
            let text = format!("{target} stays awake: the gateway did not confirm that it has no requests left");
            self.note(Note::info(EventKind::Plan, text).target(&target));
        }
        let Some(counters) = counters else { return };
        let holds = |id: &InstanceId| counters.instances.iter().any(|seen| seen.instance == *id && seen.in_flight > 0);
        let asleep = self.engine.instances().iter().filter(|seen| seen.state.is_asleep() && holds(&seen.id));
        let resumes: Vec<Action> =
            asleep.map(|seen| Action::Resume { instance: seen.id.clone(), app: seen.app.clone() }).collect();
        for resume in resumes {
            self.begin(now, resume, "it still has requests");
        }
    }

    fn on_wanted(&mut self, now: Time, target: &Target) {
        if let Some(app) = target.app() {
            self.sleep.resting.remove(app);
            let its_time = self.engine.its_time(now);
            self.learned.handle_wanted(its_time, app);
        }
        self.note(Note::info(EventKind::Plan, format!("{target} stays awake: it has requests")).target(target));
    }
}

#[cfg(test)]
mod tests {
    use weal_model::Enactment;

    use super::*;

    #[test]
    fn the_setting_that_keeps_instances_awake_is_named() {
        let pool = PoolSpec::example();
        assert_eq!(keeps_awake(&pool), None);
        let watched = PoolSpec { control: false, ..pool.clone() };
        assert_eq!(keeps_awake(&watched).as_deref(), Some("control = \"off\""));
        let stopped = PoolSpec { enactment: Enactment::StartStop, ..pool };
        assert_eq!(keeps_awake(&stopped).as_deref(), Some("enactment = \"start-stop\""));
    }
}
