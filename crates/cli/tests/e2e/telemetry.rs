//! `metrics-to` and `traces-to`: a collector gets what `/metrics` says, and a span of each request of a sampled trace.

use std::collections::BTreeMap;
use std::sync::mpsc::Receiver;

use serde_json::Value;

use crate::load::{get, get_with};
use crate::pool::{PATIENCE, free_ports, text};
use crate::posts::posts;
use crate::site::{echo, field, head_at_instance, site};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

/// The next body that holds what `find` finds.
fn next<T>(posted: &Receiver<Value>, what: &str, find: impl Fn(&Value) -> Option<T>) -> T {
    loop {
        let body = posted.recv_timeout(*PATIENCE).unwrap_or_else(|_| panic!("never {what}"));
        if let Some(found) = find(&body) {
            return found;
        }
    }
}

/// Attributes by their names; each value as it is written.
fn attributes(of: &Value) -> BTreeMap<String, String> {
    let one = |attribute: &Value| {
        let value = attribute["value"].as_object().unwrap().values().next().unwrap();
        (attribute["key"].as_str().unwrap().to_owned(), value.as_str().unwrap().to_owned())
    };
    of["attributes"].as_array().unwrap().iter().map(one).collect()
}

/// The span of a trace, if a body has it, with the attributes of its resource.
fn span_of(body: &Value, trace: &str) -> Option<(Value, BTreeMap<String, String>)> {
    let of_gateway = &body["resourceSpans"][0];
    let spans = of_gateway["scopeSpans"][0]["spans"].as_array().unwrap();
    let span = spans.iter().find(|span| span["traceId"] == trace)?;
    Some((span.clone(), attributes(&of_gateway["resource"])))
}

/// The point of the application `echo` of a metric.
fn point(body: &Value, name: &str, kind: &str) -> Option<Value> {
    let metrics = body["resourceMetrics"][0]["scopeMetrics"][0]["metrics"].as_array().unwrap();
    let metric = metrics.iter().find(|metric| metric["name"] == name)?;
    let points = metric[kind]["dataPoints"].as_array().unwrap();
    points.iter().find(|point| attributes(point).get("weal_app").is_some_and(|app| app == "echo")).cloned()
}

#[test]
fn a_collector_sees_a_requests_span_and_metrics_with_the_right_values() {
    let (spans_at, spans) = posts("/traces/s3cret");
    let (metrics_at, metrics) = posts("/v1/metrics");
    let keys = format!(
        "traces-to = \"http://127.0.0.1:{spans_at}/traces/s3cret\"\nmetrics-to = \"http://127.0.0.1:{metrics_at}\"\ntrace-ratio = 0"
    );
    let mut pool = site(&keys, None, &echo());
    pool.up();
    let untraced = head_at_instance(pool.listen, "");
    assert!(field(&untraced, "traceparent").unwrap().ends_with("-00"), "the ratio samples none: {untraced}");
    let head = head_at_instance(pool.listen, &format!("traceparent: 00-{TRACE}-{PARENT}-01\r\nuser-agent: e2e\r\n"));
    let (span, resource) = next(&spans, "the span of the request that its client traces", |body| span_of(body, TRACE));
    assert_eq!((resource["service.name"].as_str(), &span["parentSpanId"]), ("weal-gateway", &PARENT.into()));
    let id = span["spanId"].as_str().unwrap();
    assert_eq!(field(&head, "traceparent"), Some(format!("00-{TRACE}-{id}-01").as_str()), "the instance's parent is our span");
    assert_eq!((&span["name"], &span["kind"]), (&"GET".into(), &2.into()));
    let said = attributes(&span);
    for (key, value) in [
        ("http.request.method", "GET"),
        ("http.response.status_code", "200"),
        ("url.path", "/head"),
        ("url.scheme", "http"),
        ("server.address", "echo.localhost"),
        ("client.address", "127.0.0.1"),
        ("user_agent.original", "e2e"),
        ("weal.app", "echo"),
        ("weal.class", "default"),
    ] {
        assert_eq!(said.get(key).map(String::as_str), Some(value), "{key}: {said:?}");
    }
    let time = |key: &str| span[key].as_str().unwrap().parse::<u64>().unwrap();
    assert!(time("startTimeUnixNano") <= time("endTimeUnixNano"));

    let (requests, times) = next(&metrics, "both requests are counted", |body| {
        let requests = point(body, "weal_requests", "sum").filter(|point| point["asInt"] == "2")?;
        Some((requests, point(body, "http.server.request.duration", "histogram")?))
    });
    assert_eq!((&times["count"], attributes(&requests)["weal_class"].as_str()), (&"2".into(), "default"), "{times}");
    let buckets = times["bucketCounts"].as_array().unwrap();
    assert_eq!(buckets.iter().map(|count| count.as_str().unwrap().parse::<u64>().unwrap()).sum::<u64>(), 2, "{times}");
    assert_eq!(buckets.len(), times["explicitBounds"].as_array().unwrap().len() + 1);
    assert!(requests["startTimeUnixNano"].as_str().unwrap() < requests["timeUnixNano"].as_str().unwrap(), "{requests}");

    for said in ["spans are taken again", "metrics are taken again"] {
        pool.eventually(said, || pool.printed().contains(said).then_some(()));
    }
    let printed = pool.printed();
    assert!(printed.contains("traces-to: ") && printed.contains("metrics-to: ") && !printed.contains("s3cret"), "{printed}");
    for shown in
        [&["config", "show"][..], &["config", "show", "--effective"], &["config", "show", "-o", "json"], &["status"], &["events"]]
    {
        let output = pool.run(shown);
        let told = text(&output.stdout) + &text(&output.stderr);
        assert!(output.status.success() && !told.contains("s3cret"), "{shown:?}: {told}");
        assert!(shown[0] != "config" || told.contains(&format!("http://127.0.0.1:{spans_at}/…")), "{shown:?}: {told}");
    }
}

#[test]
fn a_collector_that_is_away_loses_no_request_and_is_told_of_once() {
    let [nobody] = free_ports();
    let keys = format!("traces-to = \"http://127.0.0.1:{nobody}\"\nmetrics-to = \"http://127.0.0.1:{nobody}\"");
    let mut pool = site(&keys, None, &echo());
    pool.up();
    let ask = || assert_eq!(get(pool.listen, "echo.localhost", "/").unwrap().0, 200);
    ask();
    for what in ["spans wait: it cannot be reached", "metrics wait: it cannot be reached"] {
        pool.eventually(what, || pool.printed().contains(what).then_some(()));
    }
    (0..200).for_each(|_| ask());
    let printed = pool.printed();
    assert_eq!(printed.matches("spans wait: ").count() + printed.matches("metrics wait: ").count(), 2, "{printed}");
    let token = text(&pool.run(&["token", "create", "prometheus", "--read-only"]).stdout);
    let header = format!("Bearer {}", token.trim());
    let counted = pool.eventually("all spans are counted", || {
        let (_, metrics) = get_with(pool.api, "127.0.0.1", "/metrics", &[("authorization", &header)]).unwrap();
        let count = |name: &str| -> u64 {
            let line = metrics.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("0");
            line.rsplit(' ').next().unwrap().parse().unwrap()
        };
        let ended = count("weal_spans_total");
        (ended >= 201).then(|| (ended, count("weal_spans_dropped_total")))
    });
    assert_eq!(counted, (201, 0), "there is room for them at the gateway");
}
