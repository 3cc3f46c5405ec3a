//! What the loop does with the controller's own jobs: takes orders, brings runs to what their records say, and writes down what came of them.

use weal_model::{
    Action, Bytes, Cancellation, Cpu, EventKind, Hold, JobName, JobOutcome, JobPhase, JobRecord, NodeName, RunEnd, ScheduledFor,
    Submitter, Target, Time, Work,
};
use weal_protocol::Refusal;
use weal_protocol::controller::JobVerb;
use weal_protocol::engine::{Observation, RunSeen, RunState};

use super::effect::{Effect, Kept, Note, StoreProblem};
use super::job_status;
use super::notes;
use super::queue::{Surprise, Told, Written};
use super::state::{State, node_of};

/// An order that was taken.
#[derive(Debug, Clone, PartialEq)]
pub struct JobOrdered {
    /// Which job.
    pub job: JobName,
    /// The write that must have succeeded before anybody is told; `None` when nothing had to be written.
    pub write: Option<u64>,
    /// False when it was there already.
    pub is_new: bool,
    /// What is allowed but probably not meant.
    pub warnings: Vec<String>,
}

impl JobOrdered {
    /// What was written with the number `write`.
    pub(super) fn written(job: JobName, write: Option<u64>) -> Self {
        Self { job, write, is_new: false, warnings: Vec::new() }
    }
}

impl State {
    /// Takes an order about a job, or about all parts of an array.
    pub(super) fn take_job_order(
        &mut self,
        now: Time,
        job: &JobName,
        verb: JobVerb,
        by: Option<&Submitter>,
    ) -> Result<JobOrdered, Refusal> {
        let mut jobs = self.queue.open_parts(job);
        if verb == JobVerb::Requeue {
            jobs.extend(self.queue.over_parts(job));
        }
        if jobs.is_empty() {
            jobs.push(job.clone());
        }
        self.check_reach(&jobs, by)?;
        let (mut ordered, mut refused) = (Vec::new(), None);
        for part in jobs {
            match self.set_order(&part, verb) {
                Ok(()) => ordered.push(part),
                Err(refusal) => refused = Some(refusal),
            }
        }
        // Some parts of an array may be ending already.
        let Some(first) = ordered.first().cloned() else {
            return Err(refused.unwrap_or_else(|| Refusal::NoJob { job: job.clone() }));
        };
        let write = self.write_jobs(&ordered);
        self.engine.look.want();
        self.timers.schedule_plan(now);
        Ok(JobOrdered::written(first, write))
    }

    /// Refuses what a token does not let its holder do to these jobs: reach those of others, or run more again than its quota allows.
    fn check_reach(&self, jobs: &[JobName], by: Option<&Submitter>) -> Result<(), Refusal> {
        let Some(by) = by else { return Ok(()) };
        let open = jobs.iter().filter_map(|job| self.queue.get(job)).map(|entry| &entry.record);
        let over = || self.queue.over().filter(|record| jobs.contains(&record.spec.name));
        if let Some(record) = open.chain(over()).find(|record| !by.reaches(record.submitter.as_deref())) {
            return Err(Refusal::JobOfOthers { job: record.spec.name.clone(), token: by.token.as_str().into() });
        }
        let again: Vec<JobRecord> = over().filter(|record| record.submitter.as_ref() == Some(&by.token)).cloned().collect();
        if again.is_empty() { Ok(()) } else { self.check_quota(Some(by), &again) }
    }

    fn set_order(&mut self, job: &JobName, verb: JobVerb) -> Result<(), Refusal> {
        if verb == JobVerb::Requeue {
            return self.requeue(job);
        }
        let parks = self.engine.capabilities().is_some_and(|can| can.rungs.contains(&weal_model::Rung::Parked));
        let Some(entry) = self.queue.get_mut(job).filter(|entry| entry.written != Written::Submission) else {
            return Err(self.not_open(job, verb));
        };
        let record = &mut entry.record;
        let has_ended = entry.written == Written::Conclusion;
        if has_ended || record.cancelled {
            return Err(Refusal::JobState { job: job.clone(), state: JobPhase::Stopping, order: Some(verb) });
        }
        match verb {
            JobVerb::Cancel => record.cancel(Cancellation::Order),
            JobVerb::Pause => record.hold = Hold::Paused,
            JobVerb::Suspend if !parks && record.command.checkpoint.is_empty() => {
                return Err(Refusal::NoParking { job: job.clone() });
            }
            JobVerb::Suspend => (record.hold, entry.save_failed) = (Hold::Suspended, None),
            JobVerb::Resume => record.hold = Hold::None,
            JobVerb::Requeue => {}
        }
        Ok(())
    }

    /// Ends a job's run and lets it begin anew; also one that is over.
    fn requeue(&mut self, job: &JobName) -> Result<(), Refusal> {
        let reopened = self.queue.reopen(job);
        let Some(entry) = self.queue.get_mut(job).filter(|entry| entry.written == Written::Yes) else {
            return Err(self.not_open(job, JobVerb::Requeue));
        };
        let record = &mut entry.record;
        (record.end, record.cancelled, record.hold, record.lost) = (None, false, Hold::None, 0);
        record.cancelled_because = None;
        (record.saved, record.saved_work) = (false, Work(0.0));
        record.not_before = Time::ZERO;
        if reopened || record.begun {
            entry.begin_anew();
        }
        entry.written = Written::Conclusion;
        Ok(())
    }

    /// Why nothing can be done to a job.
    fn not_open(&self, job: &JobName, order: JobVerb) -> Refusal {
        let over = self.queue.over().find(|record| record.spec.name == *job);
        let end = over.and_then(|record| record.end.as_ref());
        match end {
            Some(end) => Refusal::JobState { job: job.clone(), state: end.outcome.into(), order: Some(order) },
            None => Refusal::NoJob { job: job.clone() },
        }
    }

    /// Writes a job's record down; the answer is [`State::handle_jobs_kept`].
    pub(super) fn write_job(&mut self, job: &JobName) -> Option<u64> {
        self.write_jobs(std::slice::from_ref(job))
    }

    /// Writes records of open jobs down, all or none; either all of them are submissions or none is.
    pub(super) fn write_jobs(&mut self, jobs: &[JobName]) -> Option<u64> {
        let is_submission = self.queue.get(jobs.first()?)?.written == Written::Submission;
        let (write, records) = self.queue.begin_write(jobs);
        self.push(Effect::Keep(Kept::Jobs { records, write, is_submission }));
        Some(write)
    }

    /// Records of jobs are on disk, or could not be written.
    pub(super) fn handle_jobs_kept(&mut self, now: Time, jobs: &[JobName], write: u64, result: &Result<(), StoreProblem>) {
        for job in jobs {
            self.handle_job_kept(now, job, write, result);
        }
    }

    fn handle_job_kept(&mut self, now: Time, job: &JobName, write: u64, result: &Result<(), StoreProblem>) {
        let Some(entry) = self.queue.get_mut(job).filter(|entry| entry.write == write) else { return };
        let scheduled = entry.record.scheduled.clone().filter(|_| entry.written == Written::Submission);
        if result.is_err() {
            if entry.written == Written::Submission { self.queue.forget(job) } else { entry.unwritten = true }
        }
        if let Some(scheduled) = scheduled {
            self.handle_scheduled_kept(now, job, &scheduled, result.is_ok());
        }
        let Some(entry) = self.queue.get_mut(job).filter(|_| result.is_ok()) else { return self.show(false) };
        let was = std::mem::replace(&mut entry.written, Written::Yes);
        if was == Written::Submission {
            let text = format!("job {job} was submitted");
            self.note(Note::info(EventKind::Job, text));
        }
        if entry_is_over(self.queue.get(job).map(|entry| &entry.record)) {
            self.close_job(job);
        }
        self.engine.look.want();
        self.timers.schedule_plan(now);
        self.show(false);
    }

    /// The record of a scheduled job is on disk, or could not be written.
    fn handle_scheduled_kept(&mut self, now: Time, job: &JobName, scheduled: &ScheduledFor, is_kept: bool) {
        if is_kept {
            self.schedules.handle_submitted(job, scheduled);
            self.keep_schedules();
        } else {
            self.schedules.handle_put_off(self.engine.its_time(now));
        }
    }

    pub(super) fn keep_schedules(&mut self) {
        self.push(Effect::Keep(Kept::Schedules(Box::new(self.schedules.marks().clone()))));
    }

    /// A job is over, and that is written down.
    fn close_job(&mut self, job: &JobName) {
        let Some(record) = self.queue.close(job).cloned() else { return };
        let Some(end) = &record.end else { return };
        let became = match end.outcome {
            JobOutcome::Done => "is done",
            JobOutcome::Failed => "failed",
            JobOutcome::Cancelled => "was cancelled",
        };
        let text = format!("job {job} {became}: {}", end.detail);
        self.note(match end.outcome {
            JobOutcome::Failed => Note::warning(EventKind::Job, text),
            JobOutcome::Done | JobOutcome::Cancelled => Note::info(EventKind::Job, text),
        });
        if end.outcome == JobOutcome::Done {
            self.push(Effect::Keep(Kept::Runs(Box::new(self.queue.runs().clone()))));
        }
        self.release_dependents(&record);
    }

    /// Jobs that wait for one which is over: they go on, or are over too.
    fn release_dependents(&mut self, over: &JobRecord) {
        let is_done = over.end.as_ref().is_some_and(|end| end.outcome == JobOutcome::Done);
        for name in self.queue.names() {
            let Some(entry) = self.queue.get_mut(&name).filter(|entry| entry.record.after.contains(&over.spec.name)) else {
                continue;
            };
            if is_done {
                entry.record.after.retain(|job| *job != over.spec.name);
            } else {
                entry.record.cancel(Cancellation::NotDone { job: over.spec.name.clone() });
            }
            self.write_job(&name);
        }
    }

    /// Jobs turn out to be other work than plans know, or than people were told.
    pub(super) fn on_surprise(&mut self, now: Time, surprise: Surprise) {
        if surprise.changes_plans {
            self.timers.schedule_plan(now);
        }
        for name in &surprise.raised {
            let text = self.queue.get(name).and_then(|entry| job_status::raised(entry, self.queue.runs()));
            text.into_iter().for_each(|text| self.note(Note::info(EventKind::Job, text)));
        }
    }

    /// The engine has said which runs there are: each is brought to what its job's record says.
    pub(super) fn settle_jobs(&mut self, now: Time) {
        let Some(seen) = self.engine.seen.clone() else { return };
        self.clear_stale_runs(&seen);
        let time = self.engine.its_time(now);
        for name in self.queue.names() {
            self.settle_job(now, time, &name);
        }
        if let Some(retry) = self.queue.next_retry(time) {
            self.timers.schedule_plan(now + retry.since(time));
        }
    }

    /// Takes away what nobody wants any more.
    fn clear_stale_runs(&mut self, seen: &Observation) {
        let stale: Vec<Action> = self.queue.stale(seen).map(end_of).collect();
        for action in stale {
            self.act_on_job(action, "");
        }
    }

    fn settle_job(&mut self, now: Time, time: Time, name: &JobName) {
        let target = Target::Job { job: name.clone() };
        let is_acted_on = self.operations.contains(&target);
        let pool = self.pool();
        let Some(entry) = self.queue.get_mut(name) else { return };
        if entry.unwritten && entry.written != Written::Submission {
            self.write_job(name);
            return;
        }
        if entry.written != Written::Yes || is_acted_on {
            return;
        }
        let has_left = |node: &&NodeName| pool.as_ref().is_some_and(|pool| node_of(pool, node).is_none());
        let left = entry.nodes.iter().find(has_left).cloned();
        let is_shown = entry.shown_after.is_none_or(|ticket| self.engine.look.has_ended(ticket));
        match entry.run.clone() {
            Some(run) if run.state == RunState::Ended => {
                let end = run.end.unwrap_or(RunEnd::Lost);
                // A look that began before the start was over may not show all tasks yet.
                if end != RunEnd::Lost || is_shown {
                    self.conclude(time, name, end, &run.detail);
                }
            }
            Some(_) if left.is_some() => {
                let detail = left.map_or_else(String::new, |node| format!("its node {node} has left the pool"));
                self.conclude(time, name, RunEnd::Lost, &detail);
            }
            Some(run) => self.settle_run(now, name, &run),
            None if entry.record.cancelled => {
                let why = entry.record.cancellation();
                self.conclude(time, name, RunEnd::Lost, &why);
            }
            None if entry.record.begun && is_shown => {
                self.conclude(time, name, RunEnd::Lost, "its processes are gone and left no exit status");
            }
            None => {}
        }
    }

    /// A run that has not ended is brought to what is wanted of it.
    fn settle_run(&mut self, now: Time, name: &JobName, run: &RunSeen) {
        let Some(entry) = self.queue.get_mut(name) else { return };
        if !entry.record.begun {
            (entry.record.begun, entry.record.began) = (true, entry.record.began.or(Some(run.since)));
            self.write_job(name);
        }
        self.give_up_saving(name, run);
        let Some(entry) = self.queue.get(name) else { return };
        let job = || name.clone();
        let why = entry.record.cancelled.then(|| entry.record.cancellation());
        let action = match (entry.record.hold, run.state) {
            _ if entry.record.cancelled => Some(Action::EndJob { job: job(), attempt: run.attempt }),
            (Hold::Paused, RunState::Running) => Some(Action::PauseJob { job: job() }),
            (Hold::Suspended, RunState::Running) if entry.save_failed.is_some() => None,
            // What stands still cannot save its state.
            (Hold::Suspended, RunState::Paused) if !entry.record.command.checkpoint.is_empty() => {
                Some(Action::ResumeJob { job: job(), nodes: entry.nodes.clone() })
            }
            (Hold::Suspended, RunState::Running | RunState::Paused) => Some(Action::SuspendJob { job: job() }),
            // Its memory is in place, so that there is nothing to decide.
            (Hold::None, RunState::Paused) => Some(Action::ResumeJob { job: job(), nodes: entry.nodes.clone() }),
            _ => None,
        };
        match action {
            Some(action) => self.act_on_job(action, why.as_deref().unwrap_or("by an order")),
            None if run.state == RunState::Running => self.push_speed(now, name),
            None => {}
        }
    }

    /// A job that could not save its state runs on, also for whoever has ordered it: the command would fail again and again.
    fn give_up_saving(&mut self, name: &JobName, run: &RunSeen) {
        let Some(entry) = self.queue.get_mut(name) else { return };
        let has_failed = entry.save_failed.is_some_and(|ticket| self.engine.look.has_ended(ticket));
        if has_failed && entry.record.hold == Hold::Suspended && run.state == RunState::Running {
            entry.record.hold = Hold::None;
            self.write_job(name);
        }
    }

    /// Tells the engine the CPU that the plan gives a job, its limit, and the memory of its phase, if it does not know.
    fn push_speed(&mut self, now: Time, name: &JobName) {
        let (memory, limit) = (self.memory_for(name), self.job_limit(name));
        let Some(entry) = self.queue.get_mut(name) else { return };
        let is_news = |cpu: Cpu| entry.told.is_none_or(|told| told.differs(cpu, limit, memory));
        let Some(cpu) = entry.speed.filter(|cpu| is_news(*cpu)) else { return };
        entry.told = Some(Told { cpu, limit, memory });
        let action = Action::SetJobCpu { job: name.clone(), cpu };
        self.begin(now, action, "");
    }

    /// The memory limit of a job's run: what its phase needs, if that is free on its node, else what it has.
    fn memory_for(&self, name: &JobName) -> Bytes {
        let (Some(entry), Some(pool)) = (self.queue.get(name), self.pool()) else { return Bytes(0) };
        let wanted = entry.memory_limit();
        let fits = |node: &NodeName| {
            let all = Bytes(wanted.0.saturating_mul(entry.tasks_on(node)));
            self.room_beside(&pool, node, Some(name)) >= all
        };
        match entry.told {
            Some(Told { memory: has, .. }) if wanted > has && !entry.nodes.iter().all(fits) => has,
            _ => wanted,
        }
    }

    /// Begins an action that no plan has asked for. A target that has an operation keeps it; the next observation asks again.
    fn act_on_job(&mut self, action: Action, reason: &str) {
        let Some(pool) = self.pool() else { return };
        let Some(order) = self.job_order(&action) else { return };
        if self.operations.begin(action.clone(), None).is_none() {
            return;
        }
        if !reason.is_empty() {
            self.note(notes::action(&action, reason).begins(&action));
        }
        self.push(Effect::Act { pool, action, job: Some(Box::new(order)) });
    }

    fn conclude(&mut self, time: Time, name: &JobName, end: RunEnd, detail: &str) {
        let Some(entry) = self.queue.get_mut(name) else { return };
        let (attempt, was_begun) = (entry.record.attempt, entry.record.begun);
        entry.conclude(time, end, detail);
        let goes_on = entry.record.end.is_none();
        if goes_on && end == RunEnd::Saved {
            let text = format!("job {name} is suspended: run {attempt} saved its state, and the next run continues from it");
            self.note(Note::info(EventKind::Job, text));
        } else if goes_on && was_begun {
            let text = format!("run {attempt} of job {name} failed, and weal starts the job again: {detail}");
            self.note(Note::warning(EventKind::Job, text));
        }
        self.write_job(name);
    }

    /// An action on a job of the queue is done, or could not be.
    pub(super) fn handle_job_acted(&mut self, now: Time, action: &Action, took_s: f64, refusal: Option<&Refusal>) {
        let Target::Job { job } = action.target() else { return };
        if refusal.is_none() {
            self.queue.learn_change(action, took_s);
        }
        let ticket = self.engine.look.want();
        let time = self.engine.its_time(now);
        let Some(entry) = self.queue.get_mut(&job) else { return };
        match (action, refusal) {
            (Action::StartJob { nodes, .. }, None) => {
                let moved = entry.record.saved_on.take().zip(nodes.first()).filter(|(from, to)| from != *to);
                entry.refused.clear();
                entry.shown_after = Some(ticket);
                (entry.record.begun, entry.record.began) = (true, entry.record.began.or(Some(time)));
                self.write_job(&job);
                if let Some((from, to)) = moved {
                    self.note(Note::info(EventKind::Job, format!("job {job} has moved from {from} to {to}")));
                }
            }
            (Action::StartJob { .. }, Some(refusal)) if refusal.is_final() => {
                let detail = refusal.to_string();
                self.conclude(time, &job, RunEnd::NotStarted, &detail);
            }
            (Action::StartJob { .. }, Some(refusal)) => (entry.refused, entry.moving) = (refusal.to_string(), false),
            (Action::SetJobCpu { .. }, Some(_)) => entry.told = None,
            (Action::SuspendJob { .. }, Some(_)) if !entry.record.command.checkpoint.is_empty() => {
                entry.save_failed = Some(ticket);
            }
            _ => {}
        }
    }

    /// The pool as plans may fill it: without the memory that jobs hold about which no plan decides.
    pub(super) fn withhold(&self, now: Time, pool: &mut weal_model::PoolSpec) {
        let time = self.engine.its_time(now);
        for node in &mut pool.nodes {
            node.memory = node.memory - self.queue.withheld(time, &node.name);
        }
    }
}

fn entry_is_over(record: Option<&JobRecord>) -> bool {
    record.is_some_and(|record| record.end.is_some())
}

fn end_of(run: &RunSeen) -> Action {
    Action::EndJob { job: run.job.clone(), attempt: run.attempt }
}
