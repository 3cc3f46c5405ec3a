//! Metrics: OpenTelemetry's names for HTTP, and weal's own.

use std::time::Duration;

use weal_protocol::gateway::{ClusterCounters, ErrorCounter};
use weal_protocol::metrics::{MetricKind, MetricValue, Metrics};

use crate::fake::{CONFIG, Pool, flow};

#[tokio::test]
async fn metrics_have_the_agreed_names_and_add_up() {
    let pool = Pool::start().await;
    pool.apply(CONFIG).await;
    pool.until_status("all is ready", |status| status.apps.iter().all(|app| app.state == weal_model::AppState::Ready)).await;
    pool.gateway.counters().flows = vec![flow("shop", "gold", 40, Duration::from_millis(60))];
    let refused = ErrorCounter { app: Some("shop".into()), reason: weal_model::OwnAnswer::InstanceRefused, count: 3 };
    pool.gateway.counters().errors = vec![refused];
    pool.until_status("it is measured", |status| status.flows[0].utility.is_some()).await;
    let (_, text) = pool.local("GET", "/metrics", "").await;
    let data: Metrics = pool.get("/v1/metrics").await;
    let of = |name: &str| data.families.iter().find(|family| family.name == name).unwrap();
    let requests = of("weal_requests");
    assert_eq!((requests.kind, requests.points[0].value.clone()), (MetricKind::Counter, MetricValue::Count(40)));
    let labels = [("weal_app", "shop"), ("weal_class", "gold")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(requests.points[0].labels, labels);
    let started = pool.gateway.counters().started;
    assert_eq!((requests.since, of("weal_flow_seats").since), (Some(started), None), "the gateway counts since it started");
    let MetricValue::Histogram(times) = &of("http_server_request_duration").points[0].value else { panic!("{data:?}") };
    assert_eq!((times.count, times.buckets.len(), times.bounds.len()), (40, 15, 14));
    assert_eq!((times.bounds[4], times.buckets[4], times.buckets.iter().sum::<u64>()), (0.075, 40, 40), "all took 60 ms");
    for line in [
        "# TYPE http_server_request_duration_seconds histogram",
        "http_server_request_duration_seconds_bucket{le=\"0.05\",weal_app=\"shop\",weal_class=\"gold\"} 0",
        "http_server_request_duration_seconds_bucket{le=\"0.075\",weal_app=\"shop\",weal_class=\"gold\"} 40",
        "http_server_request_duration_seconds_bucket{le=\"+Inf\",weal_app=\"shop\",weal_class=\"gold\"} 40",
        "http_server_request_duration_seconds_count{weal_app=\"shop\",weal_class=\"gold\"} 40",
        "weal_requests_total{weal_app=\"shop\",weal_class=\"gold\"} 40",
        "weal_responses_total{weal_app=\"shop\",weal_class=\"gold\",weal_status=\"2xx\"} 40",
        "weal_responses_total{weal_app=\"shop\",weal_class=\"gold\",weal_status=\"5xx\"} 0",
        "# TYPE http_server_active_requests gauge",
        "weal_flow_seats{weal_app=\"shop\",weal_class=\"gold\"}",
        "weal_flow_utility{weal_app=\"shop\",weal_class=\"gold\"}",
        "weal_flow_queue{weal_app=\"shop\",weal_class=\"gold\"}",
        "weal_flow_allocation_cores{",
        "weal_node_cpu_capacity_cores{weal_node=\"n1\"} 1",
        "weal_node_memory_capacity_bytes{weal_node=\"n2\"} 1073741824",
        "weal_app_instances_ready{weal_app=\"shop\"} 2",
        "# TYPE weal_work_factor_seconds gauge",
        "weal_gateway_errors_total{weal_app=\"shop\",weal_reason=\"instance-refused\"} 3",
        "weal_tls_handshakes_turned_away_total{} 0",
        "weal_spans_dropped_total{} 0",
        "weal_tls_handshake_cpu_seconds_total{kind=\"full\"} 0",
        "weal_plan_changes_total{} 3",
        "weal_config_generation{} 1",
        "# EOF",
    ] {
        let found = text.lines().any(|shown| shown.starts_with(line) || same_labels(shown, line));
        assert!(found, "missing: {line}\n{text}");
    }
}

#[tokio::test]
async fn seats_that_a_former_gateway_holds_are_said_and_no_longer_once_they_are_back() {
    let pool = Pool::start().await;
    pool.apply(CONFIG).await;
    let shop = |seats_lent| ClusterCounters {
        app: "shop".into(),
        wakes: 0,
        crowd_wakes: 0,
        wake_failures: 0,
        wake_wait: Default::default(),
        ports: Default::default(),
        seats_lent,
    };
    for (lent, words) in [(3, Some("3 of the seats of shop are lent")), (1, Some("1 of the seats of shop is lent")), (0, None)] {
        pool.gateway.counters().clusters = vec![shop(lent)];
        let of = |status: &weal_model::Status, app: &str| {
            status.apps.iter().find(|one| one.name.as_str() == app).map(|one| one.seats_lent)
        };
        let status = pool.until_status("it is told", |status| of(status, "shop") == Some(lent)).await;
        assert_eq!(of(&status, "db"), Some(0));
        let why: weal_model::Why = pool.get("/v1/apps/shop/why").await;
        let said = why.sentences.iter().find(|sentence| sentence.contains("of the seats of shop"));
        assert_eq!(said.is_some(), words.is_some(), "{:#?}", why.sentences);
        assert!(words.is_none_or(|words| said.is_some_and(|said| said.starts_with(words))), "{said:?}");
        let (_, text) = pool.local("GET", "/metrics", "").await;
        let line = format!("weal_seats_lent{{weal_app=\"shop\"}} {lent}");
        assert!(text.lines().any(|shown| same_labels(shown, &line)), "{text}");
    }
}

/// The same metric with its labels in another order.
fn same_labels(shown: &str, wanted: &str) -> bool {
    let parts = |line: &str| -> Option<(String, Vec<String>, String)> {
        let (name, rest) = line.split_once('{')?;
        let (labels, value) = rest.split_once('}')?;
        let mut labels: Vec<_> = labels.split(',').map(str::to_owned).collect();
        labels.sort();
        Some((name.to_owned(), labels, value.trim().trim_end_matches(".0").to_owned()))
    };
    let (Some(shown), Some(wanted)) = (parts(shown), parts(wanted)) else { return false };
    shown.0 == wanted.0 && shown.1 == wanted.1 && (wanted.2.is_empty() || shown.2 == wanted.2)
}
