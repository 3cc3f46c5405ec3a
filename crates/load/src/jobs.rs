//! What becomes of a rehearsal's jobs, by what the pool says of them.

use std::collections::BTreeMap;

use weal_model::{JobName, JobPhase, JobSpec, JobStatus, NodeName, Time};
use weal_scenario::report::{JobEnd, JobPoint, JobSeen, JobSeries, JobWatch};

/// The jobs that were submitted.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    /// Each of the scenario with the name that the pool gave it, in the order in which they came.
    submitted: Vec<(JobSpec, JobName)>,
    /// What the pool said of each last.
    known: BTreeMap<JobName, JobStatus>,
    points: Vec<JobPoint>,
    watch: JobWatch,
}

impl Jobs {
    pub fn handle_submitted(&mut self, spec: JobSpec, id: JobName) {
        self.submitted.push((spec, id));
    }

    /// Takes what the pool says of its jobs `t_s` seconds after the beginning.
    pub fn handle_status(&mut self, t_s: f64, jobs: Vec<JobStatus>) {
        self.known.extend(jobs.into_iter().map(|job| (job.id.clone(), job)));
        self.watch_each(t_s);
        let count = |phases: &[JobPhase]| self.known.values().filter(|job| phases.contains(&job.state)).count() as u32;
        self.points.push(JobPoint {
            t_s,
            running: count(&[JobPhase::Starting, JobPhase::Migrating, JobPhase::Running, JobPhase::Stopping]),
            suspended: count(&[JobPhase::Paused, JobPhase::Suspended]),
            waiting: count(&[JobPhase::Waiting]),
            done: count(&[JobPhase::Done]),
            cpu: self.running().map(|job| job.cpu_allocated.0).sum(),
            expected: JobPoint::mean_of(self.known.values().filter_map(headed_for)),
        });
    }

    /// A job that is being started, saved or ended is neither here nor there.
    fn watch_each(&mut self, t_s: f64) {
        for (spec, id) in &self.submitted {
            let Some(job) = self.known.get(id) else { continue };
            let seen = match job.state {
                JobPhase::Running => JobSeen::Runs,
                JobPhase::Waiting | JobPhase::Suspended => JobSeen::Idle,
                JobPhase::Done => JobSeen::Done,
                _ => continue,
            };
            let nodes = job.nodes.iter().map(NodeName::to_string).collect();
            self.watch.handle_seen(t_s, spec.name.as_str(), seen, nodes);
        }
    }

    /// Cores that the jobs on a node were given last.
    pub fn cpu_on(&self, node: &NodeName) -> f64 {
        // Each task of a gang has an equal part.
        let share = |job: &JobStatus| job.nodes.iter().filter(|at| *at == node).count() as f64 / job.nodes.len().max(1) as f64;
        self.running().map(|job| job.cpu_allocated.0 * share(job)).sum()
    }

    fn running(&self) -> impl Iterator<Item = &JobStatus> {
        self.known.values().filter(|job| job.state == JobPhase::Running)
    }

    /// What came of them in a rehearsal that began at `started`.
    pub fn finish(self, started: Time) -> JobSeries {
        let end = |(spec, id): &(JobSpec, JobName)| {
            let job = self.known.get(id);
            let done = job.filter(|job| job.state == JobPhase::Done);
            let since = |time: Time| time.as_secs_f64() - started.as_secs_f64();
            JobEnd {
                name: spec.name.to_string(),
                tasks: spec.tasks,
                submitted_s: job.map_or(spec.submitted.as_secs_f64(), |job| since(job.submitted)),
                deadline_s: job.map_or(spec.deadline.as_secs_f64(), |job| since(job.deadline)),
                finished_s: done.and_then(|job| job.expected_end).map(since),
                utility: done.and_then(|job| job.utility).map(|utility| utility.0),
            }
        };
        let ends = self.submitted.iter().map(end).collect();
        JobSeries { points: self.points, ends, moments: self.watch.into_moments() }
    }
}

/// The utility that a job is headed for which is not over.
fn headed_for(job: &JobStatus) -> Option<f64> {
    job.utility.filter(|_| !job.state.is_over()).map(|utility| utility.0)
}
