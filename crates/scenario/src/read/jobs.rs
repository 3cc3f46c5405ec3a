//! From a `[[job]]` to a [`JobSource`].

use std::collections::BTreeSet;
use std::io;

use toml::Spanned;
use weal_model::naming::is_name;
use weal_model::{Bytes, Cpu, Importance, Stage, Work};

use super::source::Source;
use crate::error::{FileProblem, Mistake, ScenarioError};
use crate::jobs::{Coming, JobGoal, JobSource, Shape};
use crate::tables::{JobLogTable, JobTable};
use crate::values::{Size, Span};
use crate::workload::{SwfJob, read_swf};

/// More jobs than this are a mistake in the file, and none would be told from another.
const MOST_JOBS: usize = 100_000;

/// What is stated of a job's work is wrong by so many times at most.
const MOST_WRONG: f64 = 1000.0;

/// Reads all of a file's `[[job]]` tables.
pub(super) fn read_jobs(
    source: &Source,
    tables: &[Spanned<JobTable>],
    read_file: &mut impl FnMut(&str) -> io::Result<String>,
) -> Result<Vec<JobSource>, ScenarioError> {
    let mut names = BTreeSet::new();
    let mut jobs = Vec::new();
    for table in tables {
        let name = &table.get_ref().name;
        if !is_name(name.get_ref()) {
            return Err(source.error(&name.span(), Mistake::BadJobName { name: name.get_ref().clone() }));
        }
        if !names.insert(name.get_ref().clone()) {
            return Err(source.error(&name.span(), Mistake::JobName { name: name.get_ref().clone() }));
        }
        jobs.push(read_job(table.get_ref(), read_file).map_err(|mistake| match mistake {
            Mistake::Importance => {
                let word = table.get_ref().importance.as_ref();
                source.error(&word.map_or(table.span(), Spanned::span), Mistake::Importance)
            }
            mistake => source.error(&table.span(), mistake),
        })?);
    }
    Ok(jobs)
}

fn read_job(table: &JobTable, read_file: &mut impl FnMut(&str) -> io::Result<String>) -> Result<JobSource, Mistake> {
    let importance = match &table.importance {
        None => Importance::NORMAL,
        Some(word) => Importance::from_word(word.get_ref()).ok_or(Mistake::Importance)?,
    };
    if table.checkpoint.is_empty() && !table.restore.is_empty() {
        return Err(Mistake::JobRestore);
    }
    let stated_factor = table.stated_factor.unwrap_or(1.0);
    let is_factor = (MOST_WRONG.recip()..=MOST_WRONG).contains(&stated_factor) || stated_factor == 0.0 && table.stages.is_empty();
    if !is_factor {
        return Err(Mistake::JobStated);
    }
    let goal = match (table.goal, table.goal_factor) {
        (Some(span), None) if span.0 > 0.0 => JobGoal::Within(span.0),
        (None, Some(factor)) if factor.is_finite() && factor > 0.0 => JobGoal::Factor(factor),
        _ => return Err(Mistake::JobGoal),
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
                _ => return Err(Mistake::JobEvery),
            }
        }
    };
    Ok(JobSource {
        name: table.name.get_ref().clone(),
        importance,
        priority: table.priority,
        run: table.run.clone(),
        checkpoint: table.checkpoint.clone(),
        restore: table.restore.clone(),
        stated_factor,
        tells_progress: table.tells_progress,
        goal,
        coming,
    })
}

fn tasks(table: &JobTable) -> Result<u32, Mistake> {
    let tasks = table.tasks.unwrap_or(1);
    if (1..=10_000).contains(&tasks) { Ok(tasks) } else { Err(Mistake::JobTasks) }
}

fn stages(table: &JobTable) -> Result<Vec<Stage>, Mistake> {
    if table.stages.is_empty() {
        let (Some(work), Some(memory)) = (table.work, table.memory) else {
            return Err(Mistake::JobWork);
        };
        return Ok(vec![stage(work, table.cpu, table.min_cpu, memory)?]);
    }
    if table.work.is_some() || table.memory.is_some() || table.cpu.is_some() || table.min_cpu.is_some() {
        return Err(Mistake::JobStages);
    }
    table.stages.iter().map(|one| stage(one.work, one.cpu, one.min_cpu, one.memory)).collect()
}

fn stage(work: Span, cpu: Option<f64>, min_cpu: Option<f64>, memory: Size) -> Result<Stage, Mistake> {
    let (max, min) = (cpu.unwrap_or(1.0), min_cpu.unwrap_or(0.0));
    if work.0 <= 0.0 {
        return Err(Mistake::StageWork);
    }
    if !(max.is_finite() && max > 0.0 && max <= 1024.0 && (0.0..=max).contains(&min)) {
        return Err(Mistake::StageCpu);
    }
    Ok(Stage { work: Work(work.0), max_speed: Cpu(max), min_speed: Cpu(min), memory: memory.0 })
}

fn of_log(
    table: &JobTable,
    log: &JobLogTable,
    read_file: &mut impl FnMut(&str) -> io::Result<String>,
) -> Result<Vec<(f64, Shape)>, Mistake> {
    if table.work.is_some() || table.tasks.is_some() || table.every.is_some() || !table.stages.is_empty() {
        return Err(Mistake::JobOfLog);
    }
    let speed = log.speed.unwrap_or(1.0);
    if !(speed.is_finite() && speed > 0.0) {
        return Err(Mistake::Speed);
    }
    let memory = table.memory.unwrap_or(Size(Bytes(0)));
    let of_file = |problem: FileProblem| Mistake::File { file: log.file.clone(), problem };
    let text = read_file(&log.file).map_err(|error| of_file(error.into()))?;
    let jobs = read_swf(&text).map_err(|error| of_file(error.into()))?;
    let kept = jobs.iter().filter(|job| log.most_tasks.is_none_or(|most| job.processors <= most));
    let first_s = jobs.first().map_or(0.0, |job| job.submit_s);
    let shape = |job: &SwfJob| {
        // A processor was busy all the time, or nothing is known of when it was not.
        let stage = stage(Span(job.run_s / speed), table.cpu, table.min_cpu, memory)?;
        let work = Work(stage.work.0 * stage.max_speed.0);
        Ok((
            table.at.0 + (job.submit_s - first_s) / speed,
            Shape { stages: vec![Stage { work, ..stage }], tasks: job.processors },
        ))
    };
    let list = kept.take(table.count.unwrap_or(MOST_JOBS).min(MOST_JOBS)).map(shape).collect::<Result<Vec<_>, Mistake>>()?;
    if list.is_empty() { Err(of_file(FileProblem::NoJob)) } else { Ok(list) }
}

#[cfg(test)]
mod tests {
    use crate::{Scenario, no_files};

    fn scenario(keys: &str) -> Result<Scenario, String> {
        let text = format!(
            "intent = \"A test.\"\nduration = \"100s\"\n[[node]]\nname = \"n1\"\ncpu = 1.0\nmemory = \"1GiB\"\n[class.gold]\n\
             [app.shop]\nmemory = \"1MiB\"\nwork = \"1ms\"\n[[job]]\nname = \"report\"\n{keys}\n"
        );
        let swf = "; a log\n1 50 -1 30 2 -1 -1 2 -1 -1 1 1 1 -1 -1 -1 -1 -1\n2 70 -1 10 64 -1 -1 64 -1 -1 1 1 1 -1 -1 -1 -1 -1\n";
        let read = |name: &str| if name == "log.swf" { Ok(swf.to_owned()) } else { no_files(name) };
        Scenario::parse(&text, read).map_err(|error| error.to_string())
    }

    #[test]
    fn a_name_that_a_pool_would_refuse_is_refused_here() {
        let keys = "work = \"20s\"\nmemory = \"1MiB\"\ngoal = \"60s\"\n[[job]]\nname = \"JOB1\"\nwork = \"20s\"\ngoal = \"60s\"";
        let error = scenario(keys).unwrap_err();
        assert!(error.contains("`JOB1` cannot be the name of a job: names have up to 40 lower-case letters"), "{error}");
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
    fn what_is_stated_of_a_job_may_be_wrong() {
        let read =
            scenario("work = \"20s\"\nmemory = \"1MiB\"\ngoal-factor = 3.0\nstated-factor = 0.1\ntells-progress = true").unwrap();
        let (source, job) = (&read.jobs[0], &read.jobs[0].jobs(1, 100.0)[0]);
        let stated = source.stated(job);
        assert_eq!((job.stages[0].work.0, stated.stages[0].work.0, source.tells_progress), (20.0, 2.0, true));
        assert_eq!(stated.deadline.as_secs_f64(), 60.0, "the goal goes by what is true");
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
            ("memory = \"1MiB\"\ngoal = \"1s\"\nlog = { file = \"gone.swf\" }", "no file `gone.swf`"),
            ("work = \"1s\"\nmemory = \"1MiB\"\ngoal = \"1s\"\nlog = { file = \"log.swf\" }", "says itself"),
            ("memory = \"1MiB\"\ngoal = \"1s\"\nlog = { file = \"log.swf\", most-tasks = 1 }", "no job in it"),
            ("work = \"1s\"\nmemory = \"1MiB\"\ngoal = \"1s\"\nrestore = [\"./back\"]", "needs a `checkpoint`"),
            ("work = \"1s\"\nmemory = \"1MiB\"\ngoal = \"1s\"\nstated-factor = -1.0", "`stated-factor` is"),
            (
                "goal = \"1s\"\nstages = [{ work = \"1s\", memory = \"1MiB\" }]\nstated-factor = 0.0",
                "`stated-factor` is a number from 0.001 to 1000",
            ),
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
