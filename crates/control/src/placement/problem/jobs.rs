//! The unfinished jobs of a snapshot. Those that run are part of the problem, as something that cannot be moved but shares its nodes' CPU,
//! with its utility as a curve like any other.

use std::collections::BTreeMap;

use weal_model::{Bytes, JobObservation, JobState, NodeName, Snapshot};

use super::dense::App;
use crate::jobs::Job;
use crate::placement::policy::Policy;

/// The unfinished jobs of a snapshot, each with a profile, on the nodes of a translation.
#[derive(Debug, Default)]
pub(in crate::placement) struct Jobs {
    pub observed: Vec<JobObservation>,
    pub jobs: Vec<Job>,
}

impl Jobs {
    /// `index` finds a node that answers. No node has more CPU than `most_cpu`, so that no task is expected to be faster.
    pub fn of(snapshot: &Snapshot, policy: &Policy, most_cpu: f64, index: impl Fn(&NodeName) -> Option<u32>) -> Self {
        let open = snapshot.jobs.iter().filter(|job| job.state != JobState::Completed && !job.spec.stages.is_empty());
        let observed: Vec<JobObservation> = open.map(|job| policy.runs.profiled(job)).collect();
        let node = |name: &NodeName| index(name).map(|n| n as usize);
        let saves = |job: &JobObservation| policy.saving.contains(&job.spec.name);
        let now_s = snapshot.time.as_secs_f64();
        let seen = |job: &JobObservation| Job::observed(job, node).within(most_cpu).with_bounded_lateness(now_s);
        let cycle_s = policy.pool.timing.placement_cycle_s.max(1.0);
        let known = |observed: &JobObservation| {
            let job = seen(observed);
            let took = policy.runs.changes.took(&observed.spec.name, Bytes(job.needs(cycle_s).memory));
            Job { saves: saves(observed), took, ..job }
        };
        let jobs = observed.iter().map(known).collect();
        Self { observed, jobs }
    }

    /// What people are told of a job that decisions take for worth `utility`: its lateness has no bound.
    pub fn told(&self, m: usize, utility: f64) -> f64 {
        let finish_s = self.jobs[m].finish_for(utility);
        let job = Job::observed(&self.observed[m], |_| None);
        if job.deadline_s == self.jobs[m].deadline_s { utility } else { job.utility(finish_s) }
    }

    /// The running ones as applications that stay where they are.
    pub fn residents(&self, now_s: f64, cycle_s: f64) -> Vec<App> {
        self.jobs.iter().filter(|job| runs(job)).map(|job| resident(job, now_s, cycle_s)).collect()
    }
}

/// Whether a job runs with all its tasks.
pub(in crate::placement) fn runs(job: &Job) -> bool {
    job.state == JobState::Running && job.nodes.len() == job.tasks as usize
}

/// A running job as an application: a task is an instance.
fn resident(job: &Job, now_s: f64, cycle_s: f64) -> App {
    let needs = job.needs(cycle_s);
    let mut places: BTreeMap<u32, u32> = BTreeMap::new();
    for &n in &job.nodes {
        *places.entry(n as u32).or_default() += 1;
    }
    App {
        instance_cpu: needs.max_speed,
        instance_min_cpu: needs.min_speed,
        instances: (0, job.tasks),
        per_node: job.tasks,
        manual: true,
        current: places.into_iter().collect(),
        ..App::new(needs.memory, job.curve(now_s))
    }
}
