//! From text to [`PoolSpec`].

mod acme;
mod address;
mod api_tls;
mod app;
mod argv;
mod awake;
mod class;
mod clients;
mod dispatch;
mod extras;
mod health;
mod image;
mod job;
mod listen;
mod logs_to;
mod names;
mod notify;
mod paths;
mod pool;
mod port;
mod process;
mod route_keys;
mod routes;
mod sandbox;
mod schedule;
mod task;
mod tls;

use std::collections::BTreeMap;
use std::path::Path;

pub use names::app_name;
pub(crate) use names::as_name;
use toml::de::DeTable;
use weal_model::{AppName, AppSpec, ClassName, Importance, PoolSpec, ScheduledJobs, ServiceClass};

use crate::diagnostic::{Diagnostic, Findings};
use crate::machine::MachineSize;
use crate::section::{Reading, Section, Spans};
use crate::{check, defaults};

/// A config that can be used.
#[derive(Debug, Clone, PartialEq)]
pub struct Parsed {
    /// What it says, with every default filled in.
    pub spec: PoolSpec,
    /// What somebody should look at, in the order of the text.
    pub warnings: Vec<Diagnostic>,
    places: Spans,
}

impl Parsed {
    /// A warning about what stands at the dotted path `at` (`app.shop.run.0`, or the nearest table around it) of `text`, which was read as
    /// `path`: for what only a look at the machine can find.
    pub fn warning(&self, (text, path): (&str, &str), at: &str, message: String, help: String) -> Diagnostic {
        let mut findings = Findings::new(text, path);
        findings.warning(self.places.value(at), message, help);
        findings.finish().1.remove(0)
    }
}

/// Reads a config.
///
/// `path` names the file in messages; its folder is what relative `cwd`s are relative to and, by its name, the pool's
/// default name: pass it absolute. `machine` is what the pool runs on.
///
/// # Errors
/// Everything that is wrong with the text, warnings included, in its order.
pub fn parse(text: &str, path: &str, machine: &MachineSize) -> Result<Parsed, Vec<Diagnostic>> {
    let mut reading = Reading { findings: Findings::new(text, path), places: Spans::default() };
    let (root, syntax_errors) = DeTable::parse_recoverable(text);
    for error in &syntax_errors {
        let span = error.span().unwrap_or(0..0);
        let (message, help) = explain_syntax(error.message(), reading.findings.source(&span).trim());
        reading.findings.error(span, message, help);
    }
    // After a syntax error what is read is incomplete: further findings would mislead.
    if syntax_errors.is_empty() {
        let spec = read(&mut reading, root.get_ref(), path, machine);
        let (errors, warnings) = reading.findings.finish();
        let places = reading.places;
        return if errors.is_empty() { Ok(Parsed { spec, warnings, places }) } else { Err(merge(errors, warnings)) };
    }
    Err(reading.findings.finish().0)
}

fn read(reading: &mut Reading, root: &DeTable, path: &str, machine: &MachineSize) -> PoolSpec {
    let root = Section::open(reading, "", root, &["pool", "node", "class", "app", "job", "tls", "notify"]);
    let folder = folder_of(path);
    let (mut spec, tls) = pool::read(reading, &root, &folder);
    spec.nodes = pool::read_nodes(reading, &root, machine);
    spec.classes = class::read_all(reading, &root);
    spec.apps = read_apps(reading, &root, &folder);
    spec.jobs = read_jobs(reading, &root, &folder);
    spec.notify = notify::read_all(reading, &root);
    spec.tls = tls::read(reading, &root, &folder, tls, &spec.apps);
    let uses_default = spec.apps.values().flat_map(|app| &app.routes).any(|route| route.class.as_str() == defaults::CLASS);
    if uses_default && !spec.classes.contains_key(defaults::CLASS) {
        let name = ClassName::from(defaults::CLASS);
        spec.classes.insert(name.clone(), ServiceClass::new(name, None, Importance::NORMAL));
    }
    check::check(reading, &spec, machine);
    spec
}

fn read_apps(reading: &mut Reading, root: &Section, folder: &Path) -> BTreeMap<AppName, AppSpec> {
    let Some(apps) = root.table(reading, "app") else {
        // Nodes without applications are a pool for jobs.
        if !["app", "node", "job"].iter().any(|key| reading.places.has(key)) {
            let help = "add one: `[app.NAME]` with `run = [\"./program\", \"--port\", \"$PORT\"]`";
            reading.findings.error(0..0, "there are no applications", help);
        }
        return BTreeMap::new();
    };
    let mut read = BTreeMap::new();
    for (name, table) in names::named(reading, "app", apps) {
        let (app, release) = app::read(reading, name, table, folder);
        if let Some(step) = release.as_ref().filter(|step| apps.keys().any(|key| key.get_ref() == step.name.as_str())) {
            let help = "rename it: weal shows the step of `release` under this name";
            let place = reading.places.key(&format!("app.{}", step.name));
            reading.findings.error(place, format!("`{}` is the release step of `{name}`", step.name), help);
        }
        for app in std::iter::once(app).chain(release) {
            read.insert(app.name.clone(), app);
        }
    }
    read
}

fn read_jobs(reading: &mut Reading, root: &Section, folder: &Path) -> ScheduledJobs {
    let Some(jobs) = root.table(reading, "job") else { return ScheduledJobs::new() };
    let named = names::named(reading, "job", jobs);
    let read = named.into_iter().filter_map(|(name, table)| job::read(reading, name, table, folder));
    read.map(|job| (job.name.clone(), job)).collect()
}

fn folder_of(path: &str) -> std::path::PathBuf {
    match Path::new(path).parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => Path::new("/").to_owned(),
    }
}

/// The messages of the TOML parser, said to somebody who may not know TOML. `wrong` is the text it points at.
fn explain_syntax(message: &str, wrong: &str) -> (String, String) {
    let quoted = format!("put it in quotes: `\"{wrong}\"`");
    let (message, help) = match message {
        _ if message.contains("duplicate key") => (message, "a key or table may be given once: remove or rename one of them"),
        _ if message.contains("must be quoted") && wrong.is_empty() => ("there is no value", "write one after the `=`"),
        _ if message.contains("must be quoted") => ("a string must be in quotes", quoted.as_str()),
        _ if ["float", "integer", "date", "time"].iter().any(|kind| message.starts_with(&format!("invalid {kind}"))) => {
            ("this is no number", "if it is meant as a string, put all of it in quotes")
        }
        _ if message.contains("basic string") => ("the string does not end", "close it with `\"`"),
        _ if message.contains("unclosed array") => ("the list does not end", "close it with `]`"),
        _ if message.contains("unclosed table") => ("the header does not end", "close it with `]`"),
        _ => (message, "see https://toml.io for how keys, tables and values are written"),
    };
    (message.to_owned(), help.to_owned())
}

fn merge(errors: Vec<Diagnostic>, warnings: Vec<Diagnostic>) -> Vec<Diagnostic> {
    let mut all = errors;
    all.extend(warnings);
    all.sort_by_key(|found| found.span.start);
    all
}
