//! What taking another config would do, in plain sentences.

mod change;
mod jobs;
mod process;

use std::collections::BTreeSet;

use weal_model::{
    AppSpec, AwakeSchedule, CollectorUrl, DispatchRules, HealthProbe, InstanceRange, LogsTo, PoolSpec, ProcessSignal,
    ProxyVersion, RestartPolicy, RouteSpec, SandboxMode, SandboxSpec, ServiceClass, hidden_address,
};

use crate::effective::manners::{client_keys, extra_keys};
use change::{KeyChange, env_changes, show_argv};
use weal_model::written::{show_size, show_span};

pub use change::{ConfigChange, Effect};

/// What taking `after` instead of `before` changes: the pool, nodes, classes, applications, jobs, in this order. Empty when they
/// are equal.
pub fn diff(before: &PoolSpec, after: &PoolSpec) -> Vec<ConfigChange> {
    let mut changes = Vec::new();
    diff_pool(before, after, &mut changes);
    diff_nodes(before, after, &mut changes);
    diff_classes(before, after, &mut changes);
    diff_apps(before, after, &mut changes);
    jobs::diff(before, after, &mut changes);
    diff_notify(before, after, &mut changes);
    changes
}

/// True when instances of `before` have to be replaced to run as `after` says: what a process is started from differs.
pub fn restarts(before: &AppSpec, after: &AppSpec) -> bool {
    app_fields(before, after).iter().any(|field| field.restarts)
}

fn diff_pool(before: &PoolSpec, after: &PoolSpec, changes: &mut Vec<ConfigChange>) {
    let mut add = |effect, key, text| changes.push(ConfigChange::of("pool".to_owned(), Some(key), effect, text));
    let on_off = |on: bool| if on { "on" } else { "off" };
    let live = [
        ("name", before.name.clone(), after.name.clone()),
        ("api-insecure", before.api_insecure.to_string(), after.api_insecure.to_string()),
        ("watch", before.watch.to_string(), after.watch.to_string()),
        ("control", on_off(before.control).to_owned(), on_off(after.control).to_owned()),
        ("placement", before.placement.word().to_owned(), after.placement.word().to_owned()),
        ("autoscaler-speed", before.autoscaler_speed.to_string(), after.autoscaler_speed.to_string()),
        ("enactment", before.enactment.as_str().to_owned(), after.enactment.as_str().to_owned()),
        ("overload-limit", before.overload_limit.as_str().to_owned(), after.overload_limit.as_str().to_owned()),
        ("flow-cycle", show_span(before.timing.flow_cycle_s), show_span(after.timing.flow_cycle_s)),
        ("placement-cycle", show_span(before.timing.placement_cycle_s), show_span(after.timing.placement_cycle_s)),
    ];
    let clients = client_keys(&before.clients).into_iter().zip(client_keys(&after.clients));
    let clients = clients.map(|((key, was), (_, is))| (key, was.to_string(), is.to_string()));
    for (key, was, is) in live.into_iter().chain(clients).filter(|(_, was, is)| was != is) {
        add(Effect::Live, key, format!("{key} = {was} becomes {is}"));
    }
    for ((key, was), (_, is)) in outlets(before).into_iter().zip(outlets(after)).filter(|(was, is)| was != is) {
        let (shown_was, shown_is) = (show_outlet(was), show_outlet(is));
        let text = if shown_was == shown_is {
            format!("the address of {key} at {shown_is} changes")
        } else {
            format!("{key} = {shown_was} becomes {shown_is}")
        };
        add(Effect::Live, key, text);
    }
    if before.tls != after.tls {
        let moves = before.tls.as_ref().map(|tls| tls.listen) != after.tls.as_ref().map(|tls| tls.listen);
        let (effect, when) =
            if moves { (Effect::NextStart, ", which takes effect after `weal down` and `weal up`") } else { (Effect::Live, "") };
        add(effect, "tls", format!("the settings for https change{when}"));
    }
    if before.api_tls != after.api_tls {
        add(
            Effect::NextStart,
            "api-tls",
            "the settings for https at the API change, which takes effect after `weal down` and `weal up`".to_owned(),
        );
    }
    let fixed =
        [("listen", before.listen.to_string(), after.listen.to_string()), ("api", before.api.to_string(), after.api.to_string())];
    for (key, was, is) in fixed.into_iter().filter(|(_, was, is)| was != is) {
        add(
            Effect::NextStart,
            key,
            format!("{key} changes from {was} to {is}, which takes effect after `weal down` and `weal up`"),
        );
    }
}

/// Where logs, metrics and spans are sent.
fn outlets(spec: &PoolSpec) -> [(&'static str, Option<&str>); 3] {
    [
        ("logs-to", spec.logs_to.as_ref().map(LogsTo::as_str)),
        ("metrics-to", spec.metrics_to.as_ref().map(CollectorUrl::as_str)),
        ("traces-to", spec.traces_to.as_ref().map(CollectorUrl::as_str)),
    ]
}

/// An address may hold a secret: of one that changes behind its host, only that is told.
fn show_outlet(to: Option<&str>) -> String {
    to.map_or_else(|| "nobody".to_owned(), hidden_address)
}

/// Addresses may hold secrets, so that none is shown.
fn diff_notify(before: &PoolSpec, after: &PoolSpec, changes: &mut Vec<ConfigChange>) {
    let (was, is) = (before.notify.len(), after.notify.len());
    if before.notify != after.notify {
        let text = if was == is {
            "who is notified of what changes".to_owned()
        } else {
            format!("{is} instead of {was} receivers are notified")
        };
        changes.push(ConfigChange::of("notify".to_owned(), None, Effect::Live, text));
    }
}

fn diff_nodes(before: &PoolSpec, after: &PoolSpec, changes: &mut Vec<ConfigChange>) {
    let names: BTreeSet<_> = before.nodes.iter().chain(&after.nodes).map(|node| &node.name).collect();
    for name in names {
        let mut add = |effect, key, text| changes.push(ConfigChange::of(format!("node {name}"), key, effect, text));
        let find = |spec: &PoolSpec| spec.nodes.iter().find(|node| node.name == *name).cloned();
        match (find(before), find(after)) {
            (Some(_), None) => add(Effect::Removes, None, format!("node {name} goes; its instances are placed elsewhere")),
            (None, Some(node)) => {
                add(Effect::Adds, None, format!("node {name} comes, with {} cores and {}", node.cpu.0, show_size(node.memory)));
            }
            (Some(was), Some(is)) => {
                let fields = [
                    ("cpu", was.cpu.0.to_string(), is.cpu.0.to_string()),
                    ("memory", show_size(was.memory), show_size(is.memory)),
                    ("utilization-limit", was.utilization_limit.to_string(), is.utilization_limit.to_string()),
                ];
                for (key, was, is) in fields.into_iter().filter(|(_, was, is)| was != is) {
                    add(Effect::Live, Some(key), format!("{key} of node {name} changes from {was} to {is}"));
                }
            }
            (None, None) => {}
        }
    }
}

fn diff_classes(before: &PoolSpec, after: &PoolSpec, changes: &mut Vec<ConfigChange>) {
    let names: BTreeSet<_> = before.classes.keys().chain(after.classes.keys()).collect();
    for name in names {
        let mut add = |effect, key, text| changes.push(ConfigChange::of(format!("class {name}"), key, effect, text));
        match (before.classes.get(name), after.classes.get(name)) {
            (Some(_), None) => add(Effect::Live, None, format!("class {name} goes")),
            (None, Some(class)) => {
                let goal = class.goal.map_or("no goal".to_owned(), |goal| format!("the goal {goal}"));
                add(Effect::Live, None, format!("class {name} comes, with {goal} and importance {}", class.importance));
            }
            (Some(was), Some(is)) => {
                let goal = |class: &weal_model::ServiceClass| class.goal.map_or("none".to_owned(), |goal| goal.to_string());
                if was.goal != is.goal {
                    add(
                        Effect::Live,
                        Some("goal"),
                        format!("the goal of class {name} changes from {} to {}", goal(was), goal(is)),
                    );
                }
                if was.importance != is.importance {
                    let (was, is) = (was.importance, is.importance);
                    add(Effect::Live, Some("importance"), format!("the importance of class {name} changes from {was} to {is}"));
                }
                let keys = class_keys(was).into_iter().zip(class_keys(is));
                for ((key, was), (_, is)) in keys.filter(|((_, was), (_, is))| was != is) {
                    add(Effect::Live, Some(key), format!("{key} of class {name} changes from {was} to {is}"));
                }
            }
            (None, None) => {}
        }
    }
}

/// How its requests wait.
fn class_keys(class: &ServiceClass) -> [(&'static str, String); 3] {
    let rate = class.rate_limit_per_s.map_or_else(|| "no limit".to_owned(), |rate| format!("{rate}/s"));
    let cookie = class.session_cookie.clone().unwrap_or_else(|| "none".to_owned());
    [("late", class.late.as_str().to_owned()), ("rate-limit", rate), ("session-cookie", cookie)]
}

fn diff_apps(before: &PoolSpec, after: &PoolSpec, changes: &mut Vec<ConfigChange>) {
    let names: BTreeSet<_> = before.apps.keys().chain(after.apps.keys()).collect();
    for name in names {
        let mut add = |effect, keys, text| changes.push(ConfigChange { subject: format!("app {name}"), keys, effect, text });
        match (before.apps.get(name), after.apps.get(name)) {
            (Some(_), None) => {
                add(Effect::Removes, Vec::new(), format!("{name} goes: its instances finish their requests and are stopped"))
            }
            (None, Some(app)) => {
                add(Effect::Adds, Vec::new(), format!("{name} comes, with instances = {}", show_range(app.instances)))
            }
            (Some(was), Some(is)) => {
                let (restarting, live): (Vec<_>, Vec<_>) = app_fields(was, is).into_iter().partition(|field| field.restarts);
                if !restarting.is_empty() {
                    let (keys, what): (Vec<_>, Vec<_>) = restarting.into_iter().map(|field| (field.key, field.text)).unzip();
                    add(Effect::Restarts, keys, format!("{name} restarts, instance by instance: {}", what.join("; ")));
                }
                for field in live {
                    let text = format!("{name}: {}, without a restart", field.text);
                    add(Effect::Live, vec![field.key], text);
                }
            }
            (None, None) => {}
        }
    }
}

/// One key of an application that differs.
struct Field {
    restarts: bool,
    key: String,
    text: String,
}

impl Field {
    /// One that instances are started from.
    fn of_process(KeyChange { key, text }: KeyChange) -> Self {
        Self { restarts: true, key, text }
    }
}

fn app_fields(was: &AppSpec, is: &AppSpec) -> Vec<Field> {
    let mut fields = Vec::new();
    let mut compare = |restarts: bool, key: &str, was: String, is: String| {
        if was != is {
            fields.push(Field { restarts, key: key.to_owned(), text: format!("{key} = {was} becomes {is}") });
        }
    };
    let cpu = |app: &AppSpec| app.cpu_limit.map_or("no limit".to_owned(), |cpu| cpu.0.to_string());
    let user = |app: &AppSpec| app.user.clone().unwrap_or_else(|| "none".to_owned());
    compare(true, "run", show_argv(&was.run), show_argv(&is.run));
    compare(true, "cwd", was.cwd.clone(), is.cwd.clone());
    compare(true, "user", user(was), user(is));
    compare(true, "sandbox", show_sandbox(&was.sandbox), show_sandbox(&is.sandbox));
    compare(true, "memory", show_size(was.memory), show_size(is.memory));
    compare(true, "cpu", cpu(was), cpu(is));
    compare(true, "pass-socket", was.pass_socket.to_string(), is.pass_socket.to_string());
    compare(true, "needs", show_set(&was.needs), show_set(&is.needs));
    compare(false, "kind", was.kind.as_str().to_owned(), is.kind.as_str().to_owned());
    compare(false, "needs to be done", show_set(&was.after), show_set(&is.after));
    compare(false, "instances", show_range(was.instances), show_range(is.instances));
    compare(false, "per-node", was.per_node.to_string(), is.per_node.to_string());
    compare(false, "nodes", show_nodes(was), show_nodes(is));
    compare(false, "together", show_set(&was.together), show_set(&is.together));
    compare(false, "apart", show_set(&was.apart), show_set(&is.apart));
    compare(false, "pinned", was.pinned.to_string(), is.pinned.to_string());
    compare(false, "manual", was.manual.to_string(), is.manual.to_string());
    compare(false, "restart", show_restart(was.restart).to_owned(), show_restart(is.restart).to_owned());
    compare(false, "stop-timeout", show_span(was.stop_timeout_s), show_span(is.stop_timeout_s));
    let reload = |app: &AppSpec| app.process.reload_signal.map_or("none", ProcessSignal::as_str).to_owned();
    // Whoever runs `weal reload` sends it: no instance is started with it.
    compare(false, "reload-signal", reload(was), reload(is));
    compare(false, "on-resume", show_argv(&was.on_resume), show_argv(&is.on_resume));
    compare(false, "singleton", was.singleton.to_string(), is.singleton.to_string());
    let drain = |app: &AppSpec| app.drain_timeout_s.map_or_else(|| "request-timeout".to_owned(), show_span);
    compare(false, "drain-timeout", drain(was), drain(is));
    compare(false, "queue-limit", was.queue_limit.to_string(), is.queue_limit.to_string());
    compare(false, "request-timeout", show_span(was.request_timeout_s), show_span(is.request_timeout_s));
    compare(false, "upgrades", was.http.upgrades.join(", "), is.http.upgrades.join(", "));
    compare(false, "protocol", was.http.protocol.as_str().to_owned(), is.http.protocol.as_str().to_owned());
    let version = |app: &AppSpec| app.http.send_proxy.map_or("none", ProxyVersion::as_str).to_owned();
    // Instances expect a header from their start on, or none.
    compare(true, "send-proxy", version(was), version(is));
    compare(false, "normalize-paths", was.http.normalize_paths.to_string(), is.http.normalize_paths.to_string());
    let (dispatched, dispatches) = (show_dispatch(&was.http.dispatch), show_dispatch(&is.http.dispatch));
    compare(false, "dispatch", dispatched, dispatches);
    let affinity = |app: &AppSpec| app.http.dispatch.affinity.clone().unwrap_or_else(|| "no cookie".to_owned());
    compare(false, "affinity", affinity(was), affinity(is));
    let show_sleep = |after: Option<f64>| after.map_or_else(|| "when it pays".to_owned(), show_span);
    compare(false, "sleep", was.sleep.to_string(), is.sleep.to_string());
    compare(false, "sleep-after", show_sleep(was.sleep_after_s), show_sleep(is.sleep_after_s));
    compare(false, "keep-awake", show_awake(was.keep_awake.as_ref()), show_awake(is.keep_awake.as_ref()));
    compare(false, "health", show_health(was), show_health(is));
    fields.extend(process::changes(&was.process, &is.process).into_iter().map(Field::of_process));
    fields.extend(env_changes(&was.env, &is.env).into_iter().map(Field::of_process));
    fields.extend(route_changes(&was.routes, &is.routes));
    fields
}

fn show_awake(awake: Option<&AwakeSchedule>) -> String {
    awake.map_or_else(
        || "never".to_owned(),
        |AwakeSchedule { schedule, for_s }| {
            format!("{} in {} for {}", schedule.expression(), schedule.time_zone(), show_span(*for_s))
        },
    )
}

fn show_dispatch(rules: &DispatchRules) -> String {
    let policy = rules.policy.as_str();
    if !rules.policy.reads_names() {
        return policy.to_owned();
    }
    let query = if rules.hash_query { ", with the query" } else { "" };
    format!("{policy} (replication {}, hash {}{query})", rules.replication, rules.hash.as_str())
}

/// Only what differs from the strict one.
fn show_sandbox(sandbox: &SandboxSpec) -> String {
    if sandbox.mode == SandboxMode::Off {
        return "off".to_owned();
    }
    let default = SandboxSpec::default();
    let list = |set: &BTreeSet<String>| set.iter().cloned().collect::<Vec<_>>().join(", ");
    let parts = [
        (!sandbox.write.is_empty()).then(|| format!("write {}", list(&sandbox.write))),
        (!sandbox.devices.is_empty()).then(|| format!("devices {}", list(&sandbox.devices))),
        (!sandbox.permit.is_empty())
            .then(|| format!("permit {}", sandbox.permit.iter().map(|permit| permit.as_str()).collect::<Vec<_>>().join(", "))),
        (sandbox.private_tmp != default.private_tmp).then(|| "shared tmp".to_owned()),
        (sandbox.processes != default.processes).then(|| format!("{} processes", sandbox.processes)),
        (sandbox.open_files != default.open_files).then(|| format!("{} open files", sandbox.open_files)),
        (sandbox.core_dumps != default.core_dumps).then(|| "core dumps".to_owned()),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() { "strict".to_owned() } else { format!("strict but {}", parts.join("; ")) }
}

fn route_changes(was: &[RouteSpec], is: &[RouteSpec]) -> Vec<Field> {
    let field = |what: &str, route: &RouteSpec| Field {
        restarts: false,
        key: "routes".to_owned(),
        text: format!("route {} {what}", show_route(route)),
    };
    let gone = was.iter().filter(|route| !is.contains(route)).map(|route| field("goes", route));
    let come = is.iter().filter(|route| !was.contains(route)).map(|route| field("comes", route));
    gone.chain(come).collect()
}

fn show_route(route: &RouteSpec) -> String {
    let header = match &route.header {
        None => String::new(),
        Some(header) => match &header.value {
            None => format!(" with header {}", header.name),
            Some(value) => format!(" with header {}: {value}", header.name),
        },
    };
    let host = route.host.as_deref().unwrap_or("*");
    let place = match route.port {
        Some(port) => port.to_string(),
        None => format!("{host}{}", route.path.as_deref().unwrap_or("/*")),
    };
    let span =
        |name: &str, seconds: Option<f64>| seconds.map_or_else(String::new, |seconds| format!(", {name} {}", show_span(seconds)));
    let times = [
        span("idle-timeout", route.idle_timeout_s),
        span("total-timeout", route.total_timeout_s),
        span("tunnel-idle-timeout", route.tunnel_idle_timeout_s),
    ]
    .concat();
    // Only the keys: a header that is set may hold a secret.
    let extras: String = extra_keys(&route.extras).iter().map(|key| format!(", {key}")).collect();
    format!("{place}{header} (class {}{times}{extras})", route.class)
}

fn show_range(range: InstanceRange) -> String {
    format!("{{ min = {}, max = {} }}", range.min, range.max)
}

fn show_set<T: ToString>(names: &BTreeSet<T>) -> String {
    if names.is_empty() {
        return "nothing".to_owned();
    }
    names.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn show_nodes(app: &AppSpec) -> String {
    app.nodes.as_ref().map_or("all".to_owned(), show_set)
}

pub(crate) fn show_restart(policy: RestartPolicy) -> &'static str {
    match policy {
        RestartPolicy::Always => "always",
        RestartPolicy::OnFailure => "on-failure",
        RestartPolicy::Never => "never",
    }
}

fn show_health(app: &AppSpec) -> String {
    let check = &app.health;
    let probe = match &check.probe {
        HealthProbe::Http { path } => match &check.host {
            Some(host) => format!("GET {path} of {host}"),
            None => format!("GET {path}"),
        },
        HealthProbe::Tcp => "TCP".to_owned(),
        HealthProbe::Command { argv } => show_argv(argv),
    };
    let (interval, timeout, start) = (show_span(check.interval_s), show_span(check.timeout_s), show_span(check.start_timeout_s));
    let (unhealthy, replaced) = (check.failures, check.replace_after);
    format!(
        "{probe} every {interval}, within {timeout}, at the start within {start}, unhealthy after {unhealthy}, replaced after {replaced}"
    )
}
