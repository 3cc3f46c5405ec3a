//! Makes a `weal.toml` of what other tools run applications from. What has no counterpart here is named, never dropped silently.

mod command;
mod compose;
mod procfile;

pub use compose::compose;
pub use procfile::procfile;

use std::collections::BTreeMap;

use weal_model::Bytes;

use crate::effective::{quote, quote_list};
use crate::units::show_size;

/// The outcome of an import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// A `weal.toml`.
    pub text: String,
    /// What was left out or has to be looked at, in sentences.
    pub notes: Vec<String>,
}

/// Why nothing could be imported.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// The text is no YAML.
    #[error("not a compose file: {0}")]
    Yaml(String),
    /// There is nothing to run in it.
    #[error("there is no {0} in it")]
    Nothing(&'static str),
    /// A line that cannot be read.
    #[error("line {line} is not `name: command`: `{text}`")]
    Line {
        /// From 1.
        line: usize,
        /// The line.
        text: String,
    },
}

/// One application on its way to TOML.
#[derive(Default)]
struct App {
    name: String,
    run: Vec<String>,
    /// A remark above `run`.
    remark: Option<String>,
    health: Option<String>,
    memory: Option<Bytes>,
    cpu: Option<f64>,
    instances: Option<u32>,
    host: Option<String>,
    needs: Vec<String>,
    user: Option<String>,
    env: BTreeMap<String, String>,
    cwd: Option<String>,
    stop_timeout: Option<String>,
    restart: Option<&'static str>,
}

impl App {
    fn to_toml(&self) -> String {
        let mut lines = vec![format!("[app.{}]", self.name)];
        lines.extend(self.remark.iter().map(|remark| format!("# {remark}")));
        lines.push(format!("run = {}", quote_list(&self.run)));
        lines.extend(self.health.iter().map(|health| format!("health = {health}")));
        lines.extend(self.memory.map(|memory| format!("memory = {}", quote(&show_size(memory)))));
        lines.extend(self.cpu.map(|cpu| format!("cpu = {cpu}")));
        lines.extend(self.instances.map(|count| format!("instances = {count}")));
        lines.extend(self.host.iter().map(|host| format!("routes = [ {{ host = {} }} ]", quote(host))));
        if !self.needs.is_empty() {
            lines.push(format!("needs = {}", quote_list(&self.needs)));
        }
        lines.extend(self.user.iter().map(|user| format!("user = {}", quote(user))));
        lines.extend(self.cwd.iter().map(|cwd| format!("cwd = {}", quote(cwd))));
        lines.extend(self.stop_timeout.iter().map(|span| format!("stop-timeout = {}", quote(span))));
        lines.extend(self.restart.map(|policy| format!("restart = {}", quote(policy))));
        if !self.env.is_empty() {
            lines.push(format!("\n[app.{}.env]", self.name));
            lines.extend(self.env.iter().map(|(name, value)| format!("{name} = {}", quote(value))));
        }
        lines.join("\n") + "\n"
    }
}

fn to_toml(from: &str, apps: &[App]) -> String {
    let parts: Vec<String> = apps.iter().map(App::to_toml).collect();
    format!(
        "# Imported from a {from}. Add goals: `[class.NAME]` with `goal = \"p95 < 250ms\"`, and `class` in the routes.\n\n{}",
        parts.join("\n")
    )
}
