//! `schedule = "0 3 * * *"` and `time-zone = "Europe/Berlin"`.

use weal_model::{Schedule, ScheduleError};

use crate::defaults;
use crate::section::{Reading, Section};

/// The dates that a table has in its keys `schedule` and `time-zone`.
pub(super) fn read(reading: &mut Reading, section: &Section) -> Option<Schedule> {
    if section.item("schedule").is_none() {
        let help = "add `schedule = \"0 3 * * *\"`, which is 3:00 each day";
        reading.findings.error(reading.places.key(&section.path), format!("`{}` has no `schedule`", section.path), help);
        return None;
    }
    let zone = section.text(reading, "time-zone").unwrap_or_else(|| defaults::TIME_ZONE.to_owned());
    let expression = section.text(reading, "schedule")?;
    let error = Schedule::new(&expression, &zone).map_err(|error| (key_of(&error), help(&error), error));
    match error {
        Ok(schedule) => Some(schedule),
        Err((key, help, error)) => {
            reading.findings.error(reading.places.value(&section.at(key)), error.to_string(), help);
            None
        }
    }
}

fn key_of(error: &ScheduleError) -> &'static str {
    if matches!(error, ScheduleError::TimeZone { .. }) { "time-zone" } else { "schedule" }
}

fn help(error: &ScheduleError) -> &'static str {
    match error {
        ScheduleError::TimeZone { .. } => "write a name such as `Europe/Berlin` or `UTC`",
        ScheduleError::NoDate => "a month has no such day, so its date would never come",
        ScheduleError::Parts { .. } | ScheduleError::Part { .. } | ScheduleError::Long => {
            "`0 3 * * *` is 3:00 each day, `*/15 9-17 * * mon-fri` each quarter of an hour at work"
        }
    }
}
