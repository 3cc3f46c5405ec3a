//! When each job began, gave way, went on, moved and was done, as looks at them show it. A simulation and a rehearsal look equally often and
//! through the same code, so their orders of events can be compared.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::JobStep;

/// A step of a job, when a look first showed it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobMoment {
    /// Seconds since the start.
    pub t_s: f64,
    /// Which job.
    pub job: String,
    /// What became of it.
    pub step: JobStep,
    /// Where it runs from then on, or ran; empty when that is not known.
    pub nodes: Vec<String>,
}

/// What a job does when somebody looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobSeen {
    /// It has no run, or its image has left memory.
    Idle,
    /// It runs.
    Runs,
    /// It is done.
    Done,
}

/// Turns looks at jobs into moments.
#[derive(Debug, Clone, Default)]
pub struct JobWatch {
    known: BTreeMap<String, (JobSeen, Vec<String>)>,
    moments: Vec<JobMoment>,
}

impl JobWatch {
    /// Takes what `job` does `t_s` seconds after the start, and on which nodes. What is between two of these is not to be told.
    pub fn handle_seen(&mut self, t_s: f64, job: &str, seen: JobSeen, nodes: Vec<String>) {
        let before = self.known.get(job);
        let (was, at) = before.map_or((JobSeen::Idle, &[][..]), |(was, at)| (*was, &at[..]));
        let step = match (was, seen) {
            (JobSeen::Idle, JobSeen::Runs) if at.is_empty() => Some(JobStep::Starts),
            (JobSeen::Idle | JobSeen::Runs, JobSeen::Runs) if at != nodes => Some(JobStep::Moves),
            (JobSeen::Idle, JobSeen::Runs) => Some(JobStep::Resumes),
            (JobSeen::Runs, JobSeen::Idle) => Some(JobStep::Suspended),
            (JobSeen::Idle | JobSeen::Runs, JobSeen::Done) => Some(JobStep::Done),
            _ => None,
        };
        let at = if seen == JobSeen::Runs { nodes } else { at.to_vec() };
        let mut push = |step| self.moments.push(JobMoment { t_s, job: job.to_owned(), step, nodes: at.clone() });
        if step == Some(JobStep::Done) && at.is_empty() {
            // Nobody looked while it ran.
            push(JobStep::Starts);
        }
        step.into_iter().for_each(push);
        self.known.insert(job.to_owned(), (seen, at));
    }

    /// The moments so far, in order of time.
    pub fn into_moments(self) -> Vec<JobMoment> {
        self.moments
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(looks: &[(JobSeen, &str)]) -> Vec<String> {
        let mut watch = JobWatch::default();
        for (at, (seen, node)) in looks.iter().enumerate() {
            let nodes = if node.is_empty() { vec![] } else { vec![(*node).to_owned()] };
            watch.handle_seen(at as f64, "j", *seen, nodes);
        }
        watch.into_moments().iter().map(|moment| format!("{} {}", moment.t_s, moment.step)).collect()
    }

    #[test]
    fn each_change_between_two_looks_is_a_moment() {
        use JobSeen::{Done, Idle, Runs};
        let looks = [
            (Idle, ""),
            (Runs, "n1"),
            (Runs, "n1"),
            (Idle, ""),
            (Runs, "n1"),
            (Runs, "n2"),
            (Idle, ""),
            (Runs, "n1"),
            (Done, ""),
        ];
        let expected = ["1 starts", "3 is suspended", "4 resumes", "5 moves", "6 is suspended", "7 moves", "8 is done"];
        assert_eq!(steps(&looks), expected);
        assert_eq!(steps(&[(Done, ""), (Done, "")]), ["0 starts", "0 is done"], "too short to be seen");
    }
}
