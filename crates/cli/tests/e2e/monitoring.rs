//! The files for Prometheus and Grafana, and the page of metrics, name what a pool really has.

use std::collections::BTreeSet;
use std::path::Path;

use crate::load::{get, get_with};
use crate::pool::{Pool, echo_app, text};

/// The names of metrics in `said`.
fn names(said: &str) -> BTreeSet<String> {
    let words = said.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).filter(|word| {
        (word.starts_with("weal_") || word.starts_with("http_server_")) && !LABELS.contains(word) && !word.ends_with('_')
    });
    words.map(str::to_owned).collect()
}

const LABELS: [&str; 8] =
    ["weal_app", "weal_class", "weal_cluster", "weal_instance", "weal_node", "weal_state", "weal_status", "weal_rung"];

/// A counter's and a histogram's parts are its family.
fn family(name: &str) -> &str {
    ["_total", "_bucket", "_sum", "_count"].iter().find_map(|part| name.strip_suffix(part)).unwrap_or(name)
}

#[test]
fn what_dashboards_and_alerts_name_is_there_and_each_metric_is_documented() {
    let mut pool = Pool::new(&echo_app("echo", ""));
    pool.up();
    assert_eq!(get(pool.listen, "echo.localhost", "/").unwrap().0, 200);
    let token = text(&pool.run(&["token", "create", "prometheus", "--read-only"]).stdout);
    let header = format!("Bearer {}", token.trim());
    let (status, metrics) = get_with(pool.api, "127.0.0.1", "/metrics", &[("authorization", &header)]).unwrap();
    assert_eq!(status, 200, "{metrics}");
    let helps = metrics.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split(' ').next());
    let there: BTreeSet<&str> = helps.collect();
    assert!(there.len() > 40, "{metrics}");

    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
    for file in ["examples/monitoring/alerts.yml", "examples/monitoring/grafana.json"] {
        let named = names(&read(file));
        assert!(named.len() >= 8, "{file} names {named:?}");
        let missing: Vec<&String> = named.iter().filter(|name| !there.contains(family(name))).collect();
        assert!(missing.is_empty(), "{file} names what is not there: {missing:?}");
    }
    let page = names(&read("docs/metrics.md"));
    let documented: BTreeSet<&str> = page.iter().map(|name| family(name)).collect();
    let silent: Vec<&&str> = there.iter().filter(|name| !documented.contains(**name)).collect();
    assert!(silent.is_empty(), "docs/metrics.md does not say what these are: {silent:?}");
}
