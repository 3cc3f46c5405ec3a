//! What the API takes and gives beside the model's own types.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weal_model::{
    AppName, Bytes, ClassName, InstanceId, InstanceRange, JobCommand, JobFiles, JobName, JobQuota, JobStatus, NodeName, Plan,
    PoolSpec, Report, Rung, SeatPlan, Severity, Time, Utility,
};

/// `PUT /v1/config`: take this config.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConfigUpdate {
    /// The text of a `weal.toml`.
    pub text: String,
    /// Where it was read, for messages and for relative working directories.
    pub path: String,
    /// True: say what would change, and change nothing.
    #[serde(default)]
    pub dry_run: bool,
    /// Why the sender cannot take it while the pool runs; the controller tells that, and changes nothing. Empty when it can.
    #[serde(default)]
    pub refused: String,
    /// What brings it, in a few words for the history, such as `weal deploy`; at most [`ConfigUpdate::LONGEST_ORIGIN`] bytes are kept.
    #[serde(default)]
    pub origin: String,
}

impl ConfigUpdate {
    /// The longest origin that is kept, in bytes.
    pub const LONGEST_ORIGIN: usize = 200;
}

/// One version in `GET /v1/configs`: a config that was in force, or is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConfigVersion {
    /// Its number.
    pub generation: u64,
    /// When it came into force.
    pub time: Time,
    /// Who brought it; `None` for one that an older weal took.
    pub who: Option<Caller>,
    /// What brought it, in a few words.
    pub origin: String,
    /// Where it was read.
    pub path: String,
    /// Its text; `None` in lists.
    pub text: Option<String>,
    /// Why it did not come up, when another version took its place; `None` for one that did.
    #[serde(default)]
    pub failed: Option<String>,
}

/// A line in `GET /v1/apps/{app}/logs?json=true`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogLine {
    /// When it was read from the instance, to the millisecond; `None` where that was not written down.
    pub time: Option<Time>,
    /// Who wrote it: an instance, or the run of a job.
    pub instance: InstanceId,
    /// The line, without its end.
    pub line: String,
}

/// `POST /v1/events`: what the supervisor saw. It becomes an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoteOrder {
    /// How bad it is.
    pub severity: Severity,
    /// One or two sentences, at most [`NoteOrder::LONGEST`] bytes.
    pub text: String,
}

impl NoteOrder {
    /// The longest text that is taken, in bytes.
    pub const LONGEST: usize = 1000;
}

/// What a token lets its holder do over TCP; each scope has what those before it have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TokenScope {
    /// See how the pool is: status, metrics, events, history, the dashboard.
    Read,
    /// Submit jobs too, and see and order those that were submitted by it.
    Jobs,
    /// Give every order, and read configs and logs. It neither makes tokens nor reads the audit log.
    #[serde(alias = "order")]
    All,
}

/// `POST /v1/tokens`: make a token.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenOrder {
    /// What it is called in lists and in the audit log: at most 32 lower-case letters, digits and hyphens.
    pub name: String,
    /// What it lets be done; when left out `jobs` for a token with a quota, and `all` for another.
    #[serde(default, alias = "rights")]
    pub scope: Option<TokenScope>,
    /// After so many seconds it is worth nothing; for ever when left out.
    #[serde(default)]
    pub lasts_s: Option<u64>,
    /// What the jobs that are submitted by it may be together.
    #[serde(default)]
    pub quota: JobQuota,
}

/// A token was made. Its secret is told this once; only its hash is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TokenMade {
    /// Its name.
    pub name: String,
    /// What goes after `Authorization: Bearer`.
    pub secret: String,
    /// What it lets be done; `None` from a controller that knows no scopes.
    #[serde(default)]
    pub scope: Option<TokenScope>,
}

/// One token in `GET /v1/tokens`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TokenView {
    /// Its name.
    pub name: String,
    /// What it lets be done.
    pub scope: TokenScope,
    /// True for a token that may order everything because a version of weal made it that knew no scope for jobs.
    #[serde(default)]
    pub unscoped: bool,
    /// When it was made.
    pub made: Time,
    /// When it ends; never when `null`.
    pub ends: Option<Time>,
    /// What the jobs that are submitted by it may be together.
    #[serde(default)]
    pub quota: JobQuota,
}

/// The token is worth nothing any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TokenRevoked {}

/// Who called the API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase", tag = "kind")]
pub enum Caller {
    /// A user of this machine, through the local socket.
    User {
        /// Their number; the kernel says it.
        uid: u32,
    },
    /// Whoever has a token.
    Token {
        /// Its name.
        name: String,
        /// Where they called from.
        address: String,
    },
    /// Somebody without a token that is worth anything.
    Unknown {
        /// Where they called from.
        address: String,
    },
}

/// One line of the audit log: an order, or a call that was refused for want of rights.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditEntry {
    /// When it was answered.
    pub time: Time,
    /// Who called.
    pub who: Caller,
    /// The method.
    pub method: String,
    /// The path without its query, at most 256 bytes.
    pub path: String,
    /// How it was answered.
    pub status: u16,
    /// Calls before this one that are not listed: refused ones beyond 60 a minute, and those that a full disk did not take.
    pub unlisted: u64,
}

/// The event is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NoteTaken {}

/// The config was taken, or would be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConfigTaken {
    /// The generation in force; the current one for a dry run or when nothing changed.
    pub generation: u64,
    /// What changes, one sentence each; empty when nothing does.
    pub changes: Vec<String>,
    /// What is allowed but probably not meant.
    pub warnings: Vec<String>,
}

/// The config was not taken; the last good one stays in force.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConfigRefused {
    /// All of it in one line.
    pub error: String,
    /// Each mistake with its place.
    pub diagnostics: Vec<ConfigDiagnostic>,
}

/// One mistake in a config.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConfigDiagnostic {
    /// The file.
    pub path: String,
    /// Counted from 1.
    pub line: u32,
    /// Counted from 1, in characters.
    pub column: u32,
    /// Characters to underline.
    pub length: u32,
    /// What is wrong.
    pub message: String,
    /// What would be right; may be empty.
    pub help: String,
    /// All of it for a terminal without colours, several lines.
    pub rendered: String,
}

/// `GET /v1/config`: the config in force.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConfigView {
    /// Grows by one with each config that was taken; 0 before the first.
    pub generation: u64,
    /// Its text.
    pub text: String,
    /// Where it was read.
    pub path: String,
    /// It with every default filled in; `None` before the first.
    pub spec: Option<PoolSpec>,
}

/// `GET /v1/plan`: the last decisions and their reasons.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlanView {
    /// Where instances go.
    pub plan: Plan,
    /// Why.
    pub report: Report,
    /// Seats and weights.
    pub seats: SeatPlan,
}

/// `POST /v1/apps/{app}/sleep`: sleep until somebody asks for it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SleepOrder {
    /// How deep; as deep as pays when left out.
    #[serde(default)]
    pub rung: Option<Rung>,
}

/// The application goes to sleep as soon as its requests are done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SleepTaken {
    /// Which.
    pub app: AppName,
    /// Its instances.
    pub instances: Vec<InstanceId>,
}

/// The application wakes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WakeTaken {
    /// Which.
    pub app: AppName,
    /// The instance that is awake or wakes; `None` when there is none and one must be started.
    pub instance: Option<InstanceId>,
    /// The rung that it wakes from; `None` when it was awake.
    pub from: Option<Rung>,
}

/// An order about one application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AppVerb {
    /// Replace its instances by new ones, one after the other.
    Restart,
    /// Stop it, until an order starts it.
    Stop,
    /// Let it run again.
    Start,
    /// Run so many instances, whatever the config says.
    Scale {
        /// How many; `None` is again what the config says.
        instances: Option<InstanceRange>,
    },
    /// Keep it awake for a while, whether or not requests come.
    KeepAwake {
        /// Seconds from now on; `None` ends an earlier order.
        for_s: Option<u64>,
    },
}

/// `POST /v1/apps/{app}/keep-awake`: keep it awake for a while, whether or not requests come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KeepAwakeOrder {
    /// Seconds from now on, a week at most. Another order takes the place of an earlier one; left out, it ends that one.
    #[serde(default)]
    pub for_s: Option<u64>,
}

/// `POST /v1/apps/{app}/scale`: run so many instances, whatever the config says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScaleOrder {
    /// How many; again what the config says when left out.
    #[serde(default)]
    pub instances: Option<InstanceRange>,
}

/// The order is begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AppOrdered {
    /// Which.
    pub app: AppName,
    /// Its instances when the order came.
    pub instances: Vec<InstanceId>,
    /// How many it may have from now on.
    pub range: InstanceRange,
}

/// `POST /v1/jobs`: run this.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JobSubmission {
    /// Program and arguments.
    pub run: Vec<String>,
    /// What the job is called; its number is added. The program's name when left out. Jobs of one name are expected to take as long as each
    /// other, and run as the same user.
    #[serde(default)]
    pub name: Option<String>,
    /// Its service class: one of the config, for its importance, or `platinum`, `gold`, `silver`, `bronze`, for a goal of so many times its
    /// work.
    #[serde(default)]
    pub class: Option<ClassName>,
    /// Seconds from now within which it is to be done.
    #[serde(default)]
    pub done_within_s: Option<f64>,
    /// When it is to be done, in nanoseconds since 1970; in place of the former.
    #[serde(default)]
    pub done_by: Option<Time>,
    /// The processes that run at once, all or none: a gang; 1 when left out.
    #[serde(default)]
    pub tasks: Option<u32>,
    /// The most memory that it may use, of a gang each task; 256 MiB when left out.
    #[serde(default)]
    pub memory: Option<Bytes>,
    /// The most CPU that helps it, in cores, of a gang all tasks together; 1 for each task when left out.
    #[serde(default)]
    pub cpus: Option<f64>,
    /// CPU-seconds that it takes, of a gang all tasks together; learnt when left out.
    #[serde(default)]
    pub work_s: Option<f64>,
    /// Its phases in their order, each with its own needs, in place of `memory`, `cpus` and `work_s`; one phase when left out.
    #[serde(default)]
    pub stages: Vec<StageWish>,
    /// Variables.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// The working directory, absolute; the job's own folder when left out.
    #[serde(default)]
    pub cwd: Option<String>,
    /// Files and folders, absolute, that are copied into the job's own folder before it begins.
    #[serde(default)]
    pub inputs: Vec<String>,
    /// Patterns of paths in the job's own folder; what they name is copied to `output_to` before the job counts as done.
    #[serde(default)]
    pub outputs: Vec<String>,
    /// The folder, absolute, for the results.
    #[serde(default)]
    pub output_to: Option<String>,
    /// Program and arguments that save the job's state in its folder while it runs. With them weal may end it and let it go on elsewhere.
    #[serde(default)]
    pub checkpoint: Vec<String>,
    /// What is run in place of `run` to go on from what was saved; `run` when left out.
    #[serde(default)]
    pub restore: Vec<String>,
    /// A second submission with the same key is the same job.
    #[serde(default)]
    pub key: Option<String>,
    /// Its place among the waiting jobs of its importance, from -100 to 100: a higher one goes first; 0 when left out.
    #[serde(default)]
    pub priority: Option<i32>,
    /// How often it is run again after it fails by its own fault.
    #[serde(default)]
    pub retries: u32,
    /// Jobs that must be done before it starts; the name of an array stands for all of its jobs.
    #[serde(default)]
    pub after: Vec<JobName>,
    /// One job for each of these numbers, which it finds as `$ARRAY_INDEX`.
    #[serde(default)]
    pub array: Option<ArrayRange>,
}

/// One phase of a job (Carrera 5.4.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StageWish {
    /// CPU-seconds that it takes.
    pub work_s: f64,
    /// The most CPU that helps it, in cores; 1 when left out.
    #[serde(default)]
    pub cpus: Option<f64>,
    /// The most memory that it may use; 256 MiB when left out.
    #[serde(default)]
    pub memory: Option<Bytes>,
}

/// The numbers of an array: `first`, `first + step`, and so on, `last` at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ArrayRange {
    /// The first one.
    pub first: u32,
    /// The last one, at least the first.
    pub last: u32,
    /// From one to the next, at least 1; 1 when left out.
    #[serde(default = "one")]
    pub step: u32,
}

fn one() -> u32 {
    1
}

impl ArrayRange {
    /// Its numbers; empty when it has none.
    pub fn indices(self) -> impl Iterator<Item = u32> {
        (self.first..=self.last).step_by(self.step.max(1) as usize)
    }
}

impl JobSubmission {
    /// What is run.
    pub fn command(&self) -> JobCommand {
        let (inputs, outputs, to) = (self.inputs.clone(), self.outputs.clone(), self.output_to.clone());
        let files = JobFiles { inputs, outputs, to };
        let (checkpoint, restore) = (self.checkpoint.clone(), self.restore.clone());
        JobCommand { run: self.run.clone(), env: self.env.clone(), cwd: self.cwd.clone(), files, checkpoint, restore }
    }
}

/// The job is on disk, and will be run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobTaken {
    /// How it is.
    pub job: JobStatus,
    /// False when an earlier submission had the same key: this is its job.
    pub is_new: bool,
    /// What is allowed but probably not meant.
    pub warnings: Vec<String>,
}

/// `POST /v1/jobs/dry-run`: what would become of a job, and of others, if it were submitted now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobForecast {
    /// How it would be; its name is the one that it would get.
    pub job: JobStatus,
    /// Where it would begin at once; `None` when it would wait.
    pub node: Option<NodeName>,
    /// Whose utility would change by 0.01 or more, who loses most first.
    pub changes: Vec<ForecastChange>,
    /// What would be done to others at once because of it, one sentence each.
    pub steps: Vec<String>,
    /// What is allowed but probably not meant.
    pub warnings: Vec<String>,
}

/// How somebody else would be with a job and without it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ForecastChange {
    /// An application or a job.
    pub name: String,
    /// It is a job.
    pub is_job: bool,
    /// Its utility without the new job; `None` without a goal.
    pub before: Option<Utility>,
    /// Its utility with it.
    pub after: Option<Utility>,
    /// When the job is expected to end without the new one; `None` for an application.
    pub end_before: Option<Time>,
    /// When it is expected to end with it.
    pub end_after: Option<Time>,
}

impl ForecastChange {
    /// Utility that is lost; less than nothing when some is won, 0 without a goal.
    pub fn lost(&self) -> f64 {
        match (self.before, self.after) {
            (Some(before), Some(after)) => before.0 - after.0,
            _ => 0.0,
        }
    }
}

/// What `POST /v1/jobs/{job}/VERB` does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum JobVerb {
    /// End it.
    Cancel,
    /// Let it stand still, with its memory.
    Pause,
    /// Let it stand still, without its memory.
    Suspend,
    /// Let weal decide again.
    Resume,
    /// End its run and begin anew; also after it has ended.
    Requeue,
}

impl JobVerb {
    /// What has become of a job that took it: `paused`.
    pub fn participle(self) -> &'static str {
        match self {
            Self::Cancel => "cancelled",
            Self::Pause => "paused",
            Self::Suspend => "suspended",
            Self::Resume => "resumed",
            Self::Requeue => "begun anew",
        }
    }
}

/// Any refusal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApiError {
    /// A fragment that fits "failed to call: ...".
    pub error: String,
}
