//! Seats, weights and CPU in force: what the flow cycle decided, and whoever must know it.

use std::collections::BTreeSet;

use weal_model::{
    AppName, Cpu, EventKind, FlowExplanation, GatewayName, InstanceState, LoadEntry, PoolSpec, SeatPlan, Snapshot, Time,
};
use weal_protocol::Refusal;

use super::observe::Known;
use super::{Cycle, Effect, Note, notes};
use crate::flow::controller::Decision;
use crate::flow::loads::Loads;

/// What is in force.
#[derive(Debug)]
pub(super) struct Seating {
    /// The gateway whose flows these are.
    pub gateway: GatewayName,
    pub plan: SeatPlan,
    /// Why each flow has its seats.
    pub explanations: Vec<FlowExplanation>,
    /// Applications that had a ready instance when the seats were planned.
    pub seated: BTreeSet<AppName>,
    /// What each instance was given, and what the engine was told of it.
    pub loads: Loads,
}

impl Seating {
    pub fn new(gateway: GatewayName) -> Self {
        let (plan, explanations, seated, loads) = Default::default();
        Self { gateway, plan, explanations, seated, loads }
    }
}

impl Cycle {
    /// Learns from `snapshot`, and decides seats by it.
    pub(super) fn decide_seats(&mut self, now: Time, snapshot: &Snapshot) {
        let Some(pool) = self.pool() else { return };
        let decision = self.learned.seats(snapshot, &pool, &self.seating.plan);
        self.take_seats(now, snapshot, decision, &pool);
    }

    /// Seats and CPU for those that run now, by what was measured last: who has just got ready is not to wait for a flow cycle.
    pub(super) fn reseat(&mut self, now: Time) {
        let (Some(pool), Some(seen), Some(snapshot)) = (self.pool(), self.engine.seen.clone(), &self.measured.snapshot) else {
            return;
        };
        let closed = self.operations.closed();
        let known = Known { closed: &closed, seats: &self.seating.plan };
        let snapshot = self.measured.observer.refresh(snapshot, &seen, &known);
        if !snapshot.flows.is_empty() {
            let decision = self.learned.reseat(&snapshot, &pool, &self.seating.plan);
            self.take_seats(now, &snapshot, decision, &pool);
            self.push_loads();
        }
        self.measured.snapshot = Some(snapshot);
    }

    fn take_seats(&mut self, now: Time, snapshot: &Snapshot, decision: Decision, pool: &PoolSpec) {
        let Decision { plan, explanations, loads, misses, .. } = decision;
        self.seating.loads.handle_seats(&loads, pool);
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
    pub(super) fn push_loads(&mut self) {
        let (Some(pool), Some(seen)) = (self.pool().filter(|pool| pool.control), &self.engine.seen) else { return };
        if self.engine.setting_loads.is_some() {
            return;
        }
        let there = |id: &_| seen.instances.iter().any(|seen| seen.id == *id && seen.is_running);
        let changed = self.seating.loads.poll_changes(there);
        if changed.is_empty() {
            return;
        }
        let bounded = |load: &LoadEntry| {
            let app = seen.instances.iter().find(|seen| seen.id == load.instance).map(|seen| &seen.app);
            let own = app.and_then(|app| pool.apps.get(app)?.cpu_limit);
            LoadEntry { limit: lower(own, load.limit), ..load.clone() }
        };
        let told = changed.iter().map(bounded).collect();
        self.engine.setting_loads = Some(changed);
        self.push(Effect::SetLoads(told));
    }

    pub(super) fn handle_loads_set(&mut self, result: Result<(), Refusal>) {
        let told = self.engine.setting_loads.take();
        match (result, told) {
            (Ok(()), told) => {
                self.clear_problem("loads", "shares of CPU are set again");
                self.seating.loads.handle_told(told.unwrap_or_default());
                // What has changed meanwhile.
                self.push_loads();
            }
            (Err(error), _) => self.raise_problem("loads", format!("the shares of CPU could not be set: {error}")),
        }
    }
}

fn lower(a: Option<Cpu>, b: Option<Cpu>) -> Option<Cpu> {
    [a, b].into_iter().flatten().reduce(|a, b| if b < a { b } else { a })
}
