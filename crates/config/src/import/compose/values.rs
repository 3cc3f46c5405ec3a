//! Values as compose files write them.

use serde_json::Value;
use weal_model::Bytes;

/// A text, a number or a flag, as text.
pub(super) fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        _ => None,
    }
}

/// A number of cores.
pub(super) fn cores(value: &Value) -> Option<f64> {
    scalar(value)?.parse().ok().filter(|cores: &f64| (0.01..=4096.0).contains(cores))
}

/// A size. Compose counts in powers of 1024, whatever the unit is called.
pub(super) fn size(text: &str) -> Option<Bytes> {
    let text = text.to_lowercase();
    let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let factor = match text[split..].trim_end_matches('b') {
        "" => Some(1_u64),
        "k" | "ki" => Some(1 << 10),
        "m" | "mi" => Some(1 << 20),
        "g" | "gi" => Some(1 << 30),
        _ => None,
    };
    let size = text[..split].parse::<f64>().ok().zip(factor);
    size.map(|(value, factor)| Bytes((value * factor as f64) as u64)).filter(|size| size.0 > 0)
}

/// `1m30s`, `500ms`, `90s`; in seconds.
pub(super) fn duration(text: &str) -> Option<f64> {
    let mut seconds = 0.0;
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
        let value: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        seconds += match &rest[..unit] {
            "us" => value / 1e6,
            "ms" => value / 1e3,
            "s" => value,
            "m" => value * 60.0,
            "h" => value * 3600.0,
            _ => return None,
        };
        rest = &rest[unit..];
    }
    Some(seconds)
}

/// `NAME=value` or `NAME`.
pub(super) fn pair(entry: &str) -> (String, Option<String>) {
    match entry.split_once('=') {
        Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
        None => (entry.to_owned(), None),
    }
}
