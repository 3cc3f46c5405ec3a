//! `import::compose`: the common subset of a compose file.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use toml_edit::InlineTable;
use weal_model::Bytes;

use super::app::{App, health_command, to_toml};
use super::command::{escape, to_argv};
use super::imported::{ImportError, Imported};
use super::yaml;
use crate::parse::as_name;
use weal_model::naming::is_name;
use weal_model::written::show_span;

/// Ports at which databases and caches listen, which do not speak HTTP.
const NOT_HTTP: [u16; 10] = [1433, 3306, 4222, 5432, 5672, 6379, 9042, 9092, 11211, 27017];
/// What a service may say that has a counterpart here.
const UNDERSTOOD: [&str; 18] = [
    "command",
    "entrypoint",
    "environment",
    "ports",
    "expose",
    "depends_on",
    "healthcheck",
    "deploy",
    "user",
    "working_dir",
    "restart",
    "stop_grace_period",
    "mem_limit",
    "cpus",
    "scale",
    "image",
    "container_name",
    "init",
];

/// Makes a `weal.toml` of a compose file: commands, environment, ports, dependencies, health checks, limits, user and folder.
/// Images, volumes and networks have no counterpart here and are noted.
///
/// # Errors
/// No YAML; no services in it.
pub fn compose(text: &str) -> Result<Imported, ImportError> {
    let file = yaml::parse(text)?;
    let services = file.get("services").and_then(Value::as_object).ok_or(ImportError::Nothing("service"))?;
    if services.is_empty() {
        return Err(ImportError::Nothing("service"));
    }
    let mut notes = Vec::new();
    for key in file.as_object().into_iter().flat_map(Map::keys) {
        if !["services", "version", "name"].contains(&key.as_str()) && !key.starts_with("x-") {
            notes.push(format!("left out `{key}`: it has no counterpart here"));
        }
    }
    let mut apps = Vec::new();
    for (name, service) in services {
        match service.as_object() {
            Some(service) => apps.push(Reader { service, notes: &mut notes, name: as_name(name) }.read(name)),
            None => notes.push(format!("left out `{name}`: it is not a table")),
        }
    }
    Ok(Imported { text: to_toml("compose file", &apps), notes })
}

struct Reader<'a> {
    service: &'a Map<String, Value>,
    notes: &'a mut Vec<String>,
    name: String,
}

impl Reader<'_> {
    fn read(mut self, written: &str) -> App {
        if !is_name(&self.name) {
            self.name = format!("app-{}", self.name).trim_end_matches('-').to_owned();
        }
        if self.name != written {
            let name = self.name.clone();
            self.note(&format!("called `{written}` in the compose file, `{name}` here"));
        }
        let left_out: Vec<&String> = self.service.keys().filter(|key| !UNDERSTOOD.contains(&key.as_str())).collect();
        for key in left_out {
            self.note(&format!("left out `{key}`"));
        }
        let port = self.port();
        let mut app = App { name: self.name.clone(), env: self.env(), ..App::default() };
        (app.run, app.remark) = self.run(port);
        app.health = self.health();
        if port.is_none() && app.health.is_none() {
            self.note("does not seem to listen anywhere: it counts as healthy while it runs");
            app.health = Some(health_command(["true"]));
        }
        if app.run.iter().any(|argument| argument.contains("0.0.0.0")) {
            self.note("listens on all addresses: 127.0.0.1 is enough here, clients come through weal");
        }
        let limits = self.service.get("deploy").and_then(|deploy| deploy.pointer("/resources/limits"));
        let memory = limits.and_then(|limits| limits.get("memory")).or(self.service.get("mem_limit"));
        app.memory = memory.and_then(|memory| self.size(memory));
        app.cpu = limits.and_then(|limits| limits.get("cpus")).or(self.service.get("cpus")).and_then(number);
        let replicas = self.service.get("deploy").and_then(|deploy| deploy.get("replicas")).or(self.service.get("scale"));
        app.instances = replicas.and_then(Value::as_u64).and_then(|count| u32::try_from(count).ok()).filter(|count| *count > 0);
        app.host = port.filter(|port| !NOT_HTTP.contains(port)).map(|_| format!("{}.localhost", self.name));
        app.needs = self.needs();
        app.user = self.service.get("user").and_then(scalar).map(|user| user.split(':').next().unwrap_or_default().to_owned());
        app.cwd = self.service.get("working_dir").and_then(scalar);
        if let Some(cwd) = &app.cwd {
            let cwd = cwd.clone();
            self.note(&format!("works in `{cwd}`, which was a folder of its container: see that it is right here"));
        }
        app.stop_timeout = self.span("stop_grace_period");
        app.restart = self.restart();
        app
    }

    fn note(&mut self, text: &str) {
        self.notes.push(format!("{}: {text}", self.name));
    }

    /// Arguments, and a remark when they are only a guess. What was the container's port becomes `$PORT`.
    fn run(&mut self, port: Option<u16>) -> (Vec<String>, Option<String>) {
        let mut argv = self.argv("entrypoint");
        argv.extend(self.argv("command"));
        let image = self.service.get("image").and_then(scalar);
        if argv.is_empty() || !self.service.contains_key("entrypoint") && argv[0].starts_with('-') {
            let image = image.unwrap_or_else(|| "the image".to_owned());
            self.note(&format!("`{image}` brings its own program: write it in `run`"));
            let mut run = vec![format!("./{}", self.name)];
            run.extend(argv);
            return (run, Some(format!("{image} brought its own program: write it here, listening on $PORT")));
        }
        let Some(port) = port else { return (argv, None) };
        let mut replaced = false;
        for argument in argv.iter_mut().skip(1) {
            let digits = port.to_string();
            let ends_with_port =
                argument.strip_suffix(&digits).is_some_and(|rest| !rest.ends_with(|c: char| c.is_ascii_alphanumeric()));
            if ends_with_port {
                argument.truncate(argument.len() - digits.len());
                argument.push_str("$PORT");
                replaced = true;
            }
        }
        self.note(&match replaced {
            true => format!("`{port}` in its command became $PORT"),
            false => format!("listened on {port} in its container: make it listen on $PORT, which is in its environment"),
        });
        (argv, None)
    }

    fn argv(&mut self, key: &str) -> Vec<String> {
        match self.service.get(key) {
            Some(Value::Array(words)) => words.iter().filter_map(scalar).map(|word| escape(&self.interpolate(&word))).collect(),
            Some(Value::String(line)) => to_argv(&self.interpolate(line), &[]),
            _ => Vec::new(),
        }
    }

    fn env(&mut self) -> BTreeMap<String, String> {
        let pairs: Vec<(String, Option<String>)> = match self.service.get("environment") {
            Some(Value::Object(map)) => map.iter().map(|(name, value)| (name.clone(), scalar(value))).collect(),
            Some(Value::Array(list)) => list.iter().filter_map(scalar).map(|entry| pair(&entry)).collect(),
            _ => Vec::new(),
        };
        let mut env = BTreeMap::new();
        for (name, value) in pairs {
            match value {
                None => self.note(&format!("took `{name}` from the environment of compose: set it in `env`")),
                Some(_) if name == "PORT" => self.note("set PORT, which weal gives to each instance: left out"),
                Some(value) => {
                    let value = self.interpolate(&value);
                    env.insert(name, value);
                }
            }
        }
        env
    }

    /// The first port inside the container.
    fn port(&self) -> Option<u16> {
        let inside = |entry: &Value| match entry {
            Value::Object(long) => long.get("target").and_then(scalar)?.parse().ok(),
            short => scalar(short)?.split('/').next()?.rsplit(':').next()?.split('-').next()?.parse().ok(),
        };
        let list = |key: &str| self.service.get(key).and_then(Value::as_array).into_iter().flatten().find_map(inside);
        list("ports").or_else(|| list("expose"))
    }

    fn needs(&self) -> Vec<String> {
        match self.service.get("depends_on") {
            Some(Value::Array(names)) => names.iter().filter_map(scalar).map(|name| as_name(&name)).collect(),
            Some(Value::Object(names)) => names.keys().map(|name| as_name(name)).collect(),
            _ => Vec::new(),
        }
    }

    fn health(&mut self) -> Option<InlineTable> {
        let check = self.service.get("healthcheck")?.as_object()?;
        let words: Vec<String> = match check.get("test") {
            Some(Value::String(line)) => vec!["CMD-SHELL".to_owned(), line.clone()],
            Some(Value::Array(words)) => words.iter().filter_map(scalar).collect(),
            _ => Vec::new(),
        };
        let words: Vec<String> = words.iter().map(|word| self.interpolate(word)).collect();
        let argv = match words.split_first() {
            Some((kind, [line])) if kind == "CMD-SHELL" => to_argv(line, &[]),
            Some((kind, argv)) if kind == "CMD" => argv.iter().map(|word| escape(word)).collect(),
            _ => Vec::new(),
        };
        if check.get("disable") == Some(&Value::Bool(true)) || argv.is_empty() {
            self.note("left out its health check, which is no command");
            return None;
        }
        self.note("is checked by the command that ran in its container: see that it asks $PORT");
        let mut health = health_command(argv.iter().map(String::as_str));
        for (theirs, ours) in [("interval", "interval"), ("timeout", "timeout"), ("start_period", "start-timeout")] {
            if let Some(seconds) =
                check.get(theirs).and_then(scalar).and_then(|text| parse_go_duration(&text)).filter(|s| *s >= 0.1)
            {
                health.insert(ours, show_span(seconds).into());
            }
        }
        if let Some(retries) = check.get("retries").and_then(Value::as_i64).filter(|retries| (1..=1000).contains(retries)) {
            health.insert("failures", retries.into());
        }
        Some(health)
    }

    fn span(&mut self, key: &str) -> Option<String> {
        let text = self.service.get(key).and_then(scalar)?;
        let seconds = parse_go_duration(&text);
        if seconds.is_none() {
            self.note(&format!("left out `{key}`: `{text}` is not a duration"));
        }
        seconds.map(show_span)
    }

    /// Compose counts in powers of 1024, whatever the unit is called.
    fn size(&mut self, value: &Value) -> Option<Bytes> {
        let text = scalar(value)?.to_lowercase();
        let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
        let factor = match text[split..].trim_end_matches('b') {
            "" => Some(1_u64),
            "k" | "ki" => Some(1 << 10),
            "m" | "mi" => Some(1 << 20),
            "g" | "gi" => Some(1 << 30),
            _ => None,
        };
        let size = text[..split].parse::<f64>().ok().zip(factor).map(|(value, factor)| Bytes((value * factor as f64) as u64));
        if size.is_none() {
            self.note(&format!("left out its memory limit: `{text}` is not a size"));
        }
        size.filter(|size| size.0 > 0)
    }

    fn restart(&mut self) -> Option<&'static str> {
        match self.service.get("restart").and_then(scalar)?.split(':').next()? {
            "no" | "false" => Some("never"),
            "on-failure" => Some("on-failure"),
            _ => Some("always"),
        }
    }

    /// Compose's own variables: `${NAME:-default}` becomes its default, `$$` a dollar sign, others are noted.
    fn interpolate(&mut self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            out.push_str(&rest[..at]);
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix('$') {
                out.push('$');
                rest = after;
                continue;
            }
            let (inner, after) = match rest.strip_prefix('{').and_then(|braced| braced.split_once('}')) {
                Some(split) => split,
                None => rest.split_at(rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len())),
            };
            let default = inner.split_once(":-").or_else(|| inner.split_once('-')).map(|(_, default)| default);
            if default.is_none() {
                self.note(&format!("used `{inner}` from the environment of compose, which is empty here: write its value"));
            }
            out.push_str(default.unwrap_or_default());
            rest = after;
        }
        out + rest
    }
}

fn pair(entry: &str) -> (String, Option<String>) {
    match entry.split_once('=') {
        Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
        None => (entry.to_owned(), None),
    }
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        _ => None,
    }
}

fn number(value: &Value) -> Option<f64> {
    scalar(value)?.parse().ok().filter(|cores: &f64| (0.01..=4096.0).contains(cores))
}

/// `1m30s`, `500ms`, `90s`; in seconds.
fn parse_go_duration(text: &str) -> Option<f64> {
    let mut seconds = 0.0;
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
        let value: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        seconds += match &rest[..unit] {
            "us" => value / 1e6,
            "ms" => value / 1e3,
            "s" => value,
            "m" => value * 60.0,
            "h" => value * 3600.0,
            _ => return None,
        };
        rest = &rest[unit..];
    }
    Some(seconds)
}
