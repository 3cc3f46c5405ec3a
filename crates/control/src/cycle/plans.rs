//! What was planned, and what is being planned.

use weal_model::{Action, Bytes, Cpu, JobObservation, NodeName, Plan, PlanSummary, Report, Snapshot, Target, Time, Work};

use super::effect::Ids;
use super::put_off::PutOffs;
use super::rollout::Rollout;
use super::starts::Starts;

/// What was planned, and what is being planned.
#[derive(Debug, Default)]
pub(super) struct Placing {
    pub plan: Plan,
    pub report: Report,
    pub summary: Option<PlanSummary>,
    pub starts: Starts,
    /// What the last plan wanted and was not begun.
    pub put_off: PutOffs,
    pub rollout: Rollout,
    /// The plan that is being made.
    pub pending: Option<Pending>,
    /// Another plan was wanted meanwhile.
    pub again: bool,
    /// What was last decided about jobs, and is done.
    pub decided: Option<Decided>,
}

/// All that a decision about jobs depends on where there are no applications, but for the time and the work that it does.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Basis {
    config: u64,
    nodes: Vec<(NodeName, bool, Cpu, Bytes)>,
    jobs: Vec<JobObservation>,
}

/// A decision about jobs that changed nothing, or whose changes are done.
#[derive(Debug)]
pub(super) struct Decided {
    pub basis: Basis,
    /// When it is to be looked at again although nothing happens.
    pub until: Option<Time>,
}

impl Basis {
    pub fn of(snapshot: &Snapshot, config: u64) -> Self {
        let node = |node: &weal_model::NodeObservation| (node.name.clone(), node.up, node.cpu_capacity, node.memory_capacity);
        let job = |job: &JobObservation| JobObservation { done: Work(0.0), cpu: None, ..job.clone() };
        Self { config, nodes: snapshot.nodes.iter().map(node).collect(), jobs: snapshot.jobs.iter().map(job).collect() }
    }
}

impl Placing {
    /// Whether what was decided about jobs stands: nothing has happened since, and it is not time to look at it again.
    pub fn jobs_stand(&self, now: Time, basis: &Basis) -> bool {
        self.decided.as_ref().is_some_and(|decided| decided.basis == *basis && decided.until.is_none_or(|until| now < until))
    }
}

/// Whether a plan has a job begin, stop, or go elsewhere.
pub(super) fn changes_jobs(plan: &Plan) -> bool {
    let changes = |action: &Action| matches!(action.target(), Target::Job { .. }) && !matches!(action, Action::SetJobCpu { .. });
    plan.actions.iter().any(changes)
}

/// A plan that is being made, beside the loop.
#[derive(Debug)]
pub(super) struct Pending {
    /// The config that it is made for.
    pub config: u64,
    pub snapshot: Snapshot,
    /// What was decided about jobs stands.
    pub jobs_stand: bool,
    /// What jobs are decided by where there are no applications.
    pub basis: Option<Basis>,
    /// Instances that were started to stand by, by the plan before.
    pub ahead: Ids,
    /// What the rollout wants, which goes before the plan's own actions.
    pub rollout: Vec<(Action, String)>,
}
