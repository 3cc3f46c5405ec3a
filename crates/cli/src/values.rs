//! Values of options that are more than a word, a name or a number.

use std::time::Duration;

use clap::ValueEnum;
use jiff::tz::TimeZone;
use jiff::{Timestamp, civil};
use weal_model::written::{UnitError, parse_span};
use weal_model::{Algorithm, Time};
use weal_protocol::controller::ArrayRange;

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
    /// It is no moment in the past.
    #[error("`{0}` is neither a duration (`30m`, `2d`) nor a time (`18:00`, `2026-11-26`, `2026-11-26 18:00`)")]
    Since(String),
    /// It is a duration that no clock can count.
    #[error("`{0}` is too long: write a duration such as `10s`")]
    Long(String),
    /// It is neither a duration nor a time.
    #[error(
        "`{0}` is neither a duration (`30m`, `5h`, `2d`) nor a time (`18:00`, `tomorrow 06:00`, `2026-11-27T06:00:00+01:00`)"
    )]
    DoneBy(String),
    /// It is no range of numbers.
    #[error("`{0}` is not a range of numbers such as `1-20` or `0-100:10`")]
    Array(String),
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

/// A goal for completion.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum DoneBy {
    /// So many seconds from now.
    Within(f64),
    /// At this moment.
    At(Time),
}

/// A duration, a time of day in `zone` (`18:00`, the next one; `today 18:00`; `tomorrow 06:00`), or a date with a time of day.
pub fn done_by(text: &str, now: Time, zone: &TimeZone) -> Result<DoneBy, ValueError> {
    let text = text.trim();
    if let Ok(seconds) = long_span(text) {
        return Ok(DoneBy::Within(seconds));
    }
    let at = moment(text, now, zone).ok_or_else(|| ValueError::DoneBy(text.to_owned()))?;
    Ok(DoneBy::At(Time(u64::try_from(at.as_nanosecond()).unwrap_or(0))))
}

fn moment(text: &str, now: Time, zone: &TimeZone) -> Option<Timestamp> {
    if let Ok(moment) = text.parse::<Timestamp>() {
        return Some(moment);
    }
    let now = Timestamp::from_nanosecond(i128::from(now.0)).ok()?.to_zoned(zone.clone());
    let on = |date: civil::Date, time: &str| {
        let time: civil::Time = time.trim().parse().ok()?;
        date.to_datetime(time).to_zoned(zone.clone()).ok().map(|moment| moment.timestamp())
    };
    let tomorrow = || now.date().tomorrow().ok();
    match text.split_once([' ', 'T']) {
        Some(("today", time)) => on(now.date(), time),
        Some(("tomorrow", time)) => on(tomorrow()?, time),
        Some((date, time)) => on(date.parse().ok()?, time),
        // Without a colon it may be a number that lacks its unit.
        None if text.contains(':') => {
            on(now.date(), text).filter(|moment| *moment > now.timestamp()).or_else(|| on(tomorrow()?, text))
        }
        None => None,
    }
}

/// `1-20`, `0-100:10`, or one number.
pub fn array(text: &str) -> Result<ArrayRange, ValueError> {
    let wrong = || ValueError::Array(text.to_owned());
    let number = |text: &str| text.trim().parse::<u32>().map_err(|_| wrong());
    let (range, step) = text.split_once(':').unwrap_or((text, "1"));
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    Ok(ArrayRange { first: number(first)?, last: number(last)?, step: number(step)? })
}

/// `NAME=VALUE`.
pub fn halves(text: &str) -> Result<(&str, &str), ValueError> {
    text.split_once('=').ok_or_else(|| ValueError::Half(text.to_owned()))
}

/// The moment that something is shown from: a duration back from `now`, a time of day in `zone` (the last one), or a date, with a time of day or not.
pub fn since(text: &str, now: Time, zone: &TimeZone) -> Result<Time, ValueError> {
    let text = text.trim();
    if let Ok(seconds) = long_span(text) {
        let back = Duration::try_from_secs_f64(seconds).map_err(|_| ValueError::Long(text.to_owned()))?;
        return Ok(Time(now.0.saturating_sub(u64::try_from(back.as_nanos()).unwrap_or(u64::MAX))));
    }
    let at = past_moment(text, now, zone).ok_or_else(|| ValueError::Since(text.to_owned()))?;
    Ok(Time(u64::try_from(at.as_nanosecond()).unwrap_or(0)))
}

fn past_moment(text: &str, now: Time, zone: &TimeZone) -> Option<Timestamp> {
    let now = Timestamp::from_nanosecond(i128::from(now.0)).ok()?.to_zoned(zone.clone());
    let at = |moment: civil::DateTime| moment.to_zoned(zone.clone()).ok().map(|moment| moment.timestamp());
    if let Ok(moment) = text.parse::<Timestamp>() {
        return Some(moment);
    }
    // First: a time of day is also read from a text that has a date before it.
    if let Ok(moment) = text.parse::<civil::DateTime>().or_else(|_| text.parse::<civil::Date>().map(civil::DateTime::from)) {
        return at(moment);
    }
    let time = text.parse::<civil::Time>().ok()?;
    let today = at(now.date().to_datetime(time))?;
    if today <= now.timestamp() { Some(today) } else { at(now.date().yesterday().ok()?.to_datetime(time)) }
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
    fn an_array_is_a_range_of_numbers() {
        assert_eq!(array("1-20"), Ok(ArrayRange { first: 1, last: 20, step: 1 }));
        assert_eq!(array("0-100:10").map(|range| range.indices().count()), Ok(11));
        assert_eq!(array("7").map(|range| range.indices().collect()), Ok(vec![7]));
        for text in ["", "a-b", "1-", "1,2", "1-5:x", "-3"] {
            assert!(array(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_goal_is_a_duration_or_a_time_in_the_zone_of_the_terminal() {
        let time = |text: &str| Time(u64::try_from(text.parse::<Timestamp>().unwrap().as_nanosecond()).unwrap());
        let (zone, now) = (TimeZone::get("Europe/Berlin").unwrap(), time("2026-11-26T16:30:00Z"));
        for (text, at) in [
            ("18:00", "2026-11-26T17:00:00Z"),
            ("17:30", "2026-11-27T16:30:00Z"),
            ("today 17:00", "2026-11-26T16:00:00Z"),
            ("tomorrow 06:00", "2026-11-27T05:00:00Z"),
            ("2026-11-28T06:00:00+02:00", "2026-11-28T04:00:00Z"),
            ("2026-11-28 06:00", "2026-11-28T05:00:00Z"),
        ] {
            assert_eq!(done_by(text, now, &zone), Ok(DoneBy::At(time(at))), "{text}");
        }
        assert_eq!(done_by("30m", now, &zone), Ok(DoneBy::Within(1800.0)));
        for text in ["yesterday", "tomorrow", "10", "25:00", "18:00 tomorrow", "", "T"] {
            let error = done_by(text, now, &zone).unwrap_err().to_string();
            assert!(error.contains("a duration (`30m`") && error.contains("a time (`18:00`"), "{error}");
        }
    }

    #[test]
    fn what_is_shown_since_when_is_a_span_a_time_of_day_or_a_date() {
        let zone = TimeZone::get("Europe/Berlin").unwrap();
        let time = |text: &str| Time(u64::try_from(text.parse::<Timestamp>().unwrap().as_nanosecond()).unwrap());
        let now = time("2026-11-26T12:00:00+01:00");
        for (text, at) in [
            ("30m", "2026-11-26T11:30:00+01:00"),
            ("2d", "2026-11-24T12:00:00+01:00"),
            ("11:30", "2026-11-26T11:30:00+01:00"),
            ("18:00", "2026-11-25T18:00:00+01:00"),
            ("2026-11-20", "2026-11-20T00:00:00+01:00"),
            ("2026-11-20 08:15", "2026-11-20T08:15:00+01:00"),
            ("2026-11-20T08:15:00Z", "2026-11-20T09:15:00+01:00"),
        ] {
            assert_eq!(since(text, now, &zone), Ok(time(at)), "{text}");
        }
        assert!(since("yesterday", now, &zone).unwrap_err().to_string().contains("neither a duration"));
    }

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
