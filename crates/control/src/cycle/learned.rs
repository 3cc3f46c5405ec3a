//! What is known from earlier cycles: profiles, what changes were measured to take, and when each application was last asked for.

use std::collections::BTreeMap;
use std::sync::Arc;

use weal_model::{AppName, Plan, PoolSpec, SeatPlan, SleepCosts, Snapshot, Time, WorkFactor};
use weal_protocol::engine::Observation;

use super::effect::{Ids, PlanRequest};
use crate::flow::controller::{Decision, demand_curves, demand_doubts, plan_seats};
use crate::jobs::Costs;
use crate::placement::baselines::Autoscaler;
use crate::placement::restless::Restless;
use crate::placement::{AppCosts, Policy};
use crate::profile::Profiles;

/// What is known.
#[derive(Debug)]
pub(super) struct Learned {
    profiles: Profiles,
    work_factors: Vec<WorkFactor>,
    /// By the engine's clock.
    last_request: BTreeMap<AppName, Time>,
    /// The first look, by the engine's clock: what came before is not known.
    begun: Option<Time>,
    start_took_s: BTreeMap<AppName, f64>,
    sleep_costs: BTreeMap<AppName, SleepCosts>,
    autoscaler: Autoscaler,
    restless: Restless,
    job_costs: Costs,
}

impl Learned {
    /// Goes on with what an earlier controller had learnt.
    pub fn new(profiles: Profiles, job_costs: Costs) -> Self {
        Self {
            work_factors: profiles.work_factors(),
            profiles,
            last_request: BTreeMap::new(),
            begun: None,
            start_took_s: BTreeMap::new(),
            sleep_costs: BTreeMap::new(),
            autoscaler: Autoscaler::default(),
            restless: Restless::default(),
            job_costs,
        }
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
        for flow in snapshot.flows.iter().filter(|flow| flow.arrivals > 0 || flow.population_mean() > 0.0) {
            self.last_request.insert(flow.id.app.clone(), snapshot.time);
        }
        // A connection may be open for hours without being a request of its own, and whoever holds it may use it at any moment.
        for instance in snapshot.instances.iter().filter(|instance| instance.in_flight > 0) {
            self.last_request.insert(instance.app.clone(), snapshot.time);
        }
        plan_seats(snapshot, pool, &mut self.profiles, before)
    }

    /// Seats and weights for those that run now, by what was learnt before.
    pub fn reseat(&mut self, snapshot: &Snapshot, pool: &PoolSpec, before: &SeatPlan) -> Decision {
        plan_seats(snapshot, pool, &mut self.profiles, before)
    }

    /// Remembers what starts and sleep took.
    pub fn handle_seen(&mut self, seen: &Observation) {
        self.begun.get_or_insert(seen.time);
        for instance in &seen.instances {
            if instance.keeps_awake {
                self.last_request.insert(instance.app.clone(), seen.time);
            }
            let known = self.sleep_costs.entry(instance.app.clone()).or_default();
            *known = instance.costs.or(known);
            if let Some(took_s) = instance.start_took_s.filter(|took_s| took_s.is_finite()) {
                self.start_took_s.insert(instance.app.clone(), took_s);
            }
        }
    }

    /// Somebody wants an application at `time`, by the engine's clock.
    pub fn handle_wanted(&mut self, time: Time, app: &AppName) {
        self.last_request.insert(app.clone(), time);
    }

    /// A plan that is sound, and what it was made from.
    pub fn handle_plan(&mut self, plan: &Plan, snapshot: &Snapshot, ahead: &Ids) {
        self.restless.handle_plan(plan, snapshot, ahead);
    }

    /// A request for a plan, with all that is known for it.
    pub fn plan_request(&self, snapshot: Snapshot, pool: PoolSpec) -> PlanRequest {
        let demands = demand_curves(&snapshot, &pool, &self.profiles);
        let mut doubts = demand_doubts(&snapshot, &pool, &self.profiles);
        self.restless.doubt(&mut doubts);
        let idle_s = self.idle_s(&snapshot, &pool);
        let costs = pool.apps.keys().map(|app| (app.clone(), self.costs(app))).collect();
        let mut policy = Policy::new(Arc::new(pool));
        (policy.demands, policy.doubts, policy.idle_s, policy.costs) = (demands, doubts, idle_s, costs);
        policy.replicas = self.autoscaler.replicas();
        policy.job_costs = self.job_costs;
        PlanRequest { snapshot, policy }
    }

    /// Seconds since each application with routes was asked for. Being woken or started counts: it was for a reason.
    pub fn idle_s(&self, snapshot: &Snapshot, pool: &PoolSpec) -> BTreeMap<AppName, f64> {
        let begun = self.begun.unwrap_or(snapshot.time);
        let idle_s = |app: &AppName| {
            let awake = snapshot.instances.iter().filter(|instance| instance.app == *app && instance.state.is_active());
            let awake = awake.map(|instance| instance.since.max(begun)).max();
            if pool.apps.get(app).is_some_and(|app| !app.sleep) {
                return 0.0;
            }
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
