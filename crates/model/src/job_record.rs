//! A job as a running pool keeps it: what was submitted, how far it is, how it ended. The store has one [`JobRecord`] a job; people are shown a
//! [`JobStatus`].

use std::collections::BTreeMap;
use std::path::{Component, Path};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Bytes, ClassName, Cpu, JobName, JobSpec, NodeName, Time, Utility, Work};

/// What is run.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobCommand {
    /// Program and arguments, as they are: nothing in them is filled in. Invariant: not empty.
    pub run: Vec<String>,
    /// Variables beside those that every job has.
    pub env: BTreeMap<String, String>,
    /// The working directory, absolute; `None` is the job's own folder.
    pub cwd: Option<String>,
    /// What is copied into that folder and out of it.
    #[serde(default)]
    pub files: JobFiles,
    /// Program and arguments that save its state while it runs, so that it can be ended and go on from there; empty: it cannot.
    #[serde(default)]
    pub checkpoint: Vec<String>,
    /// What is run in place of `run` to go on from what was saved; empty: `run`.
    #[serde(default)]
    pub restore: Vec<String>,
}

/// Files that are copied into a job's own folder before it begins, and out of it before it counts as done.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct JobFiles {
    /// Files and folders, absolute; each comes under its own name.
    pub inputs: Vec<String>,
    /// Patterns of paths in the job's folder, each with something that it names.
    pub outputs: Vec<String>,
    /// The folder, absolute, into which `outputs` go with their paths. Invariant: there is one if there are `outputs`.
    pub to: Option<String>,
}

impl JobFiles {
    /// Whether a pattern of outputs stays in the job's own folder: it is relative, and goes up nowhere.
    pub fn is_inside(pattern: &str) -> bool {
        !pattern.is_empty() && Path::new(pattern).components().all(|part| matches!(part, Component::Normal(_)))
    }
}

/// A job's place in an array: jobs that were submitted together and differ in a number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ArrayPart {
    /// The array's name: that of each of its jobs without the last number.
    pub array: JobName,
    /// Its number: `$ARRAY_INDEX`.
    pub index: u32,
}

/// Which date of which schedule a job was submitted for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ScheduledFor {
    /// The schedule.
    pub schedule: JobName,
    /// Its date.
    pub date: Time,
}

/// What keeps a job from running although it could.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Hold {
    /// Nothing: weal decides.
    #[default]
    None,
    /// An order has paused it: it keeps its memory.
    Paused,
    /// An order has suspended it: its image leaves memory.
    Suspended,
}

/// Why a job is to be ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "why", rename_all = "kebab-case")]
pub enum Cancellation {
    /// By an order.
    Order,
    /// The next job of its schedule takes its place: `overlap = "replace"`.
    Replaced {
        /// The schedule.
        schedule: JobName,
    },
    /// A job that it waits for is over and was not done.
    NotDone {
        /// That job.
        job: JobName,
    },
}

impl std::fmt::Display for Cancellation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Order => write!(f, "an order cancelled it"),
            Self::Replaced { schedule } => write!(f, "the next job of the schedule `{schedule}` takes its place"),
            Self::NotDone { job } => write!(f, "`{job}`, which it waits for, was not done"),
        }
    }
}

/// A job from its submission to its end, as the store keeps it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobRecord {
    /// Its number: grows by one a job, and is never used again.
    pub number: u64,
    /// What it needs, and by when.
    pub spec: JobSpec,
    /// What is run.
    pub command: JobCommand,
    /// Its service class; `None` when none was named.
    pub class: Option<ClassName>,
    /// The submitter's key: a second submission with it is the same job.
    pub key: Option<String>,
    /// Jobs that must be done before it may start.
    #[serde(default)]
    pub after: Vec<JobName>,
    /// The array of which it is a part.
    #[serde(default)]
    pub array: Option<ArrayPart>,
    /// The date of a schedule for which it was submitted; `None` when somebody submitted it.
    #[serde(default)]
    pub scheduled: Option<ScheduledFor>,
    /// The token by which it was submitted; `None` for a user of this machine, or the config.
    #[serde(default)]
    pub submitter: Option<String>,
    /// The most memory of each task, where its stage says what earlier runs used and nobody has said what it needs; `None`: what its stages say.
    #[serde(default)]
    pub memory_limit: Option<Bytes>,
    /// How often it is still run again after it fails by its own fault.
    pub retries: u32,
    /// The number of its present run, from 1. A run that has begun is never begun again: what follows has the next number.
    pub attempt: u32,
    /// Its present run has begun.
    pub begun: bool,
    /// Runs that weal lost: its processes were gone and nobody could say how they ended.
    pub lost: u32,
    /// Its state was saved, and its next run goes on from there.
    #[serde(default)]
    pub saved: bool,
    /// CPU-seconds of each task up to then.
    #[serde(default)]
    pub saved_work: Work,
    /// Where that was.
    #[serde(default)]
    pub saved_on: Option<NodeName>,
    /// What an order holds it back for.
    pub hold: Hold,
    /// It is to be ended.
    pub cancelled: bool,
    /// Why; `None` while it is not, and in records of a version that did not keep it.
    #[serde(default)]
    pub cancelled_because: Option<Cancellation>,
    /// Not run again before.
    #[serde(default)]
    pub not_before: Time,
    /// When its first run began.
    pub began: Option<Time>,
    /// How it ended; `None` while it has not.
    pub end: Option<JobEnd>,
}

impl JobRecord {
    /// Whether it is a part of `array`.
    pub fn is_part_of(&self, array: &JobName) -> bool {
        self.array.as_ref().is_some_and(|part| part.array == *array)
    }

    /// It is to be ended. The first reason is kept.
    pub fn cancel(&mut self, why: Cancellation) {
        self.cancelled = true;
        self.cancelled_because.get_or_insert(why);
    }

    /// Why it was cancelled, in a sentence.
    pub fn cancellation(&self) -> String {
        self.cancelled_because.as_ref().unwrap_or(&Cancellation::Order).to_string()
    }

    /// A job that was just submitted: nothing has happened to it yet.
    pub fn new(number: u64, spec: JobSpec, command: JobCommand) -> Self {
        Self {
            number,
            spec,
            command,
            class: None,
            key: None,
            after: Vec::new(),
            array: None,
            scheduled: None,
            submitter: None,
            memory_limit: None,
            retries: 0,
            attempt: 1,
            begun: false,
            lost: 0,
            saved: false,
            saved_work: Work(0.0),
            saved_on: None,
            hold: Hold::None,
            cancelled: false,
            cancelled_because: None,
            not_before: Time::ZERO,
            began: None,
            end: None,
        }
    }
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "how", rename_all = "kebab-case")]
pub enum RunEnd {
    /// By itself.
    Code {
        /// Its status.
        code: i32,
    },
    /// By a signal that weal did not send.
    Signal {
        /// Which.
        signal: i32,
    },
    /// It reached its memory limit.
    OutOfMemory,
    /// Its program could not be run.
    NotStarted,
    /// With 0, and its results could not be copied to where they were to go.
    NoResults,
    /// By weal's doing, after its state was saved.
    Saved,
    /// By weal's doing, or without an exit status that weal has seen.
    Lost,
}

/// What became of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum JobOutcome {
    /// Its command ended with 0.
    Done,
    /// It did not, and is not run again.
    Failed,
    /// Somebody ended it.
    Cancelled,
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobEnd {
    /// What became of it.
    pub outcome: JobOutcome,
    /// When.
    pub time: Time,
    /// How its last run ended; `None` when it had none.
    pub run: Option<RunEnd>,
    /// The same in a sentence.
    pub detail: String,
    /// CPU that its last run used.
    pub cpu_used: Work,
    /// Where its last run was.
    pub node: Option<NodeName>,
}

/// What a job does, in the words that people are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum JobPhase {
    /// Not begun.
    Waiting,
    /// Its processes are being started.
    Starting,
    /// Its saved state is being begun on another node.
    Migrating,
    /// Runs.
    Running,
    /// Stands still and keeps its memory.
    Paused,
    /// Stands still, and its image has left memory.
    Suspended,
    /// Is being ended.
    Stopping,
    /// Its command ended with 0.
    Done,
    /// It did not end well, and is not run again.
    Failed,
    /// Somebody ended it.
    Cancelled,
}

impl JobPhase {
    /// As it is written in messages and shown to people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Starting => "starting",
            Self::Migrating => "migrating",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Suspended => "suspended",
            Self::Stopping => "stopping",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// What it does, as the rest of a sentence whose subject is the job.
    pub fn phrase(self) -> &'static str {
        match self {
            Self::Waiting => "is waiting",
            Self::Starting => "is starting",
            Self::Migrating => "is moving to another node",
            Self::Running => "is running",
            Self::Paused => "is paused",
            Self::Suspended => "is suspended",
            Self::Stopping => "is stopping",
            Self::Done => "is done",
            Self::Failed => "has failed",
            Self::Cancelled => "was cancelled",
        }
    }

    /// Nothing more happens to it.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }
}

impl From<JobOutcome> for JobPhase {
    fn from(outcome: JobOutcome) -> Self {
        match outcome {
            JobOutcome::Done => Self::Done,
            JobOutcome::Failed => Self::Failed,
            JobOutcome::Cancelled => Self::Cancelled,
        }
    }
}

/// An estimate of a job's work that turned out too low while it ran: why its progress went back.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Raised {
    /// When.
    pub time: Time,
    /// What it was before, in CPU-seconds of all tasks.
    pub from: Work,
}

/// What a change to a job takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobChangeCost {
    /// `start`, `suspend`, `resume`, or `move`: to go on from its saved state on another node.
    pub change: String,
    /// Seconds that plans expect.
    pub seconds: f64,
    /// From so many changes to jobs of its family and about its size; 0: from the thesis' table.
    pub measured: u32,
    /// Seconds by the thesis' table (Carrera Table 5.1).
    pub table_s: f64,
}

/// One job, as people are shown it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobStatus {
    /// Its name: the one that was asked for, and a number.
    pub id: JobName,
    /// What it does.
    pub state: JobPhase,
    /// Why, in a sentence; may be empty.
    pub detail: String,
    /// Program and arguments; none in the status of the pool, which needs no token.
    pub command: Vec<String>,
    /// Its service class.
    pub class: Option<ClassName>,
    /// Its place among the waiting jobs of its importance: a higher one goes first.
    #[serde(default)]
    pub priority: i32,
    /// The array of which it is a part.
    #[serde(default)]
    pub array: Option<ArrayPart>,
    /// The date of a schedule for which it was submitted.
    #[serde(default)]
    pub scheduled: Option<ScheduledFor>,
    /// The token by which it was submitted; `None` for a user of this machine, or the config, and in the status of the pool.
    #[serde(default)]
    pub submitter: Option<String>,
    /// When it was submitted.
    pub submitted: Time,
    /// When it is to be done.
    pub deadline: Time,
    /// When it will be, as the last plan expects; when it was, once it is over; `None` while nobody can say.
    pub expected_end: Option<Time>,
    /// When it will be in the worst of twenty cases, by what is known of its work; `None` while nobody can say.
    #[serde(default)]
    pub expected_latest: Option<Time>,
    /// The utility of that: 1 at once, 0 at the goal, below 0 after it.
    pub utility: Option<Utility>,
    /// When its first run began.
    pub began: Option<Time>,
    /// Where it runs or ran; of a gang, the node of its first task.
    pub node: Option<NodeName>,
    /// How many processes it runs at once, all or none.
    #[serde(default)]
    pub tasks: u32,
    /// The node of each of these while it has a run.
    #[serde(default)]
    pub nodes: Vec<NodeName>,
    /// Which run of it this is, from 1.
    pub attempt: u32,
    /// CPU-seconds that its present run has used.
    pub cpu_used: Work,
    /// CPU-seconds that it takes in all, as far as is known.
    pub work: Work,
    /// Where that is known from, in words.
    pub work_source: String,
    /// The least that it may be: of twenty jobs, nineteen lie between this and `work_most`.
    #[serde(default)]
    pub work_least: Work,
    /// The most that it may be; `None` while nobody can say.
    #[serde(default)]
    pub work_most: Option<Work>,
    /// Its work is a guess: nobody has said it, no other run tells it, and the job does not tell how far it is.
    #[serde(default)]
    pub is_guess: bool,
    /// The last time that its work turned out larger than was thought, so that `progress` went back; `None` while it never did in this run.
    #[serde(default)]
    pub raised: Option<Raised>,
    /// The share of its work that is done, 0 to 1; 0 while `is_guess`. Invariant: within a run it falls only when `raised` says so.
    pub progress: f64,
    /// The phase that it is in, from 1.
    #[serde(default)]
    pub stage: u32,
    /// How many phases it has.
    #[serde(default)]
    pub stages: u32,
    /// CPU that the last plan gives it.
    pub cpu_allocated: Cpu,
    /// The most CPU that helps it in this phase.
    pub cpus: Cpu,
    /// Memory that it may use in this phase; of a gang, each of its tasks.
    pub memory_limit: Bytes,
    /// Memory that plans reserve for that; less than the limit only where `memory_is_learnt`.
    #[serde(default)]
    pub memory_reserved: Bytes,
    /// Nobody has said its memory, and what plans reserve is what earlier runs of its family used, and a quarter more.
    #[serde(default)]
    pub memory_is_learnt: bool,
    /// Memory that it uses now; of a gang, the task that uses most.
    pub memory_used: Option<Bytes>,
    /// What changes to it take; none once it is over.
    #[serde(default)]
    pub changes: Vec<JobChangeCost>,
    /// How its last run ended, once it is over.
    pub end: Option<RunEnd>,
}
