//! The same jobs on real processes: handed in to somebody at their moments, until all are done.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use weal_model::{Event, JobStatus};
use weal_scenario::workload::JobArrival;

use super::slurm::{Order, Slurm, install};
use super::{JOB_MEMORY, OneRun, Outcome, SLICE_CPU, SLICE_MEMORY, SLICES};
use crate::bench::real::pool::Pool;
use crate::programs::release;

/// Between two looks at what is done.
const LOOK: Duration = Duration::from_secs(2);
/// After the last job has come. Whoever is not done by then counts as done then.
const LONGEST: Duration = Duration::from_secs(300);

/// Somebody who runs jobs.
pub trait Runner {
    /// Takes a job.
    fn hand_in(&mut self, number: usize, job: &JobArrival) -> Result<()>;
    /// How many jobs are over.
    fn over(&mut self) -> Result<usize>;
    /// What became of all.
    fn finish(&mut self) -> Result<Ends>;
}

/// What became of the jobs.
pub struct Ends {
    /// By number, when each was done, in seconds of Unix time.
    pub at_s: BTreeMap<usize, f64>,
    /// Jobs that were suspended or moved, each time.
    pub changes: usize,
}

/// The program of each job: it takes just the CPU time and the memory that it is told.
#[derive(Clone)]
pub struct StandIn {
    weal: PathBuf,
}

impl StandIn {
    /// Program and arguments.
    pub fn words(&self, job: &JobArrival) -> Vec<String> {
        let (work, cpus, memory) = (job.kind.work.0, job.kind.max_speed.0, format!("{}MiB", (JOB_MEMORY.0 >> 20) - ROOM_MIB));
        let words = [&self.weal.display().to_string(), "stand-in", "--work", &work.to_string(), "--cpus", &cpus.to_string()];
        words.into_iter().map(str::to_owned).chain(["--memory".to_owned(), memory]).collect()
    }
}

/// What a shell and a page cache take of a job's memory beside its program.
const ROOM_MIB: u64 = 30;

/// weal's pool and Slurm with the same jobs, one after the other.
pub fn run(jobs: &[JobArrival], load: f64) -> Result<Vec<Outcome>> {
    install()?;
    let weal = release(&["--package", "weal", "--bin", "weal"])?.join("weal");
    let job = StandIn { weal: weal.clone() };
    let of = |policy: &'static str, runner: &mut dyn Runner| -> Result<Outcome> {
        Ok(Outcome { policy, load, runs: vec![through(runner, jobs)?] })
    };
    let folder = tempfile::tempdir()?;
    let at = |name: &str| folder.path().join(name);
    Ok(vec![
        of("weal, real", &mut Weal::start(&weal, &at("weal"), job.clone())?)?,
        of("Slurm by arrival, real", &mut Slurm::start(&at("arrival"), Order::Arrival, job.clone())?)?,
        of("Slurm by deadline, real", &mut Slurm::start(&at("deadline"), Order::Deadline, job)?)?,
    ])
}

fn through(runner: &mut dyn Runner, jobs: &[JobArrival]) -> Result<OneRun> {
    let (begun, mut handed_in_s) = (Instant::now(), Vec::new());
    for (number, job) in jobs.iter().enumerate() {
        std::thread::sleep(Duration::from_secs_f64(job.at_s).saturating_sub(begun.elapsed()));
        handed_in_s.push(now_s());
        runner.hand_in(number, job)?;
    }
    let deadline = Instant::now() + LONGEST;
    while runner.over()? < jobs.len() && Instant::now() < deadline {
        std::thread::sleep(LOOK);
    }
    let (ends, given_up_s) = (runner.finish()?, now_s());
    let end_s = |number: usize| ends.at_s.get(&number).copied().unwrap_or(given_up_s);
    let distance = |(number, job): (usize, &JobArrival)| 1.0 - (end_s(number) - handed_in_s[number]) / job.relative_goal_s;
    let last_s = (0..jobs.len()).map(end_s).fold(0.0, f64::max);
    let begun_s = handed_in_s[0] - jobs[0].at_s;
    Ok(OneRun::new(jobs.iter().enumerate().map(distance).collect(), ends.changes, last_s - begun_s))
}

fn now_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// A pool of weal.
struct Weal {
    pool: Pool,
    job: StandIn,
    events: PathBuf,
    /// Writes down what happens.
    watcher: Child,
}

impl Weal {
    fn start(weal: &Path, folder: &Path, job: StandIn) -> Result<Self> {
        let node = |number: usize| {
            let memory = SLICE_MEMORY.0 >> 20;
            format!("\n[[node]]\nname = \"n{number}\"\ncpu = {SLICE_CPU}\nmemory = \"{memory}MiB\"\nutilization-limit = 1.0\n")
        };
        let pool = Pool::start(weal, folder, &(1..=SLICES).map(node).collect::<String>())?;
        let events = folder.join("events");
        let mut watch = pool.prepared(&["events", "--watch", "-o", "json"]);
        let watcher = watch.stdout(fs::File::create(&events)?).stderr(Stdio::null()).spawn()?;
        Ok(Self { pool, job, events, watcher })
    }

    fn jobs(&self) -> Result<Vec<JobStatus>> {
        let listed = self.pool.weal(&["jobs", "--all", "-n", "10000", "-o", "json"])?;
        Ok(serde_json::from_slice(&listed.stdout)?)
    }
}

impl Runner for Weal {
    fn hand_in(&mut self, number: usize, job: &JobArrival) -> Result<()> {
        let (goal, work) = (format!("{:.3}s", job.relative_goal_s), format!("{}s", job.kind.work.0));
        let (cpus, memory) = (job.kind.max_speed.0.to_string(), format!("{}MiB", JOB_MEMORY.0 >> 20));
        let name = format!("j{number}");
        let mut words =
            vec!["submit", "--name", &name, "--done-by", &goal, "--work", &work, "--cpus", &cpus, "--memory", &memory, "--"];
        let run = self.job.words(job);
        words.extend(run.iter().map(String::as_str));
        let output = self.pool.weal(&words)?;
        ensure!(output.status.success(), "weal does not take a job: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    fn over(&mut self) -> Result<usize> {
        Ok(self.jobs()?.iter().filter(|job| job.state.is_over()).count())
    }

    fn finish(&mut self) -> Result<Ends> {
        // It looks twice a second.
        std::thread::sleep(LOOK);
        let mut ends = BTreeMap::new();
        for job in self.jobs()? {
            let number = job.id.as_str().strip_prefix('j').and_then(|id| id.split('-').next()?.parse().ok());
            if let (Some(number), Some(end), true) = (number, job.expected_end, job.state.is_over()) {
                ensure!(job.state == weal_model::JobPhase::Done, "{} {}: {}", job.id, job.state.as_str(), job.detail);
                ends.insert(number, end.as_secs_f64());
            }
        }
        let events = fs::read_to_string(&self.events)?;
        let events = events.lines().filter_map(|line| serde_json::from_str::<Event>(line).ok());
        let is_change = |event: &Event| event.text.starts_with("suspend job ") || event.text.starts_with("move job ");
        Ok(Ends { at_s: ends, changes: events.filter(is_change).count() })
    }
}

impl Drop for Weal {
    fn drop(&mut self) {
        let _ = self.watcher.kill();
        let _ = self.watcher.wait();
    }
}
