//! A config with everything in it that is in force, defaults included: what `weal config show --effective` prints.

use std::fmt::Write;

use weal_model::{
    Algorithm, AppSpec, Enactment, HealthProbe, Importance, NodeSpec, OverloadLimit, PoolSpec, RouteSpec, ServiceClass,
};

use crate::defaults;
use crate::diff::show_restart;
use crate::units::{show_size, show_span};

/// `spec` as TOML, every key written out; values that equal the default are marked. Reading it gives `spec` again.
pub fn effective(spec: &PoolSpec) -> String {
    let mut page = Page::default();
    page.pool(spec);
    for node in &spec.nodes {
        page.node(node);
    }
    for class in spec.classes.values() {
        page.class(class);
    }
    for app in spec.apps.values() {
        page.app(app);
    }
    page.text
}

#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn header(&mut self, header: &str) {
        let gap = if self.text.is_empty() { "" } else { "\n" };
        self.text.push_str(&format!("{gap}{header}\n"));
    }

    fn line(&mut self, key: &str, value: &str, is_default: bool) {
        let mark = if is_default { "  # default" } else { "" };
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "{key} = {value}{mark}");
    }

    /// A key that is not there, because it has no value that means "not there".
    fn absent(&mut self, key: &str, meaning: &str) {
        let _ = writeln!(self.text, "# {key}: {meaning}  # default");
    }

    fn pool(&mut self, spec: &PoolSpec) {
        self.header("[pool]");
        self.line("name", &quote(&spec.name), false);
        self.line("listen", &quote(&spec.listen.to_string()), spec.listen.to_string() == defaults::LISTEN);
        self.line("api", &quote(&spec.api.to_string()), spec.api.to_string() == defaults::API);
        self.line("user", &quote(&spec.user), spec.user == defaults::USER);
        self.line("control", if spec.control { "\"on\"" } else { "\"off\"" }, spec.control);
        self.line("placement", &quote(spec.placement.word()), spec.placement == Algorithm::default());
        let speed = spec.autoscaler_speed;
        self.line("autoscaler-speed", &speed.to_string(), speed == defaults::AUTOSCALER_SPEED);
        self.line("enactment", &quote(spec.enactment.as_str()), spec.enactment == Enactment::default());
        let limit = spec.overload_limit;
        self.line("overload-limit", &quote(limit.as_str()), limit == OverloadLimit::default());
        self.span("flow-cycle", spec.timing.flow_cycle_s, defaults::FLOW_CYCLE_S);
        self.span("placement-cycle", spec.timing.placement_cycle_s, defaults::PLACEMENT_CYCLE_S);
    }

    fn node(&mut self, node: &NodeSpec) {
        self.header("[[node]]");
        self.line("name", &quote(node.name.as_str()), false);
        self.line("cpu", &node.cpu.0.to_string(), false);
        self.line("memory", &quote(&show_size(node.memory)), false);
        let limit = node.utilization_limit;
        self.line("utilization-limit", &limit.to_string(), limit == defaults::UTILIZATION_LIMIT);
    }

    fn class(&mut self, class: &ServiceClass) {
        self.header(&format!("[class.{}]", class.name));
        match class.goal {
            Some(goal) => self.line("goal", &quote(&goal.to_string()), false),
            None => self.absent("goal", "none, best effort"),
        }
        let importance = class.importance.to_string();
        let is_word = Importance::from_word(&importance).is_some();
        let shown = if is_word { quote(&importance) } else { importance };
        self.line("importance", &shown, class.importance == Importance::NORMAL);
    }

    fn app(&mut self, app: &AppSpec) {
        self.header(&format!("[app.{}]", app.name));
        self.line("run", &quote_list(&app.run), false);
        self.health(app);
        self.line("memory", &quote(&show_size(app.memory)), app.memory == defaults::MEMORY);
        match app.cpu_limit {
            Some(cpu) => self.line("cpu", &cpu.0.to_string(), false),
            None => self.absent("cpu", "no limit but the node's"),
        }
        let (min, max) = (app.instances.min, app.instances.max);
        let is_default = (min, max) == (defaults::INSTANCES, defaults::INSTANCES);
        self.line("instances", &format!("{{ min = {min}, max = {max} }}"), is_default);
        self.line("per-node", &app.per_node.to_string(), app.per_node == max);
        self.routes(&app.routes);
        self.line("needs", &names(app.needs.iter().map(|name| name.as_str())), app.needs.is_empty());
        match &app.user {
            Some(user) => self.line("user", &quote(user), false),
            None => self.absent("user", "the one that runs weal"),
        }
        let env: Vec<String> = app.env.iter().map(|(name, value)| format!("{name} = {}", quote(value))).collect();
        let env = if env.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", env.join(", ")) };
        self.line("env", &env, app.env.is_empty());
        self.line("cwd", &quote(&app.cwd), false);
        self.span("stop-timeout", app.stop_timeout_s, defaults::STOP_TIMEOUT_S);
        self.line("on-resume", &quote_list(&app.on_resume), app.on_resume.is_empty());
        match &app.nodes {
            Some(nodes) => self.line("nodes", &names(nodes.iter().map(|name| name.as_str())), false),
            None => self.absent("nodes", "all"),
        }
        self.line("together", &names(app.together.iter().map(|name| name.as_str())), app.together.is_empty());
        self.line("apart", &names(app.apart.iter().map(|name| name.as_str())), app.apart.is_empty());
        self.line("pinned", &app.pinned.to_string(), !app.pinned);
        self.line("manual", &app.manual.to_string(), !app.manual);
        let restart = show_restart(app.restart);
        self.line("restart", &quote(restart), restart == "always");
        self.line("queue-limit", &app.queue_limit.to_string(), app.queue_limit == defaults::QUEUE_LIMIT);
        self.span("request-timeout", app.request_timeout_s, defaults::REQUEST_TIMEOUT_S);
        match app.sleep_after_s {
            Some(seconds) => self.line("sleep-after", &quote(&show_span(seconds)), false),
            None => self.absent("sleep-after", "when it pays"),
        }
    }

    fn health(&mut self, app: &AppSpec) {
        let check = &app.health;
        match &check.probe {
            HealthProbe::Http { path } => self.line("health.http", &quote(path), false),
            HealthProbe::Tcp => self.line("health.tcp", "true", true),
            HealthProbe::Command { argv } => self.line("health.command", &quote_list(argv), false),
        }
        self.span("health.interval", check.interval_s, defaults::HEALTH_INTERVAL_S);
        self.span("health.timeout", check.timeout_s, defaults::HEALTH_TIMEOUT_S);
        self.span("health.start-timeout", check.start_timeout_s, defaults::HEALTH_START_TIMEOUT_S);
        self.line("health.failures", &check.failures.to_string(), check.failures == defaults::HEALTH_FAILURES);
    }

    fn routes(&mut self, routes: &[RouteSpec]) {
        let lines: Vec<String> = routes.iter().map(|route| format!("    {},\n", show_route(route))).collect();
        let value = if lines.is_empty() { "[]".to_owned() } else { format!("[\n{}]", lines.concat()) };
        self.line("routes", &value, routes.is_empty());
    }

    fn span(&mut self, key: &str, seconds: f64, default: f64) {
        self.line(key, &quote(&show_span(seconds)), seconds == default);
    }
}

fn show_route(route: &RouteSpec) -> String {
    let mut parts = Vec::new();
    parts.extend(route.host.as_ref().map(|host| format!("host = {}", quote(host))));
    parts.extend(route.path.as_ref().map(|path| format!("path = {}", quote(path))));
    parts.extend(route.header.as_ref().map(|header| match &header.value {
        None => format!("header = {}", quote(&header.name)),
        Some(value) => format!("header = {{ name = {}, value = {} }}", quote(&header.name), quote(value)),
    }));
    parts.push(format!("class = {}", quote(route.class.as_str())));
    format!("{{ {} }}", parts.join(", "))
}

fn names<'n>(names: impl Iterator<Item = &'n str>) -> String {
    format!("[{}]", names.map(quote).collect::<Vec<_>>().join(", "))
}

pub(crate) fn quote_list(texts: &[String]) -> String {
    names(texts.iter().map(String::as_str))
}

/// A TOML basic string.
pub(crate) fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            '\r' => quoted.push_str("\\r"),
            c if c.is_control() => quoted.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
