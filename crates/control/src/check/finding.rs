//! What can be wrong with a plan.

use serde::{Deserialize, Serialize};
use weal_model::{Action, AppName, Bytes, Cpu, InstanceId, InstanceState, JobName, JobState, NodeName};

/// Something that is wrong with a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum Finding {
    /// It belongs to another snapshot.
    #[error("the plan was made for snapshot {plan} and not for {snapshot}")]
    Generation {
        /// What the plan names.
        plan: u64,
        /// What it is to be applied to.
        snapshot: u64,
    },
    /// A step that cannot be taken where it stands.
    #[error("cannot {} {}: {why}", .action.verb(), .action.target())]
    Impossible {
        /// The step.
        action: Action,
        /// Why not.
        why: Impossible,
    },
    /// A node would hold more memory than it has once a job is there.
    #[error("node `{node}` would hold {used} of {capacity} memory once job `{job}` is there")]
    JobMemory {
        /// The node.
        node: NodeName,
        /// The job that is too much.
        job: JobName,
        /// What it would hold.
        used: Bytes,
        /// What it has.
        capacity: Bytes,
    },
    /// A node would hold more memory than it has.
    #[error("node `{node}` would hold {used} of {capacity} memory once `{instance}` is there")]
    Memory {
        /// The node.
        node: NodeName,
        /// The instance that is too much.
        instance: InstanceId,
        /// What it would hold.
        used: Bytes,
        /// What it has.
        capacity: Bytes,
    },
    /// The CPU shares of a node exceed its CPU.
    #[error("node `{node}` would give out {given} of {capacity}")]
    Cpu {
        /// The node.
        node: NodeName,
        /// What it would give.
        given: Cpu,
        /// What it has.
        capacity: Cpu,
    },
    /// A CPU share that is no number, negative, or above the limit of one instance.
    #[error("`{instance}` would get {cpu}, which {why}")]
    Share {
        /// The instance.
        instance: InstanceId,
        /// What it would get.
        cpu: Cpu,
        /// What is wrong with that.
        why: BadShare,
    },
    /// A bound or a constraint of an application.
    #[error("`{app}` {what}")]
    Constraint {
        /// The application.
        app: AppName,
        /// What it breaks.
        what: String,
    },
    /// A running instance would get no CPU at all, or an application goes without although there is a place for it.
    #[error("`{app}` is starved: {what}")]
    Starved {
        /// The application.
        app: AppName,
        /// How.
        what: String,
    },
    /// The plan says that something is where its actions do not bring it.
    #[error("the plan counts {planned} running instances of `{app}` on `{node}`, its actions lead to {found}")]
    Inconsistent {
        /// The application.
        app: AppName,
        /// The node.
        node: NodeName,
        /// What the plan says.
        planned: u32,
        /// What its actions do.
        found: u32,
    },
    /// A plan for a stable snapshot has actions.
    #[error("the snapshot equals the last one, yet the plan has {actions} action{}", if *.actions == 1 { "" } else { "s" })]
    Churn {
        /// How many.
        actions: usize,
    },
}

/// Why a step of a plan cannot be taken.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum Impossible {
    /// The pool has no such application.
    #[error("the pool has no application `{app}`")]
    NoApplication {
        /// The one that it names.
        app: AppName,
    },
    /// What it is about is not there.
    #[error("it does not exist")]
    Missing,
    /// What it would start is there already.
    #[error("it exists already")]
    Exists,
    /// The node does not answer.
    #[error("node `{node}` does not answer")]
    NodeDown {
        /// Which.
        node: NodeName,
    },
    /// An instance is in a state in which this cannot be done.
    #[error("it is {}", .state.as_str())]
    InstanceState {
        /// The state.
        state: InstanceState,
    },
    /// A job is in a state in which this cannot be done.
    #[error("it is {}", .state.as_str())]
    JobState {
        /// The state.
        state: JobState,
    },
    /// A plan may not ask for it: only an order may, or the end of a run.
    #[error("no plan may ask for it")]
    NotAPlans,
    /// A job would get another number of nodes than it has tasks.
    #[error("it has {tasks} tasks and would get {nodes} nodes")]
    Tasks {
        /// Its tasks.
        tasks: usize,
        /// The nodes of the plan.
        nodes: usize,
    },
    /// A job would get a CPU that is negative or no number.
    #[error("{cpu} is no amount of CPU")]
    NoCpu {
        /// What it would get.
        cpu: Cpu,
    },
    /// A job would get more CPU than it can use.
    #[error("each of its tasks can use {most}, and would get {cpu}")]
    TooFast {
        /// What each task would get.
        cpu: Cpu,
        /// What each task can use.
        most: Cpu,
    },
    /// A job would get less CPU than it must.
    #[error("each of its tasks needs {least}, and would get {cpu}")]
    TooSlow {
        /// What each task would get.
        cpu: Cpu,
        /// What each task must get.
        least: Cpu,
    },
}

/// What is wrong with the CPU that an instance would get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum BadShare {
    /// The instance is not there.
    #[error("is for nobody")]
    Nobody,
    /// It is negative, or no number.
    #[error("is no amount of CPU")]
    NoCpu,
    /// The config lets one instance have less.
    #[error("is more than one instance can use")]
    TooMuch,
}
