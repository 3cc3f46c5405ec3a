//! When the jobs of a schedule begin: a cron expression, read in a time zone.
//!
//! An expression names civil times, and a zone's clocks skip some and show others twice. Vixie's cron has the rule that people know:
//!
//! - Where the hour is `*` or `*/n`, dates follow the clock that runs on: nothing is made up for, nothing is left out.
//! - Any other expression names times of day, and each has one date a day. A time that the clocks skip has its date when they have jumped; of one
//!   that comes twice, the first counts.
//!
//! The zones' rules are compiled in, so that equal inputs give equal dates on every machine.

use std::collections::BTreeMap;

use cronexpr::{Crontab, FallbackTimezoneOption, MakeTimestamp, ParseOptions, parse_crontab_with};
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone, TimeZoneDatabase};
use jiff::{Span, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Bytes, ClassName, Cpu, JobCommand, JobName, Stage, Time, Work};

/// The longest expression, in bytes: a list of every minute has 170.
const LONGEST: usize = 500;
/// Changes of a zone's clocks that one search looks past: cronexpr looks four years ahead, and no zone changes them more than four times a year.
const MOST_CHANGES: usize = 32;

/// A cron expression with its time zone. Invariant: it has been read once, so it has dates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Schedule {
    expression: String,
    time_zone: String,
}

/// Why a text is no schedule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// It has too few parts or too many.
    #[error("a schedule has five parts (minute, hour, day of the month, month, day of the week), and this has {found}")]
    Parts {
        /// How many it has.
        found: usize,
    },
    /// It is longer than anybody writes.
    #[error("a schedule has at most {LONGEST} bytes")]
    Long,
    /// One of its parts cannot be read.
    #[error("{why}")]
    Part {
        /// What is wrong with which.
        why: String,
    },
    /// No day is like that.
    #[error("no date is ever like this")]
    NoDate,
    /// There is no such zone.
    #[error("there is no time zone `{name}`")]
    TimeZone {
        /// What was named.
        name: String,
    },
}

impl Schedule {
    /// Reads `expression` (minute, hour, day of the month, month, day of the week) as times in `time_zone`, a name of the IANA database.
    ///
    /// # Errors
    /// When one of them cannot be read, or the expression has no date.
    pub fn new(expression: &str, time_zone: &str) -> Result<Self, ScheduleError> {
        if expression.len() > LONGEST {
            return Err(ScheduleError::Long);
        }
        let found = expression.split_whitespace().count();
        if found != 5 {
            return Err(ScheduleError::Parts { found });
        }
        let crontab = crontab(expression)?;
        if zone(time_zone).is_none() {
            return Err(ScheduleError::TimeZone { name: time_zone.to_owned() });
        }
        // Four years from a leap year on: what has no date there has none at all.
        next_civil(&crontab, DateTime::constant(2024, 1, 1, 0, 0, 0, 0)).ok_or(ScheduleError::NoDate)?;
        Ok(Self { expression: expression.to_owned(), time_zone: time_zone.to_owned() })
    }

    /// As it was written.
    pub fn expression(&self) -> &str {
        &self.expression
    }

    /// The zone in which it is read.
    pub fn time_zone(&self) -> &str {
        &self.time_zone
    }

    /// Its first date after `time`; `None` when there is none in the next four years.
    pub fn next_after(&self, time: Time) -> Option<Time> {
        let (crontab, zone) = (crontab(&self.expression).ok()?, zone(&self.time_zone)?);
        let after = Timestamp::from_nanosecond(i128::from(time.0)).ok()?;
        let date = if self.follows_the_clock() {
            next_as_the_clock_runs(&crontab, &zone, after)?
        } else {
            next_time_of_day(&crontab, &zone, after)?
        };
        u64::try_from(date.as_nanosecond()).ok().map(Time)
    }

    /// Its last date after `after` that is not later than `now`.
    pub fn last_until(&self, after: Time, now: Time) -> Option<Time> {
        const HOUR_S: u64 = 3600;
        // Looking back step by step keeps the number of dates between small, however long nobody has looked.
        [2, 36, 24 * 40, u64::MAX / HOUR_S]
            .into_iter()
            .map(|hours| after.max(now - std::time::Duration::from_secs(hours * HOUR_S)))
            .find_map(|from| std::iter::successors(self.next_until(from, now), |date| self.next_until(*date, now)).last())
    }

    fn next_until(&self, after: Time, now: Time) -> Option<Time> {
        self.next_after(after).filter(|date| *date <= now)
    }

    fn follows_the_clock(&self) -> bool {
        self.expression.split_whitespace().nth(1).is_some_and(|hour| hour.starts_with('*'))
    }
}

/// The expression, to be asked about civil times, which it takes for times of UTC.
fn crontab(expression: &str) -> Result<Crontab, ScheduleError> {
    let mut options = ParseOptions::default();
    options.fallback_timezone_option = FallbackTimezoneOption::UTC;
    parse_crontab_with(expression, options).map_err(|error| {
        let text = error.to_string();
        let why = text.rsplit_once("^ ").map_or(text.as_str(), |(_, why)| why);
        ScheduleError::Part { why: why.lines().next().unwrap_or_default().to_owned() }
    })
}

fn zone(name: &str) -> Option<TimeZone> {
    TimeZoneDatabase::bundled().get(name).ok()
}

fn next_civil(crontab: &Crontab, after: DateTime) -> Option<DateTime> {
    let after = Offset::UTC.to_timestamp(after).ok()?;
    crontab.find_next(MakeTimestamp(after)).ok().map(|next| next.datetime())
}

/// Of civil times in their order, the first whose moment lies after `after`. Moments of civil times never go back, since all that are skipped
/// have that of the jump.
fn next_time_of_day(crontab: &Crontab, zone: &TimeZone, after: Timestamp) -> Option<Timestamp> {
    let mut civil = zone.to_datetime(after);
    loop {
        civil = next_civil(crontab, civil)?;
        let moment = moment(zone, civil)?;
        if moment > after {
            return Some(moment);
        }
    }
}

/// When a zone's clocks show `civil` for the first time, or jump past it.
fn moment(zone: &TimeZone, civil: DateTime) -> Option<Timestamp> {
    match zone.to_ambiguous_timestamp(civil).offset() {
        AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(civil).ok(),
        AmbiguousOffset::Fold { before, .. } => before.to_timestamp(civil).ok(),
        AmbiguousOffset::Gap { before, .. } => {
            let beyond = before.to_timestamp(civil).ok()?.checked_add(Span::new().seconds(1)).ok()?;
            zone.preceding(beyond).next().map(|jump| jump.timestamp())
        }
    }
}

fn next_as_the_clock_runs(crontab: &Crontab, zone: &TimeZone, after: Timestamp) -> Option<Timestamp> {
    let (mut at, mut offset) = (after, zone.to_offset(after));
    let mut from = offset.to_datetime(after);
    for _ in 0..MOST_CHANGES {
        let next = offset.to_timestamp(next_civil(crontab, from)?).ok()?;
        let Some(change) = zone.following(at).next().filter(|change| change.timestamp() <= next) else { return Some(next) };
        (at, offset) = (change.timestamp(), change.offset());
        // The change's own moment may be a date.
        from = offset.to_datetime(at).checked_sub(Span::new().nanoseconds(1)).ok()?;
    }
    None
}

/// What becomes of a date while a job of an earlier one is not over.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Overlap {
    /// It is left out.
    #[default]
    Skip,
    /// Its job runs beside the other.
    Allow,
    /// Its job takes the place of the other, which is cancelled.
    Replace,
}

impl Overlap {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Skip, Self::Allow, Self::Replace];

    /// As it is written in a config.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Skip => "skip",
            Self::Allow => "allow",
            Self::Replace => "replace",
        }
    }
}

/// What becomes of a date that has passed while weal was down.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Missed {
    /// Its job is submitted as soon as weal is back; of several dates the last counts.
    #[default]
    Run,
    /// It is left out.
    Skip,
}

impl Missed {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Run, Self::Skip];

    /// As it is written in a config.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Skip => "skip",
        }
    }
}

/// A job that a config has run again and again: `[job.NAME]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScheduledJob {
    /// Its name; each job of it has a number behind that.
    pub name: JobName,
    /// When its jobs are submitted.
    pub schedule: Schedule,
    /// What is run.
    pub command: JobCommand,
    /// Seconds from its date within which a job is to be done; `None` is until the next date.
    pub done_within_s: Option<f64>,
    /// Its service class.
    pub class: Option<ClassName>,
    /// The most memory of each job, of each of its tasks; `None` is learnt.
    #[serde(default)]
    pub memory: Option<Bytes>,
    /// The most CPU that helps it, all tasks together; `None` is a core for each.
    pub cpus: Option<Cpu>,
    /// CPU-seconds that it takes, all tasks together; `None` is learnt.
    pub work: Option<Work>,
    /// Its phases, in place of memory, CPU and work, each as these say; empty: one phase.
    #[serde(default)]
    pub stages: Vec<Stage>,
    /// Processes that run at once, all or none.
    #[serde(default = "one")]
    pub tasks: u32,
    /// How often a job is run again after it fails by its own fault.
    pub retries: u32,
    /// What becomes of a date while a job of an earlier one is not over.
    pub overlap: Overlap,
    /// What becomes of a date that has passed while weal was down.
    pub missed: Missed,
}

fn one() -> u32 {
    1
}

/// All of a config.
pub type ScheduledJobs = BTreeMap<JobName, ScheduledJob>;

/// One schedule, as people are shown it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScheduleStatus {
    /// Its name.
    pub name: JobName,
    /// Its cron expression.
    pub schedule: String,
    /// The zone in which that is read.
    pub time_zone: String,
    /// The date that comes next.
    pub next: Option<Time>,
    /// The last date for which a job was submitted.
    pub last: Option<Time>,
    /// That job.
    pub last_job: Option<JobName>,
    /// Why the last date was left out; empty when it was not.
    pub detail: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Time {
        Time(u64::try_from(text.parse::<Timestamp>().unwrap().as_nanosecond()).unwrap())
    }

    /// The `count` dates after `from`, in UTC.
    fn dates(expression: &str, zone: &str, from: &str, count: usize) -> Vec<String> {
        let schedule = Schedule::new(expression, zone).unwrap();
        let dates = std::iter::successors(schedule.next_after(at(from)), |date| schedule.next_after(*date));
        dates.take(count).map(|date| Timestamp::from_nanosecond(i128::from(date.0)).unwrap().to_string()).collect()
    }

    #[test]
    fn times_of_day_are_those_of_the_zone() {
        let nightly = dates("0 3 * * *", "Europe/Berlin", "2026-11-26T02:00:00Z", 2);
        assert_eq!(nightly, ["2026-11-27T02:00:00Z", "2026-11-28T02:00:00Z"]);
        assert_eq!(dates("30 9 * * mon-fri", "America/New_York", "2026-07-03T12:00:00Z", 2)[1], "2026-07-06T13:30:00Z");
        assert_eq!(dates("0 12 L * *", "UTC", "2027-02-01T00:00:00Z", 1), ["2027-02-28T12:00:00Z"]);
    }

    #[test]
    fn a_time_that_clocks_skip_comes_when_they_have_jumped_and_one_that_comes_twice_counts_once() {
        // 29 March 2026: 02:00 becomes 03:00, which is 01:00 UTC.
        let spring = dates("30 2 * * *", "Europe/Berlin", "2026-03-28T02:00:00Z", 3);
        assert_eq!(spring, ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z", "2026-03-31T00:30:00Z"]);
        // Those that are skipped and one that is not have one date there.
        let several = dates("0,15,45 2,3 29 3 *", "Europe/Berlin", "2026-03-28T23:00:00Z", 4);
        assert_eq!(several[..3], ["2026-03-29T01:00:00Z", "2026-03-29T01:15:00Z", "2026-03-29T01:45:00Z"]);
        // 25 October 2026: 03:00 becomes 02:00, which is 01:00 UTC.
        let autumn = dates("30 2 * * *", "Europe/Berlin", "2026-10-24T22:30:00Z", 2);
        assert_eq!(autumn, ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]);
        let in_between = dates("30 2 * * *", "Europe/Berlin", "2026-10-25T01:10:00Z", 1);
        assert_eq!(in_between, ["2026-10-26T01:30:00Z"], "the second 02:30 is no date");
    }

    #[test]
    fn what_runs_each_hour_follows_the_clock_that_runs_on() {
        let autumn = dates("30 * * * *", "Europe/Berlin", "2026-10-25T00:00:00Z", 3);
        assert_eq!(autumn, ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-25T02:30:00Z"]);
        let spring = dates("*/30 * * * *", "Europe/Berlin", "2026-03-29T00:30:00Z", 3);
        assert_eq!(spring, ["2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z", "2026-03-29T02:00:00Z"]);
        // Its clocks change by half an hour.
        let half = dates("0 * * * *", "Australia/Lord_Howe", "2026-10-03T14:30:00Z", 3);
        assert_eq!(half, ["2026-10-03T16:00:00Z", "2026-10-03T17:00:00Z", "2026-10-03T18:00:00Z"]);
    }

    #[test]
    fn dates_only_go_on_and_agree_with_looking_one_by_one() {
        for expression in ["0 2 * * *", "59 2 * * sun", "*/20 1-3 * * *", "0 */5 * * *"] {
            let schedule = Schedule::new(expression, "Europe/Berlin").unwrap();
            let (mut date, end) = (at("2026-03-27T00:00:00Z"), at("2026-11-02T00:00:00Z"));
            let mut before = date;
            while date < end {
                date = schedule.next_after(before).unwrap();
                assert!(date > before, "{expression}");
                assert_eq!(schedule.next_after(date - std::time::Duration::from_nanos(1)), Some(date), "{expression}");
                before = date;
            }
        }
    }

    #[test]
    fn of_dates_that_nobody_saw_the_last_is_found() {
        let schedule = Schedule::new("*/5 * * * *", "UTC").unwrap();
        let last = |after: &str, now: &str| schedule.last_until(at(after), at(now));
        assert_eq!(last("2026-11-26T03:00:00Z", "2026-11-26T03:04:59Z"), None);
        assert_eq!(last("2026-11-26T03:00:00Z", "2026-11-26T03:05:00Z"), Some(at("2026-11-26T03:05:00Z")));
        assert_eq!(last("2001-01-01T00:00:00Z", "2026-11-26T03:11:00Z"), Some(at("2026-11-26T03:10:00Z")));
        let yearly = Schedule::new("0 0 1 1 *", "UTC").unwrap();
        assert_eq!(yearly.last_until(at("2020-06-01T00:00:00Z"), at("2026-11-26T03:11:00Z")), Some(at("2026-01-01T00:00:00Z")));
    }

    #[test]
    fn what_is_no_schedule_is_refused_with_the_reason() {
        for (expression, zone, part) in [
            ("0 3 * *", "UTC", "five parts"),
            ("0 3 * * * UTC", "UTC", "this has 6"),
            ("61 3 * * *", "UTC", "61"),
            ("0 0 30 2 *", "UTC", "no date is ever like this"),
            ("0 3 * * *", "Europe/Atlantis", "no time zone `Europe/Atlantis`"),
            (&"1,".repeat(400), "UTC", "at most 500 bytes"),
        ] {
            let error = Schedule::new(expression, zone).unwrap_err().to_string();
            assert!(error.contains(part), "{expression}: {error}");
        }
        assert!(Schedule::new("0 0 29 2 *", "UTC").is_ok(), "a leap year comes");
    }
}
