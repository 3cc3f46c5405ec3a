//! What a policy made of the jobs.

use weal_scenario::workload::JobArrival;

/// By how many points weal may meet fewer goals than EDF. The thesis says "as many".
pub(super) const POINTS: f64 = 5.0;

/// What a policy made of the jobs.
pub(super) struct Outcome {
    pub(super) policy: &'static str,
    pub(super) load: f64,
    /// Of each run: the share of goals met, suspensions and moves, and of each job its distance to the goal over the goal's length.
    pub(super) runs: Vec<OneRun>,
}

pub(super) struct OneRun {
    pub(super) met: f64,
    pub(super) changes: usize,
    pub(super) distances: Vec<f64>,
    /// When the last job was done.
    end_s: f64,
}

/// How far a job that came and was done at these times is from its goal, over the goal's length: below 0 is late.
pub(super) fn distance(job: &JobArrival, came_s: f64, done_s: f64) -> f64 {
    (came_s + job.relative_goal_s - done_s) / job.relative_goal_s
}

impl Outcome {
    fn mean(&self, value: impl Fn(&OneRun) -> f64) -> f64 {
        self.runs.iter().map(value).sum::<f64>() / self.runs.len().max(1) as f64
    }

    fn met(&self) -> f64 {
        100.0 * self.mean(|run| run.met)
    }

    fn changes(&self) -> f64 {
        self.mean(|run| run.changes as f64)
    }

    /// The claim of Carrera 5.6.2.4.
    pub(super) fn is_no_worse_than(&self, other: &Self) -> bool {
        self.met() >= other.met() - POINTS && self.changes() <= other.changes()
    }

    pub(super) fn cells(&self) -> [String; 8] {
        let worst = self.runs.iter().flat_map(|run| run.distances.first()).copied().fold(f64::INFINITY, f64::min);
        [
            format!("{:.0}%", 100.0 * self.load),
            self.policy.to_owned(),
            format!("{:.1}%", self.met()),
            format!("{:.1}", self.changes()),
            format!("{worst:.2}"),
            format!("{:.2}", self.mean(|run| run.at(0.05))),
            format!("{:.2}", self.mean(|run| run.at(0.5))),
            format!("{:.0}", self.mean(|run| run.end_s)),
        ]
    }
}

impl OneRun {
    /// From the distance of each job.
    pub(super) fn new(mut distances: Vec<f64>, changes: usize, end_s: f64) -> Self {
        distances.sort_by(f64::total_cmp);
        let met = distances.iter().filter(|distance| **distance >= -1e-9).count() as f64 / distances.len().max(1) as f64;
        Self { met, changes, distances, end_s }
    }

    /// The distance that this part of the jobs falls short of.
    fn at(&self, part: f64) -> f64 {
        let at = (part * self.distances.len() as f64) as usize;
        self.distances.get(at).or(self.distances.last()).copied().unwrap_or(f64::NAN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_tells_goals_met_and_how_far_jobs_are_from_them() {
        let run = OneRun::new(vec![0.5, -0.1, 0.9, 0.0], 3, 10.0);
        assert_eq!((run.met, run.at(0.0), run.at(0.5), run.at(1.0)), (0.75, -0.1, 0.5, 0.9));
    }
}
