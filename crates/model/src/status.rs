//! What users see: the stable shape behind `weal status -o json`, the API and the dashboard.
//!
//! Fields are only ever added. Units stand at the end of the names.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Algorithm, AppKind, AppName, Binding, Bytes, ClassName, Cpu, FlowId, Goal, Importance, InstanceId, InstanceState, JobStatus,
    KeptAwake, NodeName, OwnAnswer, Time, Utility, WorkFactor,
};

/// The whole pool, now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// The pool's name.
    pub pool: String,
    /// weal's version.
    pub version: String,
    /// When this was put together.
    pub time: Time,
    /// Grows by one with each config that was taken.
    pub config_generation: u64,
    /// Why the newest config on disk was not taken; `None` when it was.
    pub config_error: Option<String>,
    /// False when weal only watches.
    pub control: bool,
    /// Which algorithm places instances.
    #[serde(default)]
    pub placement: Algorithm,
    /// `http://` address for clients.
    pub listen: String,
    /// `http://` address of API and dashboard.
    pub api: String,
    /// What the node agent can and cannot do here, in words: one entry per thing lost.
    pub limits: Vec<String>,
    /// What is wrong with weal itself now, in words: a role that does not answer, a store that cannot write.
    #[serde(default)]
    pub problems: Vec<String>,
    /// The nodes.
    pub nodes: Vec<NodeStatus>,
    /// The applications with their instances.
    pub apps: Vec<AppStatus>,
    /// The flows.
    pub flows: Vec<FlowStatus>,
    /// The jobs that are not over, and the last few that are; the first of them where they are many.
    #[serde(default)]
    pub jobs: Vec<JobStatus>,
    /// The last placement plan.
    pub plan: Option<PlanSummary>,
}

/// One node, now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeStatus {
    /// Its name.
    pub name: NodeName,
    /// False when its agent does not answer.
    pub up: bool,
    /// CPU for instances.
    pub cpu_capacity: Cpu,
    /// CPU used by them.
    pub cpu_used: Cpu,
    /// CPU given to them by the last plan.
    pub cpu_allocated: Cpu,
    /// Memory for instances.
    pub memory_capacity: Bytes,
    /// Memory used by them.
    pub memory_used: Bytes,
    /// Memory that is to be free for the next of them.
    #[serde(default)]
    pub memory_reserve: Bytes,
    /// Instances that were parked since the node's agent started because less was free.
    #[serde(default)]
    pub parked_for_reserve: u64,
}

/// One application, now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AppStatus {
    /// Its name.
    pub name: AppName,
    /// Whether it serves, or runs once per deploy.
    #[serde(default)]
    pub kind: AppKind,
    /// How it is, in a word.
    pub state: AppState,
    /// What that word is about, in a sentence; empty when ready.
    pub detail: String,
    /// How far the replacement of its instances is; `None` when none is to be replaced.
    #[serde(default)]
    pub rollout: Option<RolloutStatus>,
    /// Whether it sleeps by an order, and no request has asked for it since.
    #[serde(default)]
    pub told_to_sleep: bool,
    /// What keeps it awake, and until when; `None` when it may sleep.
    #[serde(default)]
    pub kept_awake: Option<KeptAwake>,
    /// Fewest instances.
    pub min: u32,
    /// Most instances.
    pub max: u32,
    /// CPU used by its instances.
    pub cpu_used: Cpu,
    /// CPU wanted for its best utility.
    pub cpu_demand: Cpu,
    /// CPU given by the last plan.
    pub cpu_allocated: Cpu,
    /// Of its seats, those that another gateway holds now, which ends and finishes its requests.
    #[serde(default)]
    pub seats_lent: u32,
    /// The lowest utility of its flows; `None` without goals or traffic.
    pub utility: Option<Utility>,
    /// Its instances.
    pub instances: Vec<InstanceStatus>,
}

/// How an application is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AppState {
    /// As many instances as it wants at least are ready.
    Ready,
    /// Fewer are.
    Degraded,
    /// None is ready yet.
    Starting,
    /// It waits for what it needs.
    Waiting,
    /// The next request wakes it.
    Asleep,
    /// A task that runs for this deploy.
    Running,
    /// A task that has run for this deploy.
    Done,
    /// It does not come up, or a task has failed.
    Failed,
    /// No instance is wanted.
    Stopped,
}

impl AppState {
    /// As it is written in messages and shown to people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Degraded => "degraded",
            Self::Starting => "starting",
            Self::Waiting => "waiting",
            Self::Asleep => "asleep",
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Stopped => "stopped",
        }
    }

    /// How it is, as the rest of a sentence whose subject is the application.
    pub fn phrase(self) -> &'static str {
        match self {
            Self::Ready => "is ready",
            Self::Degraded => "is degraded",
            Self::Starting => "is starting",
            Self::Waiting => "is waiting",
            Self::Asleep => "is asleep",
            Self::Running => "is running",
            Self::Done => "is done",
            Self::Failed => "has failed",
            Self::Stopped => "is stopped",
        }
    }

    /// True when it is as it was asked to be, and nothing more comes of itself.
    pub fn is_settled(self) -> bool {
        matches!(self, Self::Ready | Self::Asleep | Self::Done | Self::Stopped)
    }
}

impl std::fmt::Display for AppState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

impl AppStatus {
    /// True when what was deployed last does not come up, or the task of it failed.
    pub fn has_failed_deploy(&self) -> bool {
        let is_stuck = self.rollout.as_ref().is_some_and(|rollout| rollout.phase == RolloutPhase::Stuck);
        // A task runs in each deploy, whether or not its config has changed.
        is_stuck || (self.kind == AppKind::Task && self.state == AppState::Failed)
    }

    /// True when instances of the version before serve while it is replaced.
    pub fn is_served_by_former(&self) -> bool {
        self.rollout.as_ref().is_some_and(|rollout| rollout.serving > 0)
    }

    /// Which of its seats the gateway may not use now, in a sentence; `None` when it may use all.
    pub fn lent_seats(&self) -> Option<String> {
        let (are, seats) = (if self.seats_lent == 1 { "is" } else { "are" }, self.seats_lent);
        (seats > 0).then(|| {
            format!(
                "{seats} of the seats of {} {are} lent to a former gateway, which finishes its requests; each comes back when its request ends.",
                self.name
            )
        })
    }
}

impl Status {
    /// Why what was deployed last does not come up; `None` when nothing is wrong with it.
    pub fn failed_deploy(&self) -> Option<String> {
        let failed = self.apps.iter().find(|app| app.has_failed_deploy())?;
        let detail = failed.rollout.as_ref().map_or(&failed.detail, |rollout| &rollout.detail);
        Some(format!("{}: {detail}", failed.name))
    }
}

/// How far the replacement of an application's instances is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RolloutStatus {
    /// What it is at.
    pub phase: RolloutPhase,
    /// Instances that are still there and are to go.
    pub old: u32,
    /// New ones that are ready.
    pub new: u32,
    /// Of the old ones, those that are ready: they serve meanwhile.
    #[serde(default)]
    pub serving: u32,
    /// What is waited for, or why it goes no further, in sentences.
    pub detail: String,
}

/// What a replacement is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RolloutPhase {
    /// No node has memory for a new instance just now.
    Waiting,
    /// A new instance is on its way to ready.
    Starting,
    /// The new ones serve; the old ones finish what they have.
    Draining,
    /// The new one does not get ready; the old ones stay.
    Stuck,
}

/// One instance, now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InstanceStatus {
    /// Its id.
    pub id: InstanceId,
    /// Where it is.
    pub node: NodeName,
    /// What it does.
    pub state: InstanceState,
    /// Why it is in that state, in a sentence; may be empty.
    pub detail: String,
    /// Its main process.
    pub pid: Option<u32>,
    /// Where it listens.
    pub address: String,
    /// CPU used.
    pub cpu_used: Cpu,
    /// CPU given by the last plan.
    pub cpu_allocated: Cpu,
    /// Memory used: what is charged to it, without what is in swap.
    pub memory_used: Bytes,
    /// Memory of it that is in swap.
    #[serde(default)]
    pub swap_used: Bytes,
    /// Milliseconds from the last order to wake it until it answered; `None` before.
    #[serde(default)]
    pub last_wake_ms: Option<f64>,
    /// Requests outstanding.
    pub in_flight: u32,
    /// How often it was started again.
    pub restarts: u32,
    /// When it entered its state.
    pub since: Time,
}

/// One flow, now: measured over the last few cycles.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlowStatus {
    /// Which.
    pub id: FlowId,
    /// Its application.
    pub app: AppName,
    /// Its class.
    pub class: ClassName,
    /// What is asked.
    pub goal: Option<Goal>,
    /// The goal as people write it, e.g. `p95 < 250ms`; empty for best effort.
    pub goal_text: String,
    /// How much a miss matters.
    pub importance: Importance,
    /// What the goal is about, as achieved: milliseconds, or requests per second for a throughput goal; `None` without traffic.
    pub achieved: Option<f64>,
    /// How well the goal is met; `None` without traffic or goal.
    pub utility: Option<Utility>,
    /// What the model expects of the seats in force.
    pub predicted_utility: Option<Utility>,
    /// Requests per second that came in.
    pub arrival_per_s: f64,
    /// Requests per second that were answered.
    pub throughput_per_s: f64,
    /// Requests per second that were rejected.
    pub rejected_per_s: f64,
    /// Requests per second that failed.
    pub errors_per_s: f64,
    /// From arrival to the end of the response.
    pub response: LatencySummary,
    /// From dispatch to the end of the response.
    pub service: LatencySummary,
    /// Requests waiting, on average.
    pub queue_mean: f64,
    /// Requests outstanding, on average.
    pub in_service_mean: f64,
    /// Seats in force.
    pub seats: u32,
    /// Seats now held by requests whose instance has sent nothing since they got them, for half a minute or longer.
    #[serde(default)]
    pub hanging: u32,
    /// Seats now held by requests that wait for their clients, to send or to take more.
    #[serde(default)]
    pub at_clients: u32,
    /// Weight in force, requests per second.
    pub weight: f64,
    /// CPU that its requests use over all clusters.
    pub cpu_used: Cpu,
    /// CPU granted.
    pub cpu_allocated: Cpu,
    /// Work factors, one per cluster that it loads.
    pub work_factors: Vec<WorkFactor>,
    /// What keeps it from more.
    pub binding: Binding,
}

/// A latency distribution in four numbers, in milliseconds; all zero when `count` is.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LatencySummary {
    /// How many.
    pub count: u64,
    /// Mean.
    pub mean_ms: f64,
    /// Median.
    pub p50_ms: f64,
    /// 95th percentile.
    pub p95_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
}

/// The last placement plan in brief.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlanSummary {
    /// The snapshot it was made for.
    pub generation: u64,
    /// When it was made.
    pub time: Time,
    /// Milliseconds that planning took.
    pub planned_in_ms: f64,
    /// How many actions it had.
    pub actions: u32,
    /// The utility of the worst off.
    pub lowest_utility: Option<Utility>,
    /// No plan can bring the worst off above this.
    pub upper_bound: Option<Utility>,
}

/// Something that happened, with its reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// Grows by one per event.
    pub id: u64,
    /// When.
    pub time: Time,
    /// How bad it is.
    pub severity: Severity,
    /// What kind.
    pub kind: EventKind,
    /// The application concerned.
    pub app: Option<AppName>,
    /// The instance concerned.
    pub instance: Option<InstanceId>,
    /// The node concerned.
    pub node: Option<NodeName>,
    /// One plain sentence.
    pub text: String,
}

/// How bad an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// As planned.
    Info,
    /// Somebody may want to know.
    Warning,
    /// Somebody must act.
    Error,
}

/// What kind of thing happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// An instance changed its state.
    Instance,
    /// A placement plan was applied, or part of it failed.
    Plan,
    /// Seats changed by much.
    Seats,
    /// A config was taken or refused.
    Config,
    /// A role of weal came or went.
    Role,
    /// A node came or went.
    Node,
    /// A job came, went on or ended.
    Job,
}

/// A request that a gateway answered itself, with an error: what its client was told, and how crowded it was then.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RefusedRequest {
    /// Its `x-request-id`.
    pub id: String,
    /// When it was answered.
    pub time: Time,
    /// The application that it was for; `None` when no route matched or it could not be read.
    pub app: Option<AppName>,
    /// Its class.
    pub class: Option<ClassName>,
    /// The status of the answer.
    pub status: u16,
    /// Why, in a word: the answer's `x-weal-reason`.
    pub reason: OwnAnswer,
    /// Why, in words: the answer's body.
    pub text: String,
    /// How crowded its application was; `None` without one.
    pub crowd: Option<Crowd>,
}

/// How crowded an application is at one gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Crowd {
    /// Requests of the class that wait.
    pub queued: u32,
    /// How many may.
    pub queue_limit: u32,
    /// Requests of all classes of the application that are outstanding.
    pub in_service: u32,
    /// How many may be; `None` does not limit.
    pub seats: Option<u32>,
    /// True when some instance can take requests.
    pub any_open: bool,
}

/// The answer to `weal why APP`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Why {
    /// The application.
    pub app: AppName,
    /// How it is, why, and what would change it: at most three sentences, each number a measured one.
    #[serde(default)]
    pub answer: Vec<String>,
    /// All that is known, in plain sentences, the most important first.
    pub sentences: Vec<String>,
    /// The application's status.
    pub status: AppStatus,
    /// Its flows.
    pub flows: Vec<FlowStatus>,
    /// Its last events, newest first.
    pub events: Vec<Event>,
    /// About one node, when that was asked.
    #[serde(default)]
    pub node: Option<WhyNode>,
    /// Its last requests that the gateway answered itself with an error, newest first, when that was asked.
    #[serde(default)]
    pub refused: Vec<RefusedRequest>,
}

/// The answer to `weal why APP --node NODE`: why it is there, or why not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WhyNode {
    /// Which.
    pub node: NodeName,
    /// The verdict in a word.
    pub verdict: NodeVerdict,
    /// Plain sentences, the most important first.
    pub sentences: Vec<String>,
}

/// The answer to `weal why --request ID`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WhyRequest {
    /// The request.
    pub request: RefusedRequest,
    /// Plain sentences, the most important first.
    pub sentences: Vec<String>,
}

/// Why an application is on a node or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NodeVerdict {
    /// It is there.
    There,
    /// The pool has no such node, or it does not answer.
    NoNode,
    /// A rule of its config forbids it: `nodes`, `apart`, `together`, `per-node`, `manual`.
    Forbidden,
    /// Another instance does not fit into the node's memory.
    Memory,
    /// It has its most instances already, and moving one there gains less than it costs.
    MaxInstances,
    /// It could be there and would gain less than it costs.
    NoGain,
    /// It would gain: the next plan may bring it there.
    Gain,
}

impl LatencySummary {
    /// From a histogram.
    pub fn of(histogram: &crate::LatencyHistogram) -> Self {
        let ms = |seconds: Option<f64>| seconds.unwrap_or(0.0) * 1e3;
        Self {
            count: histogram.count(),
            mean_ms: ms(histogram.mean_s()),
            p50_ms: ms(histogram.quantile_s(0.5)),
            p95_ms: ms(histogram.quantile_s(0.95)),
            p99_ms: ms(histogram.quantile_s(0.99)),
        }
    }
}
