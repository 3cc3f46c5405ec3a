//! What was decided, and why.
//!
//! Plans are complete, immutable data: the code that applies one has no choices left.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{AppName, Bytes, Cpu, FlowId, InstanceId, JobName, NodeName, Rung, Utility, Work};

/// CPU-seconds that one request of a flow costs in a cluster, with how sure that is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkFactor {
    /// The flow.
    pub flow: FlowId,
    /// The cluster that does the work: the flow's own, or one that it needs.
    pub app: AppName,
    /// The estimate.
    pub work: Work,
    /// Half-width of the 95% interval, in the same unit; infinite before the first measurement.
    pub plus_minus: Work,
    /// Flows that this one cannot be told apart from, because they always moved together.
    pub tied_with: Vec<FlowId>,
}

/// What the flow cycle decided: seats and weights of every flow (Pacifici section 3).
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SeatPlan {
    /// The snapshot it was made for.
    pub generation: u64,
    /// One entry per flow, sorted by id.
    pub flows: Vec<FlowAllocation>,
}

/// A flow's share of its gateway.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlowAllocation {
    /// The flow.
    pub id: FlowId,
    /// Requests that may be outstanding. Invariant: at least 1 when the flow has a goal.
    pub seats: u32,
    /// CPU that one of them uses while it is outstanding, over all clusters: `kappa` (Pacifici (3)); 0 while nothing is known.
    #[serde(default = "nothing_known")]
    pub seat_power: Cpu,
    /// Weighted round robin weight `w = seats / service time` (Pacifici section 3), requests per second.
    pub weight: f64,
    /// CPU that this amounts to over all clusters that it loads.
    pub allocation: Cpu,
    /// CPU that would bring it to its best utility.
    pub demand: Cpu,
    /// The utility that the model expects from this.
    pub predicted: Utility,
}

fn nothing_known() -> Cpu {
    Cpu(0.0)
}

/// How many instances of each application are where.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Placement {
    /// Sorted by application, then node.
    pub entries: Vec<PlacementEntry>,
}

/// The instances of one application on one node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlacementEntry {
    /// The application.
    pub app: AppName,
    /// The node.
    pub node: NodeName,
    /// How many run.
    pub ready: u32,
    /// How many stand by, suspended or parked.
    pub standby: u32,
    /// CPU for all of them together.
    pub load: Cpu,
}

/// The CPU that an instance gets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpuShare {
    /// The instance.
    pub instance: InstanceId,
    /// Its CPU. Enforced as a share among its node's instances, so that what one leaves unused the others get.
    pub cpu: Cpu,
    /// The most it may use until the next plan; `None` is the node's capacity. Given while it competes for CPU: shares only say who goes
    /// first on one processor, and a node smaller than the machine has several to spend its quota on at once.
    #[serde(default)]
    pub limit: Option<Cpu>,
}

/// What the placement cycle decided.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Plan {
    /// The snapshot it was made for; it is applied to no other.
    pub generation: u64,
    /// The steps, in the order in which they are safe: what frees memory comes before what takes it.
    pub actions: Vec<Action>,
    /// Where everything will be.
    pub placement: Placement,
    /// What each instance gets afterwards.
    #[serde(alias = "loads")]
    pub shares: Vec<CpuShare>,
    /// Instances that come up only to stand by: they are put to sleep once they are ready. Sorted.
    #[serde(default)]
    pub ahead: Vec<InstanceId>,
    /// Memory that its node's agent keeps free until the next plan, for the next instance that starts, wakes or grows.
    #[serde(default)]
    pub reserves: Vec<NodeReserve>,
}

/// Memory that is to be free on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeReserve {
    /// The node.
    pub node: NodeName,
    /// How much. While less is free, instances that sleep with their memory are parked, those first that have slept the longest.
    pub memory: Bytes,
}

/// One step. Instances to be started are named by the plan, so that whoever applies it has no choices left.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "action", rename_all = "kebab-case")]
pub enum Action {
    /// Start a new instance.
    Start {
        /// The new instance.
        instance: InstanceId,
        /// Its application.
        app: AppName,
        /// Where.
        node: NodeName,
    },
    /// Drain, then stop.
    Stop {
        /// Which.
        instance: InstanceId,
        /// Its application.
        app: AppName,
    },
    /// Drain if it takes requests, freeze, and page in or out what the rung says.
    Sleep {
        /// Which.
        instance: InstanceId,
        /// Its application.
        app: AppName,
        /// How deep. One that sleeps already changes its rung, deeper or lighter.
        rung: Rung,
    },
    /// Prefetch what it needs, thaw, and wait until it answers.
    Resume {
        /// Which.
        instance: InstanceId,
        /// Its application.
        app: AppName,
    },
    /// Start a job's tasks.
    StartJob {
        /// Which.
        job: JobName,
        /// One node a task.
        nodes: Vec<NodeName>,
    },
    /// Let a job stand still where it is, with its memory: by an order, never by a plan.
    PauseJob {
        /// Which.
        job: JobName,
    },
    /// End a run of a job and take its place away: what is left of one that has ended, or one that is not wanted any more. Never a plan's.
    EndJob {
        /// Which.
        job: JobName,
        /// Which of its runs.
        attempt: u32,
    },
    /// Suspend a job where it is.
    SuspendJob {
        /// Which.
        job: JobName,
    },
    /// Resume a suspended job, on other nodes if they differ from where it is.
    ResumeJob {
        /// Which.
        job: JobName,
        /// One node a task.
        nodes: Vec<NodeName>,
    },
    /// Move a running job.
    MigrateJob {
        /// Which.
        job: JobName,
        /// One node a task.
        nodes: Vec<NodeName>,
    },
    /// Give a running job another speed, per task.
    SetJobCpu {
        /// Which.
        job: JobName,
        /// CPU per task.
        cpu: Cpu,
    },
}

/// What an action is done to. A target has at most one operation at a time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "target", rename_all = "kebab-case")]
pub enum Target {
    /// An instance of an application.
    Instance {
        /// Which.
        instance: InstanceId,
        /// Its application.
        app: AppName,
    },
    /// A job.
    Job {
        /// Which.
        job: JobName,
    },
}

impl Target {
    /// The instance, if it is one.
    pub fn instance(&self) -> Option<&InstanceId> {
        match self {
            Self::Instance { instance, .. } => Some(instance),
            Self::Job { .. } => None,
        }
    }

    /// The application whose instance it is, if it is one.
    pub fn app(&self) -> Option<&AppName> {
        match self {
            Self::Instance { app, .. } => Some(app),
            Self::Job { .. } => None,
        }
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Instance { instance, .. } => write!(f, "{instance}"),
            Self::Job { job } => write!(f, "job {job}"),
        }
    }
}

impl Action {
    /// What it is done to.
    pub fn target(&self) -> Target {
        match self {
            Self::Start { instance, app, .. }
            | Self::Stop { instance, app }
            | Self::Sleep { instance, app, .. }
            | Self::Resume { instance, app } => Target::Instance { instance: instance.clone(), app: app.clone() },
            Self::StartJob { job, .. }
            | Self::PauseJob { job }
            | Self::EndJob { job, .. }
            | Self::SuspendJob { job }
            | Self::ResumeJob { job, .. }
            | Self::MigrateJob { job, .. }
            | Self::SetJobCpu { job, .. } => Target::Job { job: job.clone() },
        }
    }

    /// What it does, as a verb that goes before its target's name.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Start { .. } | Self::StartJob { .. } => "start",
            Self::Stop { .. } => "stop",
            Self::Sleep { rung: Rung::Suspended, .. } | Self::SuspendJob { .. } => "suspend",
            Self::Sleep { rung: Rung::Warm, .. } => "keep warm",
            Self::Sleep { rung: Rung::Parked, .. } => "park",
            Self::Resume { .. } | Self::ResumeJob { .. } => "resume",
            Self::PauseJob { .. } => "pause",
            Self::EndJob { .. } => "end",
            Self::MigrateJob { .. } => "move",
            Self::SetJobCpu { .. } => "set the CPU of",
        }
    }
}

/// Why a plan is as it is, in words and numbers.
#[must_use = "a plan that nobody can explain is not applied"]
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// The snapshot that the plan was made for.
    pub generation: u64,
    /// The utility of the application or job that is worst off under the plan; `None` when there is none with a goal.
    pub lowest_utility: Option<Utility>,
    /// No plan can bring the worst off above this.
    pub upper_bound: Option<Utility>,
    /// Why each application is placed as it is.
    pub apps: BTreeMap<AppName, AppExplanation>,
    /// Why each flow has the seats it has.
    pub flows: Vec<FlowExplanation>,
    /// What to expect of each job that is not done.
    #[serde(default)]
    pub jobs: BTreeMap<JobName, JobExplanation>,
    /// One entry per action, in the plan's order.
    pub reasons: Vec<Reason>,
    /// What could not be used of the snapshot, and what was assumed instead.
    pub notes: Vec<String>,
    /// Utility of the worst off that one more core in the pool would give.
    pub utility_per_core: f64,
    /// Utility of the worst off that one more GiB of memory in the pool would give.
    pub utility_per_gib: f64,
    /// Seconds after which a plan should be made even if nothing happens: what waits loses by then what counts. `None`: nothing does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub look_again_s: Option<f64>,
}

/// Why one application is placed as it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AppExplanation {
    /// CPU that would bring it to its best utility.
    pub demand: Cpu,
    /// CPU granted.
    pub allocation: Cpu,
    /// What to expect from it; `None` for an application without a goal.
    pub utility: Option<Utility>,
    /// What keeps it from more.
    pub binding: Binding,
    /// One or two plain sentences.
    pub text: String,
}

/// What to expect of one job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobExplanation {
    /// The utility that it is headed for, with what others need counted in.
    pub utility: Utility,
    /// Why it does not run, in a sentence; empty when it does.
    pub text: String,
}

/// Why one flow has the seats it has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlowExplanation {
    /// The flow.
    pub id: FlowId,
    /// Seats before.
    pub seats_before: u32,
    /// Seats now.
    pub seats: u32,
    /// What keeps it from more.
    pub binding: Binding,
    /// One or two plain sentences.
    pub text: String,
}

/// What keeps an application or a flow from more.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "limit", rename_all = "kebab-case")]
pub enum Binding {
    /// Nothing: more would not make it faster.
    Satisfied,
    /// The CPU of these nodes, which is full. Applications that share it are expected to be no better off.
    Cpu {
        /// Where.
        nodes: Vec<NodeName>,
    },
    /// Memory: another instance fits nowhere that it may run.
    Memory {
        /// What is missing on the node that comes nearest.
        missing: Bytes,
    },
    /// Its own bound on instances.
    MaxInstances {
        /// The bound.
        max: u32,
    },
    /// The CPU that one instance can use.
    InstanceCpu,
    /// The nodes it may run on, `together` or `apart`.
    Constraint {
        /// Which, in words.
        what: String,
    },
    /// A change would cost more than it gives.
    ChangeCost,
    /// It is not weal's to place.
    Manual,
    /// Nothing has been measured yet.
    Unmeasured,
}

/// Why one action is taken.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Reason {
    /// The action.
    pub action: Action,
    /// One plain sentence with the number that made it so.
    pub text: String,
}
