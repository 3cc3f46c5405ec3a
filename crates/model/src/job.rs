//! Batch jobs (Carrera 5.4.2.1).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Bytes, Cpu, Importance, JobName, NodeName, Time, Work};

/// A batch unit with a goal on its completion time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobSpec {
    /// Its name.
    pub name: JobName,
    /// When it was submitted.
    pub submitted: Time,
    /// When it may start: `tau_start`.
    pub desired_start: Time,
    /// When it must be done: `tau`. Invariant: later than `desired_start`.
    pub deadline: Time,
    /// How much missing the goal matters.
    pub importance: Importance,
    /// Its place among the waiting jobs of its importance: a higher one goes first.
    #[serde(default)]
    pub priority: i32,
    /// Its phases, in order. Invariant: not empty.
    pub stages: Vec<Stage>,
    /// How many processes run at once, each with the stage's needs; all or none (a gang). 1 for a sequential job.
    pub tasks: u32,
}

/// A phase of a job with its own needs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stage {
    /// Work to do per task: `alpha`.
    pub work: Work,
    /// The fastest that it can go: `omega_max`. More CPU than this is not used.
    pub max_speed: Cpu,
    /// The slowest that it may go whenever it runs: `omega_min`.
    pub min_speed: Cpu,
    /// Memory per task: `gamma`.
    pub memory: Bytes,
}

impl Stage {
    /// Seconds that it takes at full speed.
    pub fn best_s(&self) -> f64 {
        self.work.0 / self.max_speed.0
    }
}

/// What a job does now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum JobState {
    /// Never ran.
    Pending,
    /// Runs.
    Running,
    /// Suspended: keeps its memory image, uses no CPU.
    Suspended,
    /// Done.
    Completed,
}

impl JobState {
    /// As it is written in messages and shown to people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Suspended => "suspended",
            Self::Completed => "completed",
        }
    }
}

/// A job in one cycle: what it is and how far it got.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobObservation {
    /// What was asked.
    pub spec: JobSpec,
    /// What it does now.
    pub state: JobState,
    /// Work done per task so far: `alpha*`.
    pub done: Work,
    /// Where its tasks run or are suspended; empty when pending. One entry a task.
    pub nodes: Vec<NodeName>,
    /// CPU per task in force, from the last plan; `None` when it does not run.
    #[serde(default)]
    pub cpu: Option<Cpu>,
}
