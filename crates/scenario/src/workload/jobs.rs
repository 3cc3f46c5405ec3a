//! Streams of batch jobs: Poisson arrivals of a mix of kinds, as in Carrera 5.6.2.

use serde::{Deserialize, Serialize};
use weal_model::{Bytes, Cpu, Work};

use weal_rng::{self as random, Rng};

/// A kind of job. Units are free as long as they are the same throughout (the thesis counts in MHz and Mcycles).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct JobKind {
    /// Work per task.
    pub work: Work,
    /// The most CPU that a task can use.
    pub max_speed: Cpu,
    /// The least that it may be given while it runs.
    pub min_speed: Cpu,
    /// Memory per task.
    pub memory: Bytes,
    /// Processes that run at once, all or none.
    pub tasks: u32,
}

impl JobKind {
    /// Seconds at full speed.
    pub fn best_s(&self) -> f64 {
        self.work.0 / self.max_speed.0
    }
}

/// A mix: kinds and relative goal factors (Carrera 5.6.2: goal / time at full speed), drawn independently.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobMix {
    /// Kinds with their probabilities (any scale).
    pub kinds: Vec<(f64, JobKind)>,
    /// Relative goal factors with their probabilities (any scale).
    pub factors: Vec<(f64, f64)>,
    /// Mean seconds between two arrivals, exponentially distributed.
    pub mean_gap_s: f64,
}

/// One job coming in.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct JobArrival {
    /// Seconds from the start; also its desired start.
    pub at_s: f64,
    /// What it is.
    pub kind: JobKind,
    /// Its goal, in seconds from its arrival.
    pub relative_goal_s: f64,
}

/// The jobs of a mix in order of arrival; never ends.
#[derive(Debug, Clone)]
pub struct JobStream {
    mix: JobMix,
    rng: Rng,
    now_s: f64,
}

impl JobMix {
    /// The jobs that this seed gives.
    pub fn stream(&self, seed: u64, name: &str) -> JobStream {
        JobStream { mix: self.clone(), rng: random::stream(seed, name), now_s: 0.0 }
    }
}

impl Iterator for JobStream {
    type Item = JobArrival;

    fn next(&mut self) -> Option<JobArrival> {
        self.now_s += random::exponential(&mut self.rng, self.mix.mean_gap_s);
        let weights: Vec<f64> = self.mix.kinds.iter().map(|&(share, _)| share).collect();
        let kind = self.mix.kinds[random::weighted(&mut self.rng, &weights)].1;
        let weights: Vec<f64> = self.mix.factors.iter().map(|&(share, _)| share).collect();
        let factor = self.mix.factors[random::weighted(&mut self.rng, &weights)].1;
        Some(JobArrival { at_s: self.now_s, kind, relative_goal_s: factor * kind.best_s() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_keeps_its_rate_and_its_shares() {
        let kind = |work| JobKind { work: Work(work), max_speed: Cpu(2.0), min_speed: Cpu(0.0), memory: Bytes(1), tasks: 1 };
        let mix = JobMix {
            kinds: vec![(0.25, kind(10.0)), (0.75, kind(20.0))],
            factors: vec![(3.0, 1.5), (1.0, 4.0)],
            mean_gap_s: 100.0,
        };
        let jobs: Vec<JobArrival> = mix.stream(5, "jobs").take(4000).collect();
        assert!((jobs.last().unwrap().at_s / 4000.0 - 100.0).abs() < 5.0);
        let short = jobs.iter().filter(|job| job.kind.work == Work(10.0)).count();
        assert!((short as f64 / 4000.0 - 0.25).abs() < 0.03);
        let tight = jobs.iter().filter(|job| (job.relative_goal_s - 1.5 * job.kind.best_s()).abs() < 1e-9).count();
        assert!((tight as f64 / 4000.0 - 0.75).abs() < 0.03);
    }
}
