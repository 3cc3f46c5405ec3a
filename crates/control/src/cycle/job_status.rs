//! Jobs as people are shown them.

use std::collections::BTreeMap;

use weal_model::{
    Cpu, Hold, JobChangeCost, JobExplanation, JobName, JobPhase, JobRecord, JobSpec, JobStatus, Raised, Time, Utility, Work,
};
use weal_protocol::engine::RunState;

use super::queue::{Entry, Queue, Written, gang, observation, stage_index};
use crate::jobs::{ChangeKind, Costs, Estimate, Job, NEVER, Runs, Source};

/// Those that are not over by name, then the last that are, at most `most` of those that `is_shown`.
pub(super) fn jobs(
    queue: &Queue,
    planned: &BTreeMap<JobName, JobExplanation>,
    most: usize,
    is_shown: impl Fn(&JobRecord) -> bool,
    between: impl Fn(&Entry) -> String,
) -> Vec<JobStatus> {
    let open = queue.open().filter(|entry| entry.written != Written::Submission && is_shown(&entry.record));
    let mut open: Vec<&Entry> = open.collect();
    open.sort_by_key(|entry| entry.record.number);
    let open = open.into_iter().map(|entry| of_open(entry, queue.runs(), planned.get(&entry.record.spec.name), &between));
    let over = queue.over().filter(|record| is_shown(record));
    open.chain(over.map(|record| of_record(record, queue.runs()))).take(most).collect()
}

/// One that is not over. `between` says what it waits for where neither an order nor the plan holds it up.
pub(super) fn of_open(
    entry: &Entry,
    runs: &Runs,
    planned: Option<&JobExplanation>,
    between: impl Fn(&Entry) -> String,
) -> JobStatus {
    let record = &entry.record;
    let observation = observation(entry.spec(), entry.used);
    let estimate = runs.estimate(&observation);
    let utility = planned.map(|planned| planned.utility).filter(|utility| *utility > NEVER);
    let job = Job::observed(&runs.profiled(&observation), |_| Some(0));
    let (run, tasks) = (entry.run.as_ref(), gang::tasks(&record.spec));
    let of_all = |cpu: Cpu| Cpu(cpu.0 * tasks);
    let (expected_end, speed) = (utility.and_then(|utility| expected_end(&job, utility)), speed(entry));
    JobStatus {
        state: phase(entry),
        detail: why(entry, planned).unwrap_or_else(|| between(entry)),
        expected_end,
        expected_latest: expected_end.and_then(|end| latest(end, &estimate, speed)),
        utility,
        node: run.map(|run| run.node.clone()),
        nodes: entry.nodes.clone(),
        cpu_used: Work(entry.used * tasks),
        progress: if estimate.is_guess() { 0.0 } else { entry.outlook.share },
        raised: entry.outlook.raised.map(|raised| Raised { from: Work(raised.from.0 * tasks), ..raised }),
        work_source: work_source(entry, &estimate),
        stage: stage_of(&observation.spec, entry.used),
        cpus: observation.spec.stages.get(entry.stage.index).map_or(Cpu(0.0), |stage| of_all(stage.max_speed)),
        memory_limit: entry.memory_limit(),
        memory_reserved: entry.memory(),
        changes: changes(entry, runs),
        cpu_allocated: of_all(entry.speed.unwrap_or(Cpu(0.0))),
        memory_used: run.and_then(|run| run.memory_used),
        ..bare(record, &estimate)
    }
}

/// Why its progress goes back, in a sentence; `None` when it never did.
pub(super) fn raised(entry: &Entry, runs: &Runs) -> Option<String> {
    let (estimate, tasks) = (entry.estimate(runs), gang::tasks(&entry.record.spec));
    let (from, name) = (entry.outlook.raised?.from.0 * tasks, &entry.record.spec.name);
    Some(if estimate.is_guess() {
        format!("job {name} has used the {from:.1} s of CPU that it was expected to take, and runs on")
    } else {
        let (work, source) = (estimate.work.0 * tasks, work_source(entry, &estimate));
        format!("job {name} takes about {work:.1} s of CPU instead of {from:.1} s: this is known {source}")
    })
}

fn work_source(entry: &Entry, estimate: &Estimate) -> String {
    if entry.progress.is_some() { "from the progress that it writes".to_owned() } else { source(estimate.source) }
}

/// CPU of each task in force, or the most that helps it.
fn speed(entry: &Entry) -> f64 {
    let most = || entry.spec().stages.get(entry.stage.index).map_or(0.0, |stage| stage.max_speed.0);
    entry.speed.map(|cpu| cpu.0).filter(|cpu| *cpu > 0.0).unwrap_or_else(most)
}

/// When a job is done that is expected to be done at `end`, if it is as much work as it may be; `None` when nobody can say.
fn latest(end: Time, estimate: &Estimate, speed: f64) -> Option<Time> {
    let later_s = (estimate.range.1.0 - estimate.work.0).max(0.0) / speed;
    later_s.is_finite().then(|| Time::from_secs_f64(end.as_secs_f64() + later_s))
}

/// When a job is done that is headed for `utility`; `None` when it is not expected to end at all.
pub(super) fn expected_end(job: &Job, utility: Utility) -> Option<Time> {
    (utility > NEVER).then(|| Time::from_secs_f64(job.finish_for(utility.0)))
}

/// One of which only the record is known.
pub fn of_record(record: &JobRecord, runs: &Runs) -> JobStatus {
    let end = record.end.as_ref();
    let used = end.map_or(0.0, |end| end.cpu_used.0) / gang::tasks(&record.spec);
    let observation = observation(record.spec.clone(), used);
    let estimate = runs.estimate(&observation);
    let job = Job::observed(&observation, |_| Some(0));
    let bare = bare(record, &estimate);
    let Some(end) = end else { return bare };
    JobStatus {
        state: end.outcome.into(),
        detail: end.detail.clone(),
        expected_end: Some(end.time),
        utility: (end.outcome == weal_model::JobOutcome::Done).then(|| Utility(job.utility(end.time.as_secs_f64()))),
        node: end.node.clone(),
        cpu_used: end.cpu_used,
        work: end.cpu_used,
        work_source: "measured".to_owned(),
        work_least: end.cpu_used,
        work_most: Some(end.cpu_used),
        is_guess: false,
        stage: if end.outcome == weal_model::JobOutcome::Done { bare.stages } else { stage_of(&record.spec, used) },
        progress: match end.outcome {
            weal_model::JobOutcome::Done => 1.0,
            _ if estimate.is_guess() => 0.0,
            _ => (used / estimate.work.0).clamp(0.0, 1.0),
        },
        end: end.run,
        ..bare
    }
}

/// The phase of a job that has used so many CPU-seconds, from 1.
fn stage_of(spec: &JobSpec, used: f64) -> u32 {
    stage_index(spec, used) as u32 + 1
}

fn bare(record: &JobRecord, estimate: &Estimate) -> JobStatus {
    let (stage, tasks) = (record.spec.stages.first(), gang::tasks(&record.spec));
    let memory = stage.map_or(weal_model::Bytes(0), |stage| stage.memory);
    JobStatus {
        id: record.spec.name.clone(),
        state: JobPhase::Waiting,
        detail: String::new(),
        command: record.command.run.clone(),
        class: record.class.clone(),
        priority: record.spec.priority,
        array: record.array.clone(),
        scheduled: record.scheduled.clone(),
        submitter: record.submitter.clone(),
        submitted: record.spec.submitted,
        deadline: record.spec.deadline,
        expected_end: None,
        expected_latest: None,
        utility: None,
        began: record.began,
        node: None,
        tasks: record.spec.tasks.max(1),
        nodes: Vec::new(),
        attempt: record.attempt,
        cpu_used: Work(0.0),
        work: Work(estimate.work.0 * tasks),
        work_source: source(estimate.source),
        work_least: Work(estimate.range.0.0 * tasks),
        work_most: Some(Work(estimate.range.1.0 * tasks)).filter(|most| most.0.is_finite()),
        is_guess: estimate.is_guess(),
        raised: None,
        progress: 0.0,
        stage: 1,
        stages: record.spec.stages.len() as u32,
        cpu_allocated: Cpu(0.0),
        cpus: stage.map_or(Cpu(0.0), |stage| Cpu(stage.max_speed.0 * tasks)),
        memory_limit: memory.max(record.memory_limit.unwrap_or(memory)),
        memory_reserved: memory,
        memory_is_learnt: record.memory_limit.is_some(),
        memory_used: None,
        changes: Vec::new(),
        end: None,
    }
}

/// What each change to it takes: as measured in its family, or as the thesis' table says.
fn changes(entry: &Entry, runs: &Runs) -> Vec<JobChangeCost> {
    let (name, memory) = (&entry.record.spec.name, entry.memory());
    let table = |kind| Costs::THESIS.of(kind, memory.0);
    let saves = !entry.record.command.checkpoint.is_empty();
    // What saves its state begins anew from that.
    let begins_s = if saves { table(ChangeKind::Start) } else { 0.0 };
    let mut kinds = vec![
        ("start", ChangeKind::Start, table(ChangeKind::Start)),
        ("suspend", ChangeKind::Suspend, table(ChangeKind::Suspend)),
        ("resume", ChangeKind::Resume, begins_s + table(ChangeKind::Resume)),
    ];
    kinds.extend(saves.then(|| ("move", ChangeKind::MoveAndResume, begins_s + table(ChangeKind::MoveAndResume))));
    let took = runs.changes.took(name, memory);
    let cost = |(change, kind, table_s): (&str, ChangeKind, f64)| JobChangeCost {
        change: change.to_owned(),
        seconds: took.of(kind).unwrap_or(table_s),
        measured: runs.changes.measured(name, kind, memory).map_or(0, |measured| measured.count),
        table_s,
    };
    kinds.into_iter().map(cost).collect()
}

fn source(source: Source) -> String {
    match source {
        Source::Stated => "as submitted".to_owned(),
        Source::EarlierRuns(1) => "from 1 earlier run".to_owned(),
        Source::EarlierRuns(count) => format!("from {count} earlier runs"),
        Source::Pilot => "from the progress of another run of it".to_owned(),
        Source::PilotUse => "guessed from what another run of it has used".to_owned(),
        Source::Progress => "guessed from what it has used".to_owned(),
        Source::Nothing => "a guess: nothing is known yet".to_owned(),
    }
}

fn phase(entry: &Entry) -> JobPhase {
    match entry.run.as_ref().map(|run| run.state) {
        Some(_) if entry.record.cancelled => JobPhase::Stopping,
        Some(RunState::Starting) if entry.moving => JobPhase::Migrating,
        Some(RunState::Starting) => JobPhase::Starting,
        Some(RunState::Running) => JobPhase::Running,
        Some(RunState::Paused) => JobPhase::Paused,
        Some(RunState::Suspended) => JobPhase::Suspended,
        Some(RunState::Stopping | RunState::Ended) => JobPhase::Stopping,
        None if entry.record.saved && entry.moving => JobPhase::Migrating,
        None if entry.record.saved => JobPhase::Suspended,
        None => JobPhase::Waiting,
    }
}

/// Why it does not run: empty when it does; `None` when nothing holds it up that is known here.
fn why(entry: &Entry, planned: Option<&JobExplanation>) -> Option<String> {
    let record = &entry.record;
    match phase(entry) {
        JobPhase::Starting | JobPhase::Migrating | JobPhase::Running => return Some(String::new()),
        JobPhase::Stopping if record.cancelled => return Some("it was cancelled, and its run is being ended".to_owned()),
        JobPhase::Stopping => return Some("its run has ended, and its results are being written down".to_owned()),
        _ => {}
    }
    match record.hold {
        Hold::Paused => return Some("paused by an order: `weal job resume` continues it".to_owned()),
        Hold::Suspended => return Some("suspended by an order: `weal job resume` continues it".to_owned()),
        Hold::None => {}
    }
    if let Some(first) = record.after.first() {
        return Some(format!("waits until {first} is done"));
    }
    if !entry.refused.is_empty() {
        return Some(format!("could not be started: {}", entry.refused));
    }
    match planned {
        Some(planned) if !planned.text.is_empty() => Some(planned.text.clone()),
        _ if record.not_before > Time::ZERO && !record.begun => {
            Some(format!("run {} failed, and weal starts the job again", record.attempt - 1))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
