//! A config with everything in it that is in force, defaults included: what `weal config show --effective` prints.

mod jobs;
pub(crate) mod manners;
pub(crate) mod process;

use std::collections::BTreeSet;

use toml_edit::{InlineTable, Value};
use weal_model::{
    AcmeChallenge, AcmeSpec, Algorithm, AppKind, AppSpec, AwakeSchedule, CertificateSource, DispatchRules, Enactment,
    HealthProbe, HttpRules, Importance, LatePolicy, NodeSpec, NotifyBy, NotifySpec, Occasion, OverloadLimit, PoolSpec, RouteSpec,
    SandboxMode, SandboxSpec, ServiceClass, TlsVersion,
};

use crate::defaults;
use crate::diff::show_restart;
use crate::page::{Page, Section, lines, number, texts};
use weal_model::written::{show_size, show_span};

/// `spec` as TOML, every key written out; values that equal the default are marked. Reading it gives `spec` again.
pub fn effective(spec: &PoolSpec) -> String {
    let mut page = Page::default();
    page.add("pool", pool(spec));
    for spec in &spec.nodes {
        page.add_one_more("node", node(spec));
    }
    for spec in spec.classes.values() {
        page.add_named("class", spec.name.as_str(), class(spec));
    }
    for (name, source) in spec.tls.iter().flat_map(|tls| &tls.certificates) {
        page.add_named("tls", name, certificate(source));
    }
    for own in spec.apps.values().filter(|app| app.step_of.is_none()) {
        let release = spec.apps.values().find(|step| step.step_of.as_ref() == Some(&own.name));
        page.add_named("app", own.name.as_str(), app(own, release));
    }
    for spec in spec.jobs.values() {
        page.add_named("job", spec.name.as_str(), jobs::section(spec));
    }
    for spec in &spec.notify {
        page.add_one_more("notify", notify(spec));
    }
    page.finish()
}

fn pool(spec: &PoolSpec) -> Section {
    let mut pool = Section::default();
    pool.add("name", &spec.name);
    match &spec.tls {
        None => pool.add_marked("listen", spec.listen.to_string(), spec.listen.to_string() == defaults::LISTEN),
        Some(tls) => {
            pool.add("listen", texts([format!("http://{}", spec.listen).as_str(), format!("https://{}", tls.listen).as_str()]));
            pool.add_marked("https-redirect", tls.redirects, !tls.redirects);
            pool.add_marked("tls-min-version", tls.min_version.as_str(), tls.min_version == TlsVersion::default());
        }
    }
    pool.add_marked("api", spec.api.to_string(), spec.api.to_string() == defaults::API);
    if let Some(tls) = &spec.api_tls {
        let files = [("certificate", Some(&tls.certificate)), ("key", Some(&tls.key)), ("client-ca", tls.client_ca.as_ref())];
        let files: InlineTable = files.into_iter().filter_map(|(key, file)| Some((key, file?.as_str()))).collect();
        pool.add("api-tls", files);
    }
    pool.add_marked("api-insecure", spec.api_insecure, !spec.api_insecure);
    pool.add_marked("watch", spec.watch, !spec.watch);
    match &spec.logs_to {
        Some(to) => pool.add("logs-to", to.as_str()),
        None => pool.add_absent("logs-to", "nobody else"),
    }
    for (key, to) in [("metrics-to", &spec.metrics_to), ("traces-to", &spec.traces_to)] {
        match to {
            Some(to) => pool.add(key, to.as_str()),
            None => pool.add_absent(key, "nobody"),
        }
    }
    pool.add_marked("control", if spec.control { "on" } else { "off" }, spec.control);
    pool.add_marked("placement", spec.placement.word(), spec.placement == Algorithm::default());
    let speed = spec.autoscaler_speed;
    pool.add_marked("autoscaler-speed", number(speed), speed == defaults::AUTOSCALER_SPEED);
    pool.add_marked("enactment", spec.enactment.as_str(), spec.enactment == Enactment::default());
    let limit = spec.overload_limit;
    pool.add_marked("overload-limit", limit.as_str(), limit == OverloadLimit::default());
    add_span(&mut pool, "flow-cycle", spec.timing.flow_cycle_s, defaults::FLOW_CYCLE_S);
    add_span(&mut pool, "placement-cycle", spec.timing.placement_cycle_s, defaults::PLACEMENT_CYCLE_S);
    manners::add_clients(&mut pool, &spec.clients);
    pool
}

fn certificate(source: &CertificateSource) -> Section {
    let mut section = Section::default();
    match source {
        CertificateSource::Files { certificate, key } => {
            section.add("certificate", certificate);
            section.add("key", key);
        }
        CertificateSource::SelfSigned { hosts } => {
            section.add("self-signed", true);
            section.add("hosts", texts(hosts.iter().map(String::as_str)));
        }
        CertificateSource::Acme(AcmeSpec { hosts, directory, email, challenge, directory_ca }) => {
            section.add("acme", directory);
            section.add("hosts", texts(hosts.iter().map(String::as_str)));
            section.add_marked("challenge", challenge.as_str(), *challenge == AcmeChallenge::default());
            match email {
                Some(email) => section.add("email", email),
                None => section.add_absent("email", "none"),
            }
            match directory_ca {
                Some(file) => section.add("acme-ca", file),
                None => section.add_absent("acme-ca", "the system's"),
            }
        }
    }
    section
}

fn node(spec: &NodeSpec) -> Section {
    let mut node = Section::default();
    node.add("name", spec.name.as_str());
    node.add("cpu", number(spec.cpu.0));
    node.add("memory", show_size(spec.memory));
    let limit = spec.utilization_limit;
    node.add_marked("utilization-limit", number(limit), limit == defaults::UTILIZATION_LIMIT);
    node
}

fn notify(spec: &NotifySpec) -> Section {
    let mut notify = Section::default();
    notify.add_marked("on", texts(spec.on.iter().map(|occasion| occasion.as_str())), spec.on == Occasion::ALL);
    notify.add_marked("after", show_span(spec.after_s), spec.after_s == defaults::NOTIFY_AFTER_S);
    match &spec.by {
        NotifyBy::Url(url) => notify.add("url", url),
        NotifyBy::Run(argv) => notify.add("run", texts(argv.iter().map(String::as_str))),
    }
    notify
}

fn class(spec: &ServiceClass) -> Section {
    let mut class = Section::default();
    match spec.goal {
        Some(goal) => class.add("goal", goal.to_string()),
        None => class.add_absent("goal", "none, best effort"),
    }
    let importance = spec.importance.to_string();
    let shown = match Importance::from_word(&importance) {
        Some(_) => Value::from(importance),
        None => number(spec.importance.weight()),
    };
    class.add_marked("importance", shown, spec.importance == Importance::NORMAL);
    class.add_marked("late", spec.late.as_str(), spec.late == LatePolicy::default());
    match spec.rate_limit_per_s {
        Some(rate) => class.add("rate-limit", format!("{rate}/s")),
        None => class.add_absent("rate-limit", "no limit"),
    }
    match &spec.session_cookie {
        Some(cookie) => class.add("session-cookie", cookie),
        None => class.add_absent("session-cookie", "none, all wait in order of arrival"),
    }
    class
}

/// `release` is its step of that name. A task has no keys of what serves.
fn app(spec: &AppSpec, release: Option<&AppSpec>) -> Section {
    let is_service = spec.kind == AppKind::Service;
    let mut app = Section::default();
    process::add_command(&mut app, spec);
    app.add_marked("kind", spec.kind.as_str(), spec.kind == AppKind::default());
    if let Some(release) = release {
        app.add("release", texts(release.run.iter().map(String::as_str)));
    }
    if is_service {
        add_health(&mut app, spec);
    }
    app.add_marked("memory", show_size(spec.memory), spec.memory == defaults::MEMORY);
    match spec.cpu_limit {
        Some(cpu) => app.add("cpu", number(cpu.0)),
        None => app.add_absent("cpu", "no limit but the node's"),
    }
    let (min, max) = (spec.instances.min, spec.instances.max);
    let range: InlineTable = [("min", i64::from(min)), ("max", i64::from(max))].into_iter().collect();
    if is_service {
        app.add_marked("instances", range, (min, max) == (defaults::INSTANCES, defaults::INSTANCES));
    }
    app.add_marked("per-node", i64::from(spec.per_node), spec.per_node == max);
    if is_service {
        app.add_marked("routes", lines(spec.routes.iter().map(route)), spec.routes.is_empty());
    }
    add_needs(&mut app, spec, release);
    match &spec.user {
        Some(user) => app.add("user", user),
        None => app.add_absent("user", "one of its own, or the one that runs weal"),
    }
    add_sandbox(&mut app, &spec.sandbox, spec.user.as_deref());
    let env: InlineTable = spec.env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    app.add_marked("env", env, spec.env.is_empty());
    process::add(&mut app, &spec.process);
    match spec.cwd.as_str() {
        "" => app.add_absent("cwd", "the image's"),
        cwd => app.add("cwd", cwd),
    }
    add_span(&mut app, "stop-timeout", spec.stop_timeout_s, defaults::STOP_TIMEOUT_S);
    app.add_marked("on-resume", texts(spec.on_resume.iter().map(String::as_str)), spec.on_resume.is_empty());
    app.add_marked("singleton", spec.singleton, !spec.singleton);
    match spec.drain_timeout_s {
        Some(seconds) => app.add("drain-timeout", show_span(seconds)),
        None => app.add_absent("drain-timeout", "request-timeout"),
    }
    app.add_marked("pass-socket", spec.pass_socket, !spec.pass_socket);
    match &spec.nodes {
        Some(nodes) => app.add("nodes", texts(nodes.iter().map(|name| name.as_str()))),
        None => app.add_absent("nodes", "all"),
    }
    app.add_marked("together", texts(spec.together.iter().map(|name| name.as_str())), spec.together.is_empty());
    app.add_marked("apart", texts(spec.apart.iter().map(|name| name.as_str())), spec.apart.is_empty());
    app.add_marked("pinned", spec.pinned, !spec.pinned);
    app.add_marked("manual", spec.manual, !spec.manual);
    let restart = show_restart(spec.restart);
    app.add_marked("restart", restart, restart == if is_service { "always" } else { "never" });
    app.add_marked("queue-limit", i64::from(spec.queue_limit), spec.queue_limit == defaults::QUEUE_LIMIT);
    add_span(&mut app, "request-timeout", spec.request_timeout_s, defaults::REQUEST_TIMEOUT_S);
    let default = HttpRules::default();
    let upgrades = texts(spec.http.upgrades.iter().map(String::as_str));
    app.add_marked("upgrades", upgrades, spec.http.upgrades == default.upgrades);
    app.add_marked("protocol", spec.http.protocol.as_str(), spec.http.protocol == default.protocol);
    match spec.http.send_proxy {
        Some(version) => app.add("send-proxy", version.as_str()),
        None => app.add_absent("send-proxy", "nothing"),
    }
    app.add_marked("normalize-paths", spec.http.normalize_paths, spec.http.normalize_paths == default.normalize_paths);
    add_dispatch(&mut app, &spec.http.dispatch);
    app.add_marked("sleep", spec.sleep, spec.sleep);
    if !is_service {
        return app;
    }
    match spec.sleep_after_s {
        Some(seconds) => app.add("sleep-after", show_span(seconds)),
        None => app.add_absent("sleep-after", "when it pays"),
    }
    add_keep_awake(&mut app, spec.keep_awake.as_ref());
    app
}

fn add_keep_awake(app: &mut Section, awake: Option<&AwakeSchedule>) {
    let Some(AwakeSchedule { schedule, for_s }) = awake else { return app.add_absent("keep-awake", "never") };
    let parts = [
        ("schedule", schedule.expression().to_owned()),
        ("time-zone", schedule.time_zone().to_owned()),
        ("for", show_span(*for_s)),
    ];
    let table: InlineTable = parts.into_iter().collect();
    app.add("keep-awake", table);
}

/// A list where all must be ready.
fn add_needs(app: &mut Section, spec: &AppSpec, release: Option<&AppSpec>) {
    let after = || spec.after.iter().filter(|task| release.is_none_or(|release| release.name != **task));
    if after().next().is_none() {
        return app.add_marked("needs", texts(spec.needs.iter().map(|name| name.as_str())), spec.needs.is_empty());
    }
    let ready = spec.needs.iter().map(|name| (name.as_str(), "ready"));
    let done = after().map(|name| (name.as_str(), "done"));
    let needs: InlineTable = ready.chain(done).collect();
    app.add("needs", needs);
}

/// Only the keys that the policy makes use of: a config with others is refused.
fn add_dispatch(app: &mut Section, rules: &DispatchRules) {
    let default = DispatchRules::default();
    let policy = rules.policy;
    app.add_marked("dispatch", policy.as_str(), policy == default.policy);
    if policy.has_sets() {
        app.add_marked("replication", i64::from(rules.replication), rules.replication == default.replication);
    }
    if policy.reads_names() {
        app.add_marked("hash", rules.hash.as_str(), rules.hash == default.hash);
        app.add_marked("hash-query", rules.hash_query, rules.hash_query == default.hash_query);
    }
    match &rules.affinity {
        Some(cookie) => app.add("affinity", cookie),
        None => app.add_absent("affinity", "no cookie"),
    }
}

fn add_sandbox(app: &mut Section, sandbox: &SandboxSpec, user: Option<&str>) {
    if sandbox.mode == SandboxMode::Off {
        return app.add_marked("sandbox", "off", user == Some("root"));
    }
    let default = SandboxSpec::default();
    let list = |set: &BTreeSet<String>| texts(set.iter().map(String::as_str));
    app.add_part_marked("sandbox", "write", list(&sandbox.write), sandbox.write.is_empty());
    app.add_part_marked("sandbox", "devices", list(&sandbox.devices), sandbox.devices.is_empty());
    app.add_part_marked(
        "sandbox",
        "permit",
        texts(sandbox.permit.iter().map(|permit| permit.as_str())),
        sandbox.permit.is_empty(),
    );
    app.add_part_marked("sandbox", "tmp", if sandbox.private_tmp { "private" } else { "shared" }, sandbox.private_tmp);
    app.add_part_marked("sandbox", "processes", i64::from(sandbox.processes), sandbox.processes == default.processes);
    let open_files = i64::try_from(sandbox.open_files).unwrap_or(i64::MAX);
    app.add_part_marked("sandbox", "open-files", open_files, sandbox.open_files == default.open_files);
    app.add_part_marked("sandbox", "core-dumps", sandbox.core_dumps, sandbox.core_dumps == default.core_dumps);
}

fn add_health(app: &mut Section, spec: &AppSpec) {
    let check = &spec.health;
    match &check.probe {
        HealthProbe::Http { path } => app.add_part_marked("health", "http", path, false),
        HealthProbe::Tcp => app.add_part_marked("health", "tcp", true, true),
        HealthProbe::Command { argv } => {
            app.add_part_marked("health", "command", texts(argv.iter().map(String::as_str)), false);
        }
    }
    let spans = [
        ("interval", check.interval_s, defaults::HEALTH_INTERVAL_S),
        ("timeout", check.timeout_s, defaults::HEALTH_TIMEOUT_S),
        ("start-timeout", check.start_timeout_s, defaults::HEALTH_START_TIMEOUT_S),
    ];
    for (part, seconds, default) in spans {
        app.add_part_marked("health", part, show_span(seconds), seconds == default);
    }
    if let Some(host) = &check.host {
        app.add_part_marked("health", "host", host, false);
    }
    app.add_part_marked("health", "failures", i64::from(check.failures), check.failures == defaults::HEALTH_FAILURES);
    let is_default = check.replace_after == check.failures * defaults::HEALTH_ROUNDS;
    app.add_part_marked("health", "replace-after", i64::from(check.replace_after), is_default);
}

fn route(spec: &RouteSpec) -> InlineTable {
    let mut route = InlineTable::new();
    route.extend(spec.port.map(|port| (port.transport.as_str(), port.address.to_string())));
    route.extend(spec.host.as_ref().map(|host| ("host", host)));
    route.extend(spec.path.as_ref().map(|path| ("path", path)));
    if let Some(header) = &spec.header {
        route.insert(
            "header",
            match &header.value {
                None => Value::from(&header.name),
                Some(value) => [("name", &header.name), ("value", value)].into_iter().collect::<InlineTable>().into(),
            },
        );
    }
    route.insert("class", spec.class.as_str().into());
    route.extend(spec.idle_timeout_s.map(|seconds| ("idle-timeout", show_span(seconds))));
    route.extend(spec.total_timeout_s.map(|seconds| ("total-timeout", show_span(seconds))));
    route.extend(spec.tunnel_idle_timeout_s.map(|seconds| ("tunnel-idle-timeout", show_span(seconds))));
    manners::add_extras(&mut route, &spec.extras);
    route
}

fn add_span(section: &mut Section, key: &str, seconds: f64, default: f64) {
    section.add_marked(key, show_span(seconds), seconds == default);
}
