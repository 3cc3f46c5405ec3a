//! Looks at the engine and at the gateway: what waits for one, and what follows from it.

use weal_model::{AppName, Time};

use super::effect::{Effect, Kept};
use super::observe::Known;
use super::state::{FlowCycle, State};

impl State {
    pub(super) fn end_flow_cycle_if_seen(&mut self, now: Time) -> bool {
        let seen = |cycle: &FlowCycle| {
            self.engine.look.has_ended(cycle.engine) && self.gateway.look.has_ended(cycle.gateway) && !self.engine.configuring
        };
        let is_over = self.waiting.flow_cycle.as_ref().is_some_and(seen);
        if is_over {
            self.end_flow_cycle(now);
        }
        is_over
    }

    /// Learn, decide seats, tell the gateway, show: by what has been answered.
    pub(super) fn end_flow_cycle(&mut self, now: Time) {
        let Some(FlowCycle { engine, decides, .. }) = self.waiting.flow_cycle.take() else { return };
        let counters = self.gateway.fresh_counters(now);
        if let Some(seen) = self.engine.seen.clone().filter(|_| self.engine.is_up && self.engine.look.has_ended(engine)) {
            let closed = self.operations.closed();
            let known = Known { closed: &closed, seats: &self.seating.plan, jobs: self.queue.planned() };
            if let Some(snapshot) = self.measured.observer.observe(counters, seen, &known) {
                self.measured.recent.handle_snapshot(&snapshot);
                if decides && !snapshot.flows.is_empty() {
                    self.decide_seats(now, &snapshot);
                }
                if self.measured.snapshot.is_none() {
                    self.timers.schedule_plan(now);
                }
                self.measured.snapshot = Some(snapshot);
            }
        }
        self.on_counters(now);
        if self.somebody_waits_for_an_instance() || self.somebody_may_sleep() {
            self.timers.schedule_plan(now);
        }
        self.push_cpu_shares();
        self.keep_resting();
        if self.timers.poll_keep(now) {
            self.push(Effect::Keep(Kept::Profiles(Box::new(self.learned.profiles().clone()))));
        }
        self.show(true);
    }

    /// What follows from the gateway's counters: who is asked for, who has drained.
    pub(super) fn on_counters(&mut self, now: Time) {
        self.on_requests(now);
        self.hand_over_drained(now);
        self.push_gateway_config();
    }

    /// The engine has said what runs, on the nodes of the config: whoever waited for that goes on.
    pub(super) fn serve_waiting(&mut self, now: Time) {
        if let Some((_, ready)) = self.waiting.ready.take_if(|(ticket, _)| self.engine.look.has_ended(*ticket)) {
            self.on_woken(now, &ready);
            self.reseat(now);
        }
        if self.waiting.update.take_if(|ticket| self.engine.look.has_ended(*ticket)).is_some() {
            self.update_running();
        }
        if !self.end_flow_cycle_if_seen(now) {
            self.push_gateway_config();
            self.push_cpu_shares();
            self.show(false);
        }
        if self.waiting.plan.take_if(|ticket| self.engine.look.has_ended(*ticket)).is_some() {
            self.request_plan(now);
        }
    }

    /// Requests wait for an application that has nothing running: the next placement cycle may be far.
    fn somebody_waits_for_an_instance(&self) -> bool {
        let (Some(counters), Some(seen)) = (&self.gateway.counters, &self.engine.seen) else { return false };
        let live = |app: &AppName| seen.instances.iter().any(|instance| instance.app == *app && instance.state.is_active());
        counters.flows.iter().any(|flow| flow.queued > 0 && !live(&flow.id.app))
    }
}
