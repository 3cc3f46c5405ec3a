//! The config's schedules: which dates are due, and up to which date jobs were submitted.
//!
//! A date counts once, whichever process dies. Its job's record names it and is on disk before the schedule's mark moves on; a new controller moves
//! marks on by the records that it finds.
//!
//! ```text
//! due -> record written (names the date) -> mark moved on, written
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weal_model::{JobName, JobRecord, Missed, Schedule, ScheduleStatus, ScheduledFor, ScheduledJob, ScheduledJobs, Time};

/// A date that was submitted later than this was missed: longer than a controller takes to be started again, shorter than two dates are apart.
const LATE: Duration = Duration::from_secs(55);
/// Between two attempts to submit a job that could not be written down.
const RETRY: Duration = Duration::from_secs(2);

/// How far a schedule is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// As which it was read: another one begins anew.
    pub schedule: Schedule,
    /// Dates up to here are settled.
    pub until: Time,
    /// The last job that was submitted, with its date.
    pub last: Option<(JobName, Time)>,
    /// Why the last date was left out; empty when it was not.
    #[serde(default)]
    pub left_out: String,
}

/// All marks, by the schedule's name.
pub type Marks = BTreeMap<JobName, Mark>;

/// A date that has come.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Due {
    pub job: ScheduledJob,
    pub date: Time,
    /// It has passed while nobody looked.
    pub is_late: bool,
}

/// All of a pool's schedules.
#[derive(Debug, Default)]
pub(super) struct Schedules {
    marks: Marks,
    not_before: Time,
    next: Option<Time>,
}

impl Schedules {
    /// Goes on from `marks`, moved on by the jobs that there are.
    pub fn new<'r>(marks: Marks, records: impl Iterator<Item = &'r JobRecord>) -> Self {
        let mut schedules = Self { marks, ..Self::default() };
        for record in records {
            if let Some(scheduled) = &record.scheduled {
                schedules.handle_submitted(&record.spec.name, scheduled);
            }
        }
        schedules
    }

    /// All marks, to be stored.
    pub fn marks(&self) -> &Marks {
        &self.marks
    }

    /// Follows the config: a schedule that is new or another begins at `time`, and one that is gone is forgotten. True when marks have changed.
    pub fn follow(&mut self, time: Time, jobs: &ScheduledJobs) -> bool {
        let before = self.marks.len();
        self.marks.retain(|name, mark| jobs.get(name).is_some_and(|job| job.schedule == mark.schedule));
        let mut changed = self.marks.len() != before;
        for (name, job) in jobs {
            self.marks.entry(name.clone()).or_insert_with(|| {
                changed = true;
                Mark { schedule: job.schedule.clone(), until: time, last: None, left_out: String::new() }
            });
        }
        if changed {
            self.next = None;
        }
        changed
    }

    /// The dates that have come by `time` and are not settled, of each schedule the last.
    pub fn poll_due(&mut self, time: Time, jobs: &ScheduledJobs) -> Vec<Due> {
        if time < self.not_before || self.next.is_some_and(|next| time < next) {
            return Vec::new();
        }
        self.next = self.marks.values().filter_map(|mark| mark.schedule.next_after(mark.until.max(time))).min();
        self.marks.iter().filter_map(|(name, mark)| due(jobs.get(name)?, mark, time)).collect()
    }

    /// When [`Schedules::poll_due`] is to be asked again; `None` when nothing ever comes.
    pub fn next(&self) -> Option<Time> {
        self.next.map(|next| next.max(self.not_before))
    }

    /// A date's job is on disk.
    pub fn handle_submitted(&mut self, job: &JobName, scheduled: &ScheduledFor) {
        let Some(mark) = self.marks.get_mut(&scheduled.schedule) else { return };
        if mark.last.as_ref().is_none_or(|(_, date)| *date <= scheduled.date) {
            (mark.last, mark.left_out) = (Some((job.clone(), scheduled.date)), String::new());
        }
        mark.until = mark.until.max(scheduled.date);
    }

    /// A date is left out.
    pub fn handle_left_out(&mut self, name: &JobName, date: Time, why: &str) {
        let Some(mark) = self.marks.get_mut(name) else { return };
        (mark.until, mark.left_out) = (mark.until.max(date), why.to_owned());
    }

    /// A date's job could not be submitted now: it is tried again.
    pub fn handle_put_off(&mut self, time: Time) {
        (self.not_before, self.next) = (time + RETRY, Some(time + RETRY));
    }

    /// All, as people are shown them.
    pub fn statuses(&self, time: Time) -> Vec<ScheduleStatus> {
        self.marks.iter().map(|(name, mark)| status(name, mark, time)).collect()
    }
}

fn due(job: &ScheduledJob, mark: &Mark, time: Time) -> Option<Due> {
    let date = job.schedule.last_until(mark.until, time)?;
    Some(Due { job: job.clone(), date, is_late: time.since(date) > LATE })
}

fn status(name: &JobName, mark: &Mark, time: Time) -> ScheduleStatus {
    ScheduleStatus {
        name: name.clone(),
        schedule: mark.schedule.expression().to_owned(),
        time_zone: mark.schedule.time_zone().to_owned(),
        next: mark.schedule.next_after(mark.until.max(time)),
        last: mark.last.as_ref().map(|(_, date)| *date),
        last_job: mark.last.as_ref().map(|(job, _)| job.clone()),
        detail: mark.left_out.clone(),
    }
}

impl Due {
    /// Why it is left out whatever else runs, if so.
    pub fn left_out(&self) -> Option<String> {
        let is_missed = self.is_late && self.job.missed == Missed::Skip;
        is_missed.then(|| "its date had passed when weal saw it, and missed = \"skip\"".to_owned())
    }

    /// Which date of which schedule it is.
    pub fn scheduled(&self) -> ScheduledFor {
        ScheduledFor { schedule: self.job.name.clone(), date: self.date }
    }
}

#[cfg(test)]
mod tests {
    use weal_model::{Bytes, JobCommand, Overlap};

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn at(hours: u32) -> Time {
        Time::ZERO + HOUR * hours
    }

    fn jobs(expression: &str, missed: Missed) -> ScheduledJobs {
        let job = ScheduledJob {
            name: "nightly".into(),
            schedule: Schedule::new(expression, "UTC").unwrap(),
            command: JobCommand::default(),
            done_within_s: None,
            class: None,
            memory: Some(Bytes::mib(1)),
            cpus: None,
            work: None,
            stages: Vec::new(),
            tasks: 1,
            retries: 0,
            overlap: Overlap::Skip,
            missed,
        };
        [(job.name.clone(), job)].into()
    }

    fn dates(due: &[Due]) -> Vec<(Time, bool)> {
        due.iter().map(|due| (due.date, due.is_late)).collect()
    }

    #[test]
    fn a_schedule_begins_when_it_is_first_seen_and_each_date_counts_once() {
        let (mut schedules, jobs) = (Schedules::default(), jobs("0 3 * * *", Missed::Run));
        assert!(schedules.follow(at(10), &jobs) && !schedules.follow(at(11), &jobs));
        assert_eq!(dates(&schedules.poll_due(at(11), &jobs)), [], "3:00 of that day was before it");
        assert_eq!(schedules.next(), Some(at(27)));
        assert_eq!(dates(&schedules.poll_due(at(27), &jobs)), [(at(27), false)]);
        // Not written down: it stays due.
        schedules.handle_put_off(at(27));
        assert_eq!(dates(&schedules.poll_due(at(27) + RETRY, &jobs)), [(at(27), false)]);
        schedules.handle_submitted(&"nightly-4".into(), &ScheduledFor { schedule: "nightly".into(), date: at(27) });
        assert_eq!(dates(&schedules.poll_due(at(27) + LATE, &jobs)), []);
        assert_eq!(schedules.statuses(at(28))[0].last_job, Some("nightly-4".into()));
    }

    #[test]
    fn of_dates_that_nobody_saw_the_last_is_due_late() {
        let (mut schedules, jobs) = (Schedules::default(), jobs("0 * * * *", Missed::Skip));
        schedules.follow(at(10), &jobs);
        let due = schedules.poll_due(at(99) + LATE + RETRY, &jobs);
        assert_eq!(dates(&due), [(at(99), true)]);
        assert!(due[0].left_out().is_some_and(|why| why.contains("missed")));
        schedules.handle_left_out(&"nightly".into(), at(99), "so");
        assert_eq!((schedules.marks["nightly"].until, schedules.marks["nightly"].left_out.as_str()), (at(99), "so"));
    }

    #[test]
    fn a_date_whose_job_is_on_disk_is_settled_although_its_mark_was_not_written() {
        let jobs = jobs("0 3 * * *", Missed::Run);
        let mut before = Schedules::default();
        before.follow(at(10), &jobs);
        let spec = weal_model::JobSpec {
            name: "nightly-1".into(),
            submitted: at(27),
            desired_start: at(27),
            deadline: at(28),
            importance: weal_model::Importance::NORMAL,
            priority: 0,
            stages: Vec::new(),
            tasks: 1,
        };
        let scheduled = Some(ScheduledFor { schedule: "nightly".into(), date: at(27) });
        let record = JobRecord { scheduled, ..JobRecord::new(1, spec, JobCommand::default()) };
        let mut after = Schedules::new(before.marks().clone(), [&record].into_iter());
        assert_eq!(dates(&after.poll_due(at(28), &jobs)), []);
    }

    #[test]
    fn another_schedule_of_the_same_name_makes_nothing_up() {
        let mut schedules = Schedules::default();
        schedules.follow(at(10), &jobs("0 3 * * *", Missed::Run));
        let other = jobs("0 12 * * *", Missed::Run);
        assert!(schedules.follow(at(20), &other));
        assert_eq!(dates(&schedules.poll_due(at(20), &other)), []);
        assert!(schedules.follow(at(21), &ScheduledJobs::new()) && schedules.statuses(at(21)).is_empty());
    }
}
