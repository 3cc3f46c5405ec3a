//! Metrics as text, in the OpenMetrics format. Exemplars have their place in it; there are none.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use weal_model::Time;
use weal_protocol::metrics::{HistogramPoint, MetricFamily, MetricKind, MetricUnit, MetricValue};

use crate::board::View;

/// The metrics of `view` as text.
pub(crate) fn text(view: &View) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    // Text does not say since when is counted.
    registry.register_collector(Box::new(Scrape(super::families(view, Time::ZERO))));
    let mut out = String::new();
    prometheus_client::encoding::text::encode(&mut out, &registry)?;
    Ok(out)
}

#[derive(Debug)]
struct Scrape(Vec<MetricFamily>);

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|family| encode(&mut encoder, family))
    }
}

fn encode(encoder: &mut DescriptorEncoder<'_>, family: &MetricFamily) -> fmt::Result {
    let unit = match family.unit {
        MetricUnit::None => None,
        MetricUnit::Seconds => Some(Unit::Seconds),
        MetricUnit::Bytes => Some(Unit::Bytes),
    };
    let kind = match family.kind {
        MetricKind::Gauge => MetricType::Gauge,
        MetricKind::Counter => MetricType::Counter,
        MetricKind::Histogram => MetricType::Histogram,
    };
    let mut values = encoder.encode_descriptor(&family.name, &family.help, unit.as_ref(), kind)?;
    for point in &family.points {
        let labels: Vec<(&str, &str)> = point.labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let value = values.encode_family(&labels)?;
        match (&point.value, family.kind) {
            (MetricValue::Histogram(point), _) => histogram(value, point)?,
            (MetricValue::Count(count), MetricKind::Counter) => ConstCounter::new(*count).encode(value)?,
            (MetricValue::Number(number), MetricKind::Counter) => ConstCounter::new(*number).encode(value)?,
            (MetricValue::Count(count), _) => ConstGauge::new(*count as f64).encode(value)?,
            (MetricValue::Number(number), _) => ConstGauge::new(*number).encode(value)?,
        }
    }
    Ok(())
}

fn histogram(mut encoder: MetricEncoder<'_>, point: &HistogramPoint) -> fmt::Result {
    let bounds = point.bounds.iter().copied().chain([f64::INFINITY]);
    let buckets: Vec<(f64, u64)> = bounds.zip(point.buckets.iter().copied()).collect();
    encoder.encode_histogram::<NoLabelSet>(point.sum, point.count, &buckets, None)
}
