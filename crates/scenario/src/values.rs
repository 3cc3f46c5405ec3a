//! Values as people write them: `90s`, `20/s`, `300MiB`. They are read as in `weal.toml`, with the same errors.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use weal_model::written::{parse_bandwidth, parse_rate, parse_size, parse_span};
use weal_model::{Bytes, Goal};

/// A span of time in seconds, written `250ms`, `1.5s`, `2min` or `1h`.
#[derive(Debug, Default, Clone, Copy, PartialEq, PartialOrd)]
pub struct Span(pub f64);

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_span(&text).map(Self).map_err(D::Error::custom)
    }
}

/// Requests per second, written `20/s`, `1200/min`.
#[derive(Debug, Default, Clone, Copy, PartialEq, PartialOrd)]
pub struct Rate(pub f64);

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_rate(&text).map(Self).map_err(D::Error::custom)
    }
}

/// An amount of memory, written `300MiB` or `750MB`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Size(pub Bytes);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_size(&text).map(Self).map_err(D::Error::custom)
    }
}

/// Bytes per second of a link, written `1Gbit/s`, `100Mbit/s` or `12.5MB/s`; not nothing.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Bandwidth(pub f64);

impl<'de> Deserialize<'de> for Bandwidth {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bandwidth = parse_bandwidth(&text).map_err(D::Error::custom)?;
        if bandwidth > 0.0 { Ok(Self(bandwidth)) } else { Err(D::Error::custom(format!("`{text}` lets nothing through"))) }
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
