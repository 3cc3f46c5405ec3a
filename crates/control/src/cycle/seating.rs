//! What the flow cycle decides, and how the engine hears of it.

use weal_model::{Cpu, CpuShare, EventKind, InstanceState, PoolSpec, Snapshot, Time};
use weal_protocol::Refusal;

use super::effect::{Effect, Note};
use super::notes;
use super::observe::Known;
use super::state::State;
use crate::flow::controller::Decision;

impl State {
    /// Learns from `snapshot`, and decides seats by it.
    pub(super) fn decide_seats(&mut self, now: Time, snapshot: &Snapshot) {
        let Some(pool) = self.pool() else { return };
        self.note_hanging(snapshot);
        let decision = self.learned.seats(snapshot, &pool, &self.seating.plan);
        self.take_seats(now, snapshot, decision, &pool);
    }

    /// Says which flows have seats that hang, once until none does.
    fn note_hanging(&mut self, snapshot: &Snapshot) {
        let hanging = || snapshot.flows.iter().filter(|flow| flow.hanging > 0);
        let before = std::mem::replace(&mut self.seating.hanging, hanging().map(|flow| flow.id.clone()).collect());
        for flow in hanging().filter(|flow| !before.contains(&flow.id)) {
            self.note(Note::warning(EventKind::Seats, notes::hanging(flow)).app(&flow.id.app));
        }
    }

    /// Seats and CPU for those that run now, by what was measured last: who has just got ready is not to wait for a flow cycle.
    pub(super) fn reseat(&mut self, now: Time) {
        let (Some(pool), Some(seen), Some(snapshot)) = (self.pool(), self.engine.seen.clone(), &self.measured.snapshot) else {
            return;
        };
        let closed = self.operations.closed();
        let known = Known { closed: &closed, seats: &self.seating.plan, jobs: self.queue.planned() };
        let snapshot = self.measured.observer.refresh(snapshot, &seen, &known);
        if !snapshot.flows.is_empty() {
            let decision = self.learned.reseat(&snapshot, &pool, &self.seating.plan);
            self.take_seats(now, &snapshot, decision, &pool);
            self.push_cpu_shares();
        }
        self.measured.snapshot = Some(snapshot);
    }

    fn take_seats(&mut self, now: Time, snapshot: &Snapshot, decision: Decision, pool: &PoolSpec) {
        let Decision { plan, explanations, shares, bursts, misses, .. } = decision;
        self.seating.shares.handle_seats(&shares, bursts, pool);
        for (app, text) in notes::seats(&self.seating.plan, &plan, &explanations) {
            self.note(Note::info(EventKind::Seats, text).app(&app));
        }
        let ready = snapshot.instances.iter().filter(|instance| instance.state == InstanceState::Ready);
        self.seating.seated = ready.map(|instance| instance.app.clone()).collect();
        self.seating.plan = plan;
        self.seating.explanations = explanations;
        if misses {
            self.timers.schedule_plan(now);
        }
    }

    /// Tells the engine the shares that changed, of instances that are there. An application's own limit binds an instance too.
    pub(super) fn push_cpu_shares(&mut self) {
        let (Some(pool), Some(seen)) = (self.pool(), self.engine.seen.clone()) else { return };
        if self.engine.setting_cpu_shares.is_some() {
            return;
        }
        let there = |id: &_| seen.instances.iter().any(|seen| seen.id == *id && seen.is_running);
        let changed = if pool.control { self.seating.shares.poll_changes(there) } else { Vec::new() };
        if changed.is_empty() {
            return self.clear_problem("shares", "no share of CPU waits to be set any more");
        }
        let bounded = |share: &CpuShare| {
            let app = seen.instances.iter().find(|seen| seen.id == share.instance).map(|seen| &seen.app);
            let own = app.and_then(|app| pool.apps.get(app)?.cpu_limit);
            CpuShare { limit: lower(own, share.limit), ..share.clone() }
        };
        let told = changed.iter().map(bounded).collect();
        self.engine.setting_cpu_shares = Some(changed);
        self.push(Effect::SetCpuShares(told));
    }

    pub(super) fn handle_cpu_shares_set(&mut self, result: Result<(), Refusal>) {
        let told = self.engine.setting_cpu_shares.take().unwrap_or_default();
        match result {
            Ok(()) => {
                self.clear_problem("shares", &format!("{} divides CPU again", self.engine.peer));
                self.seating.shares.handle_told(told);
                // What has changed meanwhile.
                self.push_cpu_shares();
            }
            Err(error) => {
                self.seating.shares.handle_unanswered(&told);
                self.raise_problem("shares", format!("{} could not divide CPU: {error}", self.engine.peer));
            }
        }
    }
}

fn lower(a: Option<Cpu>, b: Option<Cpu>) -> Option<Cpu> {
    [a, b].into_iter().flatten().reduce(|a, b| if b < a { b } else { a })
}
