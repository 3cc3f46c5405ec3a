//! Submits the jobs of the config's schedules at their dates.

use std::time::Duration;

use weal_model::{Cancellation, EventKind, JobName, Overlap, ScheduledFor, Stage, Time};
use weal_protocol::Refusal;
use weal_protocol::controller::{JobSubmission, StageWish};

use super::effect::Note;
use super::schedules::Due;
use super::state::State;

impl State {
    /// Submits what is due. Nothing is while nobody knows the nodes or the jobs: it is made up for then.
    pub(super) fn follow_schedules(&mut self, now: Time) {
        let Some(config) = self.config.clone().filter(|_| self.engine.seen.is_some() && !self.queue.is_unread()) else { return };
        let time = self.engine.its_time(now);
        let mut changed = self.schedules.follow(time, &config.pool.jobs);
        for due in self.schedules.poll_due(time, &config.pool.jobs) {
            changed |= self.submit_due(now, time, &due);
        }
        self.next_date = self.schedules.next().map(|next| now + next.since(time));
        if changed {
            self.keep_schedules();
            self.show(false);
        }
    }

    /// True when the date is settled without a job.
    fn submit_due(&mut self, now: Time, time: Time, due: &Due) -> bool {
        let name = &due.job.name;
        if self.is_submitted(&due.scheduled()) {
            return false;
        }
        if let Some(why) = due.left_out().or_else(|| self.overlaps(due)) {
            return self.leave_out(due, &why);
        }
        if due.job.overlap == Overlap::Replace {
            self.cancel_jobs_of(name);
        }
        match self.take_scheduled(now, time, due) {
            Ok(()) => false,
            Err(Refusal::NotObserved | Refusal::JobsUnread) => {
                self.schedules.handle_put_off(time);
                false
            }
            Err(refusal) => self.leave_out(due, &refusal.to_string()),
        }
    }

    fn leave_out(&mut self, due: &Due, why: &str) -> bool {
        let name = &due.job.name;
        self.note(Note::warning(EventKind::Job, format!("a date of the schedule {name} is left out: {why}")));
        self.schedules.handle_left_out(name, due.date, why);
        true
    }

    /// A job of this date is there and may be on its way to the disk.
    fn is_submitted(&self, scheduled: &ScheduledFor) -> bool {
        self.queue.open().any(|entry| entry.record.scheduled.as_ref() == Some(scheduled))
    }

    fn overlaps(&self, due: &Due) -> Option<String> {
        let earlier = self.jobs_of(&due.job.name).into_iter().next().filter(|_| due.job.overlap == Overlap::Skip)?;
        Some(format!("{earlier} is not over, and overlap = \"skip\""))
    }

    /// The jobs of a schedule that are not over and are not to be ended.
    fn jobs_of(&self, schedule: &JobName) -> Vec<JobName> {
        let is_of = |scheduled: &ScheduledFor| scheduled.schedule == *schedule;
        let open = self.queue.open().filter(|entry| entry.record.end.is_none() && !entry.record.cancelled);
        let of = open.filter(|entry| entry.record.scheduled.as_ref().is_some_and(is_of));
        of.map(|entry| entry.record.spec.name.clone()).collect()
    }

    fn cancel_jobs_of(&mut self, schedule: &JobName) {
        for job in self.jobs_of(schedule) {
            if let Some(entry) = self.queue.get_mut(&job) {
                entry.record.cancel(Cancellation::Replaced { schedule: schedule.clone() });
                self.write_job(&job);
            }
        }
    }

    fn take_scheduled(&mut self, now: Time, time: Time, due: &Due) -> Result<(), Refusal> {
        let (mut record, _) = self.record_of(now, &submission(due, time))?;
        record.scheduled = Some(due.scheduled());
        self.take_in(record);
        Ok(())
    }
}

/// What somebody would submit for a date. Its goal counts from the date, and from now on where that was missed.
fn submission(due: &Due, time: Time) -> JobSubmission {
    let job = &due.job;
    let from = if due.is_late { time } else { due.date };
    let done_by = match job.done_within_s {
        Some(within_s) => Some(from + Duration::from_secs_f64(within_s)),
        None => job.schedule.next_after(time),
    };
    JobSubmission {
        run: job.command.run.clone(),
        env: job.command.env.clone(),
        cwd: job.command.cwd.clone(),
        inputs: job.command.files.inputs.clone(),
        outputs: job.command.files.outputs.clone(),
        output_to: job.command.files.to.clone(),
        checkpoint: job.command.checkpoint.clone(),
        restore: job.command.restore.clone(),
        name: Some(job.name.to_string()),
        class: job.class.clone(),
        done_by,
        tasks: Some(job.tasks),
        memory: job.memory.filter(|_| job.stages.is_empty()),
        cpus: job.cpus.map(|cpus| cpus.0),
        work_s: job.work.map(|work| work.0),
        stages: job.stages.iter().map(wish).collect(),
        retries: job.retries,
        ..JobSubmission::default()
    }
}

fn wish(stage: &Stage) -> StageWish {
    StageWish { work_s: stage.work.0, cpus: Some(stage.max_speed.0), memory: Some(stage.memory) }
}
