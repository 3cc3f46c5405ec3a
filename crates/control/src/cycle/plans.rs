//! What was planned, and what is being planned.

use weal_model::{Action, Plan, PlanSummary, Report, Snapshot};

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
}

/// A plan that is being made, beside the loop.
#[derive(Debug)]
pub(super) struct Pending {
    /// The config that it is made for.
    pub config: u64,
    pub snapshot: Snapshot,
    /// Instances that were started to stand by, by the plan before.
    pub ahead: Ids,
    /// What the rollout wants, which goes before the plan's own actions.
    pub rollout: Vec<(Action, String)>,
}
