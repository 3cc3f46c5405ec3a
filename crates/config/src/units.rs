//! Sizes and durations as people write them. What is written reads back as exactly the same number.

use weal_model::Bytes;

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
const SPAN_UNITS: [(&str, f64, f64); 6] =
    [("us", 1.0, 1e6), ("ms", 1.0, 1e3), ("s", 1.0, 1.0), ("m", 60.0, 1.0), ("min", 60.0, 1.0), ("h", 3600.0, 1.0)];

/// A wrong size or duration, and what would be right.
pub(crate) struct UnitError {
    pub(crate) message: String,
    pub(crate) help: String,
    /// The part that is wrong.
    pub(crate) part: String,
}

/// `300MiB`, `1.5GiB`, `512kB`.
pub(crate) fn parse_size(text: &str) -> Result<Bytes, UnitError> {
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
pub(crate) fn parse_span(text: &str) -> Result<f64, UnitError> {
    let (number, unit) = split(text);
    let value = amount(number, text, "a duration", "10s")?;
    match SPAN_UNITS.iter().find(|(name, ..)| *name == unit) {
        Some(&(_, times, divided_by)) => Ok(value * times / divided_by),
        None => {
            let right = span_unit_meant(unit).unwrap_or("s");
            Err(unknown_unit(text, unit, number, right, "ms, s, min and h"))
        }
    }
}

/// The size in the largest unit that shows it exactly.
pub(crate) fn show_size(size: Bytes) -> String {
    let (name, factor) =
        SIZE_UNITS[..5].iter().rev().find(|(_, factor)| size.0 > 0 && size.0.is_multiple_of(*factor)).unwrap_or(&("B", 1));
    format!("{}{name}", size.0 / factor)
}

/// The duration in seconds, or in milliseconds when it is shorter than one and those show it exactly.
pub(crate) fn show_span(seconds: f64) -> String {
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
    fn a_wrong_unit_says_which_one_was_meant() {
        for (text, right) in [("300mb", "300MiB"), ("2G", "2GiB"), ("64k", "64KiB"), ("300", "300MiB"), ("5 parsecs", "5MiB")] {
            let error = parse_size(text).expect_err(text);
            assert!(error.help.contains(&format!("did you mean `{right}`?")), "{text}: {}", error.help);
        }
        for (text, right) in [("10sec", "10s"), ("5 minutes", "5min"), ("3", "3s"), ("7milliseconds", "7ms")] {
            let error = parse_span(text).expect_err(text);
            assert!(error.help.contains(&format!("did you mean `{right}`?")), "{text}: {}", error.help);
        }
    }
}
