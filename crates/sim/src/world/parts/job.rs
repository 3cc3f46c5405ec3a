//! A job's run as the machines have it: its state, how far it is, and what is being done to it.

use weal_control::jobs::ChangeKind;
use weal_model::{Action, Bytes, JobObservation, JobSpec, JobState, Stage, Time, Work};
use weal_protocol::engine::RunState;
use weal_scenario::report::JobEnd;

/// Tenants of machines from here on are tasks of jobs; below, instances.
pub const FIRST_TENANT: usize = 1 << 40;
/// CPU-seconds of work that sums of many steps may leave over.
pub const ROUNDING_S: f64 = 1e-6;

/// A job that has come in.
#[derive(Debug, Clone)]
pub struct Job {
    /// What is true of it.
    pub spec: JobSpec,
    /// What was stated of it when it was submitted.
    pub stated: JobSpec,
    /// It tells how far it is while it runs.
    pub tells_progress: bool,
    /// Which of its runs the engine has, from 1; 0 while it has none.
    pub attempt: u32,
    pub state: JobState,
    /// Since when, by the engine's clock.
    pub since: Time,
    /// Somebody has paused it: it keeps its memory.
    pub paused: bool,
    /// Where its tasks run, or were when it was suspended; empty while it waits.
    pub nodes: Vec<usize>,
    /// The stage that it is in.
    pub stage: usize,
    /// CPU-seconds that each task still has to do in that stage; while it runs, the machines know better.
    pub left: Vec<f64>,
    /// The machines' tenants, one a task, while it runs.
    pub tenants: Vec<usize>,
    /// Threads of each task that still compute.
    pub threads: Vec<u32>,
    /// CPU per task.
    pub speed: f64,
    /// The most CPU per task.
    pub limit: f64,
    /// What is being done to it.
    pub operation: Option<JobOperation>,
    /// Counts what is done to it.
    pub version: u64,
    pub finished_s: Option<f64>,
    /// Work per task that it had done when that was last looked at.
    pub seen_done: f64,
}

/// What is being done to a job.
#[derive(Debug, Clone, PartialEq)]
pub struct JobOperation {
    pub change: ChangeKind,
    /// Where it was before, and holds memory until the change is done.
    pub leaves: Vec<usize>,
    pub fails: bool,
    /// When it began.
    pub began_s: f64,
    /// The controller's order, which hears what becomes of it.
    pub ordered: Option<Action>,
}

impl Job {
    pub fn new(spec: JobSpec) -> Self {
        let (work, tasks) = (spec.stages[0].work.0, spec.tasks as usize);
        Self {
            stated: spec.clone(),
            tells_progress: false,
            spec,
            attempt: 0,
            state: JobState::Pending,
            since: Time::ZERO,
            paused: false,
            nodes: Vec::new(),
            stage: 0,
            left: vec![work; tasks],
            tenants: Vec::new(),
            threads: Vec::new(),
            speed: 0.0,
            limit: f64::INFINITY,
            operation: None,
            version: 0,
            finished_s: None,
            seen_done: 0.0,
        }
    }

    /// It without what its runs have done.
    pub fn anew(&self) -> Self {
        let (stated, tells_progress) = (self.stated.clone(), self.tells_progress);
        Self { stated, tells_progress, version: self.version + 1, ..Self::new(self.spec.clone()) }
    }

    /// What its run does, as the engine tells it.
    pub fn run_state(&self) -> RunState {
        let is_under_way = self.operation.as_ref().is_some_and(|operation| operation.change != ChangeKind::Suspend);
        match self.state {
            JobState::Running if is_under_way => RunState::Starting,
            JobState::Running if self.paused => RunState::Paused,
            JobState::Running => RunState::Running,
            JobState::Pending | JobState::Suspended => RunState::Suspended,
            JobState::Completed => RunState::Ended,
        }
    }

    /// Nobody waits for what becomes of it.
    pub fn forget_order(&mut self) {
        if let Some(operation) = &mut self.operation {
            operation.ordered = None;
        }
    }

    pub fn is_done(&self) -> bool {
        self.state == JobState::Completed
    }

    /// CPU that its tasks have on a node.
    pub fn cpu_on(&self, node: usize) -> f64 {
        if self.computes() { self.pace() * self.nodes.iter().filter(|&&at| at == node).count() as f64 } else { 0.0 }
    }

    /// Memory that its tasks hold on a node.
    pub fn memory_on(&self, node: usize) -> Bytes {
        let here = if self.state == JobState::Running { &self.nodes[..] } else { &[] };
        let leaves = self.operation.iter().flat_map(|operation| &operation.leaves);
        let tasks = here.iter().chain(leaves).filter(|&&at| at == node).count() as u64;
        Bytes(self.current().memory.0.saturating_mul(tasks))
    }

    /// Its tasks are on the machines.
    pub fn computes(&self) -> bool {
        !self.tenants.is_empty()
    }

    /// CPU per task that it can use of what it was given.
    pub fn pace(&self) -> f64 {
        self.speed.min(self.current().max_speed.0)
    }

    pub fn current(&self) -> &Stage {
        &self.spec.stages[self.stage.min(self.spec.stages.len() - 1)]
    }

    /// Work per task of the stages before the current one.
    pub fn before(&self) -> f64 {
        self.spec.stages[..self.stage].iter().map(|stage| stage.work.0).sum()
    }

    /// Work per task in all.
    pub fn whole(&self) -> f64 {
        self.spec.stages.iter().map(|stage| stage.work.0).sum()
    }

    /// What completion at `finished_s` is worth (Carrera 5.8).
    pub fn utility_at(&self, finished_s: f64) -> f64 {
        let nothing_done =
            JobObservation { spec: self.spec.clone(), state: self.state, done: Work(0.0), nodes: Vec::new(), cpu: None };
        weal_control::jobs::Job::observed(&nothing_done, |_| None).utility(finished_s)
    }

    /// What came of it.
    pub fn end(&self) -> JobEnd {
        JobEnd {
            name: self.spec.name.to_string(),
            tasks: self.spec.tasks,
            submitted_s: self.spec.submitted.as_secs_f64(),
            deadline_s: self.spec.deadline.as_secs_f64(),
            finished_s: self.finished_s,
            utility: self.finished_s.map(|finished_s| self.utility_at(finished_s)),
        }
    }
}
