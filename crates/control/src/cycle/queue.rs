//! The jobs that were submitted to this controller: what is to become of each, and what the engine says of its run.
//!
//! A job's record is in the store; its process is on a node. Neither knows the other, so each transition is written down before its consequences
//! are carried out:
//!
//! ```text
//! submission -> written -> acknowledged, planned -> begun -> its end is seen -> written -> the run is taken away from its node
//! ```
//!
//! A run has a number. One that no open record names is taken away: so a run whose end was written down is cleared by the controller that
//! comes next, and never counted twice.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use weal_model::{
    Bytes, Cancellation, Cpu, Hold, JobEnd, JobName, JobObservation, JobOutcome, JobRecord, JobSpec, JobState, NodeName, RunEnd,
    Time, Work,
};
use weal_protocol::engine::{JobOrder, NodeSeen, Observation, RunSeen, RunState};

use super::operations::Operations;
use super::peers::Ticket;
use super::schedules::Marks;
use crate::flow::shares::is_other_limit;
use crate::jobs::{Estimate, Runs};
use outlook::Outlook;
pub(super) use speed::Usable;
use stages::Standing;
pub(super) use stages::{index as stage_index, observation};
use weal_model::{Action, Target};

/// The variable in which a part of an array finds its number.
pub(super) const ARRAY_INDEX: &str = "ARRAY_INDEX";
/// Below this, progress tells more about how a job begins than about how long it takes.
const LEAST_PROGRESS: f64 = 0.05;
/// Plans are made anew for a job whose work turns out so many times as large as they know, or as small.
const SURPRISE: f64 = 1.25;
/// Jobs that are over and still shown without asking the store.
const SHOWN: usize = 50;
/// Runs that weal may lose of one job before it fails: more, and the job itself takes weal down.
const MOST_LOST: u32 = 5;
/// The pause before a job is run again that failed by its own fault, doubled with each further time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// How far a record is written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Written {
    /// Its submission is not on disk yet: nobody was told that it is taken, and nothing is done about it.
    Submission,
    /// What its run came to is not on disk yet: the run stays where it is.
    Conclusion,
    /// All that matters is.
    Yes,
}

/// One job that is not over.
#[derive(Debug)]
pub(super) struct Entry {
    pub record: JobRecord,
    pub written: Written,
    /// The last write of its record.
    pub write: u64,
    /// The last write failed.
    pub unwritten: bool,
    /// What the engine says of its present run, all tasks taken together.
    pub run: Option<RunSeen>,
    /// The node of each task of that run.
    pub nodes: Vec<NodeName>,
    /// CPU-seconds that each task of its present run was seen to have used, in the mean.
    pub used: f64,
    /// How far its present run says it is, from [`LEAST_PROGRESS`] to 1.
    pub progress: Option<f64>,
    /// How far people are told that it is.
    pub outlook: Outlook,
    /// Its work per task as plans know it, in CPU-seconds.
    pub known_work: f64,
    /// CPU that the last plan gives each task.
    pub speed: Option<Cpu>,
    /// What the engine was told last.
    pub told: Option<Told>,
    /// Where it is in its phases.
    pub stage: Standing,
    /// How much CPU helps it.
    pub usable: Usable,
    /// What an earlier run of its command tells of that.
    pub expected_speed: Option<f64>,
    /// A look that ends after this one shows its run.
    pub shown_after: Option<Ticket>,
    /// Why its start was refused the last time; empty otherwise.
    pub refused: String,
    /// Its present run could not save its state, so plans do not ask it again; a look that ends after this one shows whether it still runs.
    pub save_failed: Option<Ticket>,
    /// It is being begun on another node than the one on which its state was saved.
    pub moving: bool,
    /// The most memory that a task of its present run was seen to use.
    pub peak: Bytes,
}

/// What the engine was told of a job that runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Told {
    /// CPU that each task is to have.
    pub cpu: Cpu,
    /// The most CPU of each task.
    pub limit: Option<Cpu>,
    /// The most memory of each task.
    pub memory: Bytes,
}

impl Told {
    /// Whether it is worth a call to tell this.
    pub fn differs(&self, cpu: Cpu, limit: Option<Cpu>, memory: Bytes) -> bool {
        self.cpu != cpu || self.memory != memory || is_other_limit(self.limit, limit)
    }
}

/// What a look at runs has shown that nobody expected.
#[derive(Debug, Default)]
pub(super) struct Surprise {
    /// A job turns out to be much more work than plans know, or much less, or comes to another phase.
    pub changes_plans: bool,
    /// Jobs whose progress goes back because they are more work than was thought.
    pub raised: Vec<JobName>,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Queue {
    open: BTreeMap<JobName, Entry>,
    /// The last that are over, the newest at the end.
    over: VecDeque<JobRecord>,
    next_number: u64,
    next_write: u64,
    runs: Runs,
    unread: bool,
    /// Those that a plan may decide about, in the order in which they were submitted, as the last look showed them.
    planned: Vec<JobObservation>,
}

/// What an earlier controller has left.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct StoredJobs {
    /// Those that are not over, and the last that are.
    pub records: Vec<JobRecord>,
    /// The highest number that a job ever had.
    pub highest: u64,
    /// What was learnt from jobs that are done.
    pub runs: Runs,
    /// How far the config's schedules are.
    pub schedules: Marks,
    /// The store could not be read, so that there may be jobs which nobody knows of: no run is taken away, and no job is taken in.
    pub unread: bool,
}

/// Lets those go on, or end, that wait for a job which is over: their controller may have died before it did. Names them.
fn release(records: &mut [JobRecord]) -> Vec<JobName> {
    let end = |record: &JobRecord| Some((record.spec.name.clone(), record.end.as_ref()?.outcome));
    let ends: BTreeMap<JobName, JobOutcome> = records.iter().filter_map(end).collect();
    let mut released = Vec::new();
    for record in records.iter_mut().filter(|record| record.end.is_none()) {
        let waits_for = record.after.len();
        record.after.retain(|job| ends.get(job) != Some(&JobOutcome::Done));
        let failed = record.after.iter().find(|job| ends.contains_key(*job)).filter(|_| !record.cancelled).cloned();
        let is_in_vain = failed.is_some();
        failed.into_iter().for_each(|job| record.cancel(Cancellation::NotDone { job }));
        if is_in_vain || record.after.len() < waits_for {
            released.push(record.spec.name.clone());
        }
    }
    released
}

impl Queue {
    /// Goes on with what an earlier controller has left.
    pub fn new(left: StoredJobs) -> Self {
        let mut queue = Self {
            open: BTreeMap::new(),
            over: VecDeque::new(),
            next_number: left.highest + 1,
            next_write: 1,
            runs: left.runs,
            unread: left.unread,
            planned: Vec::new(),
        };
        let mut records = left.records;
        records.sort_by_key(|record| record.number);
        let released = release(&mut records);
        for record in records {
            queue.next_number = queue.next_number.max(record.number + 1);
            if record.end.is_some() { queue.keep_over(record) } else { queue.enter(record, Written::Yes) }
        }
        for job in released {
            queue.open.entry(job).and_modify(|entry| entry.unwritten = true);
        }
        queue
    }

    /// Whether there may be jobs which nobody knows of.
    pub fn is_unread(&self) -> bool {
        self.unread
    }

    /// The number for the next job.
    pub fn next_number(&self) -> u64 {
        self.next_number
    }

    /// Takes a job in.
    pub fn enter(&mut self, record: JobRecord, written: Written) {
        self.next_number = self.next_number.max(record.number + 1);
        let has_one_phase = record.spec.stages.len() == 1;
        let expected_speed = self.runs.speed(&record.command).filter(|_| has_one_phase);
        let entry = Entry { written, expected_speed, usable: Usable::expected(expected_speed), ..Entry::new(record) };
        self.open.insert(entry.record.spec.name.clone(), entry);
    }

    /// The number of a new write of the records of `jobs`.
    pub fn begin_write(&mut self, jobs: &[JobName]) -> (u64, Vec<JobRecord>) {
        let write = self.next_write;
        self.next_write += 1;
        let mut records = Vec::with_capacity(jobs.len());
        for job in jobs {
            let Some(entry) = self.open.get_mut(job) else { continue };
            (entry.write, entry.unwritten) = (write, false);
            records.push(entry.record.clone());
        }
        (write, records)
    }

    /// The parts of an array that are not over, in the order of their numbers.
    pub fn open_parts(&self, array: &JobName) -> Vec<JobName> {
        let mut parts: Vec<&Entry> = self.open.values().filter(|entry| entry.record.is_part_of(array)).collect();
        parts.sort_by_key(|entry| entry.record.number);
        parts.into_iter().map(|entry| entry.record.spec.name.clone()).collect()
    }

    /// The parts of an array that are over, as far as they are known here, the oldest first.
    pub fn over_parts(&self, array: &JobName) -> Vec<JobName> {
        let parts = self.over.iter().filter(|record| record.is_part_of(array));
        parts.map(|record| record.spec.name.clone()).collect()
    }

    pub fn get(&self, job: &JobName) -> Option<&Entry> {
        self.open.get(job)
    }

    pub fn get_mut(&mut self, job: &JobName) -> Option<&mut Entry> {
        self.open.get_mut(job)
    }

    /// Those that are not over, by name.
    pub fn open(&self) -> impl Iterator<Item = &Entry> {
        self.open.values()
    }

    /// The last that are over, the newest first.
    pub fn over(&self) -> impl Iterator<Item = &JobRecord> {
        self.over.iter().rev()
    }

    pub fn names(&self) -> Vec<JobName> {
        self.open.keys().cloned().collect()
    }

    /// Those that save their state themselves.
    pub fn saving(&self) -> BTreeSet<JobName> {
        let saves = |entry: &&Entry| !entry.record.command.checkpoint.is_empty() && entry.save_failed.is_none();
        self.open.values().filter(saves).map(|entry| entry.record.spec.name.clone()).collect()
    }

    /// What was learnt from jobs that are done.
    pub fn runs(&self) -> &Runs {
        &self.runs
    }

    /// A job is not taken after all.
    pub fn forget(&mut self, job: &JobName) {
        self.open.remove(job);
    }

    /// A job is over, and that is written down.
    pub fn close(&mut self, job: &JobName) -> Option<&JobRecord> {
        let entry = self.open.remove(job)?;
        let limit = entry.memory_limit();
        let Entry { record, usable, peak, .. } = entry;
        let end = record.end.as_ref()?;
        if end.outcome == JobOutcome::Done {
            self.runs.peaks.learn(&record.spec.name, peak, limit);
            self.runs.learn(&record.spec.name, Work(end.cpu_used.0 / gang::tasks(&record.spec)));
            if let (Some(speed), [_]) = (usable.known(), record.spec.stages.as_slice()) {
                self.runs.learn_speed(&record.command, speed);
            }
        }
        self.keep_over(record);
        self.over.back()
    }

    /// A job that is over begins anew.
    pub fn reopen(&mut self, job: &JobName) -> bool {
        let Some(at) = self.over.iter().position(|record| record.spec.name == *job) else { return false };
        let Some(record) = self.over.remove(at) else { return false };
        self.enter(record, Written::Yes);
        true
    }

    fn keep_over(&mut self, record: JobRecord) {
        self.over.push_back(record);
        if self.over.len() > SHOWN {
            self.over.pop_front();
        }
    }

    /// Takes what the engine says of runs.
    pub fn handle_seen(&mut self, now: Time, seen: &Observation, operations: &Operations) -> Surprise {
        let mut surprise = Surprise::default();
        let mut runs: BTreeMap<_, Vec<&RunSeen>> = BTreeMap::new();
        seen.runs.iter().for_each(|run| runs.entry((&run.job, run.attempt)).or_default().push(run));
        for (name, entry) in &mut self.open {
            let tasks = runs.remove(&(name, entry.record.attempt)).unwrap_or_default();
            (entry.run, entry.nodes) = gang::whole(&entry.record, tasks);
            let used = entry.run.as_ref().and_then(|run| run.cpu_seconds).filter(|used| used.is_finite());
            let before = entry.record.saved_work.0;
            entry.peak = entry.peak.max(entry.run.as_ref().and_then(|run| run.memory_used).unwrap_or(Bytes(0)));
            entry.used = entry.used.max(before + used.unwrap_or(0.0) / gang::tasks(&entry.record.spec));
            let progress =
                entry.run.as_ref().and_then(|run| run.progress).filter(|progress| (LEAST_PROGRESS..=1.0).contains(progress));
            entry.progress = progress.filter(|_| entry.used > 0.0);
            entry.watch_speed(seen.time, &seen.nodes);
            // What has ended is no more work than it was.
            if entry.run.as_ref().is_none_or(|run| run.state == RunState::Ended) {
                continue;
            }
            let estimate = entry.estimate(&self.runs);
            surprise.changes_plans |= entry.learn_work(&estimate) | entry.find_stage();
            let stated = entry.record.spec.stages.iter().map(|stage| stage.work.0).sum();
            if entry.outlook.handle_seen(now, entry.used, stated, entry.progress, &estimate) {
                surprise.raised.push(name.clone());
            }
        }
        let under_way = self.open.values().filter_map(|entry| entry.as_pilot(&self.runs)).collect::<Vec<_>>();
        surprise.changes_plans |= self.runs.watch(under_way.into_iter());
        let mut planned: Vec<&Entry> = self.open.values().filter(|entry| entry.is_planned(now)).collect();
        // Of equal jobs, plans take the first.
        planned.sort_unstable_by_key(|entry| entry.record.number);
        let planned = planned.into_iter();
        self.planned = planned.filter_map(|entry| entry.observation(operations)).collect();
        surprise
    }

    /// The jobs that a plan may decide about, in the order in which they were submitted, as the last look at their runs showed them.
    pub fn planned(&self) -> &[JobObservation] {
        &self.planned
    }

    /// Runs that nobody wants any more: of jobs that are over or unknown, and former ones.
    pub fn stale<'s>(&'s self, seen: &'s Observation) -> impl Iterator<Item = &'s RunSeen> {
        let is_wanted = |run: &RunSeen| self.open.get(&run.job).is_some_and(|entry| entry.record.attempt == run.attempt);
        seen.runs.iter().filter(move |run| !self.unread && !is_wanted(run))
    }

    /// Memory of `node` held by runs that no plan decides about: those that somebody has paused, or that are being ended.
    pub fn withheld(&self, now: Time, node: &NodeName) -> Bytes {
        let held = self.open.values().filter(|entry| !entry.is_planned(now));
        held.map(|entry| entry.memory_held_on(node)).sum()
    }

    /// What an engine needs for an action on one of these jobs, of which it was seen to have `runs`; `None` for another's.
    pub fn order(&self, action: &Action, runs: &[RunSeen]) -> Option<JobOrder> {
        let Target::Job { job } = action.target() else { return None };
        if let Action::EndJob { attempt, .. } = action {
            let tasks = gang::seen(&job, *attempt, runs, |_| true);
            let (command, memory, limit) = Default::default();
            return Some(JobOrder { action: action.clone(), attempt: *attempt, tasks, command, memory, limit });
        }
        let entry = self.open.get(&job)?;
        let tasks = match action {
            Action::StartJob { .. } => (0..entry.record.spec.tasks.max(1)).collect(),
            // What has ended by itself takes no orders.
            _ => gang::seen(&job, entry.record.attempt, runs, |run| run.state != RunState::Ended),
        };
        let (attempt, mut command, memory) = (entry.record.attempt, entry.record.command.clone(), entry.memory_told());
        if entry.record.saved && !command.restore.is_empty() {
            command.run.clone_from(&command.restore);
        }
        let index = entry.record.array.as_ref().map(|part| part.index.to_string());
        command.env.extend(index.map(|index| (ARRAY_INDEX.to_owned(), index)));
        let limit = entry.told.and_then(|told| told.limit);
        Some(JobOrder { action: action.clone(), attempt, tasks, command, memory, limit })
    }

    /// When the next job may be run again after a pause.
    pub fn next_retry(&self, now: Time) -> Option<Time> {
        self.open.values().filter(|entry| !entry.pause(now).is_zero()).map(|entry| entry.record.not_before).min()
    }
}

impl Entry {
    /// A job that is written down and has no run.
    pub fn new(record: JobRecord) -> Self {
        let used = record.saved_work.0;
        Self {
            record,
            written: Written::Yes,
            write: 0,
            unwritten: false,
            run: None,
            nodes: Vec::new(),
            used,
            progress: None,
            outlook: Outlook::default(),
            known_work: 0.0,
            speed: None,
            told: None,
            stage: Standing::default(),
            usable: Usable::default(),
            expected_speed: None,
            shown_after: None,
            refused: String::new(),
            save_failed: None,
            moving: false,
            peak: Bytes(0),
        }
    }

    /// What it needs, as far as its run shows that.
    pub fn spec(&self) -> JobSpec {
        let memory_used = self.run.as_ref().and_then(|run| run.memory_used);
        let mut spec = stages::corrected(&self.record.spec, self.used, self.progress, memory_used);
        let now = stages::index(&spec, self.used);
        // What it uses beyond what earlier runs did is reserved once it is seen.
        if let (Some(stage), Some(limit)) = (spec.stages.get_mut(now), self.record.memory_limit) {
            stage.memory = stage.memory.max(memory_used.unwrap_or(Bytes(0)).min(limit));
        }
        spec.stages.iter_mut().skip(now).take(1).for_each(|stage| stage.max_speed.0 = self.usable.of(stage.max_speed.0));
        spec
    }

    /// Learns how much CPU helps it.
    fn watch_speed(&mut self, time: Time, nodes: &[NodeSeen]) {
        if self.run.as_ref().is_some_and(|run| run.state == RunState::Running) {
            let limit = self.told.and_then(|told| told.limit);
            self.usable.handle_seen(time, (self.stage.index, self.used), limit, &self.nodes, nodes);
        } else {
            self.usable.handle_still();
        }
    }

    /// The memory that it may need until the next look.
    pub fn memory(&self) -> Bytes {
        Standing::of(&self.spec(), self.used).memory
    }

    /// The memory that its engine is told: more only where there is room for it.
    fn memory_told(&self) -> Bytes {
        self.told.map_or_else(|| self.memory_limit(), |told| told.memory)
    }

    /// True when it has come to another phase, or near one.
    fn find_stage(&mut self) -> bool {
        let is_at = Standing::of(&self.spec(), self.used);
        std::mem::replace(&mut self.stage, is_at) != is_at
    }

    /// Whether a plan may decide about it.
    fn is_planned(&self, now: Time) -> bool {
        let record = &self.record;
        let is_free = record.end.is_none() && !record.cancelled && record.hold == Hold::None && record.after.is_empty();
        is_free && self.written == Written::Yes && (record.begun || self.pause(now).is_zero())
    }

    /// How long it is still not to be run again. No pause is longer than [`LONGEST_PAUSE`]: one that seems so was written before the clock was set
    /// back, and is over.
    fn pause(&self, now: Time) -> Duration {
        Some(self.record.not_before.since(now)).filter(|pause| *pause <= LONGEST_PAUSE).unwrap_or_default()
    }

    /// Memory that the tasks of its run hold on a node.
    fn memory_held_on(&self, node: &NodeName) -> Bytes {
        let holds = |run: &RunSeen| !matches!(run.state, RunState::Suspended | RunState::Ended);
        let tasks = if self.run.as_ref().is_some_and(holds) { self.tasks_on(node) } else { 0 };
        if tasks == 0 { Bytes(0) } else { Bytes(self.memory().0.saturating_mul(tasks)) }
    }

    /// How many tasks of its run are on a node.
    pub fn tasks_on(&self, node: &NodeName) -> u64 {
        self.nodes.iter().filter(|at| *at == node).count() as u64
    }

    /// It as a plan sees it; `None` while its run has ended or is missing, which is not for a plan to decide.
    fn observation(&self, operations: &Operations) -> Option<JobObservation> {
        let target = Target::Job { job: self.record.spec.name.clone() };
        let (state, nodes) = match (operations.action(&target), &self.run) {
            (Some(Action::StartJob { nodes, .. } | Action::ResumeJob { nodes, .. }), _) => (JobState::Running, nodes.clone()),
            (_, None) if self.record.begun => return None,
            (_, None) => (JobState::Pending, Vec::new()),
            (_, Some(run)) => match run.state {
                RunState::Starting | RunState::Running | RunState::Stopping => (JobState::Running, self.nodes.clone()),
                RunState::Paused | RunState::Suspended => (JobState::Suspended, self.nodes.clone()),
                RunState::Ended => return None,
            },
        };
        let cpu = self.speed.filter(|_| state == JobState::Running);
        Some(JobObservation { spec: self.spec(), state, done: Work(self.used), nodes, cpu })
    }

    /// What is known of its work.
    pub fn estimate(&self, runs: &Runs) -> Estimate {
        runs.estimate(&observation(self.spec(), self.used))
    }

    /// What its run tells of others of its family: its name, its own estimate, and what each task has done.
    fn as_pilot(&self, runs: &Runs) -> Option<(&JobName, Estimate, f64)> {
        self.run.as_ref().filter(|_| self.used > 0.0)?;
        let alone = runs.alone(&observation(self.spec(), self.used));
        (self.progress.is_some() || alone.is_guess()).then_some((&self.record.spec.name, alone, self.used))
    }

    /// True when its work is another than plans know.
    fn learn_work(&mut self, estimate: &Estimate) -> bool {
        let work = estimate.work.0;
        let is_other = work > self.known_work * SURPRISE || work * SURPRISE < self.known_work;
        if is_other {
            self.known_work = work;
        }
        is_other
    }

    /// Its run has come to `end`, of which `detail` tells: what the record says from now on. Not carried out before it is written down.
    pub fn conclude(&mut self, now: Time, end: RunEnd, detail: &str) {
        let record = &mut self.record;
        let outcome = match end {
            _ if record.cancelled => Some(JobOutcome::Cancelled),
            RunEnd::Code { code: 0 } => Some(JobOutcome::Done),
            RunEnd::NotStarted => Some(JobOutcome::Failed),
            RunEnd::Saved => None,
            RunEnd::Lost => (record.lost >= MOST_LOST).then_some(JobOutcome::Failed),
            RunEnd::Code { .. } | RunEnd::Signal { .. } | RunEnd::OutOfMemory | RunEnd::NoResults => {
                (record.retries == 0).then_some(JobOutcome::Failed)
            }
        };
        match outcome {
            Some(outcome) => {
                let node = self.run.as_ref().map(|run| run.node.clone());
                let (detail, cpu_used) = (detail.to_owned(), Work(self.used * gang::tasks(&record.spec)));
                let time = self.run.as_ref().filter(|run| run.state == RunState::Ended).map_or(now, |run| run.since);
                let run = record.begun.then_some(end);
                record.end = Some(JobEnd { outcome, time, run, detail, cpu_used, node });
            }
            None if end == RunEnd::Saved => {
                (record.saved, record.saved_work) = (true, Work(self.used));
                record.saved_on = self.run.as_ref().map(|run| run.node.clone());
                self.begin_anew();
            }
            None if end == RunEnd::Lost => {
                record.lost += 1;
                self.begin_anew();
            }
            None => {
                record.retries -= 1;
                let pause = FIRST_PAUSE.saturating_mul(1 << record.attempt.min(10)).min(LONGEST_PAUSE);
                record.not_before = now + pause;
                self.begin_anew();
            }
        }
        self.written = Written::Conclusion;
    }

    /// Its next run is another one.
    pub fn begin_anew(&mut self) {
        self.record.attempt += 1;
        self.record.begun = false;
        (self.run, self.used, self.progress, self.known_work) = (None, self.record.saved_work.0, None, 0.0);
        self.nodes.clear();
        (self.save_failed, self.moving, self.peak) = (None, false, Bytes(0));
        (self.speed, self.told, self.shown_after) = (None, None, None);
        (self.stage, self.outlook) = Default::default();
        self.usable = Usable::expected(self.expected_speed);
    }
}

mod changes;
pub(super) mod gang;
mod outlook;
mod speed;
mod stages;
#[cfg(test)]
pub(super) mod tests;
