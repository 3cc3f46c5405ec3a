//! One service of a compose file.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};
use toml_edit::InlineTable;
use weal_model::written::show_span;
use weal_model::{ProcessSignal, ResourceLimit};

use super::image::archive_of;
use super::interpolate::Variables;
use super::keys::{self, Fate};
use super::values::{cores, duration, pair, scalar, size};
use crate::env_file::is_variable;
use crate::import::app::{App, health_command};
use crate::import::command::{escape, to_argv};

/// Ports at which databases and caches listen, which do not speak HTTP.
const NOT_HTTP: [u16; 10] = [1433, 3306, 4222, 5432, 5672, 6379, 9042, 9092, 11211, 27017];
/// What compose checks every so many seconds unless a service says otherwise.
const CHECK_INTERVAL_S: f64 = 30.0;
/// So many failed checks make a service unhealthy unless it says otherwise.
const CHECK_RETRIES: f64 = 3.0;
/// The longest start that a config may allow.
const LONGEST_START_S: f64 = 86_400.0;
/// Where a container finds its secrets.
const SECRETS: &str = "/run/secrets/";

/// Reads one service.
pub(super) struct Reader<'a> {
    pub(super) service: &'a Map<String, Value>,
    /// What it is called here.
    pub(super) name: String,
    /// Whether another one waits for its end.
    pub(super) is_task: bool,
    /// What every service is called here.
    pub(super) names: &'a BTreeMap<String, String>,
    /// Where the file's secrets are.
    pub(super) secrets: &'a BTreeMap<String, Option<String>>,
    /// Archives of images that are there.
    pub(super) archives: &'a BTreeSet<String>,
    pub(super) variables: Variables<'a>,
    pub(super) notes: &'a mut Vec<String>,
}

impl Reader<'_> {
    /// `None` when the service is not run at all.
    pub(super) fn read(mut self) -> Option<App> {
        if self.replicas() == Some(0) {
            self.note("left out: it has 0 replicas");
            return None;
        }
        self.note_keys();
        let port = self.port().filter(|_| !self.is_task);
        let mut app = App { name: self.name.clone(), is_task: self.is_task, ..App::default() };
        (app.env, app.secrets) = self.env();
        app.env_files = self.env_files();
        app.image = self.text("image").and_then(|image| archive_of(&image, self.archives));
        if app.image.is_some() {
            app.entrypoint = Some(self.argv_after("entrypoint", false)).filter(|argv| !argv.is_empty());
        }
        (app.run, app.remark) = self.run(port, app.image.as_deref());
        app.health = self.health();
        if self.is_task {
            self.note("runs once per deploy, because others wait for its end");
        } else if port.is_none() && app.health.is_none() {
            self.note("does not seem to listen anywhere: it counts as healthy while it runs");
            app.health = Some(health_command(["true"]));
        }
        if app.run.iter().any(|argument| argument.contains("0.0.0.0")) {
            self.note("listens on all addresses: 127.0.0.1 is enough here, clients come through weal");
        }
        self.read_resources(&mut app);
        app.host = port.filter(|port| !NOT_HTTP.contains(port)).map(|_| format!("{}.localhost", self.name));
        app.needs = self.needs();
        (app.user, app.group) = self.user();
        if app.image.is_some() && app.user.is_some() {
            (app.user, app.group) = (None, None);
            self.note("left out `user`: its image says whom it is in its own eyes");
        }
        app.cwd = self.text("working_dir");
        if let Some(cwd) = app.cwd.clone().filter(|_| app.image.is_none()) {
            self.note(&format!("works in `{cwd}`, which was a folder of its container: see that it is right here"));
        }
        app.stop_timeout = self.span("stop_grace_period");
        app.stop_signal = self.stop_signal();
        app.restart = self.restart().filter(|policy| !self.is_task || *policy == "on-failure");
        let of_variables = std::mem::take(&mut self.variables.notes);
        of_variables.iter().for_each(|note| self.note(note));
        Some(app)
    }

    fn note(&mut self, text: &str) {
        self.notes.push(format!("{}: {text}", self.name));
    }

    fn note_keys(&mut self) {
        let deploy = self.service.get("deploy").and_then(Value::as_object);
        let within = deploy.into_iter().flat_map(Map::keys).map(|key| (format!("deploy.{key}"), keys::fate_in_deploy(key)));
        let own = self.service.keys().map(|key| (key.clone(), keys::fate(key)));
        for (key, fate) in own.chain(within).collect::<Vec<_>>() {
            match fate {
                Some(Fate::Mapped | Fate::Needless) => {}
                _ if key.starts_with("x-") || key.starts_with("deploy.x-") => {}
                Some(Fate::LeftOut(why)) => self.note(&format!("left out `{key}`: {why}")),
                None => self.note(&format!("left out `{key}`: no compose file has such a key")),
            }
        }
        for profile in self.list("profiles") {
            self.note(&format!("was in the profile `{profile}`: it always runs here"));
        }
        self.note_ports();
    }

    fn note_ports(&mut self) {
        let entries = self.service.get("ports").and_then(Value::as_array).cloned().unwrap_or_default();
        let hosts: Vec<String> = entries.iter().filter_map(|entry| self.published_port(entry)).collect();
        for host in hosts {
            self.note(&format!(
                "was reached at port {host} of the machine: it is reached through weal's `listen`, or `tcp` of a route"
            ));
        }
    }

    /// The port of the machine under which a port of the container was reached; `None` where the system chose one.
    fn published_port(&mut self, entry: &Value) -> Option<String> {
        if let Value::Object(long) = entry {
            return long.get("published").and_then(scalar);
        }
        let text = self.variables.fill_in(&scalar(entry)?);
        let (host, _) = text.rsplit_once(':')?;
        Some(host.rsplit(':').next()?.to_owned()).filter(|port| !port.is_empty())
    }

    fn text(&mut self, key: &str) -> Option<String> {
        let text = self.service.get(key).and_then(scalar)?;
        Some(self.variables.fill_in(&text))
    }

    /// A list of texts, or one text alone.
    fn list(&mut self, key: &str) -> Vec<String> {
        let texts: Vec<String> = match self.service.get(key) {
            Some(Value::Array(list)) => list.iter().filter_map(scalar).collect(),
            Some(value) => scalar(value).into_iter().collect(),
            None => Vec::new(),
        };
        texts.iter().map(|text| self.variables.fill_in(text)).collect()
    }

    /// Arguments, and a remark when they are only a guess. What was the container's port becomes `$PORT`.
    fn run(&mut self, port: Option<u16>, archive: Option<&str>) -> (Vec<String>, Option<String>) {
        let mut argv = if archive.is_some() { Vec::new() } else { self.argv_after("entrypoint", false) };
        let has_program = !argv.is_empty() || archive.is_some();
        argv.extend(self.argv_after("command", has_program));
        let mut remark = None;
        if let Some(archive) = archive {
            self.note(&format!("is run from {archive}, which lies beside the file"));
        } else if argv.is_empty() || !has_program && argv[0].starts_with('-') {
            let image = self.service.get("image").and_then(scalar).unwrap_or_else(|| "the image".to_owned());
            self.note(&format!(
                "`{image}` brings its own program: write it in `run`, or save the image and name its archive in `image`"
            ));
            argv.insert(0, format!("./{}", self.name));
            remark = Some(format!("{image} brought its own program: write it here, listening on $PORT"));
        }
        let Some(port) = port else { return (argv, remark) };
        let mut replaced = false;
        for argument in argv.iter_mut().skip(usize::from(archive.is_none())) {
            replaced |= end_with_port(argument, port);
        }
        if replaced {
            self.note(&format!("`{port}` in its command became $PORT"));
        } else if remark.is_none() {
            self.note(&format!("listened on {port} in its container: make it listen on $PORT, which is in its environment"));
        }
        (argv, remark)
    }

    /// The words of a command; those of one that begins with an option, or follows a program, are arguments and no line for a shell.
    fn argv_after(&mut self, key: &str, has_program: bool) -> Vec<String> {
        match self.service.get(key) {
            Some(Value::Array(_)) => self.list(key).iter().map(|word| escape(word)).collect(),
            Some(Value::String(line)) => {
                let line = self.variables.fill_in(line);
                let words = shlex::split(&line).filter(|_| has_program || line.trim_start().starts_with('-'));
                words.map_or_else(|| to_argv(&line, &[]), |words| words.iter().map(|word| escape(word)).collect())
            }
            _ => Vec::new(),
        }
    }

    /// Variables, and those of them that are secrets, by where these are.
    fn env(&mut self) -> (BTreeMap<String, String>, BTreeMap<String, String>) {
        let pairs: Vec<(String, Option<String>)> = match self.service.get("environment") {
            Some(Value::Object(map)) => map.iter().map(|(name, value)| (name.clone(), scalar(value))).collect(),
            Some(Value::Array(list)) => list.iter().filter_map(scalar).map(|entry| pair(&entry)).collect(),
            _ => Vec::new(),
        };
        let (mut env, mut secrets) = (BTreeMap::new(), BTreeMap::new());
        for (name, value) in pairs {
            match value {
                _ if !is_variable(&name) => self.note(&format!("left out `{name}` of its environment: no shell can set that")),
                None => self.note(&format!("took `{name}` from the environment of compose: set it in `env`")),
                Some(value) if name == "PORT" => {
                    self.note(&format!("set PORT to {value}: left out, because weal gives each instance its own"));
                }
                Some(value) => {
                    let value = self.variables.fill_in(&value);
                    match self.secret(&value) {
                        Some(place) => drop(secrets.insert(name, place)),
                        None => drop(env.insert(name, escape(&value))),
                    }
                }
            }
        }
        self.note_secrets();
        (env, secrets)
    }

    /// Where the secret is whose file in the container `value` names.
    fn secret(&self, value: &str) -> Option<String> {
        self.secrets.get(value.strip_prefix(SECRETS)?)?.clone()
    }

    fn note_secrets(&mut self) {
        let entries = self.service.get("secrets").and_then(Value::as_array).into_iter().flatten();
        let names = entries.filter_map(|entry| scalar(entry).or_else(|| entry.get("source").and_then(scalar)));
        for name in names.collect::<Vec<_>>() {
            match self.secrets.get(&name).cloned().flatten() {
                Some(place) => self.note(&format!(
                    "found its secret `{name}` in {SECRETS}{name}: here `secrets = {{ NAME = \"{place}\" }}` gives it, and a variable says where"
                )),
                None => self.note(&format!("left out its secret `{name}`, which another tool keeps: see `secrets`")),
            }
        }
    }

    /// Files with variables, a dash before those that need not be there.
    fn env_files(&mut self) -> Vec<String> {
        let entries = match self.service.get("env_file") {
            Some(Value::Array(list)) => list.clone(),
            Some(one) => vec![one.clone()],
            None => Vec::new(),
        };
        let mut files = Vec::new();
        for entry in entries {
            let path = entry.get("path").and_then(scalar).or_else(|| scalar(&entry));
            let is_optional = entry.get("required") == Some(&Value::Bool(false));
            if let Some(path) = path.map(|path| self.variables.fill_in(&path)) {
                files.push(format!("{}{path}", if is_optional { "-" } else { "" }));
            }
        }
        files
    }

    /// The first port inside the container.
    fn port(&mut self) -> Option<u16> {
        let of =
            |service: &Map<String, Value>, key: &str| service.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
        let entries = [of(self.service, "ports"), of(self.service, "expose")].concat();
        entries.iter().find_map(|entry| match entry {
            Value::Object(long) => long.get("target").and_then(scalar)?.parse().ok(),
            short => {
                let short = self.variables.fill_in(&scalar(short)?);
                short.split('/').next()?.rsplit(':').next()?.split('-').next()?.parse().ok()
            }
        })
    }

    fn needs(&mut self) -> Vec<String> {
        let mut needs: Vec<String> = match self.service.get("depends_on") {
            Some(Value::Object(table)) => table.iter().filter_map(|(name, how)| self.need(name, how)).collect(),
            _ => self.list("depends_on"),
        };
        needs.extend(self.list("links").iter().filter_map(|link| link.split(':').next().map(str::to_owned)));
        let mut found: Vec<String> =
            needs.iter().map(|need| self.names.get(need).cloned().unwrap_or_else(|| need.clone())).collect();
        found.sort();
        found.dedup();
        found
    }

    /// A need with conditions.
    fn need(&mut self, name: &str, how: &Value) -> Option<String> {
        let is_optional = how.get("required") == Some(&Value::Bool(false));
        if is_optional && !self.names.contains_key(name) {
            self.note(&format!("needs `{name}` no more, which is not there and need not be"));
            return None;
        }
        if how.get("restart") == Some(&Value::Bool(true)) {
            self.note(&format!("was restarted with `{name}`: here it goes on, and finds the next one at the same address"));
        }
        Some(name.to_owned())
    }

    fn health(&mut self) -> Option<InlineTable> {
        if self.is_task {
            return None;
        }
        let check = self.service.get("healthcheck")?.as_object()?;
        let words: Vec<String> = match check.get("test") {
            Some(Value::String(line)) => vec!["CMD-SHELL".to_owned(), line.clone()],
            Some(Value::Array(words)) => words.iter().filter_map(scalar).collect(),
            _ => Vec::new(),
        };
        let words: Vec<String> = words.iter().map(|word| self.variables.fill_in(word)).collect();
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
        Some(health_table(argv, check))
    }

    fn read_resources(&mut self, app: &mut App) {
        let resources = self.service.get("deploy").and_then(|deploy| deploy.get("resources"));
        if resources.is_some_and(|resources| resources.get("reservations").is_some()) {
            self.note(
                "left out `deploy.resources.reservations`: memory is reserved as far as `memory` goes, and CPU goes by goals",
            );
        }
        let limits = resources.and_then(|resources| resources.get("limits"));
        if limits.is_some_and(|limits| limits.get("pids").is_some()) {
            self.note("left out `deploy.resources.limits.pids`: see `processes` of `sandbox`");
        }
        if let Some(memory) = limits.and_then(|limits| limits.get("memory")).or(self.service.get("mem_limit")).and_then(scalar) {
            let memory = self.variables.fill_in(&memory);
            app.memory = size(&memory);
            if app.memory.is_none() && memory != "0" {
                self.note(&format!("left out its memory limit: `{memory}` is not a size"));
            }
        }
        app.cpu = limits.and_then(|limits| limits.get("cpus")).or(self.service.get("cpus")).and_then(cores);
        app.instances = self.replicas().filter(|_| !self.is_task);
        app.limits = self.ulimits();
    }

    fn replicas(&self) -> Option<u32> {
        let replicas = self.service.get("deploy").and_then(|deploy| deploy.get("replicas")).or(self.service.get("scale"));
        scalar(replicas?)?.parse().ok()
    }

    fn ulimits(&mut self) -> Vec<(String, u64)> {
        let Some(Value::Object(ulimits)) = self.service.get("ulimits") else { return Vec::new() };
        let mut limits = Vec::new();
        for (name, value) in ulimits {
            let value = value.get("hard").or(value.get("soft")).unwrap_or(value).as_u64();
            let known = ResourceLimit::ALL.into_iter().find(|limit| limit.as_str() == name && !limit.is_size());
            match (known, value) {
                (Some(limit), Some(value)) => limits.push((limit.as_str().to_owned(), value)),
                _ => self.note(&format!("left out `ulimits.{name}`: see `limits` and `sandbox`")),
            }
        }
        limits
    }

    fn user(&mut self) -> (Option<String>, Option<String>) {
        let Some(user) = self.text("user") else { return (None, None) };
        match user.split_once(':') {
            Some((user, group)) => (Some(user.to_owned()), Some(group.to_owned()).filter(|group| group != user)),
            None => (Some(user), None),
        }
    }

    fn stop_signal(&mut self) -> Option<&'static str> {
        let name = self.text("stop_signal")?;
        let known = ProcessSignal::ALL.map(ProcessSignal::as_str).into_iter().find(|known| *known == name || known[3..] == name);
        if known.is_none() {
            self.note(&format!("left out `stop_signal`: `{name}` is none of those that weal sends"));
        }
        known
    }

    fn span(&mut self, key: &str) -> Option<String> {
        let text = self.text(key)?;
        let seconds = duration(&text);
        if seconds.is_none() {
            self.note(&format!("left out `{key}`: `{text}` is not a duration"));
        }
        seconds.map(show_span)
    }

    fn restart(&mut self) -> Option<&'static str> {
        let policy = self.service.get("deploy").and_then(|deploy| deploy.get("restart_policy"));
        let condition = policy.map(|policy| policy.get("condition").and_then(scalar).unwrap_or_else(|| "any".to_owned()));
        let policy = condition.or_else(|| self.text("restart"))?;
        if policy.contains(':') {
            self.note(&format!("restarted as often as `{policy}` says: weal waits longer each time, and goes on"));
        }
        match policy.split(':').next()? {
            "no" | "false" | "none" => Some("never"),
            "on-failure" => Some("on-failure"),
            _ => Some("always"),
        }
    }
}

/// Compose lets a service fail during `start_period`, and gives it some checks more.
fn health_table(argv: Vec<String>, check: &Map<String, Value>) -> InlineTable {
    let span = |key: &str| check.get(key).and_then(scalar).and_then(|text| duration(&text)).filter(|seconds| *seconds >= 0.1);
    let retries = check.get("retries").and_then(scalar).and_then(|text| text.parse::<u32>().ok());
    let mut health = health_command(argv.iter().map(String::as_str));
    for key in ["interval", "timeout"] {
        health.extend(span(key).map(|seconds| (key, show_span(seconds))));
    }
    if let Some(start) = span("start_period") {
        let more = span("interval").unwrap_or(CHECK_INTERVAL_S) * retries.map_or(CHECK_RETRIES, f64::from);
        health.insert("start-timeout", show_span((start + more).min(LONGEST_START_S)).into());
    }
    health.extend(retries.filter(|retries| (1..=1000).contains(retries)).map(|retries| ("failures", i64::from(retries))));
    health
}

/// Puts `$PORT` in place of `port` at the end of an argument.
fn end_with_port(argument: &mut String, port: u16) -> bool {
    let digits = port.to_string();
    let is_it = argument.strip_suffix(&digits).is_some_and(|rest| !rest.ends_with(|c: char| c.is_ascii_alphanumeric()));
    if is_it {
        argument.truncate(argument.len() - digits.len());
        argument.push_str("$PORT");
    }
    is_it
}
