//! The jobs come at their times to who runs them, whoever that is.
//!
//! A job is `weal stand-in`, which uses the CPU time and the memory that it is told, and no more of a core than helps it.

use std::collections::BTreeSet;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use weal_scenario::workload::JobArrival;

use super::outcome::{OneRun, distance};

/// So much later than the last submission all jobs are done, or something is wrong.
const PATIENCE: Duration = Duration::from_secs(600);

/// Who runs the jobs.
pub(super) trait Queue {
    /// Hands the job in as this number.
    fn submit(&mut self, number: usize, job: &JobArrival) -> Result<()>;

    /// How many of those that were handed in are not over, and the numbers of those that have begun and stand still.
    fn look(&mut self) -> Result<(usize, BTreeSet<usize>)>;

    /// When the job of this number was done, as the system's clock says, in seconds.
    fn end_s(&self, number: usize) -> Result<f64>;
}

/// Hands the jobs in at their times and looks at them every `look` until all are over.
pub(super) fn play(queue: &mut impl Queue, jobs: &[JobArrival], look: Duration) -> Result<OneRun> {
    let begun = Instant::now();
    let (mut handed_in_s, mut changes, mut still) = (Vec::new(), 0, BTreeSet::new());
    let last_s = jobs.last().map_or(0.0, |job| job.at_s);
    loop {
        while let Some(job) = jobs.get(handed_in_s.len()).filter(|job| job.at_s <= begun.elapsed().as_secs_f64()) {
            handed_in_s.push(now_s());
            queue.submit(handed_in_s.len() - 1, job)?;
        }
        let (open, now_still) = queue.look()?;
        changes += now_still.difference(&still).count();
        still = now_still;
        if handed_in_s.len() == jobs.len() && open == 0 {
            break;
        }
        ensure!(begun.elapsed().as_secs_f64() < last_s + PATIENCE.as_secs_f64(), "{open} jobs are not done");
        let next = jobs.get(handed_in_s.len()).map(|job| Duration::from_secs_f64(job.at_s).saturating_sub(begun.elapsed()));
        thread::sleep(next.map_or(look, |next| next.min(look)));
    }
    let done_s: Vec<f64> = (0..jobs.len()).map(|number| queue.end_s(number)).collect::<Result<_>>()?;
    let times = handed_in_s.iter().zip(&done_s);
    let distances = jobs.iter().zip(times).map(|(job, (came_s, done_s))| distance(job, *came_s, *done_s)).collect();
    let end_s = done_s.iter().copied().fold(0.0, f64::max);
    Ok(OneRun::new(distances, changes, end_s - handed_in_s.first().copied().unwrap_or(end_s)))
}

fn now_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// What a job runs.
pub(super) fn stand_in(weal: &Path, job: &JobArrival) -> Vec<String> {
    let (work, cpus) = (job.kind.work.0.to_string(), job.kind.max_speed.0.to_string());
    let memory = job.kind.memory.to_string();
    let words = ["stand-in", "--work", &work, "--cpus", &cpus, "--memory", &memory];
    std::iter::once(weal.display().to_string()).chain(words.map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use anyhow::Context;

    use super::*;
    use crate::bench::jobs_policies::mix::mix;

    /// Each job is over at the second look after it came, and stands still at the first.
    #[derive(Default)]
    struct Made {
        came: BTreeMap<usize, u32>,
        ended: BTreeMap<usize, f64>,
    }

    impl Queue for Made {
        fn submit(&mut self, number: usize, _: &JobArrival) -> Result<()> {
            self.came.insert(number, 0);
            Ok(())
        }

        fn look(&mut self) -> Result<(usize, BTreeSet<usize>)> {
            self.came.values_mut().for_each(|looks| *looks += 1);
            let over: Vec<usize> = self.came.iter().filter(|(_, looks)| **looks > 1).map(|(number, _)| *number).collect();
            for number in over {
                self.came.remove(&number);
                self.ended.insert(number, now_s());
            }
            Ok((self.came.len(), self.came.keys().copied().collect()))
        }

        fn end_s(&self, number: usize) -> Result<f64> {
            self.ended.get(&number).copied().context("it is not over")
        }
    }

    #[test]
    fn a_run_waits_for_all_jobs_and_counts_who_was_made_to_stand_still() {
        let jobs: Vec<JobArrival> = mix(0.9).stream(1, "jobs").take(3).map(|job| JobArrival { at_s: 0.0, ..job }).collect();
        let run = play(&mut Made::default(), &jobs, Duration::ZERO).unwrap();
        assert_eq!((run.changes, run.met, run.distances.len()), (3, 1.0, 3));
    }

    #[test]
    fn a_job_runs_what_it_is_said_to_take() {
        let job = mix(0.9).stream(1, "jobs").next().unwrap();
        let words = stand_in(Path::new("/usr/bin/weal"), &job);
        assert_eq!(words[..2], ["/usr/bin/weal", "stand-in"]);
        assert_eq!(words[3].parse::<f64>().unwrap(), job.kind.work.0);
        assert_eq!(weal_model::written::parse_size(&words[7]), Ok(job.kind.memory));
    }
}
