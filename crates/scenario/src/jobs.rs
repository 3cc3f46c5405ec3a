//! From a `[[job]]` to the jobs that come in.

use std::collections::BTreeSet;

use serde::Deserialize;
use toml::Spanned;
use weal_model::{Bytes, Cpu, Importance, JobName, JobSpec, Stage, Time, Work};

use super::read::{ScenarioError, Source};
use super::values::{Size, Span};
use crate::workload::read_swf;
use weal_rng as random;

/// More jobs than this are a mistake in the file, and none would be told from another.
const MOST_JOBS: usize = 100_000;

/// `[[job]]`: one job, several that come at random, or those of a log.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct JobTable {
    /// Its name; where there are several, `NAME-1`, `NAME-2` and so on.
    pub name: Spanned<String>,
    /// CPU time per task.
    pub work: Option<Span>,
    /// The most cores that a task can use. Default: 1.
    pub cpu: Option<f64>,
    /// The fewest cores that a task must have while it runs. Default: none.
    pub min_cpu: Option<f64>,
    /// Memory per task.
    pub memory: Option<Size>,
    /// Phases one after the other, each with these four, instead of them.
    #[serde(default)]
    pub stages: Vec<StageTable>,
    /// Processes that run at once, all or none. Default: 1.
    pub tasks: Option<u32>,
    /// By when it must be done, from when it comes.
    pub goal: Option<Span>,
    /// The same as a multiple of its time at full speed.
    pub goal_factor: Option<f64>,
    /// How much missing the goal matters. Default: `normal`.
    pub importance: Option<Spanned<String>>,
    /// When it comes, or the first may. Default: at once.
    #[serde(default)]
    pub at: Span,
    /// Several come, so far apart in the mean, exponentially distributed.
    pub every: Option<Span>,
    /// So many of them. Default: as many as come until the end.
    pub count: Option<usize>,
    /// Those of a log.
    pub log: Option<JobLogTable>,
}

/// One entry of `stages`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct StageTable {
    /// CPU time per task.
    pub work: Span,
    /// The most cores that a task can use. Default: 1.
    pub cpu: Option<f64>,
    /// The fewest cores that a task must have while it runs. Default: none.
    pub min_cpu: Option<f64>,
    /// Memory per task.
    pub memory: Size,
}

/// `log` of a job: a log in the Standard Workload Format. Its arrivals, run times and processors count; a processor becomes a task.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct JobLogTable {
    /// Relative to the scenario file.
    pub file: String,
    /// Recorded seconds per second of the run, of arrivals and of run times alike. Default: 1.
    pub speed: Option<f64>,
    /// Wider jobs are left out. Default: none is.
    pub most_tasks: Option<u32>,
}

/// One `[[job]]`.
#[derive(Debug, Clone, PartialEq)]
pub struct JobSource {
    /// Names the jobs and their stream of random numbers.
    pub name: String,
    /// How much missing their goals matters.
    pub importance: Importance,
    /// By when each must be done.
    goal: JobGoal,
    /// What comes, when.
    coming: Coming,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum JobGoal {
    /// Seconds from when it comes.
    Within(f64),
    /// A multiple of its time at full speed.
    Factor(f64),
}

#[derive(Debug, Clone, PartialEq)]
enum Coming {
    Once { at_s: f64, job: Shape },
    Randomly { from_s: f64, mean_gap_s: f64, most: usize, job: Shape },
    Listed(Vec<(f64, Shape)>),
}

/// What a job is, whenever it comes.
#[derive(Debug, Clone, PartialEq)]
struct Shape {
    stages: Vec<Stage>,
    tasks: u32,
}

impl Shape {
    /// Seconds at full speed.
    fn best_s(&self) -> f64 {
        self.stages.iter().map(Stage::best_s).sum()
    }
}

impl JobSource {
    /// The most memory that a task of it ever takes.
    pub(super) fn largest_memory(&self) -> Bytes {
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
        format!("{}-{}", self.name, index + 1).into()
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
            stages: job.stages.clone(),
            tasks: job.tasks,
        }
    }
}

/// Reads all of a file's `[[job]]` tables.
pub(super) fn read_jobs(
    source: &Source,
    tables: &[Spanned<JobTable>],
    read_file: &mut impl FnMut(&str) -> Result<String, String>,
) -> Result<Vec<JobSource>, ScenarioError> {
    let mut names = BTreeSet::new();
    let mut jobs = Vec::new();
    for table in tables {
        let name = &table.get_ref().name;
        if name.get_ref().is_empty() || !names.insert(name.get_ref().clone()) {
            return Err(source.error(&name.span(), format!("job `{}` is there twice, or has no name", name.get_ref())));
        }
        jobs.push(read_job(table.get_ref(), read_file).map_err(|error| match error {
            Wrong::Importance => source.error(
                &table.get_ref().importance.as_ref().map_or(table.span(), Spanned::span),
                "importance is `lowest`, `low`, `normal`, `high` or `highest`",
            ),
            Wrong::Table(message) => source.error(&table.span(), message),
        })?);
    }
    Ok(jobs)
}

/// What is wrong with a table.
enum Wrong {
    Importance,
    Table(String),
}

impl From<&str> for Wrong {
    fn from(message: &str) -> Self {
        Self::Table(message.to_owned())
    }
}

fn read_job(table: &JobTable, read_file: &mut impl FnMut(&str) -> Result<String, String>) -> Result<JobSource, Wrong> {
    let importance = match &table.importance {
        None => Importance::NORMAL,
        Some(word) => Importance::from_word(word.get_ref()).ok_or(Wrong::Importance)?,
    };
    let goal = match (table.goal, table.goal_factor) {
        (Some(span), None) if span.0 > 0.0 => JobGoal::Within(span.0),
        (None, Some(factor)) if factor.is_finite() && factor > 0.0 => JobGoal::Factor(factor),
        _ => {
            return Err(
                "a job has exactly one of `goal` (a time) and `goal-factor` (a multiple of its time at full speed)".into()
            );
        }
    };
    let coming = match &table.log {
        Some(log) => Coming::Listed(of_log(table, log, read_file)?),
        None => {
            let job = Shape { stages: stages(table)?, tasks: tasks(table)? };
            match table.every {
                None if table.count.is_none() => Coming::Once { at_s: table.at.0, job },
                Some(gap) if gap.0 > 0.0 => {
                    let most = table.count.unwrap_or(MOST_JOBS).min(MOST_JOBS);
                    Coming::Randomly { from_s: table.at.0, mean_gap_s: gap.0, most, job }
                }
                _ => return Err("`every` says how far apart jobs come in the mean; `count` says how many of them".into()),
            }
        }
    };
    Ok(JobSource { name: table.name.get_ref().clone(), importance, goal, coming })
}

fn tasks(table: &JobTable) -> Result<u32, Wrong> {
    let tasks = table.tasks.unwrap_or(1);
    if (1..=10_000).contains(&tasks) { Ok(tasks) } else { Err("`tasks` is a number from 1 to 10000".into()) }
}

fn stages(table: &JobTable) -> Result<Vec<Stage>, Wrong> {
    if table.stages.is_empty() {
        let (Some(work), Some(memory)) = (table.work, table.memory) else {
            return Err("say how much `work` a task is and how much `memory` it takes, or give `stages`, or a `log`".into());
        };
        return Ok(vec![stage(work, table.cpu, table.min_cpu, memory)?]);
    }
    if table.work.is_some() || table.memory.is_some() || table.cpu.is_some() || table.min_cpu.is_some() {
        return Err("`work`, `cpu`, `min-cpu` and `memory` are said in each of the `stages`".into());
    }
    table.stages.iter().map(|one| stage(one.work, one.cpu, one.min_cpu, one.memory)).collect()
}

fn stage(work: Span, cpu: Option<f64>, min_cpu: Option<f64>, memory: Size) -> Result<Stage, Wrong> {
    let (max, min) = (cpu.unwrap_or(1.0), min_cpu.unwrap_or(0.0));
    if work.0 <= 0.0 {
        return Err("`work` is more than nothing".into());
    }
    if !(max.is_finite() && max > 0.0 && max <= 1024.0 && (0.0..=max).contains(&min)) {
        return Err("`cpu` is a number of cores above 0, up to 1024, and `min-cpu` at most that".into());
    }
    Ok(Stage { work: Work(work.0), max_speed: Cpu(max), min_speed: Cpu(min), memory: memory.0 })
}

fn of_log(
    table: &JobTable,
    log: &JobLogTable,
    read_file: &mut impl FnMut(&str) -> Result<String, String>,
) -> Result<Vec<(f64, Shape)>, Wrong> {
    if table.work.is_some() || table.tasks.is_some() || table.every.is_some() || !table.stages.is_empty() {
        return Err("a `log` says itself how much work its jobs are, of how many tasks, and when they come".into());
    }
    let speed = log.speed.unwrap_or(1.0);
    if !(speed.is_finite() && speed > 0.0) {
        return Err("`speed` is a positive number".into());
    }
    let memory = table.memory.unwrap_or(Size(Bytes(0)));
    let why = |why: String| Wrong::Table(format!("`{}`: {why}", log.file));
    let text = read_file(&log.file).map_err(why)?;
    let jobs = read_swf(&text).map_err(|error| why(error.to_string()))?;
    let kept = jobs.iter().filter(|job| log.most_tasks.is_none_or(|most| job.processors <= most));
    let first_s = jobs.first().map_or(0.0, |job| job.submit_s);
    let shape = |job: &crate::workload::SwfJob| {
        // A processor was busy all the time, or nothing is known of when it was not.
        let stage = stage(Span(job.run_s / speed), table.cpu, table.min_cpu, memory)?;
        let work = Work(stage.work.0 * stage.max_speed.0);
        Ok((
            table.at.0 + (job.submit_s - first_s) / speed,
            Shape { stages: vec![Stage { work, ..stage }], tasks: job.processors },
        ))
    };
    let list = kept.take(table.count.unwrap_or(MOST_JOBS).min(MOST_JOBS)).map(shape).collect::<Result<Vec<_>, Wrong>>()?;
    if list.is_empty() { Err(why("no job in it is left".to_owned())) } else { Ok(list) }
}

#[cfg(test)]
mod tests {
    use crate::Scenario;

    fn scenario(keys: &str) -> Result<Scenario, String> {
        let text = format!(
            "intent = \"A test.\"\nduration = \"100s\"\n[[node]]\nname = \"n1\"\ncpu = 1.0\nmemory = \"1GiB\"\n[class.gold]\n\
             [app.shop]\nmemory = \"1MiB\"\nwork = \"1ms\"\n[[job]]\nname = \"report\"\n{keys}\n"
        );
        let swf = "; a log\n1 50 -1 30 2 -1 -1 2 -1 -1 1 1 1 -1 -1 -1 -1 -1\n2 70 -1 10 64 -1 -1 64 -1 -1 1 1 1 -1 -1 -1 -1 -1\n";
        let read = |name: &str| if name == "log.swf" { Ok(swf.to_owned()) } else { Err("no such file".to_owned()) };
        Scenario::parse(&text, read).map_err(|error| error.to_string())
    }

    #[test]
    fn one_job_comes_once_with_its_goal() {
        let read =
            scenario("work = \"20s\"\ncpu = 2.0\nmemory = \"64MiB\"\ngoal-factor = 3.0\nat = \"5s\"\nimportance = \"high\"")
                .unwrap();
        let jobs = read.jobs[0].jobs(1, 100.0);
        assert_eq!(jobs.len(), 1);
        assert_eq!((jobs[0].name.as_str(), jobs[0].deadline.as_secs_f64(), jobs[0].tasks), ("report", 35.0, 1));
        assert_eq!(jobs[0].importance, weal_model::Importance::from_word("high").unwrap());
    }

    #[test]
    fn several_come_at_random_by_their_own_stream() {
        let read = scenario("work = \"2s\"\nmemory = \"1MiB\"\ngoal = \"60s\"\nevery = \"1s\"").unwrap();
        let (jobs, again) = (read.jobs[0].jobs(1, 400.0), read.jobs[0].jobs(1, 400.0));
        assert_eq!(jobs, again);
        assert_ne!(jobs, read.jobs[0].jobs(2, 400.0));
        assert!((300..500).contains(&jobs.len()), "{}", jobs.len());
        assert_eq!(jobs[2].name.as_str(), "report-3");
        let few = scenario("work = \"2s\"\nmemory = \"1MiB\"\ngoal = \"60s\"\nevery = \"1s\"\ncount = 3").unwrap();
        assert_eq!(few.jobs[0].jobs(1, 400.0), jobs[..3]);
    }

    #[test]
    fn a_log_gives_arrivals_widths_and_run_times_scaled_alike() {
        let read =
            scenario("memory = \"1MiB\"\ngoal-factor = 2.0\nat = \"1s\"\nlog = { file = \"log.swf\", speed = 10.0 }").unwrap();
        let jobs = read.jobs[0].jobs(1, 100.0);
        let facts: Vec<_> = jobs.iter().map(|job| (job.submitted.as_secs_f64(), job.stages[0].work.0, job.tasks)).collect();
        assert_eq!(facts, [(1.0, 3.0, 2), (3.0, 1.0, 64)]);
        assert_eq!(jobs[0].deadline.as_secs_f64(), 7.0);
        let narrow = scenario("memory = \"1MiB\"\ngoal = \"9s\"\nlog = { file = \"log.swf\", most-tasks = 2 }").unwrap();
        assert_eq!(narrow.jobs[0].jobs(1, 100.0).len(), 1);
    }

    #[test]
    fn a_job_that_makes_no_sense_is_refused() {
        for (keys, part) in [
            ("work = \"1s\"\nmemory = \"1MiB\"", "exactly one of `goal`"),
            ("work = \"1s\"\nmemory = \"1MiB\"\ngoal = \"0s\"", "exactly one of `goal`"),
            ("memory = \"1MiB\"\ngoal = \"1s\"", "how much `work`"),
            ("work = \"1s\"\nmemory = \"1MiB\"\ngoal = \"1s\"\ncount = 3", "`every` says"),
            ("work = \"1s\"\nmemory = \"1MiB\"\ngoal = \"1s\"\ntasks = 0", "1 to 10000"),
            ("work = \"1s\"\nmemory = \"1MiB\"\ngoal = \"1s\"\ncpu = 1.0\nmin-cpu = 2.0", "`min-cpu` at most"),
            ("work = \"1s\"\nmemory = \"1MiB\"\ngoal = \"1s\"\nimportance = \"urgent\"", "importance is"),
            ("memory = \"1MiB\"\ngoal = \"1s\"\nlog = { file = \"gone.swf\" }", "no such file"),
            ("work = \"1s\"\nmemory = \"1MiB\"\ngoal = \"1s\"\nlog = { file = \"log.swf\" }", "says itself"),
            ("memory = \"1MiB\"\ngoal = \"1s\"\nlog = { file = \"log.swf\", most-tasks = 1 }", "no job in it"),
            ("work = \"1s\"\ngoal = \"1s\"\nstages = [{ work = \"1s\", memory = \"1MiB\" }]", "in each of the `stages`"),
        ] {
            let error = scenario(keys).unwrap_err();
            assert!(error.contains(part) && error.contains("line "), "{keys}: {error}");
        }
        assert!(
            scenario("work = \"1s\"\nmemory = \"2GiB\"\ngoal = \"1s\"")
                .unwrap_err()
                .contains("takes 2GiB a task, and no node has more than 1GiB")
        );
        assert!(scenario("work = \"1s\"\nmemory = \"1MiB\"\ngoal = \"1s\"\n[[job]]\nname = \"report\"\nwork = \"1s\"\nmemory = \"1MiB\"\ngoal = \"1s\"")
            .unwrap_err()
            .contains("twice"));
    }
}
