//! `import::systemd`: a service unit.

use weal_model::written::show_span;
use weal_model::{ProcessSignal, ResourceLimit};

use super::app::{App, MAY_LISTEN, health_command, to_toml};
use super::command::escape;
use super::imported::{ImportError, Imported};
use super::sizes::size;
use crate::env_file::is_variable;
use crate::parse::app_name;

/// What of a unit is about its place in the system, or about how systemd shows it.
const NEEDLESS: [&str; 8] = ["Description", "Documentation", "After", "Wants", "Before", "WantedBy", "Alias", "SyslogIdentifier"];
/// What the strict sandbox does anyway.
const CONFINED: [&str; 16] = [
    "NoNewPrivileges",
    "PrivateTmp",
    "PrivateDevices",
    "ProtectSystem",
    "ProtectHome",
    "ProtectKernelTunables",
    "ProtectKernelModules",
    "ProtectKernelLogs",
    "ProtectControlGroups",
    "ProtectClock",
    "ProtectHostname",
    "RestrictSUIDSGID",
    "RestrictRealtime",
    "RestrictNamespaces",
    "LockPersonality",
    "CapabilityBoundingSet",
];

/// Makes a `weal.toml` of the unit that is called `unit`, such as `shop.service`.
///
/// # Errors
/// It starts no program.
pub fn systemd(text: &str, unit: &str) -> Result<Imported, ImportError> {
    let name = app_name([unit.trim_end_matches(".service").trim_end_matches('@')]);
    let mut reader = Reader { app: App { name, ..App::default() }, notes: Vec::new(), listens: false };
    for (section, key, value) in directives(text) {
        if section == "Service" || !NEEDLESS.contains(&key.as_str()) {
            reader.take(&key, &value);
        }
    }
    let Reader { mut app, mut notes, listens } = reader;
    if app.run.is_empty() {
        return Err(ImportError::Nothing("ExecStart"));
    }
    if app.is_task {
        app.health = None;
        // `always` says nothing of what runs once, and systemd refuses it there too.
        app.restart = app.restart.filter(|policy| *policy == "on-failure");
    } else if listens {
        app.host = Some(format!("{}.localhost", app.name));
    } else {
        notes.push(MAY_LISTEN.to_owned());
        app.health = Some(health_command(["true"]));
    }
    Ok(Imported { text: to_toml("systemd unit", &[app]), notes })
}

/// Section, key and value of each line; a backslash at a line's end joins it with the next.
fn directives(text: &str) -> Vec<(String, String, String)> {
    let joined = text.replace("\\\n", " ");
    let (mut section, mut found) = (String::new(), Vec::new());
    for line in joined.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(['#', ';'])) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            name.clone_into(&mut section);
        } else if let Some((key, value)) = line.split_once('=') {
            found.push((section.clone(), key.trim().to_owned(), value.trim().to_owned()));
        }
    }
    found
}

struct Reader {
    app: App,
    notes: Vec<String>,
    /// Whether its command names a port of weal's.
    listens: bool,
}

impl Reader {
    fn take(&mut self, key: &str, value: &str) {
        match key {
            "ExecStart" => self.command(value),
            "Environment" => self.environment(value),
            "EnvironmentFile" => self.app.env_files.push(value.to_owned()),
            "User" => self.app.user = Some(value.to_owned()),
            "Group" => self.app.group = Some(value.to_owned()),
            "WorkingDirectory" => self.app.cwd = Some(value.trim_start_matches('-').to_owned()),
            "Restart" => self.app.restart = Some(restart(value)),
            "TimeoutStopSec" => self.stop_timeout(value),
            "KillSignal" => self.stop_signal(value),
            "ReloadSignal" => self.reload_signal(value),
            "ExecReload" if signal_of_kill(value).is_some() => self.app.reload_signal = signal_of_kill(value),
            "MemoryMax" | "MemoryLimit" => self.memory(value),
            "CPUQuota" => self.cpu(value),
            "LoadCredential" => self.credential(value),
            _ => self.other(key, value),
        }
    }

    fn other(&mut self, key: &str, value: &str) {
        if let Some(limit) = key.strip_prefix("Limit") {
            return self.limit(limit, value);
        }
        let note = match key {
            _ if CONFINED.contains(&key) || NEEDLESS.contains(&key) => return,
            "Type" if ["simple", "exec"].contains(&value) => return,
            "Type" if value == "oneshot" => {
                self.app.is_task = true;
                "was of the type `oneshot`: here it is a task, which runs once per deploy; a timer's is a job with a `schedule`"
                    .to_owned()
            }
            "Type" => format!("was of the type `{value}`: here it stays in the foreground, and `health` says when it is ready"),
            "ExecStartPre" | "ExecStartPost" | "ExecStop" | "ExecStopPost" | "ExecReload" => {
                format!("left out `{key}={value}`: weal runs nothing there")
            }
            "UMask" => {
                self.app.umask = Some(value.to_owned());
                return;
            }
            "Requires" | "BindsTo" => format!("left out `{key}={value}`: `needs` names applications of the same weal.toml"),
            _ => format!("left out `{key}={value}`"),
        };
        self.notes.push(note);
    }

    /// systemd fills `$NAME` in as weal does, and `%` stands for things of the unit's own.
    fn command(&mut self, value: &str) {
        if value.is_empty() {
            // An empty one takes back those before it.
            self.app.run.clear();
            return;
        }
        let line = value.trim_start_matches(['-', '@', ':', '+', '!']);
        let words = shlex::split(line).unwrap_or_else(|| line.split_whitespace().map(str::to_owned).collect());
        if let Some(word) = words.iter().find(|word| word.contains('%')) {
            self.notes.push(format!("has `{word}` in its command, in which systemd fills `%` in: write what it stands for"));
        }
        if !self.app.run.is_empty() {
            self.notes.push(format!("starts several commands: left out `{line}`"));
            return;
        }
        self.listens = words.iter().any(|word| word.contains("$PORT") || word.contains("${PORT}"));
        let keep = |word: &String| if word.contains("PORT") { word.clone() } else { escape(word) };
        self.app.run = words.iter().map(keep).collect();
    }

    fn environment(&mut self, value: &str) {
        for entry in shlex::split(value).unwrap_or_default() {
            match entry.split_once('=') {
                Some(("PORT", port)) => {
                    self.notes.push(format!("set PORT to {port}: left out, because weal gives each instance its own"))
                }
                Some((name, value)) if is_variable(name) => drop(self.app.env.insert(name.to_owned(), escape(value))),
                _ => self.notes.push(format!("left out `{entry}` of its environment")),
            }
        }
    }

    fn stop_timeout(&mut self, value: &str) {
        match seconds(value) {
            Some(seconds) => self.app.stop_timeout = Some(show_span(seconds)),
            None => self.notes.push(format!("left out `TimeoutStopSec={value}`: `stop-timeout` takes a time")),
        }
    }

    fn reload_signal(&mut self, value: &str) {
        self.app.reload_signal = signal(value);
        if self.app.reload_signal.is_none() {
            self.notes.push(format!("left out `ReloadSignal={value}`: it is none of those that weal sends"));
        }
    }

    fn stop_signal(&mut self, value: &str) {
        self.app.stop_signal = signal(value);
        if self.app.stop_signal.is_none() {
            self.notes.push(format!("left out `KillSignal={value}`: it is none of those that weal sends"));
        }
    }

    fn memory(&mut self, value: &str) {
        self.app.memory = size(value);
        let note = match (self.app.memory, value) {
            (Some(_), _) => return,
            (None, "infinity") => {
                "had no memory limit: here it has one, by default 256MiB, so write what it needs at most in `memory`".to_owned()
            }
            (None, _) => format!("left out its memory limit `{value}`: write a size in `memory`"),
        };
        self.notes.push(note);
    }

    fn cpu(&mut self, value: &str) {
        let percent = value.strip_suffix('%').and_then(|percent| percent.parse::<f64>().ok());
        self.app.cpu = percent.map(|percent| percent / 100.0).filter(|cores| (0.01..=4096.0).contains(cores));
        // Without a quota it may use what there is, as here.
        if self.app.cpu.is_none() && !value.is_empty() {
            self.notes.push(format!("left out `CPUQuota={value}`: `cpu` takes cores, from 0.01"));
        }
    }

    fn limit(&mut self, name: &str, value: &str) {
        let lower = name.to_lowercase();
        let known = ResourceLimit::ALL.into_iter().find(|limit| limit.as_str() == lower && !limit.is_size());
        match (known, value.parse()) {
            (Some(_), Ok(count)) => self.app.limits.push((lower, count)),
            _ => self.notes.push(format!("left out `Limit{name}={value}`: see `limits` and `sandbox`")),
        }
    }

    fn credential(&mut self, value: &str) {
        let (name, path) = value.split_once(':').unwrap_or((value, value));
        let text = format!(
            "found its credential `{name}` in $CREDENTIALS_DIRECTORY: `secrets = {{ NAME = \"file:{path}\" }}` gives it here"
        );
        self.notes.push(text);
    }
}

/// A signal that weal sends, with or without `SIG` before its name.
fn signal(name: &str) -> Option<&'static str> {
    ProcessSignal::ALL
        .map(ProcessSignal::as_str)
        .into_iter()
        .find(|known| *known == name || known.strip_prefix("SIG") == Some(name))
}

/// The signal of `/bin/kill -HUP $MAINPID`, as most units are reloaded; `None` for any other command.
fn signal_of_kill(command: &str) -> Option<&'static str> {
    let words: Vec<&str> = command.split_whitespace().collect();
    let name = match words.as_slice() {
        [_, "-s", name, "$MAINPID"] => *name,
        [_, option, "$MAINPID"] => option.strip_prefix('-')?,
        _ => return None,
    };
    let program = words[0].trim_start_matches('-');
    ["kill", "/bin/kill", "/usr/bin/kill"].contains(&program).then(|| signal(name)).flatten()
}

fn restart(value: &str) -> &'static str {
    match value {
        "no" => "never",
        "on-failure" | "on-abnormal" | "on-abort" | "on-watchdog" => "on-failure",
        _ => "always",
    }
}

/// `90`, `1min 30s`, `500ms`; in seconds.
fn seconds(text: &str) -> Option<f64> {
    let unit = |part: &str| {
        let digits = part.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(part.len());
        let factor = match &part[digits..] {
            "ms" | "msec" => 1e-3,
            "" | "s" | "sec" | "second" | "seconds" => 1.0,
            "m" | "min" | "minute" | "minutes" => 60.0,
            "h" | "hr" | "hour" | "hours" => 3600.0,
            _ => return None,
        };
        Some(part[..digits].parse::<f64>().ok()? * factor)
    };
    let sum: Option<f64> = text.split_whitespace().map(unit).sum();
    sum.filter(|seconds| *seconds > 0.0)
}
