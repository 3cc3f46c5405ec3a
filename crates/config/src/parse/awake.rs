//! `keep-awake = { schedule = "0 8 * * mon-fri", for = "10h" }`.

use toml::de::DeValue;
use weal_model::{AwakeSchedule, LONGEST_AWAKE_S};

use super::schedule;
use crate::section::{Reading, Section};

/// Every key of it.
const KEYS: [&str; 3] = ["schedule", "time-zone", "for"];
/// Shorter is over before the application is up.
const SHORTEST_S: f64 = 60.0;
const EXAMPLE: &str = "write `{ schedule = \"0 8 * * mon-fri\", for = \"10h\" }`";

pub(super) fn read(reading: &mut Reading, section: &Section) -> Option<AwakeSchedule> {
    let item = section.item("keep-awake")?;
    let DeValue::Table(table) = item.value else { return item.wrong_type(reading, "a table", EXAMPLE) };
    let awake = Section::open(reading, &item.path, table, &KEYS);
    let schedule = schedule::read(reading, &awake);
    let for_s = awake.span(reading, "for", (SHORTEST_S, LONGEST_AWAKE_S as f64));
    if awake.item("for").is_none() {
        reading.findings.error(reading.places.key(&awake.path), format!("`{}` has no `for`", awake.path), EXAMPLE);
    }
    if section.item("sleep").is_some_and(|sleep| matches!(sleep.value, DeValue::Boolean(false))) {
        let help = "leave one of them out: with `sleep = false` it never sleeps";
        reading.findings.error(reading.places.key(&awake.path), "`keep-awake` does not go with `sleep = false`", help);
    }
    Some(AwakeSchedule { schedule: schedule?, for_s: for_s? })
}
