//! Everything that the controller measures, as data: what `/metrics` says as text.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weal_model::Time;

/// All metrics at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Metrics {
    /// When they were read.
    pub time: Time,
    /// One for each name.
    pub families: Vec<MetricFamily>,
}

/// A metric, with a point for each set of labels.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MetricFamily {
    /// Its name, without what text appends for its unit and its kind: `weal_requests` is `weal_requests_total` there.
    pub name: String,
    /// What it says.
    pub help: String,
    /// Of its values.
    pub unit: MetricUnit,
    /// How its values change.
    pub kind: MetricKind,
    /// Since when it counts; `None` for what is not counted, or when that is not known.
    #[serde(default)]
    pub since: Option<Time>,
    /// Its values.
    pub points: Vec<MetricPoint>,
}

/// A unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MetricUnit {
    /// It has none, or its name says it.
    None,
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
}

/// How values change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MetricKind {
    /// Up and down.
    Gauge,
    /// Up, until it begins anew.
    Counter,
    /// As a counter, by size.
    Histogram,
}

/// The value for one set of labels.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MetricPoint {
    /// Names and values, in the order in which text has them.
    pub labels: Vec<(String, String)>,
    /// The value.
    pub value: MetricValue,
}

/// A value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MetricValue {
    /// How many.
    Count(u64),
    /// How much.
    Number(f64),
    /// How many of each size.
    Histogram(HistogramPoint),
}

impl MetricValue {
    /// False for what JSON has no number for.
    pub fn is_finite(&self) -> bool {
        match self {
            Self::Count(_) => true,
            Self::Number(number) => number.is_finite(),
            Self::Histogram(histogram) => histogram.sum.is_finite(),
        }
    }
}

/// What was counted of each size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HistogramPoint {
    /// All together. Invariant: the sum of the buckets.
    pub count: u64,
    /// Of all values.
    pub sum: f64,
    /// The upper ends of all buckets but the last, each part of its bucket, growing.
    pub bounds: Vec<f64>,
    /// What fell into each bucket. Invariant: one more than there are bounds.
    pub buckets: Vec<u64>,
}
