//! The tables of a scenario file, one type a table. Keys are kebab-case; unknown ones are refused.

mod job;
mod simulate;

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;
use weal_model::{Algorithm, LatePolicy};

use crate::job_step::ExpectedStep;
use crate::values::{GoalText, Rate, Size, Span};
use crate::workload::TraceWindow;

pub use job::{JobLogTable, JobTable, StageTable};
pub use simulate::{CallTable, CostPreset, Housekeeping, JOBS_AS_PROCESSES, SimulateTable, Surroundings, WorkDistribution};

/// A whole file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ScenarioFile {
    /// A sentence: what the scenario is there to show.
    pub intent: Spanned<String>,
    /// Where all random numbers come from. Default: 1.
    #[serde(default = "one")]
    pub seed: u64,
    /// How long it runs.
    pub duration: Spanned<Span>,
    /// The beginning that expectations leave out, unless they say `from` themselves. Default: nothing.
    #[serde(default)]
    pub warm_up: Span,
    /// Timers of the pool.
    #[serde(default)]
    pub pool: PoolTable,
    /// For a run with real processes: the `weal.toml` that stands for `[[node]]`, `[class]` and `[app]`, relative to the file.
    pub config: Option<String>,
    /// The nodes.
    #[serde(default, rename = "node")]
    pub nodes: Vec<NodeTable>,
    /// The service classes by name.
    #[serde(default, rename = "class")]
    pub classes: BTreeMap<String, ClassTable>,
    /// The applications by name.
    #[serde(default, rename = "app")]
    pub apps: BTreeMap<String, Spanned<AppTable>>,
    /// For a simulation: what surrounds the pool.
    #[serde(default)]
    pub simulation: Surroundings,
    /// For a simulation: what requests cost and changes take, per application, or per application and class.
    #[serde(default)]
    pub simulate: Vec<SimulateTable>,
    /// What requests come in.
    #[serde(default, rename = "load")]
    pub loads: Vec<Spanned<LoadTable>>,
    /// For a simulation: what jobs come in.
    #[serde(default, rename = "job")]
    pub jobs: Vec<Spanned<JobTable>>,
    /// What goes wrong.
    #[serde(default, rename = "fault")]
    pub faults: Vec<Spanned<FaultTable>>,
    /// What must come out.
    #[serde(default, rename = "expect")]
    pub expectations: Vec<Spanned<ExpectTable>>,
}

fn one() -> u64 {
    1
}

/// `[pool]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct PoolTable {
    /// Seconds between two decisions about seats. Default: 1 s.
    pub flow_cycle: Span,
    /// Seconds between two decisions about placement. Default: 10 s.
    pub placement_cycle: Span,
    /// False only watches. Default: true.
    pub control: bool,
    /// Which algorithm places instances. Default: weal's.
    pub placement: Algorithm,
}

impl Default for PoolTable {
    fn default() -> Self {
        Self { flow_cycle: Span(1.0), placement_cycle: Span(10.0), control: true, placement: Algorithm::default() }
    }
}

/// `[[node]]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct NodeTable {
    /// Its name.
    pub name: Spanned<String>,
    /// Cores.
    pub cpu: Spanned<f64>,
    /// Memory for instances.
    pub memory: Size,
    /// The share of its CPU that plans may fill. Default: 0.95.
    pub utilization_limit: Option<f64>,
}

/// `[class.NAME]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ClassTable {
    /// What is asked; without it, best effort.
    pub goal: Option<GoalText>,
    /// `lowest`, `low`, `normal`, `high` or `highest`. Default: normal.
    pub importance: Option<Spanned<String>>,
    /// `serve` or `drop`: what becomes of requests that can no longer meet the goal. Default: serve.
    pub late: Option<LatePolicy>,
    /// Requests per second that each application sends to its instances. Default: no limit.
    pub rate_limit: Option<Spanned<Rate>>,
    /// True: requests of sessions under way wait before those that begin one. Default: false.
    #[serde(default)]
    pub sessions_first: bool,
}

/// `[app.NAME]`: as in `weal.toml`, and what its requests cost, which a simulation has to be told.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct AppTable {
    /// Memory per instance.
    pub memory: Size,
    /// The most CPU that one instance can use, in cores.
    pub cpu: Option<f64>,
    /// `3`, or `"1..4"`. Default: 1.
    #[serde(default)]
    pub instances: Option<InstancesText>,
    /// True: two of its instances never run at a time. Default: false.
    #[serde(default)]
    pub singleton: bool,
    /// How many instances one node may hold. Default: 1.
    pub per_node: Option<u32>,
    /// CPU time of one request on a standard core.
    pub work: Span,
    /// How the work varies: `exponential` (default) or `constant`.
    #[serde(default)]
    pub spread: WorkDistribution,
    /// Time of one request that is not CPU: disk, sleep, other machines. Default: none.
    #[serde(default)]
    pub delay: Span,
    /// Seconds from a start until it is ready. Default: 5 s.
    #[serde(default = "five_seconds")]
    pub start: Span,
    /// Seconds from a resume until it is ready. Default: 0.25 s.
    #[serde(default = "quarter")]
    pub resume: Span,
    /// Nodes that it may run on; without it, all.
    pub nodes: Option<Vec<String>>,
    /// Applications that it calls.
    #[serde(default)]
    pub needs: Vec<String>,
    /// Applications that must be on the same node.
    #[serde(default)]
    pub together: Vec<String>,
    /// Applications that must not share a node with it.
    #[serde(default)]
    pub apart: Vec<String>,
    /// Its instances are never stopped to make room.
    #[serde(default)]
    pub pinned: bool,
    /// Nodes that its instances run on at the beginning; without it, none runs.
    #[serde(default)]
    pub initially: Vec<String>,
    /// Its work per request is multiplied by `factor` from `at` on.
    #[serde(default)]
    pub cost_changes: Vec<CostChange>,
}

fn five_seconds() -> Span {
    Span(5.0)
}

fn quarter() -> Span {
    Span(0.25)
}

/// One entry of `cost-changes`.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CostChange {
    /// From here on.
    pub at: Span,
    /// Relative to the work that the application states.
    pub factor: f64,
}

/// A count, or a range of counts.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum InstancesText {
    /// Exactly so many.
    Count(u32),
    /// `"min..max"`.
    Range(String),
}

/// `[[load]]`: exactly one of `sessions`, `rate`, `bursts`, `trace` and `log`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LoadTable {
    /// Who gets the requests.
    pub app: Spanned<String>,
    /// The class that they belong to.
    pub class: Spanned<String>,
    /// What is asked for in a run with real processes. Default: `/`.
    pub path: Option<String>,
    /// The `Host` header in a run with real processes.
    pub host: Option<String>,
    /// Headers in a run with real processes.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Closed: so many sessions.
    pub sessions: Option<u32>,
    /// Mean think time of a session. Default: none.
    #[serde(default)]
    pub think: Span,
    /// Open: requests per second.
    pub rate: Option<Rate>,
    /// On top of a `rate`: crowds that come and go.
    #[serde(default)]
    pub flash: Vec<FlashTable>,
    /// Open: rates that follow each other by chance.
    #[serde(default)]
    pub bursts: Vec<BurstTable>,
    /// Open: recorded counts.
    pub trace: Option<TraceTable>,
    /// Open: the times of an access log.
    pub log: Option<LogTable>,
    /// For `sessions`: pages that they walk through.
    #[serde(default)]
    pub pages: Vec<PageTable>,
    /// When it begins. Default: at once.
    #[serde(default)]
    pub at: Span,
    /// Changes of `sessions` or `rate`, in order.
    #[serde(default)]
    pub steps: Vec<Spanned<StepTable>>,
    /// CPU time of these requests relative to the application's `work`. Default: 1.
    pub work_factor: Option<f64>,
}

/// One entry of `steps`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepTable {
    /// From here on.
    pub at: Span,
    /// Sessions, for a closed load.
    pub sessions: Option<u32>,
    /// Requests per second, for an open load.
    pub rate: Option<Rate>,
}

/// One entry of `flash`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlashTable {
    /// When it begins.
    pub at: Span,
    /// Requests per second on top.
    pub extra: Rate,
    /// How long the rate rises. Default: at once.
    #[serde(default)]
    pub rise: Span,
    /// How long it stays.
    pub hold: Span,
    /// How long it falls. Default: at once.
    #[serde(default)]
    pub fall: Span,
}

/// One entry of `bursts`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BurstTable {
    /// Requests per second while it lasts.
    pub rate: Rate,
    /// How long it lasts in the mean, exponentially distributed; then each other one is as likely.
    pub lasts: Span,
}

/// `log` of a load: an access log in Common or Combined Log Format. Only its times count.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogTable {
    /// Relative to the scenario file.
    pub file: String,
    /// How many times as fast as recorded. Default: 1.
    #[serde(default = "unit")]
    pub speed: f64,
}

/// One entry of `pages`. Every session begins at the first.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PageTable {
    /// Its name.
    pub name: String,
    /// What is asked for in a run with real processes. Default: the load's.
    pub path: Option<String>,
    /// The class that its requests belong to. Default: the load's.
    pub class: Option<String>,
    /// CPU time of its requests relative to the application's. Default: 1.
    #[serde(default = "unit")]
    pub work_factor: f64,
    /// Probabilities of the page that comes next; what is missing to 1 begins the session anew.
    #[serde(default)]
    pub next: BTreeMap<String, f64>,
}

/// `trace` of a load: a recording of requests per minute.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TraceTable {
    /// Relative to the scenario file.
    pub file: String,
    /// The first period as it stands in the file. Default: its first.
    pub from: Option<String>,
    /// How many minutes of it. Default: all.
    pub minutes: Option<usize>,
    /// Recorded seconds per second of the run. Default: 1.
    #[serde(default = "unit")]
    pub time_scale: f64,
    /// Share of the recorded rate. Default: 1.
    #[serde(default = "unit")]
    pub volume_scale: f64,
}

fn unit() -> f64 {
    1.0
}

impl TraceTable {
    /// What of the recording is played.
    pub fn window(&self) -> TraceWindow {
        TraceWindow {
            from: self.from.clone(),
            minutes: self.minutes,
            time_scale: self.time_scale,
            volume_scale: self.volume_scale,
        }
    }
}

/// `[[fault]]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FaultTable {
    /// What goes wrong.
    pub kind: FaultKind,
    /// When it begins.
    pub at: Span,
    /// How long it lasts. Default: to the end.
    #[serde(rename = "for")]
    pub lasts: Option<Span>,
    /// Where, for `node-down`, `slow-node` and the measurement faults (which hit every node without it).
    pub node: Option<String>,
    /// Whose, for `instance-down`.
    pub app: Option<String>,
    /// How much: relative noise (standard deviation), speed factor, share of measurements lost, seconds of a clock jump,
    /// cycles of delay, share of actions.
    pub amount: Option<f64>,
}

/// What can go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// The node dies with its instances; it comes back empty.
    NodeDown,
    /// The node's cores run at `amount` of their speed.
    SlowNode,
    /// Measured CPU and times are multiplied by log-normal noise of relative size `amount`.
    Noise,
    /// Each measurement is missing with probability `amount`.
    Missing,
    /// Measurements arrive `amount` flow cycles late.
    Delay,
    /// Each measured CPU is NaN with probability `amount`.
    Nan,
    /// The controller's clock jumps by `amount` seconds (negative: back).
    ClockJump,
    /// One ready instance of `app` ends by itself; it is started again after a pause.
    InstanceDown,
    /// Another version of `app` is deployed.
    Deploy,
    /// A version of `app` is deployed that ends before it is ready; afterwards the one before is deployed again.
    BadDeploy,
    /// Nothing is decided; the gateway and the nodes go on with what they were told.
    ControllerDown,
    /// Requests are refused, and those that it had are lost; it comes back knowing nothing.
    GatewayDown,
    /// Each action fails with probability `amount`.
    ActionFails,
    /// Each action hangs until the fault is over, and fails then, with probability `amount`.
    ActionHangs,
}

/// `[[expect]]`: a measure, over which part of the run, and its range.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ExpectTable {
    /// What is measured.
    pub what: Measure,
    /// The application, where the measure has one.
    pub app: Option<String>,
    /// The class, where the measure has one.
    pub class: Option<String>,
    /// From here. Default: the end of the warm-up.
    pub from: Option<Span>,
    /// Until here. Default: the end.
    pub to: Option<Span>,
    /// The least that it may be.
    pub at_least: Option<f64>,
    /// The most that it may be.
    pub at_most: Option<f64>,
    /// Of `job-order`: what happens to which job, one after the other.
    #[serde(default)]
    pub order: Vec<ExpectedStep>,
}

/// What an expectation can be about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// The utility of a flow's goal over the span.
    Utility,
    /// The lowest utility of any flow with a goal.
    LowestUtility,
    /// Highest minus lowest utility of the flows with goals.
    UtilityGap,
    /// Mean response time in seconds.
    MeanResponse,
    /// 95th percentile of response time in seconds.
    P95Response,
    /// Answers per second.
    Throughput,
    /// Requests rejected with 503.
    Rejections,
    /// Requests lost with a node.
    Failures,
    /// Actions that changed where instances run (start, stop, suspend, resume, park).
    PlacementChanges,
    /// Ready instances of an application, averaged over the span.
    Instances,
    /// Mean utilisation of all nodes that are up, 0..=1.
    Utilization,
    /// Jobs that were done.
    JobsDone,
    /// Of the jobs that were due, the share (0..=1) that was done by then.
    JobsOnTime,
    /// Mean utility of the jobs that were done.
    JobUtility,
    /// Lowest utility of a job that was done.
    LowestJobUtility,
    /// The mean utility that jobs which are not over are headed for, averaged over the span.
    ExpectedJobUtility,
    /// The same less the lowest utility of a flow with a goal.
    JobGap,
    /// Jobs that wait or are suspended, averaged over the span.
    JobsWaiting,
    /// Cores that plans give to all jobs, averaged over the span.
    JobCpu,
    /// Steps of jobs that came one after the other.
    JobOrder,
}
