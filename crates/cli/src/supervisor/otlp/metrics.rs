//! Metrics, as a collector takes them.
//!
//! Text appends a metric's unit and kind to its name; here they have places of their own. A collector that hands metrics on to Prometheus
//! appends them again, so that they have the names of docs/metrics.md in both ways.

use serde_json::{Value, json};
use weal_model::Time;
use weal_protocol::metrics::{MetricFamily, MetricKind, MetricPoint, MetricUnit, MetricValue, Metrics};

use super::{resource, scope, text_attribute};

/// `AGGREGATION_TEMPORALITY_CUMULATIVE`: each value counts from the beginning, so that a push that is lost loses nothing.
const CUMULATIVE: u8 = 2;
/// What OpenTelemetry's conventions call what text calls otherwise.
const NAMES: [(&str, &str); 2] = [
    ("http_server_request_duration", "http.server.request.duration"),
    ("http_server_active_requests", "http.server.active_requests"),
];

/// What is posted: all metrics of a pool, which is the resource.
pub fn request(pool: &str, metrics: &Metrics) -> Value {
    let time = metrics.time;
    let families: Vec<Value> =
        metrics.families.iter().filter(|family| !family.points.is_empty()).map(|family| metric(family, time)).collect();
    json!({ "resourceMetrics": [{
        "resource": resource("weal", pool, None),
        "scopeMetrics": [{ "scope": scope(), "metrics": families }],
    }] })
}

fn metric(family: &MetricFamily, time: Time) -> Value {
    let name = NAMES.iter().find(|(text, _)| family.name == *text).map_or(family.name.as_str(), |(_, name)| *name);
    let unit = match family.unit {
        MetricUnit::None => "",
        MetricUnit::Seconds => "s",
        MetricUnit::Bytes => "By",
    };
    let points: Vec<Value> = family.points.iter().map(|one| point(one, family.since, time)).collect();
    let mut metric = json!({ "name": name, "description": family.help, "unit": unit });
    match family.kind {
        MetricKind::Gauge => metric["gauge"] = json!({ "dataPoints": points }),
        MetricKind::Counter => {
            metric["sum"] = json!({ "dataPoints": points, "aggregationTemporality": CUMULATIVE, "isMonotonic": true });
        }
        MetricKind::Histogram => metric["histogram"] = json!({ "dataPoints": points, "aggregationTemporality": CUMULATIVE }),
    }
    metric
}

fn point(point: &MetricPoint, since: Option<Time>, time: Time) -> Value {
    let attributes: Vec<Value> = point.labels.iter().map(|(name, value)| text_attribute(name, value)).collect();
    let mut value = json!({ "attributes": attributes, "timeUnixNano": time.0.to_string() });
    if let Some(since) = since {
        value["startTimeUnixNano"] = since.0.to_string().into();
    }
    match &point.value {
        // 64-bit numbers are texts in the protocol's JSON.
        MetricValue::Count(count) => value["asInt"] = count.to_string().into(),
        MetricValue::Number(number) => value["asDouble"] = (*number).into(),
        MetricValue::Histogram(histogram) => {
            value["count"] = histogram.count.to_string().into();
            value["sum"] = histogram.sum.into();
            value["explicitBounds"] = json!(histogram.bounds);
            value["bucketCounts"] = histogram.buckets.iter().map(ToString::to_string).collect::<Vec<_>>().into();
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use weal_protocol::metrics::HistogramPoint;

    use super::*;

    fn family(name: &str, unit: MetricUnit, kind: MetricKind, value: MetricValue) -> MetricFamily {
        let points = vec![MetricPoint { labels: vec![("weal_app".to_owned(), "shop".to_owned())], value }];
        let since = (kind != MetricKind::Gauge).then_some(Time(3));
        MetricFamily { name: name.to_owned(), help: "What it says.".to_owned(), unit, kind, since, points }
    }

    #[test]
    fn each_kind_has_its_shape_its_unit_and_the_time_since_when_it_counts() {
        let times = HistogramPoint { count: 3, sum: 0.5, bounds: vec![0.1, 1.0], buckets: vec![2, 1, 0] };
        let empty = MetricFamily {
            points: Vec::new(),
            ..family("weal_none", MetricUnit::None, MetricKind::Gauge, MetricValue::Count(0))
        };
        let families = vec![
            family("weal_requests", MetricUnit::None, MetricKind::Counter, MetricValue::Count(40)),
            family("weal_node_memory_used", MetricUnit::Bytes, MetricKind::Gauge, MetricValue::Number(1.5)),
            family("http_server_request_duration", MetricUnit::Seconds, MetricKind::Histogram, MetricValue::Histogram(times)),
            empty,
        ];
        let posted = request("demo", &Metrics { time: Time(9), families });
        let of_pool = &posted["resourceMetrics"][0];
        assert_eq!(of_pool["resource"]["attributes"].as_array().unwrap().len(), 2, "a pool is no process");
        let attributes = json!([{ "key": "weal_app", "value": { "stringValue": "shop" } }]);
        let help = "What it says.";
        assert_eq!(
            of_pool["scopeMetrics"][0]["metrics"],
            json!([
                { "name": "weal_requests", "description": help, "unit": "", "sum": {
                    "aggregationTemporality": 2, "isMonotonic": true,
                    "dataPoints": [{
                        "attributes": attributes, "timeUnixNano": "9", "startTimeUnixNano": "3", "asInt": "40",
                    }],
                } },
                { "name": "weal_node_memory_used", "description": help, "unit": "By", "gauge": {
                    "dataPoints": [{ "attributes": attributes, "timeUnixNano": "9", "asDouble": 1.5 }],
                } },
                { "name": "http.server.request.duration", "description": help, "unit": "s", "histogram": {
                    "aggregationTemporality": 2,
                    "dataPoints": [{
                        "attributes": attributes, "timeUnixNano": "9", "startTimeUnixNano": "3",
                        "count": "3", "sum": 0.5, "explicitBounds": [0.1, 1.0], "bucketCounts": ["2", "1", "0"],
                    }],
                } },
            ])
        );
    }
}
