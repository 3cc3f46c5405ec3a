//! Values of options that are more than a word, a name or a number.

use std::time::Duration;

use clap::ValueEnum;
use weal_model::written::{UnitError, parse_span};
use weal_model::{Algorithm, Time};

/// A value that cannot be used, and what would be right.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ValueError {
    /// No placement has this name.
    #[error("there are {}", Algorithm::WORDS.map(|(word, _)| word).join(", "))]
    Placement,
    /// It does not name another way of running a scenario.
    #[error("write `control=off`, `control=on` or `placement=NAME`")]
    Variation,
    /// It is no size, duration or rate.
    #[error(transparent)]
    Unit(#[from] UnitError),
    /// It is a duration that no clock can count.
    #[error("`{0}` is too long: write a duration such as `10s`")]
    Long(String),
    /// It is no time of day.
    #[error("`{0}` is not a time of day such as `17:30`, nor a duration such as `30m`")]
    TimeOfDay(String),
    /// There is no `=` in it.
    #[error("`{0}` has no `=`: write NAME=VALUE")]
    Half(String),
    /// It is no factor.
    #[error("`{0}` is not a factor, as in 1.5")]
    Factor(String),
    /// It is not the sizes of a node.
    #[error("`{0}` is not `CORES, MEMORY`, as in `2.0, 4GiB`")]
    Node(String),
    /// It is no header.
    #[error("`{0}` is not a header: write `name: value`")]
    Header(String),
}

/// On or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// On.
    On,
    /// Off.
    Off,
}

/// Another way of running a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variation {
    /// Control on or off.
    Control(Switch),
    /// Another placement.
    Placement(Algorithm),
}

/// `control=off`, `placement=NAME`.
pub fn variation(text: &str) -> Result<Variation, ValueError> {
    match text.split_once('=') {
        Some(("control", "on")) => Ok(Variation::Control(Switch::On)),
        Some(("control", "off")) => Ok(Variation::Control(Switch::Off)),
        Some(("placement", word)) => placement(word).map(Variation::Placement),
        _ => Err(ValueError::Variation),
    }
}

/// The name of a placement.
pub fn placement(word: &str) -> Result<Algorithm, ValueError> {
    Algorithm::from_word(word).ok_or(ValueError::Placement)
}

/// A duration, read as the config's are.
pub fn span(text: &str) -> Result<Duration, ValueError> {
    Duration::try_from_secs_f64(parse_span(text)?).map_err(|_| ValueError::Long(text.to_owned()))
}

/// A duration in seconds, with `m` and `d` beside the config's units: nobody writes a goal in milliseconds.
pub fn long_span(text: &str) -> Result<f64, ValueError> {
    let number = |suffix: &str| text.trim().strip_suffix(suffix).filter(|number| number.ends_with(|c: char| c.is_ascii_digit()));
    let in_config_units = match (number("m"), number("d")) {
        (Some(minutes), _) => format!("{minutes}min"),
        (_, Some(days)) => return Ok(24.0 * parse_span(&format!("{days}h"))?),
        _ => text.to_owned(),
    };
    Ok(parse_span(&in_config_units)?)
}

/// A goal for completion: seconds from now, or the next moment at which it is this time of day, UTC.
pub fn goal(text: &str, now: Time) -> Result<(Option<f64>, Option<Time>), ValueError> {
    let Some((hours, minutes)) = text.split_once(':') else { return Ok((Some(long_span(text)?), None)) };
    let part = |text: &str, most: u64| text.parse::<u64>().ok().filter(|value| *value < most);
    let (Some(hours), Some(minutes)) = (part(hours, 24), part(minutes, 60)) else {
        return Err(ValueError::TimeOfDay(text.to_owned()));
    };
    const DAY_S: u64 = 86_400;
    let now_s = now.since(Time::ZERO).as_secs();
    let today_s = now_s - now_s % DAY_S + hours * 3600 + minutes * 60;
    let at_s = if today_s > now_s { today_s } else { today_s + DAY_S };
    Ok((None, Some(Time::ZERO + Duration::from_secs(at_s))))
}

/// `NAME=VALUE`.
pub fn halves(text: &str) -> Result<(&str, &str), ValueError> {
    text.split_once('=').ok_or_else(|| ValueError::Half(text.to_owned()))
}

/// How many times as much: 0 or more.
pub fn factor(text: &str) -> Result<f64, ValueError> {
    let factor = text.trim().parse::<f64>().ok().filter(|factor| factor.is_finite() && *factor >= 0.0);
    factor.ok_or_else(|| ValueError::Factor(text.to_owned()))
}

/// `name: value`.
pub fn header(line: &str) -> Result<(String, String), ValueError> {
    let (name, value) = line.split_once(':').ok_or_else(|| ValueError::Header(line.to_owned()))?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_read_as_in_the_config_and_says_what_was_meant() {
        assert_eq!(span("1.5min"), Ok(Duration::from_secs(90)));
        for (text, part) in [
            ("10", "`10` has no unit: did you mean `10s`?"),
            ("5 parsecs", "unknown unit `parsecs`: did you mean `5s`?"),
            ("-1s", "`-1s` is negative"),
            ("99999999999999999999h", "is too long"),
        ] {
            let error = span(text).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
