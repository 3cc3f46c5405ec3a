//! The pure decisions of `weal_control`, with the state that they carry from cycle to cycle.

use std::collections::{BTreeMap, BTreeSet};

use weal_control::check;
use weal_control::flow::controller::{Decision, demand_curves, plan_seats};
use weal_control::placement::autoscaler::Autoscaler;
use weal_control::placement::{self, AppCosts, AppDemand, Iterations};
use weal_control::profile::Profiles;
use weal_model::{
    AppName, FlowExplanation, LoadEntry, NodeName, Plan, PoolSpec, Report, SeatPlan, Snapshot, Time, WhyNode, WorkFactor,
};
use weal_node::api::AgentObservation;

/// Profiles, what starts take, and when each application was last wanted.
#[derive(Debug, Default)]
pub(crate) struct Decider {
    profiles: Profiles,
    work_factors: Vec<WorkFactor>,
    last_request: BTreeMap<AppName, Time>,
    start_took_s: BTreeMap<AppName, f64>,
    autoscaler: Autoscaler,
}

/// What the flow cycle decided.
pub(crate) struct Seats {
    pub plan: SeatPlan,
    pub explanations: Vec<FlowExplanation>,
    pub loads: Vec<LoadEntry>,
}

/// What the placement must know beside the snapshot.
pub(crate) struct Placing<'a> {
    pub pool: &'a PoolSpec,
    pub next_instance: &'a BTreeMap<AppName, u64>,
    /// Applications in the middle of a replacement.
    pub held: &'a BTreeSet<AppName>,
    /// Whether suspended instances can be paged out here.
    pub can_park: bool,
}

impl Decider {
    /// Goes on with what an earlier controller had learnt.
    pub fn with_profiles(profiles: Profiles) -> Self {
        Self { work_factors: profiles.work_factors(), profiles, ..Self::default() }
    }

    /// What was learnt, to be kept.
    pub fn profiles(&self) -> &Profiles {
        &self.profiles
    }

    /// What each flow costs.
    pub fn work_factors(&self) -> &[WorkFactor] {
        &self.work_factors
    }

    /// Learns from a snapshot, and decides seats and weights for the next flow cycle.
    pub fn seats(&mut self, snapshot: &Snapshot, pool: &PoolSpec, before: &SeatPlan) -> Seats {
        self.profiles.update(snapshot, pool);
        self.autoscaler.handle_snapshot(snapshot, pool);
        self.work_factors = self.profiles.work_factors();
        for flow in snapshot.flows.iter().filter(|flow| flow.arrivals > 0 || flow.queue_mean + flow.in_service_mean > 0.0) {
            self.last_request.insert(flow.id.app.clone(), snapshot.time);
        }
        let Decision { plan, explanations, loads, notes } = plan_seats(snapshot, pool, &mut self.profiles, before);
        for note in notes {
            tracing::debug!(note, "seats");
        }
        Seats { plan, explanations, loads }
    }

    /// Remembers what starts took.
    pub fn handle_agent(&mut self, agent: &AgentObservation) {
        for instance in &agent.instances {
            if let Some(took_s) = instance.start_took_s.filter(|took_s| took_s.is_finite()) {
                self.start_took_s.insert(instance.spec.app.clone(), took_s);
            }
        }
    }

    /// Where instances go; an unsound plan is refused with what is wrong with it.
    pub fn place(&mut self, snapshot: &Snapshot, placing: &Placing<'_>) -> Result<(Plan, Report), String> {
        let policy = self.policy(snapshot, placing);
        let (plan, report) = placement::plan(snapshot, &policy, Iterations::default());
        let findings = check::check(snapshot, placing.pool, &plan);
        if findings.is_empty() {
            return Ok((plan, report));
        }
        Err(findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
    }

    /// Why `app` is on `node`, or not.
    pub fn why_node(&self, snapshot: &Snapshot, placing: &Placing<'_>, app: &AppName, node: &NodeName) -> WhyNode {
        placement::question::why_node(snapshot, &self.policy(snapshot, placing), Iterations::default(), app, node)
    }

    fn policy<'a>(&self, snapshot: &Snapshot, placing: &Placing<'a>) -> placement::Policy<'a> {
        let curves = demand_curves(snapshot, placing.pool, &self.profiles);
        let mut policy = placement::Policy::new(placing.pool);
        policy.demands = curves.into_iter().map(|(app, curve)| (app.clone(), self.demand(app, curve, snapshot.time))).collect();
        policy.costs = self.start_took_s.iter().map(|(app, took_s)| (app.clone(), costs(*took_s))).collect();
        policy.next_instance.clone_from(placing.next_instance);
        policy.held.clone_from(placing.held);
        policy.replicas = self.autoscaler.replicas();
        policy.can_park = placing.can_park;
        policy
    }

    fn demand(&self, app: AppName, curve: weal_control::utility::Curve, now: Time) -> AppDemand {
        let idle_s = self.last_request.get(&app).map_or(0.0, |last| now.since(*last).as_secs_f64());
        AppDemand { curve, idle_s }
    }
}

fn costs(start_s: f64) -> AppCosts {
    AppCosts { start_s, ..AppCosts::default() }
}
