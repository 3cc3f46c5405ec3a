//! Values of options that are more than a word, a name or a number.

use std::time::Duration;

use clap::ValueEnum;
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error as Unreadable, StrDeserializer};
use weal_model::{Algorithm, Bytes};
use weal_scenario::{Rate, Size, Span};

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
    Unit(#[from] Unreadable),
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

/// A duration, as the config writes it.
pub fn span(text: &str) -> Result<Duration, ValueError> {
    parse::<Span>(text).map(|span| Duration::from_secs_f64(span.0))
}

/// A size, as the config writes it.
pub fn size(text: &str) -> Result<Bytes, ValueError> {
    parse::<Size>(text).map(|size| size.0)
}

/// Requests per second, as scenarios write them: `50/s`, `1200/min`.
pub fn rate(text: &str) -> Result<f64, ValueError> {
    parse::<Rate>(text).map(|rate| rate.0)
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

fn parse<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, ValueError> {
    let deserializer: StrDeserializer<'a, Unreadable> = text.into_deserializer();
    Ok(T::deserialize(deserializer)?)
}
