//! What was measured, as plain data.

use serde::{Deserialize, Serialize};

use super::moments::JobMoment;

/// One run of a scenario, simulated or real.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The scenario's name.
    pub title: String,
    /// Its sentence of intent.
    pub intent: String,
    /// `simulated` or `real processes`.
    pub kind: String,
    /// Whether weal controlled, or what did instead.
    pub control: String,
    /// The machine, in words; for a simulation, the pool that was simulated.
    pub machine: String,
    /// The scenario as it was run, as text.
    pub scenario: String,
    /// The seed.
    pub seed: u64,
    /// Seconds that it covers.
    pub duration_s: f64,
    /// One per flow.
    pub flows: Vec<FlowSeries>,
    /// One per node.
    pub nodes: Vec<NodeSeries>,
    /// One per application.
    pub apps: Vec<AppSeries>,
    /// Batch jobs, if any came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobs: Option<JobSeries>,
    /// Placement changes and other events, in order.
    pub changes: Vec<RunEvent>,
    /// Expected ranges and what came out.
    pub checks: Vec<Check>,
    /// What a reader must know to judge the numbers, such as a load generator that could not keep up.
    pub notes: Vec<String>,
}

/// One flow over time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowSeries {
    /// `app/class`.
    pub name: String,
    /// Its goal as people write it; empty for best effort.
    pub goal: String,
    /// What its goal allows, in milliseconds.
    pub target_ms: Option<f64>,
    /// Summary over the whole run, as the client saw it.
    pub summary: FlowSummary,
    /// The points, in order of time.
    pub points: Vec<FlowPoint>,
}

/// One flow over a whole run, as the client saw it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowSummary {
    /// Requests sent.
    pub sent: u64,
    /// Answered 2xx or 3xx.
    pub answered: u64,
    /// Answered 503.
    pub rejected: u64,
    /// Anything else.
    pub failed: u64,
    /// Mean response time from the moment when the request was due.
    pub mean_ms: f64,
    /// Median.
    pub p50_ms: f64,
    /// 95th percentile.
    pub p95_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
    /// Share (0..=1) of the sent requests that were answered within the goal's time.
    pub within_goal: Option<f64>,
    /// The same of the minute in which it was lowest.
    #[serde(default)]
    pub worst_minute_within_goal: Option<f64>,
    /// Mean and 95th percentile of the response time without the warm-up; simulations have it.
    #[serde(default)]
    pub settled_ms: Option<(f64, f64)>,
}

/// One flow at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowPoint {
    /// Seconds since the start.
    pub t_s: f64,
    /// What the goal is about, in milliseconds.
    pub response_ms: Option<f64>,
    /// Mean response time, in milliseconds.
    pub mean_ms: Option<f64>,
    /// 95th percentile of response time, in milliseconds.
    pub p95_ms: Option<f64>,
    /// Utility.
    pub utility: Option<f64>,
    /// Seats in force.
    pub seats: f64,
    /// Requests waiting.
    pub queue: f64,
    /// Requests outstanding.
    pub in_service: f64,
    /// Requests answered per second.
    pub throughput_per_s: f64,
    /// Requests that came in per second.
    pub arrival_per_s: f64,
    /// Requests rejected with 503 per second.
    pub rejected_per_s: f64,
    /// Requests that failed per second.
    pub errors_per_s: f64,
}

/// The name of the CPU of all jobs together, among that of a node's applications.
pub const ALL_JOBS: &str = "(jobs)";

/// One node over time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeSeries {
    /// Its name.
    pub name: String,
    /// Its CPU, in cores.
    pub cpu_capacity: f64,
    /// The applications in `points[..].cpu`, in the same order.
    pub apps: Vec<String>,
    /// The points, in order of time.
    pub points: Vec<NodePoint>,
}

/// One node at one moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NodePoint {
    /// Seconds since the start.
    pub t_s: f64,
    /// CPU given to each application there, in cores.
    pub cpu: Vec<f64>,
    /// CPU used by all of them, in cores.
    pub cpu_used: f64,
}

/// One application over time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AppSeries {
    /// Its name.
    pub name: String,
    /// (seconds since the start, ready instances), in order of time.
    pub ready: Vec<(f64, u32)>,
}

/// The batch jobs of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct JobSeries {
    /// How many did what, in order of time.
    pub points: Vec<JobPoint>,
    /// What came of each that came in, in that order.
    pub ends: Vec<JobEnd>,
    /// When each began, gave way, went on, moved and was done, in order of time.
    #[serde(default)]
    pub moments: Vec<JobMoment>,
}

/// The batch jobs at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct JobPoint {
    /// Seconds since the start.
    pub t_s: f64,
    /// Jobs that run, or are being started, resumed, moved or suspended.
    pub running: u32,
    /// Jobs that are suspended.
    pub suspended: u32,
    /// Jobs that have never run, or begin anew.
    pub waiting: u32,
    /// Jobs that are done.
    pub done: u32,
    /// CPU that jobs have, in cores.
    pub cpu: f64,
    /// The mean utility that those which are not over are headed for, as the last plan foresees it; `None` without any.
    #[serde(default)]
    pub expected: Option<f64>,
}

impl JobPoint {
    /// The mean of what jobs are headed for.
    pub fn mean_of(utilities: impl Iterator<Item = f64>) -> Option<f64> {
        let (count, sum) = utilities.fold((0, 0.0), |(count, sum), utility| (count + 1, sum + utility));
        (count > 0).then(|| sum / f64::from(count))
    }
}

/// One job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct JobEnd {
    /// Its name.
    pub name: String,
    /// Processes that run at once.
    pub tasks: u32,
    /// When it came, in seconds since the start.
    pub submitted_s: f64,
    /// When it had to be done.
    pub deadline_s: f64,
    /// When it was done; `None` when it was not by the end.
    pub finished_s: Option<f64>,
    /// Its utility then: 0 is exactly at its goal.
    pub utility: Option<f64>,
}

impl JobEnd {
    /// Whether it was done when it had to be.
    pub fn is_on_time(&self) -> bool {
        self.finished_s.is_some_and(|finished_s| finished_s <= self.deadline_s)
    }
}

/// What came of all jobs.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct JobSummary {
    /// Jobs that came.
    pub came: usize,
    /// Of these, done.
    pub done: usize,
    /// Jobs whose goal's time is over.
    pub due: usize,
    /// Of these, done by then.
    pub on_time: usize,
    /// Mean utility of those that are done.
    pub mean_utility: Option<f64>,
    /// The lowest of these.
    pub lowest_utility: Option<f64>,
}

impl JobSeries {
    /// What came of those jobs that were due, or done, between two moments.
    pub fn summary(&self, from_s: f64, to_s: f64) -> JobSummary {
        let within = |t_s: f64| t_s >= from_s && t_s < to_s;
        let done: Vec<&JobEnd> = self.ends.iter().filter(|end| end.finished_s.is_some_and(within)).collect();
        let due: Vec<&JobEnd> = self.ends.iter().filter(|end| within(end.deadline_s)).collect();
        let utilities: Vec<f64> = done.iter().filter_map(|end| end.utility).collect();
        JobSummary {
            came: self.ends.iter().filter(|end| within(end.submitted_s)).count(),
            done: done.len(),
            due: due.len(),
            on_time: due.iter().filter(|end| end.is_on_time()).count(),
            mean_utility: (!utilities.is_empty()).then(|| utilities.iter().sum::<f64>() / utilities.len() as f64),
            lowest_utility: utilities.iter().copied().reduce(f64::min),
        }
    }
}

/// Something that changed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RunEvent {
    /// Seconds since the start.
    pub t_s: f64,
    /// True for a placement change (a start, stop, suspend, resume or move), false for another event.
    pub placement: bool,
    /// What and why, in a sentence.
    pub text: String,
}

/// An expected range and what came out.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// What was measured.
    pub what: String,
    /// The range, as written in the scenario.
    pub expected: String,
    /// What came out; `None` when it could not be measured, which fails.
    pub got: Option<f64>,
    /// Whether it lies in the range.
    pub met: bool,
}

impl Run {
    /// False when an expected range was missed.
    pub fn all_met(&self) -> bool {
        self.checks.iter().all(|check| check.met)
    }
}
