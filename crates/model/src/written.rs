//! Sizes, durations, rates and bandwidths as people write them, in configs, goals, scenarios and on the command line: one parser for all.
//!
//! A number and a unit, with or without a space between: `300MiB`, `1.5 GiB`, `250ms`, `20/s`, `1Gbit/s`. What is shown reads back as exactly
//! the same number.

use crate::Bytes;

const SIZE_UNITS: [(&str, u64); 10] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];
/// A unit by name, and what a number of it is multiplied and then divided by: dividing by 1000 is exact where multiplying by 0.001 is not.
type Unit = (&'static str, f64, f64);

const SPAN_UNITS: [Unit; 7] = [
    ("us", 1.0, 1e6),
    ("µs", 1.0, 1e6),
    ("ms", 1.0, 1e3),
    ("s", 1.0, 1.0),
    ("m", 60.0, 1.0),
    ("min", 60.0, 1.0),
    ("h", 3600.0, 1.0),
];
const RATE_UNITS: [Unit; 3] = [("/s", 1.0, 1.0), ("/min", 1.0, 60.0), ("/h", 1.0, 3600.0)];
const BANDWIDTH_UNITS: [Unit; 4] = [("Gbit/s", 1e9, 8.0), ("Mbit/s", 1e6, 8.0), ("GB/s", 1e9, 1.0), ("MB/s", 1e6, 1.0)];

/// Something written that cannot be read, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}: {help}")]
pub struct UnitError {
    /// What is wrong.
    pub message: String,
    /// What would be right.
    pub help: String,
    /// The part of the text that is wrong.
    pub part: String,
}

/// `300MiB`, `1.5GiB`, `512kB`.
///
/// # Errors
/// There is no number or no unit, the unit is unknown, or no machine can have so much.
pub fn parse_size(text: &str) -> Result<Bytes, UnitError> {
    let (number, unit) = split(text);
    let value = amount(number, text, "a size", "300MiB")?;
    let Some(&(_, factor)) = SIZE_UNITS.iter().find(|(name, _)| *name == unit) else {
        let right = size_unit_meant(unit).unwrap_or("MiB");
        return Err(unknown_unit(text, unit, number, right, "B, KiB, MiB, GiB and TiB, or kB, MB, GB and TB"));
    };
    let bytes = value * factor as f64;
    if !(1.0..9.0e18).contains(&bytes) {
        return Err(UnitError {
            message: format!("`{text}` is not a size that a machine can have"),
            help: "write a size such as `300MiB` or `2GiB`".to_owned(),
            part: text.to_owned(),
        });
    }
    Ok(Bytes(bytes.round() as u64))
}

/// `10s`, `250ms`, `1.5min`; in seconds.
///
/// # Errors
/// There is no number or no unit, or the unit is unknown.
pub fn parse_span(text: &str) -> Result<f64, UnitError> {
    scaled(text, &SPAN_UNITS, "a duration", "10s")
        .map_err(|wrong| wrong.unit_meant(|unit| span_unit_meant(unit).unwrap_or("s"), "ms, s, min and h"))
}

/// `20/s`, `1200/min`; in times a second.
///
/// # Errors
/// There is no number or no unit, or the unit is unknown.
pub fn parse_rate(text: &str) -> Result<f64, UnitError> {
    scaled(text, &RATE_UNITS, "a rate", "20/s").map_err(|wrong| wrong.unit_meant(|_| "/s", "/s, /min and /h"))
}

/// `1Gbit/s`, `12.5MB/s`; in bytes a second.
///
/// # Errors
/// There is no number or no unit, or the unit is unknown.
pub fn parse_bandwidth(text: &str) -> Result<f64, UnitError> {
    let meant = |_: &str| "Mbit/s";
    scaled(text, &BANDWIDTH_UNITS, "a bandwidth", "1Gbit/s")
        .map_err(|wrong| wrong.unit_meant(meant, "Gbit/s, Mbit/s, GB/s and MB/s"))
}

/// Why a number with a unit could not be read.
enum Wrong<'a> {
    Number(UnitError),
    Unit { text: &'a str, number: &'a str, unit: &'a str },
}

impl Wrong<'_> {
    /// The error, which says which unit was probably meant and which ones there are.
    fn unit_meant(self, meant: impl Fn(&str) -> &'static str, all: &str) -> UnitError {
        match self {
            Self::Number(error) => error,
            Self::Unit { text, number, unit } => unknown_unit(text, unit, number, meant(unit), all),
        }
    }
}

fn scaled<'a>(text: &'a str, units: &[Unit], what: &str, example: &str) -> Result<f64, Wrong<'a>> {
    let (number, unit) = split(text);
    let value = amount(number, text, what, example).map_err(Wrong::Number)?;
    let found = units.iter().find(|(name, ..)| *name == unit);
    found.map(|&(_, times, divided_by)| value * times / divided_by).ok_or(Wrong::Unit { text, number, unit })
}

/// The size in the largest unit that shows it exactly.
pub fn show_size(size: Bytes) -> String {
    let (name, factor) =
        SIZE_UNITS[..5].iter().rev().find(|(_, factor)| size.0 > 0 && size.0.is_multiple_of(*factor)).unwrap_or(&("B", 1));
    format!("{}{name}", size.0 / factor)
}

/// The duration in seconds, or in milliseconds when it is shorter than one and those show it exactly.
pub fn show_span(seconds: f64) -> String {
    let ms = (seconds * 1e3).round();
    if seconds < 1.0 && ms > 0.0 && ms / 1e3 == seconds { format!("{ms}ms") } else { format!("{seconds}s") }
}

fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let at = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '-' | '+' | '_'))).unwrap_or(text.len());
    (text[..at].trim(), text[at..].trim())
}

fn amount(number: &str, text: &str, what: &str, example: &str) -> Result<f64, UnitError> {
    let wrong = |message: String| UnitError {
        message,
        help: format!("write a number and a unit, such as `{example}`"),
        part: if number.is_empty() { text.to_owned() } else { number.to_owned() },
    };
    let value: f64 = number.replace('_', "").parse().map_err(|_| wrong(format!("`{text}` is not {what}")))?;
    if value < 0.0 { Err(wrong(format!("`{text}` is negative"))) } else { Ok(value) }
}

fn unknown_unit(text: &str, unit: &str, number: &str, right: &str, all: &str) -> UnitError {
    if unit.is_empty() {
        return UnitError {
            message: format!("`{text}` has no unit"),
            help: format!("did you mean `{number}{right}`? Units are {all}"),
            part: text.to_owned(),
        };
    }
    UnitError {
        message: format!("unknown unit `{unit}`"),
        help: format!("did you mean `{number}{right}`? Units are {all}"),
        part: unit.to_owned(),
    }
}

fn size_unit_meant(unit: &str) -> Option<&'static str> {
    match unit.to_lowercase().chars().next()? {
        'b' => Some("B"),
        'k' => Some("KiB"),
        'm' => Some("MiB"),
        'g' => Some("GiB"),
        't' => Some("TiB"),
        _ => None,
    }
}

fn span_unit_meant(unit: &str) -> Option<&'static str> {
    let unit = unit.to_lowercase();
    if unit.starts_with("mil") || unit.starts_with("ms") {
        return Some("ms");
    }
    match unit.chars().next()? {
        's' => Some("s"),
        'm' => Some("min"),
        'h' => Some("h"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sizes_read_back_as_they_were_shown(bytes in 1_u64..1 << 53) {
            prop_assert_eq!(parse_size(&show_size(Bytes(bytes))).ok(), Some(Bytes(bytes)));
        }

        #[test]
        fn durations_read_back_as_they_were_shown(seconds in 1e-6_f64..1e6, ms in 1_u32..100_000) {
            prop_assert_eq!(parse_span(&show_span(seconds)).ok(), Some(seconds));
            let seconds = f64::from(ms) / 1e3;
            prop_assert_eq!(parse_span(&show_span(seconds)).ok(), Some(seconds));
        }
    }

    #[test]
    fn every_unit_is_read() {
        assert_eq!(parse_size("750MB"), Ok(Bytes(750_000_000)));
        assert_eq!(parse_size("1.5 GiB"), Ok(Bytes(3 << 29)));
        assert_eq!((parse_span("250ms"), parse_span("2m"), parse_span("3µs")), (Ok(0.25), Ok(120.0), Ok(3e-6)));
        assert_eq!((parse_rate("1200/min"), parse_rate("20 /s")), (Ok(20.0), Ok(20.0)));
        assert_eq!((parse_bandwidth("1Gbit/s"), parse_bandwidth("12.5MB/s")), (Ok(125e6), Ok(12.5e6)));
        assert_eq!(
            parse_rate("many").unwrap_err().to_string(),
            "`many` is not a rate: write a number and a unit, such as `20/s`"
        );
    }

    #[test]
    fn a_wrong_unit_says_which_one_was_meant() {
        for (text, right) in [("300mb", "300MiB"), ("2G", "2GiB"), ("64k", "64KiB"), ("300", "300MiB"), ("5 parsecs", "5MiB")] {
            let error = parse_size(text).expect_err(text);
            assert!(error.help.contains(&format!("did you mean `{right}`?")), "{text}: {}", error.help);
        }
        for (text, right) in [("20 per second", "20/s"), ("20", "20/s")] {
            let error = parse_rate(text).expect_err(text);
            assert!(error.help.contains(&format!("did you mean `{right}`?")), "{text}: {}", error.help);
        }
        for (text, right) in [("10sec", "10s"), ("5 minutes", "5min"), ("3", "3s"), ("7milliseconds", "7ms")] {
            let error = parse_span(text).expect_err(text);
            assert!(error.help.contains(&format!("did you mean `{right}`?")), "{text}: {}", error.help);
        }
    }
}
