//! Jobs in a plan: whether each step can be done, and what they take of nodes.

use std::collections::BTreeMap;

use weal_model::{Bytes, Cpu, JobName, JobObservation, JobState, NodeName, Snapshot, Stage};

use super::finding::Impossible;

/// A job as the replay goes on.
#[derive(Debug, Clone)]
pub(super) struct HeldJob {
    pub state: JobState,
    pub nodes: Vec<NodeName>,
    /// CPU per task in force.
    pub cpu: f64,
    tasks: usize,
    stage: Stage,
    fastest: f64,
}

impl HeldJob {
    /// All jobs of a snapshot. One on a node that does not answer has to start again.
    pub fn all(snapshot: &Snapshot) -> BTreeMap<JobName, Self> {
        let up = |name: &NodeName| snapshot.nodes.iter().any(|node| node.name == *name && node.up);
        let mut jobs: BTreeMap<JobName, Self> =
            snapshot.jobs.iter().filter_map(|job| Some((job.spec.name.clone(), Self::of(job)?))).collect();
        for job in jobs.values_mut().filter(|job| job.state != JobState::Completed && !job.nodes.iter().all(up)) {
            (job.state, job.nodes, job.cpu) = (JobState::Pending, Vec::new(), 0.0);
        }
        jobs
    }

    fn of(job: &JobObservation) -> Option<Self> {
        let mut end = 0.0;
        let current = job.spec.stages.iter().find(|stage| {
            end += stage.work.0.max(0.0);
            end > job.done.0
        });
        let stage = *current.or(job.spec.stages.last())?;
        let speeds = job.spec.stages.iter().map(|stage| stage.max_speed.0).filter(|speed| speed.is_finite() && *speed > 0.0);
        Some(Self {
            state: job.state,
            nodes: job.nodes.clone(),
            cpu: job.cpu.map(|cpu| cpu.0).filter(|cpu| cpu.is_finite()).unwrap_or(0.0),
            tasks: job.spec.tasks.max(1) as usize,
            stage,
            fastest: speeds.fold(0.0, f64::max),
        })
    }

    /// Whether it runs.
    pub fn runs(&self) -> bool {
        self.state == JobState::Running
    }

    /// Memory that its tasks hold on a node.
    pub fn memory_on(&self, node: &NodeName) -> Bytes {
        let tasks = if self.runs() { self.nodes.iter().filter(|name| *name == node).count() as u64 } else { 0 };
        Bytes(self.stage.memory.0.saturating_mul(tasks))
    }

    /// CPU that its tasks have on a node.
    pub fn cpu_on(&self, node: &NodeName) -> f64 {
        if self.runs() { self.cpu * self.nodes.iter().filter(|name| *name == node).count() as f64 } else { 0.0 }
    }

    /// Brings it to `nodes`, from `state`; says why that cannot be.
    pub fn bring(&mut self, from: JobState, nodes: &[NodeName], up: impl Fn(&NodeName) -> bool) -> Result<(), Impossible> {
        if self.state != from {
            return Err(Impossible::JobState { state: self.state });
        }
        if nodes.len() != self.tasks {
            return Err(Impossible::Tasks { tasks: self.tasks, nodes: nodes.len() });
        }
        if let Some(node) = nodes.iter().find(|node| !up(node)) {
            return Err(Impossible::NodeDown { node: node.clone() });
        }
        (self.state, self.nodes) = (JobState::Running, nodes.to_vec());
        Ok(())
    }

    /// Suspends it where it is.
    pub fn suspend(&mut self) -> Result<(), Impossible> {
        if !self.runs() {
            return Err(Impossible::JobState { state: self.state });
        }
        (self.state, self.cpu) = (JobState::Suspended, 0.0);
        Ok(())
    }

    /// Gives it a speed.
    pub fn set_cpu(&mut self, cpu: Cpu) -> Result<(), Impossible> {
        if !self.runs() {
            return Err(Impossible::JobState { state: self.state });
        }
        if !(0.0..f64::INFINITY).contains(&cpu.0) {
            return Err(Impossible::NoCpu { cpu });
        }
        if cpu.0 > self.fastest.max(1e-9) * (1.0 + 1e-6) && self.fastest > 0.0 {
            return Err(Impossible::TooFast { cpu, most: Cpu(self.fastest) });
        }
        if cpu.0 < self.stage.min_speed.0 * (1.0 - 1e-6) {
            return Err(Impossible::TooSlow { cpu, least: self.stage.min_speed });
        }
        self.cpu = cpu.0;
        Ok(())
    }
}
