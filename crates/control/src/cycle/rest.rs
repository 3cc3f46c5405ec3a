//! Applications that were told to sleep, and what sleep has taught: which instances were woken, which rungs a machine refused.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use weal_model::{AppName, InstanceId, InstanceState, PoolSpec, Rung, Time};
use weal_protocol::node::InstanceEvent;

use crate::flow::crowd;

/// After an application could not be put on a rung, that is not tried for so long: what is missing (a working set, swap) may come.
const REFUSED_FOR: Duration = Duration::from_secs(60);

/// What the loop remembers about sleep.
#[derive(Debug, Default)]
pub(super) struct Sleep {
    /// Told to sleep by an order, and how deep at most, until somebody asks for them.
    pub resting: BTreeMap<AppName, Option<Rung>>,
    /// What was observed when the order came, if this loop took it.
    orders: BTreeMap<AppName, SleepOrder>,
    /// Started to stand by: [`weal_model::Plan::ahead`] of the last plan.
    pub ahead: BTreeSet<InstanceId>,
    refused: BTreeMap<(AppName, Rung), Time>,
    /// Woken by the gateway because of a crowd, and when.
    woken: BTreeMap<InstanceId, Time>,
    /// [`Self::resting`] as it is stored.
    kept: BTreeMap<AppName, Option<Rung>>,
}

/// A person's order that an application sleeps.
#[derive(Debug)]
pub(super) struct SleepOrder {
    pub when: Time,
    /// The same by the engine's clock, as far as it is known.
    pub time: Time,
    /// What was observed of its instances then: state, and since when by the engine's clock. An instance that has left that state is not in it.
    pub seen: BTreeMap<InstanceId, (InstanceState, Time)>,
    /// Instances that have been awake ever since: that they got ready was before.
    pub awake: BTreeSet<InstanceId>,
}

impl SleepOrder {
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

    /// A rung was refused: it is not tried for a while.
    pub fn refuse(&mut self, now: Time, app: &AppName, rung: Rung) {
        self.refused.insert((app.clone(), rung), now + REFUSED_FOR);
    }

    /// An application that was told to sleep and is ready again was asked for, unless its instance gets ready to stand by.
    pub fn handle_events<'a>(&mut self, events: impl Iterator<Item = &'a InstanceEvent>) {
        for event in events {
            let mut order = self.orders.get_mut(&event.app);
            if order.as_mut().is_some_and(|order| order.is_old(event)) {
                continue;
            }
            if event.state != InstanceState::Ready {
                order.map(|order| order.awake.remove(&event.instance));
            } else if !order.is_some_and(|order| order.awake.contains(&event.instance)) && !self.ahead.contains(&event.instance) {
                self.resting.remove(&event.app);
            }
        }
    }

    /// A person has told `app` to sleep, `rung` deep at most.
    pub fn handle_order(&mut self, app: &AppName, rung: Option<Rung>, order: SleepOrder) {
        self.resting.insert(app.clone(), rung);
        self.orders.insert(app.clone(), order);
    }

    /// Whether an order has told `app` to sleep within the last `span_s` seconds, and it still shall.
    pub fn was_told_within(&self, now: Time, app: &AppName, span_s: f64) -> bool {
        let order = self.orders.get(app).filter(|_| self.resting.contains_key(app));
        order.is_some_and(|order| now.since(order.when).as_secs_f64() < span_s)
    }

    /// The gateway had an instance woken.
    pub fn handle_woken(&mut self, now: Time, instance: &InstanceId) {
        self.woken.retain(|_, when| now.since(*when) < REFUSED_FOR);
        self.woken.insert(instance.clone(), now);
    }

    /// Who was told to sleep, when that is not what is stored.
    pub fn poll_kept(&mut self) -> Option<BTreeMap<AppName, Option<Rung>>> {
        let differs = self.kept != self.resting;
        self.kept.clone_from(&self.resting);
        differs.then(|| self.resting.clone())
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
            job: None,
        }
    }

    /// `shop` was told to sleep when `shop-1` had been ready since 5 s by the engine's clock, which the loop takes for 4 s.
    fn told() -> Sleep {
        let seen = BTreeMap::from([("shop-1".into(), (InstanceState::Ready, at(5.0)))]);
        let order = SleepOrder { when: at(100.0), time: at(4.0), seen, awake: ["shop-1".into()].into() };
        Sleep { resting: [("shop".into(), None)].into(), orders: [("shop".into(), order)].into(), ..Sleep::default() }
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
