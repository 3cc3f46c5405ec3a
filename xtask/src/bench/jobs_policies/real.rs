//! The same jobs with real processes: under weal, and under Slurm where it is installed, one after the other on slices of the same size.
//!
//! A job is `weal stand-in`, which uses the CPU time and the memory that it is told, and no more of a core than helps it.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use weal_model::{JobPhase, JobStatus};
use weal_scenario::workload::JobArrival;

use super::slurm::{self, Slurm};
use super::{JOBS, LOADS, OneRun, Outcome, SLICE_CPU, SLICE_MEMORY, SLICES, mix};
use crate::bench::real::pool::Pool;
use crate::programs::{json_of, release};

/// The middle one of the simulated loads: the slices are busy, and there is time for all jobs.
const LOAD: f64 = LOADS[1];
const SEED: u64 = 1;
/// Between two looks at the jobs. A change that is undone sooner is not counted, under none of the policies.
const LOOK: Duration = Duration::from_millis(500);
/// So much later than the last submission all jobs are done, or something is wrong.
const PATIENCE: Duration = Duration::from_secs(600);

/// What a policy made of the jobs, and what a reader must know.
pub(super) fn outcomes(quick: bool) -> Result<(Vec<Outcome>, Vec<String>)> {
    let jobs: Vec<JobArrival> = mix(LOAD).stream(SEED, "jobs").take(if quick { 10 } else { JOBS }).collect();
    let weal = release(&["--package", "weal", "--bin", "weal"])?.join("weal");
    let of = |policy, run| Outcome { policy, load: LOAD, runs: vec![run] };
    let mut outcomes = Vec::new();
    let mut notes = vec![format!(
        "Real processes, {} jobs, one seed. Slices have {SLICE_CPU} cores each by the same control groups. Who stands still is looked at twice a second.",
        jobs.len()
    )];
    match slurm::missing() {
        None => {
            for (name, way) in slurm::WAYS {
                let folder = open_folder()?;
                outcomes.push(of(name, play(&mut Slurm::start(folder.path(), &weal, way)?, &jobs, LOOK)?));
            }
            notes.push(slurm::NOTE.to_owned());
        }
        Some(program) => {
            notes.push(format!("Slurm was left out: {program} is not installed (`apt-get install {}`).", slurm::PACKAGES))
        }
    }
    let folder = open_folder()?;
    outcomes.push(of("weal", play(&mut Weal::start(folder.path(), &weal)?, &jobs, LOOK)?));
    Ok((outcomes, notes))
}

/// A folder through which users of jobs get to theirs.
fn open_folder() -> Result<TempDir> {
    let folder = tempfile::tempdir()?;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
    Ok(folder)
}

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
fn play(queue: &mut impl Queue, jobs: &[JobArrival], look: Duration) -> Result<OneRun> {
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
    let distance = |(number, (job, at_s)): (usize, (&JobArrival, &f64))| -> Result<f64> {
        Ok((at_s + job.relative_goal_s - queue.end_s(number)?) / job.relative_goal_s)
    };
    let distances: Vec<f64> = jobs.iter().zip(&handed_in_s).enumerate().map(distance).collect::<Result<_>>()?;
    let end_s = (0..jobs.len()).map(|number| queue.end_s(number)).collect::<Result<Vec<f64>>>()?.into_iter().fold(0.0, f64::max);
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

struct Weal {
    pool: Pool,
    program: PathBuf,
    /// By number.
    names: Vec<String>,
    /// As they were when last looked at.
    jobs: Vec<JobStatus>,
}

impl Weal {
    fn start(folder: &Path, program: &Path) -> Result<Self> {
        let node = |n: usize| {
            format!("[[node]]\nname = \"n{n}\"\ncpu = {SLICE_CPU}\nmemory = \"{SLICE_MEMORY}\"\nutilization-limit = 1.0\n")
        };
        let config: String = (1..=SLICES).map(node).collect();
        let pool = Pool::start(program, &folder.join("pool"), &format!("\n{config}"))?;
        Ok(Self { pool, program: program.to_owned(), names: Vec::new(), jobs: Vec::new() })
    }
}

impl Queue for Weal {
    fn submit(&mut self, _: usize, job: &JobArrival) -> Result<()> {
        let (goal, work) = (format!("{}s", job.relative_goal_s), format!("{}s", job.kind.work.0));
        let (cpus, memory) = (job.kind.max_speed.0.to_string(), job.kind.memory.to_string());
        let options = ["--done-by", &goal, "--name", "job", "--memory", &memory, "--cpus", &cpus, "--work", &work];
        let mut command = self.pool.prepared(&["submit", "-o", "json"]);
        let taken: serde_json::Value = json_of(command.args(options).arg("--").args(stand_in(&self.program, job)))?;
        self.names.push(taken["job"]["id"].as_str().context("the answer names no job")?.to_owned());
        Ok(())
    }

    fn look(&mut self) -> Result<(usize, BTreeSet<usize>)> {
        self.jobs = json_of(&mut self.pool.prepared(&["jobs", "--all", "-n", "10000", "-o", "json"]))?;
        if let Some(job) = self.jobs.iter().find(|job| matches!(job.state, JobPhase::Failed | JobPhase::Cancelled)) {
            anyhow::bail!("{} is {}: {}", job.id, job.state.as_str(), job.detail);
        }
        let number = |job: &JobStatus| self.names.iter().position(|name| *name == job.id.as_str());
        let stands_still = |job: &&JobStatus| matches!(job.state, JobPhase::Paused | JobPhase::Suspended | JobPhase::Migrating);
        let open = self.names.len() - self.jobs.iter().filter(|job| job.state == JobPhase::Done).count();
        Ok((open, self.jobs.iter().filter(stands_still).filter_map(number).collect()))
    }

    fn end_s(&self, number: usize) -> Result<f64> {
        let name = &self.names[number];
        let job = self.jobs.iter().find(|job| job.id.as_str() == name.as_str());
        let end = job.and_then(|job| job.expected_end).with_context(|| format!("nothing tells when {name} was done"))?;
        Ok(end.as_secs_f64())
    }
}

/// Runs a command and returns what it printed.
pub(super) fn output_of(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(output.status.success(), "{command:?} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

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
        let jobs: Vec<JobArrival> = mix(LOAD).stream(SEED, "jobs").take(3).map(|job| JobArrival { at_s: 0.0, ..job }).collect();
        let run = play(&mut Made::default(), &jobs, Duration::ZERO).unwrap();
        assert_eq!((run.changes, run.met, run.distances.len()), (3, 1.0, 3));
    }

    #[test]
    fn a_job_runs_what_it_is_said_to_take() {
        let job = mix(LOAD).stream(SEED, "jobs").next().unwrap();
        let words = stand_in(Path::new("/usr/bin/weal"), &job);
        assert_eq!(words[..2], ["/usr/bin/weal", "stand-in"]);
        assert_eq!(words[3].parse::<f64>().unwrap(), job.kind.work.0);
        assert_eq!(weal_model::written::parse_size(&words[7]), Ok(job.kind.memory));
    }
}
