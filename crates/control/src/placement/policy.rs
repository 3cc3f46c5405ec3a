//! What plans are made by, besides the snapshot: what is desired, what was learnt, and how hard to search.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weal_model::{Algorithm, AppName, Enactment, InstanceId, JobName, PoolSpec, Rung, RungCost, SleepCosts, Work};

use crate::jobs::{Costs, Runs};
use crate::utility::Curve;

/// What changes to an application were measured to take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AppCosts {
    /// Seconds from start to ready.
    pub start_s: f64,
    /// CPU-seconds that a start uses.
    pub start_work: Work,
    /// Seconds from resume to the first answer.
    pub resume_s: f64,
    /// What each rung of sleep costs, as far as it was measured.
    pub sleep: SleepCosts,
    /// Seconds to drain and suspend or stop.
    pub remove_s: f64,
}

impl Default for AppCosts {
    /// Before anything was measured: a start like that of a middling web application, a resume 20 times faster
    /// (Al-Qudah 4.3).
    fn default() -> Self {
        Self { start_s: 5.0, start_work: Work(2.0), resume_s: 0.25, remove_s: 0.25, sleep: SleepCosts::default() }
    }
}

impl AppCosts {
    /// By what a start took and what each rung of sleep costs, where that was measured; of the rungs the slowest counts.
    pub fn measured(start_s: Option<f64>, sleep: SleepCosts) -> Self {
        let default = Self::default();
        let slowest = |read: fn(&RungCost) -> Option<f64>| {
            Rung::ALL.iter().filter_map(|rung| read(sleep.of(*rung))).filter(|seconds| seconds.is_finite()).reduce(f64::max)
        };
        Self {
            start_s: start_s.unwrap_or(default.start_s),
            resume_s: slowest(|cost| cost.wake_s).unwrap_or(default.resume_s),
            remove_s: slowest(|cost| cost.sleep_s).unwrap_or(default.remove_s),
            sleep,
            ..default
        }
    }
}

/// What plans are made by, besides the snapshot. It owns all that it names, so a plan can be made on another thread.
#[derive(Debug, Clone)]
pub struct Policy {
    /// What is desired.
    pub pool: Arc<PoolSpec>,
    /// What each application wants: its utility with so much CPU ([`Curve::of_group`] of the flows that load it); one without an
    /// entry is unmeasured and keeps what it has.
    pub demands: BTreeMap<AppName, Curve>,
    /// By how large a part each of these may be wrong ([`demand_doubts`](crate::flow::controller::demand_doubts)); one without an entry is
    /// exact.
    pub doubts: BTreeMap<AppName, f64>,
    /// Seconds since each application had its last request: 0 when it has one, infinite when it never had any and nothing of it
    /// runs. One without an entry is never idle.
    pub idle_s: BTreeMap<AppName, f64>,
    /// Measured costs of changes; defaults where missing.
    pub costs: BTreeMap<AppName, AppCosts>,
    /// The number for each application's next new instance, if higher than all in the snapshot: ids are never reused.
    pub next_instance: BTreeMap<AppName, u64>,
    /// Applications to leave alone, because somebody else is at them (a rolling replacement).
    pub held: BTreeSet<AppName>,
    /// Which algorithm places.
    pub algorithm: Algorithm,
    /// With [`Algorithm::Autoscaler`], what [`Autoscaler`](super::baselines::Autoscaler) asks for; one without an entry keeps
    /// what it has.
    pub replicas: BTreeMap<AppName, u32>,
    /// The rungs on which instances can sleep here, from the lightest.
    pub rungs: Vec<Rung>,
    /// Rungs that applications could not be brought to lately.
    pub refused: BTreeSet<(AppName, Rung)>,
    /// Instances that were started to stand by: [`Plan::ahead`](weal_model::Plan::ahead) of the plan before.
    pub ahead: BTreeSet<InstanceId>,
    /// Applications that were told to sleep, and how deep at most: they do until somebody asks for them.
    pub resting: BTreeMap<AppName, Option<Rung>>,
    /// Utilities closer than this are equal. Smaller chases noise; the thesis uses 0.01 (reproductions.md, Experiment One).
    pub tolerance: f64,
    /// Seconds over which a change must pay for itself: how long demand stays roughly as it is. Too short and nothing is
    /// ever worth a start, too long and each ripple is.
    pub horizon_s: f64,
    /// What changes to jobs cost.
    pub job_costs: Costs,
    /// Jobs that save their state themselves.
    pub saving: BTreeSet<JobName>,
    /// What earlier runs tell of jobs that do not say how much work they are.
    pub runs: Runs,
    /// Nothing has happened since jobs were decided about, so that what was decided stands where there are jobs alone.
    pub jobs_stand: bool,
}

impl Policy {
    /// A policy by the pool's algorithm that knows no demands yet.
    pub fn new(pool: impl Into<Arc<PoolSpec>>) -> Self {
        let pool = pool.into();
        Self {
            demands: BTreeMap::new(),
            doubts: BTreeMap::new(),
            idle_s: BTreeMap::new(),
            costs: BTreeMap::new(),
            next_instance: BTreeMap::new(),
            held: BTreeSet::new(),
            algorithm: pool.placement,
            pool,
            replicas: BTreeMap::new(),
            rungs: Rung::ALL.to_vec(),
            refused: BTreeSet::new(),
            ahead: BTreeSet::new(),
            resting: BTreeMap::new(),
            tolerance: 0.01,
            horizon_s: 600.0,
            job_costs: Costs::THESIS,
            saving: BTreeSet::new(),
            runs: Runs::default(),
            jobs_stand: false,
        }
    }

    /// The rungs that this pool's way of enacting uses for `app`, as far as they can be had here.
    pub(super) fn rungs<'b>(&'b self, app: &'b AppName) -> impl Iterator<Item = Rung> + 'b {
        let (enactment, knows_goals) = (self.pool.enactment, self.algorithm.knows_goals());
        let may_sleep = self.pool.apps.get(app).is_none_or(|app| app.sleep);
        let used = move |rung: &Rung| match enactment {
            _ if !knows_goals || !may_sleep => false,
            Enactment::StartStop | Enactment::RunEverywhere => false,
            Enactment::SuspendResume => *rung == Rung::Suspended,
            Enactment::Ladder => true,
        };
        self.rungs.iter().copied().filter(used).filter(|rung| !self.refused.contains(&(app.clone(), *rung)))
    }

    /// Whether instances can sleep on `rung` here.
    pub(super) fn has(&self, rung: Rung) -> bool {
        self.rungs.contains(&rung)
    }
}

/// How hard to search, counted in steps and never in time, so that a replay gives the same plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Iterations(pub u32);

impl Default for Iterations {
    /// Enough for pools of a few hundred nodes; a step costs microseconds to a millisecond.
    fn default() -> Self {
        Self(2_000)
    }
}
