//! Latency histograms that can be added, subtracted and sent.

use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Highest value kept, in microseconds (one hour). Anything longer counts as this.
const HIGHEST_US: u64 = 3_600_000_000;

/// Counts of durations in microseconds, two significant digits: a percentile read from it is within 1% of the truth.
///
/// On the wire it is the list of its non-empty buckets, `[[value_us, count], ...]`.
#[derive(Clone, PartialEq)]
pub struct LatencyHistogram(Histogram<u64>);

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self(Histogram::new_with_bounds(1, HIGHEST_US, 2).expect("the bounds are constants that hdrhistogram accepts"))
    }
}

impl LatencyHistogram {
    /// Counts one duration.
    pub fn record(&mut self, span: Duration) {
        self.record_n(span, 1);
    }

    /// Counts the same duration `count` times.
    pub fn record_n(&mut self, span: Duration, count: u64) {
        let us = u64::try_from(span.as_micros()).unwrap_or(HIGHEST_US).min(HIGHEST_US);
        self.0.saturating_record_n(us, count);
    }

    /// Adds all of `other`'s counts.
    pub fn add(&mut self, other: &Self) {
        self.0.add(&other.0).expect("all of them have the same bounds");
    }

    /// What was counted since `earlier`, a former state of the same histogram. If it is not one (its owner started
    /// anew in between), everything counts as new.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut difference = self.clone();
        if difference.0.subtract(&earlier.0).is_err() {
            return self.clone();
        }
        difference
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The mean in seconds; `None` when empty.
    pub fn mean_s(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.0.mean() / 1e6)
    }

    /// The value in seconds that the share `quantile` (0..=1) stays at or below; `None` when empty.
    pub fn quantile_s(&self, quantile: f64) -> Option<f64> {
        (self.count() > 0).then(|| self.0.value_at_quantile(quantile.clamp(0.0, 1.0)) as f64 / 1e6)
    }

    /// [`Self::mean_s`] with `more` values of `value_s` seconds among them.
    pub fn mean_with_s(&self, more: u64, value_s: f64) -> Option<f64> {
        let (own, more) = (self.count() as f64, more as f64);
        (own + more > 0.0).then(|| (own * self.mean_s().unwrap_or(0.0) + more * value_s) / (own + more))
    }

    /// [`Self::quantile_s`] with `more` values of `value_s` seconds among them.
    pub fn quantile_with_s(&self, quantile: f64, more: u64, value_s: f64) -> Option<f64> {
        let (own, more) = (self.count() as f64, more as f64);
        if own == 0.0 {
            return (more > 0.0).then_some(value_s);
        }
        let rank = quantile.clamp(0.0, 1.0) * (own + more);
        let below = own * self.share_within(value_s)?;
        if rank <= below {
            self.quantile_s(rank / own)
        } else if rank <= below + more {
            Some(value_s)
        } else {
            self.quantile_s((rank - more) / own)
        }
    }

    /// The share (0..=1) of values at or below `seconds`; `None` when empty.
    pub fn share_within(&self, seconds: f64) -> Option<f64> {
        let us = (seconds * 1e6).clamp(0.0, HIGHEST_US as f64) as u64;
        (self.count() > 0).then(|| self.0.count_between(0, us) as f64 / self.count() as f64)
    }

    /// Its buckets that are not empty: the highest value in microseconds, and the count.
    fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter_recorded().map(|bucket| (bucket.value_iterated_to(), bucket.count_at_value()))
    }
}

/// As on the wire, so that a histogram reads the same before and after it was sent.
impl fmt::Debug for LatencyHistogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.buckets()).finish()
    }
}

impl Serialize for LatencyHistogram {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.buckets())
    }
}

impl<'de> Deserialize<'de> for LatencyHistogram {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let buckets = Vec::<(u64, u64)>::deserialize(deserializer)?;
        let mut histogram = Self::default();
        for (us, count) in buckets {
            histogram.0.saturating_record_n(us, count);
        }
        Ok(histogram)
    }
}

impl JsonSchema for LatencyHistogram {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "LatencyHistogram".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        Vec::<(u64, u64)>::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_survives_the_wire_and_gives_differences() {
        let mut first = LatencyHistogram::default();
        for ms in 1..=100 {
            first.record(Duration::from_millis(ms));
        }
        let mut second = first.clone();
        second.record_n(Duration::from_millis(500), 10);
        let sent: LatencyHistogram = serde_json::from_str(&serde_json::to_string(&second).unwrap()).unwrap();
        let new = sent.since(&first);
        assert_eq!(new.count(), 10);
        assert_eq!(format!("{sent:?}"), format!("{second:?}"), "what it says of itself survives, too");
        assert!((new.mean_s().unwrap() - 0.5).abs() < 0.01);
        assert!((first.quantile_s(0.95).unwrap() - 0.095).abs() < 0.002);
        assert!((first.share_within(0.05).unwrap() - 0.5).abs() < 0.02);
        assert_eq!(first.since(&second).count(), first.count(), "a restarted owner counts anew");
    }
}
