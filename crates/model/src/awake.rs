//! Applications that are kept awake for a while, whether or not requests come.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Schedule, Time};

/// The longest that an application is kept awake at a time, in seconds: who wants more writes `sleep = false`.
pub const LONGEST_AWAKE_S: u64 = 7 * 86_400;

/// What a config says: awake from each date of a schedule on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AwakeSchedule {
    /// Its dates.
    pub schedule: Schedule,
    /// Seconds from each date on.
    pub for_s: f64,
}

impl AwakeSchedule {
    /// Until when it keeps its application awake, looked at at `time`; `None` when it does not.
    pub fn until(&self, time: Time) -> Option<Time> {
        let span = Duration::from_secs_f64(self.for_s.max(0.0));
        let date = self.schedule.last_until(time - span, time)?;
        Some(date + span).filter(|until| *until > time)
    }
}

/// An application is kept awake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeptAwake {
    /// Until when.
    pub until: Time,
    /// By what.
    pub by: AwakeBy,
}

/// What keeps an application awake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AwakeBy {
    /// Somebody's order.
    Order,
    /// The schedule in its config.
    Schedule,
}

impl KeptAwake {
    /// By what and for how long: `kept awake by an order for another 9 min`.
    pub fn phrase(&self, now: Time) -> String {
        let by = match self.by {
            AwakeBy::Order => "by an order",
            AwakeBy::Schedule => "by its schedule",
        };
        let left_s = self.until.since(now).as_secs_f64();
        let left = match left_s {
            s if s < 90.0 => format!("{:.0} s", s.ceil()),
            s if s < 5400.0 => format!("{:.0} min", (s / 60.0).ceil()),
            s => format!("{:.0} h", (s / 3600.0).ceil()),
        };
        format!("kept awake {by} for another {left}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn at(hours: u32) -> Time {
        Time::ZERO + HOUR * hours
    }

    #[test]
    fn a_schedule_keeps_awake_from_its_date_to_the_end_of_its_span() {
        let awake = AwakeSchedule { schedule: Schedule::new("0 8 * * *", "UTC").unwrap(), for_s: 10.0 * 3600.0 };
        let second = Duration::from_secs(1);
        assert_eq!(awake.until(at(32) - second), None);
        assert_eq!(awake.until(at(32)), Some(at(42)), "8:00 of the second day");
        assert_eq!(awake.until(at(42) - second), Some(at(42)));
        assert_eq!(awake.until(at(42)), None);
    }

    #[test]
    fn spans_that_meet_keep_awake_without_a_gap() {
        let awake = AwakeSchedule { schedule: Schedule::new("0 * * * *", "UTC").unwrap(), for_s: 3600.0 };
        for minutes in 0..600 {
            let time = at(30) + Duration::from_secs(60) * minutes;
            assert_eq!(awake.until(time), Some(at(31 + minutes / 60)), "minute {minutes}");
        }
    }

    #[test]
    fn what_is_left_is_said_in_a_unit_that_people_use() {
        let kept = |until: Time, by| KeptAwake { until, by }.phrase(Time::ZERO);
        assert_eq!(kept(Time::from_secs_f64(61.2), AwakeBy::Order), "kept awake by an order for another 62 s");
        assert_eq!(kept(Time::from_secs_f64(540.0), AwakeBy::Order), "kept awake by an order for another 9 min");
        assert_eq!(kept(at(10), AwakeBy::Schedule), "kept awake by its schedule for another 10 h");
    }
}
