//! `[class.NAME]`.

use std::collections::BTreeMap;

use weal_model::written::parse_rate;
use weal_model::{ClassName, Goal, LatePolicy, ServiceClass};

use super::{names, pool};
use crate::section::{Reading, Section};

/// Every key of `[class.NAME]`.
pub(crate) const KEYS: [&str; 5] = ["goal", "importance", "late", "rate-limit", "session-cookie"];

/// Requests per second beyond which a limit is a slip of the finger: no gateway passes on so many.
const HIGHEST_RATE: f64 = 1e6;

pub(super) fn read_all(reading: &mut Reading, root: &Section) -> BTreeMap<ClassName, ServiceClass> {
    let Some(classes) = root.table(reading, "class") else { return BTreeMap::new() };
    let mut read = BTreeMap::new();
    for (name, table) in names::named(reading, "class", classes) {
        let section = Section::open(reading, &format!("class.{name}"), table, &KEYS);
        let goal = pool::read_goal(reading, &section);
        let importance = pool::read_importance(reading, &section);
        let name = ClassName::from(name);
        let class = ServiceClass {
            late: read_late(reading, &section, goal),
            rate_limit_per_s: read_rate_limit(reading, &section),
            session_cookie: read_cookie(reading, &section, "session-cookie"),
            ..ServiceClass::new(name.clone(), goal, importance)
        };
        read.insert(name, class);
    }
    read
}

fn read_late(reading: &mut Reading, section: &Section, goal: Option<Goal>) -> LatePolicy {
    let policy = section.word(reading, "late", LatePolicy::ALL, LatePolicy::as_str, "words").unwrap_or_default();
    if policy == LatePolicy::Drop && goal.and_then(|goal| goal.target_s()).is_none() {
        let place = reading.places.value(&section.at("late"));
        let help = "give the class a goal for response time, such as `goal = \"p95 < 250ms\"`, or leave `late` out";
        reading.findings.error(place, "no request of this class can be late", help);
    }
    policy
}

fn read_rate_limit(reading: &mut Reading, section: &Section) -> Option<f64> {
    let rate = section.rate(reading, "rate-limit")?;
    if rate > 0.0 && rate <= HIGHEST_RATE {
        return Some(rate);
    }
    let place = reading.places.value(&section.at("rate-limit"));
    reading.findings.error(place, "`rate-limit` is out of range", format!("write a rate above 0 and up to `{HIGHEST_RATE}/s`"));
    None
}

/// The name of a cookie (RFC 6265 section 4.1.1).
pub(super) fn read_cookie(reading: &mut Reading, section: &Section, key: &str) -> Option<String> {
    let name = section.text(reading, key)?;
    let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    if name.is_empty() || name.len() > 128 || !name.chars().all(is_token) {
        let help = "cookies are named by letters, digits and `-`, `_` or `.`, such as `JSESSIONID`";
        reading.findings.error(reading.places.value(&section.at(key)), format!("`{name}` cannot be a cookie"), help);
        return None;
    }
    Some(name)
}

impl Section<'_> {
    /// A rate in events per second.
    fn rate(&self, reading: &mut Reading, key: &str) -> Option<f64> {
        self.item(key)?.with_unit(reading, "a rate", "20/s", parse_rate)
    }
}
