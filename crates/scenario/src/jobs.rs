//! The jobs that come in: when, and what each is.

use weal_model::naming::job_name;
use weal_model::{Bytes, Importance, JobName, JobSpec, Stage, Time};
use weal_rng as random;

/// One `[[job]]`.
#[derive(Debug, Clone, PartialEq)]
pub struct JobSource {
    /// Names the jobs and their stream of random numbers.
    pub name: String,
    /// How much missing their goals matters.
    pub importance: Importance,
    /// The place of each among waiting jobs of its importance.
    pub priority: i32,
    /// What a rehearsal runs, program and arguments; empty: a program that uses the work and the memory that are said here.
    pub run: Vec<String>,
    /// What saves its state in a rehearsal, and what goes on from there; may be empty.
    pub checkpoint: Vec<String>,
    /// See `checkpoint`.
    pub restore: Vec<String>,
    /// What is stated of the work of each, as a multiple of what is true; 0 says nothing of it.
    pub stated_factor: f64,
    /// Each tells how far it is while it runs.
    pub tells_progress: bool,
    /// By when each must be done.
    pub(crate) goal: JobGoal,
    /// What comes, when.
    pub(crate) coming: Coming,
}

/// By when a job must be done.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum JobGoal {
    /// Seconds from when it comes.
    Within(f64),
    /// A multiple of its time at full speed.
    Factor(f64),
}

/// When jobs come.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Coming {
    Once { at_s: f64, job: Shape },
    Randomly { from_s: f64, mean_gap_s: f64, most: usize, job: Shape },
    Listed(Vec<(f64, Shape)>),
}

/// What a job is, whenever it comes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Shape {
    pub stages: Vec<Stage>,
    pub tasks: u32,
}

impl Shape {
    /// Seconds at full speed.
    fn best_s(&self) -> f64 {
        self.stages.iter().map(Stage::best_s).sum()
    }
}

impl JobSource {
    /// One of its jobs as it is submitted: with the work that is stated.
    pub fn stated(&self, job: &JobSpec) -> JobSpec {
        let mut stated = job.clone();
        stated.stages.iter_mut().for_each(|stage| stage.work.0 *= self.stated_factor);
        stated
    }

    /// The most memory that a task of it ever takes.
    pub(crate) fn largest_memory(&self) -> Bytes {
        let shapes: Vec<&Shape> = match &self.coming {
            Coming::Once { job, .. } | Coming::Randomly { job, .. } => vec![job],
            Coming::Listed(list) => list.iter().map(|(_, job)| job).collect(),
        };
        shapes.iter().flat_map(|shape| &shape.stages).map(|stage| stage.memory).max().unwrap_or_default()
    }

    /// The jobs that come before `until_s` with this seed, in order.
    pub fn jobs(&self, seed: u64, until_s: f64) -> Vec<JobSpec> {
        match &self.coming {
            Coming::Once { at_s, job } => vec![self.spec(self.name.as_str().into(), *at_s, job)],
            Coming::Randomly { from_s, mean_gap_s, most, job } => {
                let mut rng = random::stream(seed, &format!("job/{}", self.name));
                let mut at_s = *from_s;
                let mut jobs = Vec::new();
                while jobs.len() < *most {
                    at_s += random::exponential(&mut rng, *mean_gap_s);
                    if at_s >= until_s {
                        break;
                    }
                    jobs.push(self.spec(self.numbered(jobs.len()), at_s, job));
                }
                jobs
            }
            Coming::Listed(list) => {
                let list = list.iter().enumerate().take_while(|(_, (at_s, _))| *at_s < until_s);
                list.map(|(index, (at_s, job))| self.spec(self.numbered(index), *at_s, job)).collect()
            }
        }
    }

    fn numbered(&self, index: usize) -> JobName {
        job_name(&self.name, index as u64 + 1)
    }

    fn spec(&self, name: JobName, at_s: f64, job: &Shape) -> JobSpec {
        let relative_s = match self.goal {
            JobGoal::Within(seconds) => seconds,
            JobGoal::Factor(factor) => factor * job.best_s(),
        };
        let (submitted, deadline) = (Time::from_secs_f64(at_s), Time::from_secs_f64(at_s + relative_s));
        JobSpec {
            name,
            submitted,
            desired_start: submitted,
            deadline,
            importance: self.importance,
            priority: self.priority,
            stages: job.stages.clone(),
            tasks: job.tasks,
        }
    }
}
