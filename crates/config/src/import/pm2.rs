//! `import::pm2`: an ecosystem file of PM2 in JSON.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use weal_model::Bytes;
use weal_model::written::show_span;

use super::app::{App, MAY_LISTEN, health_command, to_toml};
use super::command::{escape, to_argv};
use super::imported::{ImportError, Imported};
use super::sizes::size;
use crate::env_file::is_variable;
use crate::parse::app_name;

/// What is read of an application.
const UNDERSTOOD: [&str; 14] = [
    "name",
    "script",
    "args",
    "interpreter",
    "interpreter_args",
    "node_args",
    "cwd",
    "env",
    "instances",
    "exec_mode",
    "max_memory_restart",
    "kill_timeout",
    "autorestart",
    "watch",
];

/// Makes a `weal.toml` of a list of applications as PM2 has it. A file in JavaScript says what it is with `node -p`.
///
/// # Errors
/// No JSON; no applications in it.
pub fn pm2(text: &str) -> Result<Imported, ImportError> {
    let file: Value = serde_json::from_str(text).map_err(|error| ImportError::Json(error.to_string()))?;
    let list = file.get("apps").unwrap_or(&file);
    let entries = list.as_array().cloned().unwrap_or_else(|| vec![list.clone()]);
    let mut notes = Vec::new();
    let others = file.as_object().filter(|file| file.contains_key("apps")).into_iter().flat_map(Map::keys);
    notes.extend(others.filter(|key| *key != "apps").map(|key| format!("left out `{key}`: only `apps` is read")));
    let mut apps = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        match entry.as_object().and_then(|entry| read(entry, &mut notes)) {
            Some(app) => apps.push(app),
            None => notes.push(format!("left out application {}: it has no `script`", index + 1)),
        }
    }
    if apps.is_empty() {
        return Err(ImportError::Nothing("application with a `script`"));
    }
    Ok(Imported { text: to_toml("PM2 file", &apps), notes })
}

fn read(entry: &Map<String, Value>, notes: &mut Vec<String>) -> Option<App> {
    let text = |key: &str| entry.get(key).and_then(Value::as_str);
    let script = text("script")?;
    let name = app_name([text("name").unwrap_or_default(), script.rsplit('/').next()?.split('.').next()?]);
    let mut note = |text: &str| notes.push(format!("{name}: {text}"));
    let mut app = App { name: name.clone(), run: command(entry, script), cwd: text("cwd").map(str::to_owned), ..App::default() };
    app.env = environment(entry, &mut app.host, &name, &mut note);
    if app.host.is_none() {
        note(MAY_LISTEN);
        app.health = Some(health_command(["true"]));
    }
    app.instances = instances(entry, &mut note);
    app.memory = memory(entry, &mut note);
    app.stop_timeout = stop_timeout(entry, &mut note);
    app.restart = (entry.get("autorestart") == Some(&Value::Bool(false))).then_some("never");
    if entry.get("watch").is_some_and(|watch| *watch != Value::Bool(false)) {
        note("was restarted when its files changed: weal does not watch them");
    }
    for (key, value) in entry.iter().filter(|(key, value)| !is_of_its_type(key, value)) {
        note(&format!("left out `{key}`: `{value}` is not what PM2 takes there"));
    }
    let is_left_out = |key: &&String| !UNDERSTOOD.contains(&key.as_str()) && !key.starts_with("env_");
    entry.keys().filter(is_left_out).for_each(|key| note(&format!("left out `{key}`")));
    for key in entry.keys().filter(|key| key.starts_with("env_")) {
        note(&format!("left out `{key}`: its variables were for another `--env`"));
    }
    Some(app)
}

/// Whether `key`, if it is read at all, holds what is read of it. Sizes, times and numbers of instances have notes of their own.
fn is_of_its_type(key: &str, value: &Value) -> bool {
    match key {
        "name" | "script" | "interpreter" | "cwd" | "exec_mode" => value.is_string(),
        "args" | "interpreter_args" | "node_args" => {
            value.is_string() || value.as_array().is_some_and(|words| words.iter().all(Value::is_string))
        }
        "env" => value.is_object(),
        "autorestart" => value.is_boolean(),
        _ => true,
    }
}

/// PM2 restarts what takes more, and counts a plain number in bytes.
fn memory(entry: &Map<String, Value>, note: &mut impl FnMut(&str)) -> Option<Bytes> {
    let value = entry.get("max_memory_restart")?;
    let memory = value.as_str().map_or_else(|| size(&value.to_string()), size);
    if memory.is_none() {
        note(&format!("left out `max_memory_restart`: `{value}` is no size, such as 300M; write one in `memory`"));
    }
    memory
}

/// PM2 counts in milliseconds.
fn stop_timeout(entry: &Map<String, Value>, note: &mut impl FnMut(&str)) -> Option<String> {
    let value = entry.get("kill_timeout")?;
    let milliseconds = value.as_f64().or_else(|| value.as_str()?.trim().parse().ok());
    let span = milliseconds.filter(|span| span.is_finite() && *span > 0.0).map(|span| show_span(span / 1e3));
    if span.is_none() {
        note(&format!("left out `kill_timeout`: `{value}` is no time in milliseconds"));
    }
    span
}

/// Scripts run under Node.js unless an interpreter is named; `none` runs them as they are.
fn command(entry: &Map<String, Value>, script: &str) -> Vec<String> {
    let words = |key: &str| match entry.get(key) {
        Some(Value::Array(words)) => words.iter().filter_map(Value::as_str).map(escape).collect(),
        Some(Value::String(line)) => shlex::split(line).unwrap_or_default().iter().map(|word| escape(word)).collect(),
        _ => Vec::new(),
    };
    let extension = script.rsplit_once('.').map_or("", |(_, extension)| extension);
    let interpreter = match entry.get("interpreter").and_then(Value::as_str) {
        Some("none") => None,
        Some(named) => Some(named),
        None => match extension {
            "js" | "cjs" | "mjs" => Some("node"),
            "py" => Some("python3"),
            "rb" => Some("ruby"),
            "sh" => Some("bash"),
            _ => None,
        },
    };
    let program = to_argv(script, &[]);
    let before = interpreter.map(str::to_owned).into_iter().chain(words("interpreter_args")).chain(words("node_args"));
    before.chain(program).chain(words("args")).collect()
}

/// Its variables. One that sets PORT listens there, and so is a web application.
fn environment(
    entry: &Map<String, Value>,
    host: &mut Option<String>,
    name: &str,
    note: &mut impl FnMut(&str),
) -> BTreeMap<String, String> {
    let mut env = BTreeMap::new();
    for (variable, value) in entry.get("env").and_then(Value::as_object).into_iter().flatten() {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        if variable == "PORT" {
            *host = Some(format!("{name}.localhost"));
            note(&format!("set PORT to {value}: left out, because weal gives each instance its own"));
        } else if is_variable(variable) {
            env.insert(variable.clone(), escape(&value));
        } else {
            note(&format!("left out `{variable}` of its environment: no shell can set that"));
        }
    }
    env
}

fn instances(entry: &Map<String, Value>, note: &mut impl FnMut(&str)) -> Option<u32> {
    let value = entry.get("instances")?;
    let count = value.as_i64().or_else(|| value.as_str()?.parse().ok());
    match count.and_then(|count| u32::try_from(count).ok()).filter(|count| *count > 0) {
        Some(count) => Some(count),
        None => {
            note("had an instance for each core: weal starts as many as its goal takes, within `instances`");
            None
        }
    }
}
