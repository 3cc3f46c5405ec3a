//! The pure decisions of `weal_control`, with the state that they carry from cycle to cycle.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weal_control::check;
use weal_control::flow::controller::{Decision, demand_curves, demand_doubts, plan_seats};
use weal_control::placement::autoscaler::Autoscaler;
use weal_control::placement::restless::Restless;
use weal_control::placement::{self, AppCosts, Iterations};
use weal_control::profile::Profiles;
use weal_model::{
    AppName, InstanceId, NodeName, Plan, PoolSpec, Report, Rung, SeatPlan, SleepCosts, Snapshot, Time, WhyNode, WorkFactor,
};
use weal_protocol::node::AgentObservation;

/// Profiles, what starts take, and when each application was last wanted.
#[derive(Debug, Default)]
pub(crate) struct Decider {
    profiles: Profiles,
    work_factors: Vec<WorkFactor>,
    last_request: BTreeMap<AppName, Time>,
    /// The first look: what came before is not known.
    begun: Option<Time>,
    start_took_s: BTreeMap<AppName, f64>,
    sleep_costs: BTreeMap<AppName, SleepCosts>,
    autoscaler: Autoscaler,
    restless: Restless,
}

/// What the placement must know beside the snapshot.
pub(crate) struct Placing<'a> {
    pub pool: &'a Arc<PoolSpec>,
    pub next_instance: &'a BTreeMap<AppName, u64>,
    /// Applications in the middle of a replacement.
    pub held: &'a BTreeSet<AppName>,
    /// The rungs that instances can sleep on here.
    pub rungs: Vec<Rung>,
    /// Rungs that applications could not be brought to lately.
    pub refused: BTreeSet<(AppName, Rung)>,
    /// Instances that were started to stand by.
    pub ahead: &'a BTreeSet<InstanceId>,
    /// Applications that were told to sleep.
    pub resting: &'a BTreeMap<AppName, Option<Rung>>,
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
    pub fn seats(&mut self, snapshot: &Snapshot, pool: &PoolSpec, before: &SeatPlan) -> Decision {
        self.profiles.update(snapshot, pool);
        self.autoscaler.handle_snapshot(snapshot, pool);
        self.work_factors = self.profiles.work_factors();
        for flow in snapshot.flows.iter().filter(|flow| flow.arrivals > 0 || flow.queue_mean + flow.in_service_mean > 0.0) {
            self.last_request.insert(flow.id.app.clone(), snapshot.time);
        }
        let decision = plan_seats(snapshot, pool, &mut self.profiles, before);
        for note in &decision.notes {
            tracing::debug!(note, "seats");
        }
        decision
    }

    /// Seats and weights for those that run now, by what was learnt before.
    pub fn reseat(&mut self, snapshot: &Snapshot, pool: &PoolSpec, before: &SeatPlan) -> Decision {
        plan_seats(snapshot, pool, &mut self.profiles, before)
    }

    /// Remembers what starts took.
    pub fn handle_agent(&mut self, agent: &AgentObservation) {
        self.begun.get_or_insert(agent.time);
        for instance in &agent.instances {
            let known = self.sleep_costs.entry(instance.spec.app.clone()).or_default();
            *known = instance.costs.or(known);
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
            self.restless.handle_plan(&plan, snapshot, placing.ahead);
            return Ok((plan, report));
        }
        Err(findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
    }

    /// Why `app` is on `node`, or not.
    pub fn why_node(&self, snapshot: &Snapshot, placing: &Placing<'_>, app: &AppName, node: &NodeName) -> WhyNode {
        placement::question::why_node(snapshot, &self.policy(snapshot, placing), Iterations::default(), app, node)
    }

    fn policy(&self, snapshot: &Snapshot, placing: &Placing<'_>) -> placement::Policy {
        let curves = demand_curves(snapshot, placing.pool, &self.profiles);
        let mut policy = placement::Policy::new(Arc::clone(placing.pool));
        policy.demands = curves;
        policy.doubts = demand_doubts(snapshot, placing.pool, &self.profiles);
        self.restless.doubt(&mut policy.doubts);
        policy.idle_s = self.idle_s(snapshot, placing.pool);
        policy.costs = placing.pool.apps.keys().map(|app| (app.clone(), self.costs(app))).collect();
        policy.next_instance.clone_from(placing.next_instance);
        policy.held.clone_from(placing.held);
        policy.replicas = self.autoscaler.replicas();
        policy.rungs.clone_from(&placing.rungs);
        policy.refused.clone_from(&placing.refused);
        policy.ahead.clone_from(placing.ahead);
        policy.resting.clone_from(placing.resting);
        policy
    }

    /// Somebody wants an application now.
    pub fn handle_wanted(&mut self, app: &AppName) {
        self.last_request.insert(app.clone(), crate::clock::now());
    }

    /// Seconds since each application with routes was asked for. Being woken or started counts: it was for a reason.
    pub fn idle_s(&self, snapshot: &Snapshot, pool: &PoolSpec) -> BTreeMap<AppName, f64> {
        let begun = self.begun.unwrap_or(snapshot.time);
        let idle_s = |app: &AppName| {
            let awake = snapshot.instances.iter().filter(|instance| instance.app == *app && instance.state.is_active());
            let awake = awake.map(|instance| instance.since.max(begun)).max();
            let last = self.last_request.get(app).copied().max(awake);
            last.map_or(f64::INFINITY, |last| snapshot.time.since(last).as_secs_f64())
        };
        pool.apps.values().filter(|app| !app.routes.is_empty()).map(|app| (app.name.clone(), idle_s(&app.name))).collect()
    }

    /// What changes to `app` were measured to take.
    fn costs(&self, app: &AppName) -> AppCosts {
        let sleep = self.sleep_costs.get(app).copied().unwrap_or_default();
        AppCosts::measured(self.start_took_s.get(app).copied(), sleep)
    }
}
