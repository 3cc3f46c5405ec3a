//! Tasks: `kind = "task"`, `release`, and `needs = { migrate = "done" }`.

use std::collections::BTreeSet;

use toml::de::DeValue;
use weal_model::{AppKind, AppName, AppSpec, HealthProbe, InstanceRange, RestartPolicy};

use super::argv::check_argv;
use crate::section::{Reading, Section};
use crate::suggest;

/// Keys that say nothing about what runs once.
const NOT_FOR_TASKS: [&str; 6] = ["health", "instances", "routes", "release", "sleep-after", "keep-awake"];
/// Nobody asks a task how it is.
const NEVER_S: f64 = 86_400.0;

/// Whom an application needs.
#[derive(Debug, Default)]
pub(super) struct Needs {
    /// Those that must be ready.
    pub ready: BTreeSet<AppName>,
    /// Tasks that must be done.
    pub done: BTreeSet<AppName>,
}

/// A list of applications, or a table that says of each whether it must be ready or done.
pub(super) fn read_needs(reading: &mut Reading, section: &Section) -> Needs {
    let mut needs = Needs::default();
    let Some(item) = section.item("needs") else { return needs };
    let DeValue::Table(table) = item.value else {
        needs.ready = section.names(reading, "needs").unwrap_or_default().into_iter().map(AppName::from).collect();
        return needs;
    };
    let names: Vec<&str> = table.keys().map(|key| key.get_ref().as_ref()).collect();
    let table = Section::open(reading, &item.path, table, &names);
    for name in names {
        match table.text(reading, name).as_deref() {
            Some("ready") => drop(needs.ready.insert(AppName::from(name))),
            Some("done") => drop(needs.done.insert(AppName::from(name))),
            Some(other) => {
                let help = suggest::help(other, ["ready", "done"], "words");
                let message = format!("`{name}` cannot be needed to be `{other}`");
                reading.findings.error(reading.places.value(&table.at(name)), message, help);
            }
            None => {}
        }
    }
    needs
}

/// A task is made one; of an application with `release`, the task comes beside it.
pub(super) fn finish(reading: &mut Reading, section: &Section, spec: AppSpec) -> (AppSpec, Option<AppSpec>) {
    if spec.kind == AppKind::Task {
        return (as_task(reading, section, spec), None);
    }
    let Some(run) = section.texts(reading, "release") else { return (spec, None) };
    check_argv(reading, &run, reading.places.value(&section.at("release")));
    let name = AppName::from(format!("{}-release", spec.name));
    let task = AppSpec { name: name.clone(), run, step_of: Some(spec.name.clone()), ..runs_once(spec.clone()) };
    let mut spec = spec;
    spec.after.insert(name);
    (spec, Some(task))
}

fn as_task(reading: &mut Reading, section: &Section, spec: AppSpec) -> AppSpec {
    for key in NOT_FOR_TASKS.into_iter().filter(|key| section.item(key).is_some()) {
        let help = "leave it out: a task runs once per deploy, and serves nobody";
        reading.findings.error(reading.places.key(&section.at(key)), format!("a task has no `{key}`"), help);
    }
    if section.item("restart").is_some() && spec.restart == RestartPolicy::Always {
        let help = "write `\"on-failure\"` or `\"never\"`, the default of a task";
        reading.findings.error(reading.places.value(&section.at("restart")), "a task that ends is not started again", help);
    }
    runs_once(spec)
}

/// One instance, which no plan moves, which nobody asks for its health, and which is not started again.
fn runs_once(mut spec: AppSpec) -> AppSpec {
    spec.kind = AppKind::Task;
    spec.health.probe = HealthProbe::Command { argv: vec!["true".to_owned()] };
    (spec.health.interval_s, spec.health.start_timeout_s, spec.health.replace_after) = (NEVER_S, NEVER_S, 0);
    (spec.instances, spec.per_node, spec.pinned) = (InstanceRange { min: 1, max: 1 }, 1, true);
    spec.routes.clear();
    spec.keep_awake = None;
    if spec.restart == RestartPolicy::Always {
        spec.restart = RestartPolicy::Never;
    }
    spec
}
