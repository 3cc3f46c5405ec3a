//! `[[job]]` and what stands in it.

use serde::Deserialize;
use toml::Spanned;

use crate::values::{Size, Span};

/// `[[job]]`: one job, several that come at random, or those of a log.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct JobTable {
    /// Its name; where there are several, `NAME-1`, `NAME-2` and so on.
    pub name: Spanned<String>,
    /// CPU time per task.
    pub work: Option<Span>,
    /// The most cores that a task can use. Default: 1.
    pub cpu: Option<f64>,
    /// The fewest cores that a task must have while it runs. Default: none.
    pub min_cpu: Option<f64>,
    /// Memory per task.
    pub memory: Option<Size>,
    /// Phases one after the other, each with these four, instead of them.
    #[serde(default)]
    pub stages: Vec<StageTable>,
    /// Processes that run at once, all or none. Default: 1.
    pub tasks: Option<u32>,
    /// By when it must be done, from when it comes.
    pub goal: Option<Span>,
    /// The same as a multiple of its time at full speed.
    pub goal_factor: Option<f64>,
    /// What is stated of its work, as a multiple of what is true; 0 says nothing of it. Default: 1.
    pub stated_factor: Option<f64>,
    /// It tells how far it is while it runs. Default: false.
    #[serde(default)]
    pub tells_progress: bool,
    /// How much missing the goal matters. Default: `normal`.
    pub importance: Option<Spanned<String>>,
    /// Its place among waiting jobs of its importance: a higher one goes first. Default: 0.
    #[serde(default)]
    pub priority: i32,
    /// What a rehearsal runs. Default: a program that uses the work and the memory that are said here.
    #[serde(default)]
    pub run: Vec<String>,
    /// What saves its state in a rehearsal, so that it can leave memory and go on anywhere. Default: nothing does.
    #[serde(default)]
    pub checkpoint: Vec<String>,
    /// What goes on from there in a rehearsal. Default: `run`.
    #[serde(default)]
    pub restore: Vec<String>,
    /// When it comes, or the first may. Default: at once.
    #[serde(default)]
    pub at: Span,
    /// Several come, so far apart in the mean, exponentially distributed.
    pub every: Option<Span>,
    /// So many of them. Default: as many as come until the end.
    pub count: Option<usize>,
    /// Those of a log.
    pub log: Option<JobLogTable>,
}

/// One entry of `stages`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct StageTable {
    /// CPU time per task.
    pub work: Span,
    /// The most cores that a task can use. Default: 1.
    pub cpu: Option<f64>,
    /// The fewest cores that a task must have while it runs. Default: none.
    pub min_cpu: Option<f64>,
    /// Memory per task.
    pub memory: Size,
}

/// `log` of a job: a log in the Standard Workload Format. Its arrivals, run times and processors count; a processor becomes a task.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct JobLogTable {
    /// Relative to the scenario file.
    pub file: String,
    /// Recorded seconds per second of the run, of arrivals and of run times alike. Default: 1.
    pub speed: Option<f64>,
    /// Wider jobs are left out. Default: none is.
    pub most_tasks: Option<u32>,
}
