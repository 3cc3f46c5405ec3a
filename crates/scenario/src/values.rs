//! Values as people write them: `90s`, `20/s`, `300MiB`.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use weal_model::{Bytes, Goal};

/// A span of time in seconds, written `250ms`, `1.5s`, `2min` or `1h`.
#[derive(Debug, Default, Clone, Copy, PartialEq, PartialOrd)]
pub struct Span(pub f64);

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let units = [("ms", 1e-3), ("us", 1e-6), ("min", 60.0), ("s", 1.0), ("h", 3600.0)];
        let seconds = scaled(&text, &units).filter(|&seconds| seconds >= 0.0);
        seconds
            .map(Self)
            .ok_or_else(|| D::Error::custom(format!("`{text}` is not a time: write `250ms`, `1.5s`, `2min` or `1h`")))
    }
}

/// Requests per second, written `20/s`, `1200/min`.
#[derive(Debug, Default, Clone, Copy, PartialEq, PartialOrd)]
pub struct Rate(pub f64);

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let units = [("/s", 1.0), ("/min", 1.0 / 60.0), ("/h", 1.0 / 3600.0)];
        let rate = scaled(&text, &units).filter(|&rate| rate >= 0.0);
        rate.map(Self).ok_or_else(|| D::Error::custom(format!("`{text}` is not a rate: write `20/s` or `1200/min`")))
    }
}

/// An amount of memory, written `300MiB` or `2GiB`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Size(pub Bytes);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let units = [("KiB", 1024.0), ("MiB", Bytes::MIB as f64), ("GiB", Bytes::GIB as f64)];
        let bytes = scaled(&text, &units).filter(|&bytes| bytes >= 0.0);
        bytes
            .map(|bytes| Self(Bytes(bytes as u64)))
            .ok_or_else(|| D::Error::custom(format!("`{text}` is not a size: write `300MiB` or `2GiB`")))
    }
}

/// Bytes per second of a link, written `1Gbit/s`, `100Mbit/s` or `12.5MB/s`.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Bandwidth(pub f64);

impl<'de> Deserialize<'de> for Bandwidth {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let units = [("Gbit/s", 1e9 / 8.0), ("Mbit/s", 1e6 / 8.0), ("MB/s", 1e6)];
        let bandwidth = scaled(&text, &units).filter(|&bandwidth| bandwidth > 0.0);
        bandwidth
            .map(Self)
            .ok_or_else(|| D::Error::custom(format!("`{text}` is not a bandwidth: write `1Gbit/s`, `100Mbit/s` or `12.5MB/s`")))
    }
}

/// A goal, written as in `weal.toml`: `p95 < 250ms`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GoalText(pub Goal);

impl<'de> Deserialize<'de> for GoalText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map(Self).map_err(D::Error::custom)
    }
}

fn scaled(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let at = text.find(|c: char| c.is_ascii_alphabetic() || c == '/')?;
    let (number, unit) = (text[..at].trim(), text[at..].trim());
    let scale = units.iter().find(|(name, _)| *name == unit)?.1;
    number.parse::<f64>().ok().filter(|number| number.is_finite()).map(|number| number * scale)
}
