//! Keeps applications awake by orders, and begins and ends what their schedules say.

use std::time::Duration;

use weal_model::{AppKind, AppSpec, AwakeBy, EventKind, KeptAwake, LONGEST_AWAKE_S, Time};
use weal_protocol::Refusal;

use super::effect::Note;
use super::state::State;

impl State {
    /// An order to keep `app` awake for so many seconds from now, or no longer by an order. Says what it does.
    pub(super) fn order_awake(&mut self, now: Time, app: &AppSpec, for_s: Option<u64>) -> Result<String, Refusal> {
        let name = app.name.clone();
        let Some(for_s) = for_s else {
            self.orders.awake.remove(&name);
            self.awake.handle_changed();
            return Ok(format!("{name} is no longer kept awake by an order"));
        };
        if app.halted {
            return Err(Refusal::Halted { app: name });
        }
        if app.kind == AppKind::Task {
            return Err(Refusal::IsTask { app: name });
        }
        if !(1..=LONGEST_AWAKE_S).contains(&for_s) {
            return Err(Refusal::BadSpan { most_s: LONGEST_AWAKE_S });
        }
        if self.engine.seen.is_none() {
            return Err(Refusal::NotObserved);
        }
        let time = self.engine.its_time(now);
        let until = time + Duration::from_secs(for_s);
        self.orders.awake.insert(name.clone(), until);
        self.awake.handle_changed();
        self.end_rest(now, &name, "an order keeps its application awake");
        Ok(format!("{name} is {}", KeptAwake { until, by: AwakeBy::Order }.phrase(time)))
    }

    /// Begins and ends what is due, and has all others follow.
    pub(super) fn follow_awake(&mut self, now: Time) {
        let Some(is_changed) = self.look_who_is_awake(now) else { return };
        self.follow_orders();
        if is_changed {
            self.push_gateway_config();
            self.timers.schedule_plan_at_once(now);
            self.show(false);
        }
    }

    /// Begins and ends what is due; true when somebody is kept awake otherwise than before. `None` when nothing is due: nothing is before the engine's
    /// clock is known.
    pub(super) fn look_who_is_awake(&mut self, now: Time) -> Option<bool> {
        self.engine.seen.as_ref()?;
        let time = self.engine.its_time(now);
        let looked = if self.awake.is_due(time) { self.begin_and_end_awake(now, time) } else { None };
        self.next_awake = self.awake.next().map(|next| now + next.since(time));
        looked
    }

    fn begin_and_end_awake(&mut self, now: Time, time: Time) -> Option<bool> {
        let written = self.written.as_ref()?;
        let changes = self.awake.handle_time(time, &written.pool, &self.orders.awake);
        self.orders.awake.retain(|_, until| *until > time);
        for app in &changes.begun {
            self.end_rest(now, app, "its schedule keeps its application awake");
            self.note(Note::info(EventKind::Plan, format!("{app} is kept awake by its schedule from now on")).app(app));
        }
        for app in &changes.ended {
            self.note(
                Note::info(EventKind::Plan, format!("{app} may sleep again: its time to be kept awake has passed")).app(app),
            );
        }
        Some(changes.is_changed)
    }
}
