//! `[app.NAME]`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use toml::de::{DeTable, DeValue};
use weal_model::{
    AppKind, AppName, AppSpec, HealthCheck, HealthProbe, HttpRules, InstanceProtocol, InstanceRange, NodeName, ProxyVersion,
    RestartPolicy, RouteSpec, naming::is_reserved_variable,
};

use super::argv::check_argv;
use super::paths::{below, is_literal};
use super::{awake, dispatch, health, image, pool, process, routes, sandbox, task};
use crate::env_file::{RESERVED, is_variable};
use crate::given::GIVEN_TO_INSTANCES;
use crate::section::{Reading, Section};
use crate::{defaults, suggest};

/// Every key of `[app.NAME]`.
pub(crate) const KEYS: [&str; 50] = [
    "run",
    "image",
    "entrypoint",
    "kind",
    "release",
    "health",
    "memory",
    "cpu",
    "instances",
    "per-node",
    "routes",
    "needs",
    "user",
    "sandbox",
    "env",
    "cwd",
    "stop-timeout",
    "on-resume",
    "singleton",
    "drain-timeout",
    "pass-socket",
    "nodes",
    "together",
    "apart",
    "pinned",
    "manual",
    "restart",
    "queue-limit",
    "request-timeout",
    "normalize-paths",
    "upgrades",
    "protocol",
    "send-proxy",
    "dispatch",
    "replication",
    "hash",
    "hash-query",
    "affinity",
    "sleep-after",
    "env-file",
    "secrets",
    "group",
    "umask",
    "limits",
    "stop-signal",
    "reload-signal",
    "time-zone",
    "stdin",
    "sleep",
    "keep-awake",
];
/// More instances than this of one application are a slip of the finger.
const MOST_INSTANCES: u32 = 10_000;

/// The application, and the task of its `release`, if it has one.
pub(super) fn read(reading: &mut Reading, name: &str, table: &DeTable, folder: &Path) -> (AppSpec, Option<AppSpec>) {
    let section = Section::open(reading, &format!("app.{name}"), table, &KEYS);
    let instances = read_instances(reading, &section);
    let user = pool::read_user(reading, &section);
    let http = read_http(reading, &section);
    let routes = routes::read(reading, &section, folder);
    let health = HealthCheck { send_proxy: http.send_proxy, ..health::read(reading, &section, first_host(&routes)) };
    check_probe(reading, &section, &health, http.protocol);
    let singleton = read_singleton(reading, &section, instances);
    let kind = section.word(reading, "kind", AppKind::ALL, AppKind::as_str, "kinds").unwrap_or_default();
    let needs = task::read_needs(reading, &section);
    let apps = |names: Option<Vec<String>>| names.unwrap_or_default().into_iter().map(AppName::from).collect::<BTreeSet<_>>();
    let spec = AppSpec {
        name: AppName::from(name),
        kind,
        step_of: None,
        after: needs.done,
        run: read_run_or_image(reading, &section),
        health,
        memory: section.size(reading, "memory").unwrap_or(defaults::MEMORY),
        cpu_limit: pool::read_cpu(reading, &section, "cpu"),
        instances,
        per_node: section.count(reading, "per-node", 1..MOST_INSTANCES + 1).unwrap_or(instances.max),
        routes,
        needs: needs.ready,
        sandbox: sandbox::read(reading, &section, folder, user.as_deref()),
        user,
        env: read_env(reading, &section, &GIVEN_TO_INSTANCES),
        process: process::read(reading, &section, folder, &GIVEN_TO_INSTANCES),
        cwd: if image::is_named(&section) { image::read_cwd(reading, &section) } else { read_cwd(reading, &section, folder) },
        stop_timeout_s: section.span(reading, "stop-timeout", (0.0, 3600.0)).unwrap_or(defaults::STOP_TIMEOUT_S),
        on_resume: read_on_resume(reading, &section),
        singleton,
        drain_timeout_s: section.span(reading, "drain-timeout", (0.0, 86_400.0)),
        pass_socket: section.flag(reading, "pass-socket").unwrap_or(false),
        nodes: read_nodes(reading, &section),
        together: apps(section.names(reading, "together")),
        apart: apps(section.names(reading, "apart")),
        pinned: section.flag(reading, "pinned").unwrap_or(false),
        manual: section.flag(reading, "manual").unwrap_or(false),
        restart: read_restart(reading, &section),
        queue_limit: section.count(reading, "queue-limit", 0..1_000_001).unwrap_or(defaults::QUEUE_LIMIT),
        request_timeout_s: section.span(reading, "request-timeout", (0.001, 86_400.0)).unwrap_or(defaults::REQUEST_TIMEOUT_S),
        http,
        sleep_after_s: section.span(reading, "sleep-after", (0.1, 31_536_000.0)),
        sleep: read_sleep(reading, &section),
        keep_awake: awake::read(reading, &section),
        inner: None,
        halted: false,
        awake: None,
        deploy: 0,
    };
    image::check(reading, &section, &spec);
    task::finish(reading, &section, spec)
}

/// An image brings a command; then `run` is what follows its entry point.
fn read_run_or_image(reading: &mut Reading, section: &Section) -> Vec<String> {
    if image::is_named(section) && section.item("run").is_none() {
        return Vec::new();
    }
    read_run(reading, section, "run = [\"./program\", \"--port\", \"$PORT\"]")
}

/// The first exact host: what an application that looks at it expects to be asked for.
fn first_host(routes: &[RouteSpec]) -> Option<String> {
    routes.iter().filter_map(|route| route.host.clone()).find(|host| !host.contains('*'))
}

fn read_http(reading: &mut Reading, section: &Section) -> HttpRules {
    let default = HttpRules::default();
    let upgrades = section.texts(reading, "upgrades").map(|names| names.iter().map(|name| name.to_ascii_lowercase()).collect());
    let upgrades: Vec<String> = upgrades.unwrap_or(default.upgrades);
    let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~/".contains(c);
    if let Some(bad) = upgrades.iter().find(|name| name.is_empty() || !name.chars().all(token)) {
        let help = "write the protocol's name as in the header Upgrade, such as \"websocket\"";
        reading.findings.error(reading.places.value(&section.at("upgrades")), format!("`{bad}` is not a protocol"), help);
    }
    let protocol = read_protocol(reading, section);
    HttpRules {
        upgrades,
        protocol,
        normalize_paths: section.flag(reading, "normalize-paths").unwrap_or(default.normalize_paths),
        send_proxy: read_send_proxy(reading, section, protocol),
        dispatch: dispatch::read(reading, section),
    }
}

/// A header says whose a connection is, so many clients cannot share one.
fn read_send_proxy(reading: &mut Reading, section: &Section, protocol: InstanceProtocol) -> Option<ProxyVersion> {
    let version = section.word(reading, "send-proxy", ProxyVersion::ALL, ProxyVersion::as_str, "versions");
    if section.item("send-proxy").is_some() && protocol == InstanceProtocol::H2c {
        let place = reading.places.value(&section.at("send-proxy"));
        let help = "leave it out: instances find the client in `X-Forwarded-For` and `Forwarded`";
        reading.findings.error(
            place,
            "`send-proxy` does not go with `protocol = \"h2c\"`, whose connections clients share",
            help,
        );
    }
    version
}

fn read_protocol(reading: &mut Reading, section: &Section) -> InstanceProtocol {
    let protocols = [InstanceProtocol::Http1, InstanceProtocol::H2c];
    let Some(word) = section.text(reading, "protocol") else { return InstanceProtocol::default() };
    if let Some(protocol) = protocols.into_iter().find(|protocol| protocol.as_str() == word) {
        return protocol;
    }
    let help = match word.as_str() {
        "h2" | "http2" | "grpc" => "did you mean `h2c`? Instances speak HTTP/2 without TLS".to_owned(),
        _ => suggest::help(&word, protocols.map(InstanceProtocol::as_str), "words"),
    };
    reading.findings.error(reading.places.value(&section.at("protocol")), format!("`protocol` cannot be `{word}`"), help);
    InstanceProtocol::default()
}

/// The node agent asks over HTTP/1.1, which an instance with HTTP/2 alone does not answer.
fn check_probe(reading: &mut Reading, section: &Section, health: &HealthCheck, protocol: InstanceProtocol) {
    if protocol == InstanceProtocol::H2c && matches!(health.probe, HealthProbe::Http { .. }) {
        let help = "leave `health` out to ask only whether the instance listens, or write `health = { command = [\u{2026}] }`";
        let message = "an instance that speaks `h2c` cannot be asked over HTTP/1.1";
        reading.findings.error(reading.places.value(&section.at("health")), message, help);
    }
}

fn read_sleep(reading: &mut Reading, section: &Section) -> bool {
    let sleep = section.flag(reading, "sleep").unwrap_or(true);
    if !sleep && section.item("sleep-after").is_some() {
        let place = reading.places.value(&section.at("sleep-after"));
        reading.findings.error(place, "`sleep-after` does not go with `sleep = false`", "leave one of them out");
    }
    sleep
}

fn read_singleton(reading: &mut Reading, section: &Section, instances: InstanceRange) -> bool {
    let singleton = section.flag(reading, "singleton").unwrap_or(false);
    if singleton && instances.max > 1 {
        let message = format!("a singleton never has two instances, and `instances` allows {}", instances.max);
        let help = "write `instances = 1`, or leave `singleton` out";
        reading.findings.error(reading.places.value(&section.at("singleton")), message, help);
    }
    singleton
}

fn read_on_resume(reading: &mut Reading, section: &Section) -> Vec<String> {
    let Some(argv) = section.texts(reading, "on-resume") else { return Vec::new() };
    if !argv.is_empty() {
        check_argv(reading, &argv, reading.places.value(&section.at("on-resume")));
    }
    argv
}

/// `example` is what such a key may look like.
pub(super) fn read_run(reading: &mut Reading, section: &Section, example: &str) -> Vec<String> {
    if section.item("run").is_none() {
        let help = format!("add `{example}`");
        reading.findings.error(reading.places.key(&section.path), format!("`{}` has no `run`", section.path), help);
        return Vec::new();
    }
    let Some(argv) = section.texts(reading, "run") else { return Vec::new() };
    check_argv(reading, &argv, reading.places.value(&section.at("run")));
    argv
}

/// `instances = 2` or `instances = { min = 1, max = 4 }`.
fn read_instances(reading: &mut Reading, section: &Section) -> InstanceRange {
    let default = InstanceRange { min: defaults::INSTANCES, max: defaults::INSTANCES };
    let Some(item) = section.item("instances") else { return default };
    if let DeValue::Integer(_) = item.value {
        let count = item.count(reading, 1..MOST_INSTANCES + 1).unwrap_or(defaults::INSTANCES);
        return InstanceRange { min: count, max: count };
    }
    let DeValue::Table(table) = item.value else {
        return item.wrong_type(reading, "a number or `{ min = 1, max = 4 }`", "").unwrap_or(default);
    };
    let bounds = Section::open(reading, &item.path, table, &["min", "max"]);
    let min = bounds.count(reading, "min", 0..MOST_INSTANCES + 1);
    let max = bounds.count(reading, "max", 1..MOST_INSTANCES + 1);
    match (min, max) {
        (Some(min), Some(max)) if min > max => {
            let places = (reading.places.value(&bounds.at("min")), reading.places.value(&bounds.at("max")));
            let help = format!("did you mean `{{ min = {max}, max = {min} }}`?");
            reading.findings.error_with(places.0, format!("min is {min}, more than max"), help, (places.1, "max".to_owned()));
            InstanceRange { min: max, max }
        }
        (Some(min), max) => InstanceRange { min, max: max.unwrap_or(min.max(defaults::INSTANCES)) },
        (None, Some(max)) => InstanceRange { min: defaults::INSTANCES.min(max), max },
        (None, None) => default,
    }
}

/// Variables, none of which may be one of those that are `given`.
pub(super) fn read_env(reading: &mut Reading, section: &Section, given: &[&str]) -> BTreeMap<String, String> {
    let Some(table) = section.table(reading, "env") else { return BTreeMap::new() };
    let names: Vec<&str> = table.keys().map(|key| key.get_ref().as_ref()).collect();
    let env = Section::open(reading, &section.at("env"), table, &names);
    let mut read = BTreeMap::new();
    for name in names {
        if !is_variable(name) {
            let help = "names have letters, digits and `_`, and do not begin with a digit";
            reading.findings.error(reading.places.key(&env.at(name)), format!("`{name}` cannot be a variable"), help);
        } else if given.contains(&name) || is_reserved_variable(name) {
            let help = if given.contains(&name) { "leave it out: each process gets it" } else { RESERVED };
            reading.findings.error(reading.places.key(&env.at(name)), format!("`{name}` is set by weal"), help);
        }
        if let Some(value) = env.text(reading, name) {
            if value.contains('\0') {
                reading.findings.error(reading.places.value(&env.at(name)), "a variable holds a zero byte", "none can");
            }
            read.insert(name.to_owned(), value);
        }
    }
    read
}

/// Relative to the config's folder, which is also the default.
pub(super) fn read_cwd(reading: &mut Reading, section: &Section, folder: &Path) -> String {
    let cwd = section.text(reading, "cwd").unwrap_or_default();
    if !is_literal(&cwd) {
        let help = "write the folder itself, absolute or relative to this file: neither `~` nor variables are filled in here";
        reading.findings.error(reading.places.value(&section.at("cwd")), format!("`{cwd}` is not a folder's path"), help);
    }
    below(folder, &cwd)
}

fn read_nodes(reading: &mut Reading, section: &Section) -> Option<BTreeSet<NodeName>> {
    let nodes = section.names(reading, "nodes")?;
    if nodes.is_empty() {
        let help = "name at least one node, or leave `nodes` out to allow all";
        reading.findings.error(reading.places.value(&section.at("nodes")), "this application may run nowhere", help);
        return None;
    }
    Some(nodes.into_iter().map(NodeName::from).collect())
}

fn read_restart(reading: &mut Reading, section: &Section) -> RestartPolicy {
    let words = ["always", "on-failure", "never"];
    let Some(word) = section.text(reading, "restart") else { return RestartPolicy::Always };
    match word.as_str() {
        "always" => RestartPolicy::Always,
        "on-failure" => RestartPolicy::OnFailure,
        "never" => RestartPolicy::Never,
        _ => {
            let right = if word == "no" { "did you mean `never`?".to_owned() } else { suggest::help(&word, words, "words") };
            reading.findings.error(reading.places.value(&section.at("restart")), format!("`restart` cannot be `{word}`"), right);
            RestartPolicy::Always
        }
    }
}
