//! From a submission to a job's record: what is refused, and what stands in for what was not said.

use std::path::Path;
use std::time::Duration;

use weal_model::naming::{LONGEST_NAME, RULE_OF_NAMES, is_name, job_name};
use weal_model::{
    ArrayPart, Bytes, ClassName, Cpu, Importance, JobCommand, JobName, JobRecord, JobSpec, NodeSpec, PoolSpec, Stage, Submitter,
    Time, Work,
};
use weal_protocol::Refusal;
use weal_protocol::controller::{ArrayRange, JobSubmission};

use super::job_files;
use super::jobs::JobOrdered;
use super::queue::{self, Written};
use super::state::State;
use crate::jobs::Job;

/// Memory of a job that does not say it.
const DEFAULT_MEMORY: Bytes = Bytes::mib(256);
/// A run that has no CPU limit of its own is taken for a process of one thread.
const DEFAULT_CPUS: f64 = 1.0;
/// Jobs that may be open at once: more is a mistake of the submitter.
const MOST_OPEN: usize = 100_000;
/// Times that a job may be run again.
const MOST_RETRIES: u32 = 1000;
/// Priorities go so far either way.
const MOST_PRIORITY: i32 = 100;
/// Jobs of one array: they are written in one go.
const MOST_PARTS: usize = 1000;
/// Processes of one job that run at once.
const MOST_TASKS: u32 = 64;
/// Phases of one job.
const MOST_STAGES: usize = 100;
/// The longest key of a submission.
const LONGEST_KEY: usize = 200;
/// So many times its work at full speed a job of these classes may take, where no other goal is stated. Bronze is ours; the others are
/// Carrera's (5.7, table 5.6).
const CLASS_FACTORS: [(&str, f64); 4] = [("platinum", 1.5), ("gold", 3.0), ("silver", 10.0), ("bronze", 30.0)];

impl State {
    /// Takes a job in. It is on disk when [`JobOrdered::write`] has succeeded, and nothing is done about it before.
    pub(super) fn take_submission(
        &mut self,
        now: Time,
        submission: &JobSubmission,
        submitter: Option<&Submitter>,
    ) -> Result<JobOrdered, Refusal> {
        if self.queue.is_unread() {
            return Err(Refusal::JobsUnread);
        }
        if let Some(known) = self.known_by_key(submission, submitter)? {
            return Ok(known);
        }
        let (mut record, warnings) = self.record_of(now, submission)?;
        record.submitter = submitter.map(|submitter| submitter.token.clone());
        let records = match submission.array {
            Some(range) => parts(&record, range)?,
            None => vec![record],
        };
        self.check_quota(submitter, &records)?;
        let jobs: Vec<JobName> = records.iter().map(|record| record.spec.name.clone()).collect();
        records.into_iter().for_each(|record| self.queue.enter(record, Written::Submission));
        let write = self.write_jobs(&jobs);
        let job = jobs.into_iter().next().ok_or_else(|| bad("an array needs a job".to_owned()))?;
        Ok(JobOrdered { job, write, is_new: true, warnings })
    }

    /// Takes in a job that says all of itself, as one of a scenario does.
    pub(super) fn take_job(&mut self, spec: JobSpec) -> Result<JobOrdered, Refusal> {
        if self.queue.is_unread() {
            return Err(Refusal::JobsUnread);
        }
        let job = spec.name.clone();
        if self.queue.get(&job).is_some() {
            return Err(bad(format!("there is a job {job} already, and it is not over")));
        }
        let write = self.take_in(JobRecord::new(self.queue.next_number(), spec, JobCommand::default()));
        Ok(JobOrdered { is_new: true, ..JobOrdered::written(job, write) })
    }

    /// Enters a job and writes it down.
    pub(super) fn take_in(&mut self, record: JobRecord) -> Option<u64> {
        let job = record.spec.name.clone();
        self.queue.enter(record, Written::Submission);
        self.write_job(&job)
    }

    /// The job of an earlier submission with the same key by the same token: keys of different tokens do not meet.
    fn known_by_key(&self, submission: &JobSubmission, by: Option<&Submitter>) -> Result<Option<JobOrdered>, Refusal> {
        let Some(key) = &submission.key else { return Ok(None) };
        let token = by.map(|by| &by.token);
        let has_key = |record: &&JobRecord| record.key.as_ref() == Some(key) && record.submitter.as_ref() == token;
        let open = self.queue.open().find(|entry| has_key(&&entry.record));
        let write = open.filter(|entry| entry.written == Written::Submission).map(|entry| entry.write);
        let Some(record) = open.map(|entry| &entry.record).or_else(|| self.queue.over().find(has_key)) else { return Ok(None) };
        if record.command != submission.command() {
            return Err(bad(format!("the key `{key}` belongs to {}, which runs another command", record.spec.name)));
        }
        Ok(Some(JobOrdered::written(record.spec.name.clone(), write)))
    }

    pub(super) fn record_of(&self, now: Time, submission: &JobSubmission) -> Result<(JobRecord, Vec<String>), Refusal> {
        let pool = self.pool().ok_or(Refusal::NotObserved)?;
        check(submission, &pool)?;
        self.check_engine(submission)?;
        let after = self.after(&submission.after)?;
        let (time, number) = (self.engine.its_time(now), self.queue.next_number());
        let name = job_name(&name_of(submission)?, number);
        let importance = submission.class.as_ref().and_then(|class| pool.classes.get(class)).map(|class| class.importance);
        let mut spec = JobSpec {
            name,
            submitted: time,
            desired_start: time,
            deadline: time,
            importance: importance.unwrap_or(Importance::NORMAL),
            priority: submission.priority.unwrap_or(0),
            stages: stages(submission),
            tasks: tasks_of(submission),
        };
        spec.deadline = self.deadline(time, submission, &spec)?;
        let memory_limit = self.request_learnt(submission, &pool, &mut spec);
        let warnings = self.warnings(&spec, &pool);
        let record = JobRecord {
            memory_limit,
            class: submission.class.clone(),
            key: submission.key.clone(),
            after,
            retries: submission.retries,
            ..JobRecord::new(number, spec, submission.command())
        };
        Ok((record, warnings))
    }

    /// Gives a job whose memory nobody has said the request that earlier runs of its family make likely; returns its limit then.
    fn request_learnt(&self, submission: &JobSubmission, pool: &PoolSpec, spec: &mut JobSpec) -> Option<Bytes> {
        let [stage] = spec.stages.as_mut_slice() else { return None };
        let is_said = submission.memory.is_some() || !submission.stages.is_empty();
        let request = self.queue.runs().peaks.request(&spec.name, DEFAULT_MEMORY).filter(|_| !is_said)?;
        let most = pool.nodes.iter().map(|node| node.memory).max()?;
        stage.memory = request.memory.min(most);
        Some(request.limit)
    }

    fn check_engine(&self, submission: &JobSubmission) -> Result<(), Refusal> {
        let more = submission.array.map_or(1, |range| range.indices().take(MOST_PARTS).count());
        let open = self.queue.open().count();
        if open + more > MOST_OPEN {
            return Err(bad(format!("{open} of at most {MOST_OPEN} jobs are open, and this adds {more}")));
        }
        let job = || JobName::from(submission.run.first().map_or("", String::as_str));
        match self.engine.capabilities() {
            Some(can) if !can.jobs => Err(Refusal::NoJobs { job: job() }),
            _ => Ok(()),
        }
    }

    /// Those of `jobs` that are not done yet.
    fn after(&self, jobs: &[JobName]) -> Result<Vec<JobName>, Refusal> {
        let mut open = Vec::new();
        for job in jobs {
            let parts = self.queue.open_parts(job);
            if !parts.is_empty() {
                open.extend(parts);
                continue;
            }
            let is_it = |record: &&JobRecord| record.spec.name == *job || record.is_part_of(job);
            let over = self.queue.over().filter(is_it).filter_map(|record| record.end.as_ref());
            // Of an array, one part that is not done counts.
            let over = over.max_by_key(|end| end.outcome != weal_model::JobOutcome::Done);
            match over {
                _ if self.queue.get(job).is_some() => open.push(job.clone()),
                Some(end) if end.outcome == weal_model::JobOutcome::Done => {}
                Some(_) => return Err(bad(format!("the job waits for {job}, which is over and was not done"))),
                None => return Err(Refusal::NoJob { job: job.clone() }),
            }
        }
        Ok(open)
    }

    /// When it is to be done: as was said, or so many times its work as its class allows.
    fn deadline(&self, now: Time, submission: &JobSubmission, spec: &JobSpec) -> Result<Time, Refusal> {
        match (submission.done_by, submission.done_within_s) {
            (Some(_), Some(_)) => Err(bad("the job has two goals: give a time or a duration, not both".to_owned())),
            (Some(by), None) if by <= now => {
                Err(bad(format!("the job's goal lies {:.0} s in the past", now.since(by).as_secs_f64())))
            }
            (Some(by), None) => Ok(by),
            (None, Some(within)) => span(within).map(|span| now + span),
            (None, None) => {
                let factor = self.factor(submission.class.as_ref())?;
                let best_s = self.best_s(spec).ok_or_else(|| no_goal("its work is not known yet: give --work or --done-by"))?;
                span(factor * best_s).map(|span| now + span)
            }
        }
    }

    fn factor(&self, class: Option<&ClassName>) -> Result<f64, Refusal> {
        let class = class.ok_or_else(|| no_goal("give --done-by, or --class and --work"))?;
        let factor = CLASS_FACTORS.iter().find(|(name, _)| *name == class.as_str()).map(|(_, factor)| *factor);
        factor.ok_or_else(|| no_goal("only the classes platinum, gold, silver and bronze stand for one: give --done-by"))
    }

    /// Seconds that a job takes at full speed, if it says its work or others of its name have told.
    fn best_s(&self, spec: &JobSpec) -> Option<f64> {
        let (runs, job) = (self.queue.runs(), queue::observation(spec.clone(), 0.0));
        let is_known = !runs.estimate(&job).is_guess();
        is_known.then(|| Job::observed(&runs.profiled(&job), |_| None).best_s())
    }

    fn warnings(&self, spec: &JobSpec, pool: &PoolSpec) -> Vec<String> {
        let mut warnings = Vec::new();
        let fastest = spec.stages.iter().map(|stage| stage.max_speed.0).fold(0.0, f64::max);
        let most = pool.nodes.iter().map(|node| node.cpu.0).fold(0.0, f64::max);
        if fastest > most {
            let what = if spec.tasks > 1 { "each task of the job" } else { "the job" };
            warnings.push(format!("{what} can use {}, and the largest node has {}", Cpu(fastest), Cpu(most)));
        }
        let goal_s = spec.deadline.since(spec.desired_start).as_secs_f64();
        if let Some(best_s) = self.best_s(spec).filter(|best_s| *best_s > goal_s) {
            warnings.push(format!("the job's goal cannot be met: alone the job takes {best_s:.0} s, and it has {goal_s:.0} s"));
        }
        warnings
    }
}

/// One job for each number of an array.
fn parts(record: &JobRecord, range: ArrayRange) -> Result<Vec<JobRecord>, Refusal> {
    if range.step == 0 || range.last < range.first {
        return Err(bad(format!("an array goes from a number to a larger one, not from {} to {}", range.first, range.last)));
    }
    if range.indices().nth(MOST_PARTS).is_some() {
        return Err(bad(format!("an array has at most {MOST_PARTS} jobs")));
    }
    let array = &record.spec.name;
    let part = |(number, index): (u64, u32)| {
        let mut part = JobRecord { number, array: Some(ArrayPart { array: array.clone(), index }), ..record.clone() };
        part.spec.name = JobName::from(format!("{array}.{index}"));
        part
    };
    Ok((record.number..).zip(range.indices()).map(part).collect())
}

/// Processes that run at once.
fn tasks_of(submission: &JobSubmission) -> u32 {
    submission.tasks.unwrap_or(1)
}

/// Its phases: those that it says, or one. What it says of CPU is said of all tasks together, and each gets its part.
fn stages(submission: &JobSubmission) -> Vec<Stage> {
    let tasks = f64::from(tasks_of(submission).max(1));
    let stage = |work_s: f64, cpus: Option<f64>, memory: Option<Bytes>| Stage {
        work: Work(work_s / tasks),
        max_speed: Cpu(cpus.map_or(DEFAULT_CPUS, |cpus| cpus / tasks)),
        min_speed: Cpu(0.0),
        memory: memory.unwrap_or(DEFAULT_MEMORY),
    };
    if submission.stages.is_empty() {
        return vec![stage(submission.work_s.unwrap_or(0.0), submission.cpus, submission.memory)];
    }
    submission.stages.iter().map(|wish| stage(wish.work_s, wish.cpus, wish.memory)).collect()
}

/// What is wrong with a submission whatever else there is.
fn check(submission: &JobSubmission, pool: &PoolSpec) -> Result<(), Refusal> {
    let commands = submission.run.iter().chain(&submission.checkpoint).chain(&submission.restore);
    let texts = commands.chain(submission.env.values()).chain(&submission.cwd);
    if submission.run.first().is_none_or(String::is_empty) {
        return Err(bad("the job has no command".to_owned()));
    }
    if texts.into_iter().any(|text| text.contains('\0')) {
        return Err(bad("the job's command, a variable or its folder has a NUL in it".to_owned()));
    }
    if let Some(name) = submission.env.keys().find(|name| name.is_empty() || name.contains(['=', '\0'])) {
        return Err(bad(format!("`{name}` cannot be the name of a variable of the job")));
    }
    if let Some(cwd) = submission.cwd.as_ref().filter(|cwd| !Path::new(cwd).is_absolute()) {
        return Err(Refusal::RelativeFolder { folder: cwd.clone() });
    }
    job_files::check(submission)?;
    check_saving(submission)?;
    if submission.retries > MOST_RETRIES {
        return Err(bad(format!("`--retries` is {}; at most {MOST_RETRIES} are allowed", submission.retries)));
    }
    if let Some(priority) = submission.priority.filter(|priority| !(-MOST_PRIORITY..=MOST_PRIORITY).contains(priority)) {
        return Err(bad(format!("its priority is {priority}, and it goes from -{MOST_PRIORITY} to {MOST_PRIORITY}")));
    }
    if submission.key.as_ref().is_some_and(|key| key.is_empty() || key.len() > LONGEST_KEY) {
        return Err(bad(format!("a key has 1 to {LONGEST_KEY} bytes")));
    }
    check_needs(submission, &pool.nodes)?;
    check_tasks(submission, &pool.nodes)
}

/// What saves a job's state belongs to the process that runs, and its files to the folder that all runs share.
fn check_saving(submission: &JobSubmission) -> Result<(), Refusal> {
    if submission.checkpoint.is_empty() && !submission.restore.is_empty() {
        return Err(bad("`--restore` needs `--checkpoint`".to_owned()));
    }
    if !submission.checkpoint.is_empty() && tasks_of(submission) > 1 {
        return Err(bad("a job of several tasks cannot save its state: no command saves that of all at one moment".to_owned()));
    }
    Ok(())
}

/// A gang has to find room for all of its tasks at once.
fn check_tasks(submission: &JobSubmission, nodes: &[NodeSpec]) -> Result<(), Refusal> {
    let tasks = tasks_of(submission);
    if !(1..=MOST_TASKS).contains(&tasks) {
        return Err(bad(format!("the job has {tasks} tasks; 1 to {MOST_TASKS} are allowed")));
    }
    let memory = stages(submission).iter().map(|stage| stage.memory).max().unwrap_or(Bytes(1));
    let room: u64 = nodes.iter().map(|node| node.memory.0 / memory.0.max(1)).sum();
    if tasks > 1 && room < u64::from(tasks) {
        return Err(bad(format!("the job has {tasks} tasks of {memory} each, and all nodes together have room for {room}")));
    }
    Ok(())
}

fn check_needs(submission: &JobSubmission, nodes: &[NodeSpec]) -> Result<(), Refusal> {
    let says_one = submission.work_s.is_some() || submission.cpus.is_some() || submission.memory.is_some();
    match submission.stages.len() {
        0 => {}
        _ if says_one => {
            return Err(bad(
                "the job has stages: each of them states its work, CPU and memory, and the job as a whole does not".to_owned()
            ));
        }
        count if count > MOST_STAGES => {
            return Err(bad(format!("the job has {count} stages; at most {MOST_STAGES} are allowed")));
        }
        _ => {}
    }
    let states_work = submission.work_s.is_some() || !submission.stages.is_empty();
    stages(submission).iter().try_for_each(|stage| check_stage(stage, states_work, nodes))
}

fn check_stage(stage: &Stage, states_work: bool, nodes: &[NodeSpec]) -> Result<(), Refusal> {
    let is_amount = |value: f64| value.is_finite() && value > 0.0;
    if states_work && !is_amount(stage.work.0) {
        return Err(bad("the job's work must be above 0".to_owned()));
    }
    if !is_amount(stage.max_speed.0) || stage.max_speed.0 > 4096.0 {
        return Err(bad("the CPU that helps the job must be above 0 and at most 4096 cores".to_owned()));
    }
    if stage.memory == Bytes(0) {
        return Err(bad("the job's memory must be above 0".to_owned()));
    }
    match nodes.iter().map(|node| node.memory).max() {
        Some(most) if stage.memory > most => {
            Err(bad(format!("the job needs {} of memory, and the largest node has {most}", stage.memory)))
        }
        _ => Ok(()),
    }
}

/// What the job is called: what was asked for, or its program.
fn name_of(submission: &JobSubmission) -> Result<String, Refusal> {
    if let Some(name) = &submission.name {
        return if is_name(name) {
            Ok(name.clone())
        } else {
            Err(bad(format!("`{name}` cannot be the name of a job: names have {RULE_OF_NAMES}")))
        };
    }
    let program = program_of(&submission.run);
    let dashed: String = program.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    let short: String = dashed.trim_matches(|c: char| !c.is_ascii_lowercase()).chars().take(LONGEST_NAME).collect();
    let short = short.trim_end_matches('-');
    Ok(if is_name(short) { short.to_owned() } else { "job".to_owned() })
}

/// The file name of what is run; of a script, where an interpreter is named before it.
fn program_of(run: &[String]) -> String {
    const INTERPRETERS: [&str; 8] = ["sh", "bash", "dash", "python3", "python", "perl", "ruby", "node"];
    let base = |word: &String| Path::new(word).file_stem().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let program = run.first().map_or_else(String::new, base);
    let script = run.get(1).filter(|word| INTERPRETERS.contains(&program.as_str()) && !word.starts_with('-'));
    script.map_or(program, base)
}

fn span(seconds: f64) -> Result<Duration, Refusal> {
    let span = Duration::try_from_secs_f64(seconds).ok().filter(|span| *span >= Duration::from_millis(1));
    span.ok_or_else(|| bad("the job's goal must lie in the future".to_owned()))
}

fn no_goal(why: &str) -> Refusal {
    bad(format!("the job has no goal: {why}"))
}

fn bad(detail: String) -> Refusal {
    Refusal::BadJob { detail }
}
