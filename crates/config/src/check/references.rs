//! Names that point at something else: classes, needed applications, variables.

use std::collections::{BTreeMap, BTreeSet};

use weal_model::{AppName, AppSpec, HealthProbe, PoolSpec, ScheduledJob, naming};

use crate::section::{Reading, within};
use crate::{defaults, suggest};

/// What the node agent gives to every instance.
const GIVEN: [&str; 4] = ["PORT", "DATA", "INSTANCE", "NODE"];
/// What every instance has without being asked.
const INHERITED: [&str; 6] = ["PATH", "HOME", "USER", "LANG", "TZ", "TMPDIR"];

pub(super) fn check(reading: &mut Reading, spec: &PoolSpec) {
    for (name, app) in &spec.apps {
        check_classes(reading, spec, app);
        for (key, names) in [("needs", &app.needs), ("together", &app.together), ("apart", &app.apart)] {
            check_apps(reading, spec, name, key, names);
        }
        check_variables(reading, app);
    }
    for job in spec.jobs.values() {
        check_job_class(reading, spec, job);
    }
    check_unused_classes(reading, spec);
    check_needs_cycles(reading, spec);
}

fn check_classes(reading: &mut Reading, spec: &PoolSpec, app: &AppSpec) {
    for (index, route) in app.routes.iter().enumerate() {
        let class = route.class.as_str();
        if !spec.classes.contains_key(class) && class != defaults::CLASS {
            let place = reading.places.value(&format!("app.{}.routes.{index}.class", app.name));
            let help = unknown_class_help(spec, class);
            reading.findings.error(place, format!("unknown class `{class}`"), help);
        }
    }
}

fn check_job_class(reading: &mut Reading, spec: &PoolSpec, job: &ScheduledJob) {
    let Some(class) = job.class.as_ref().filter(|class| !spec.classes.contains_key(*class)) else { return };
    let place = reading.places.value(&format!("job.{}.class", job.name));
    let help = unknown_class_help(spec, class.as_str());
    reading.findings.error(place, format!("unknown class `{class}`"), help);
}

fn unknown_class_help(spec: &PoolSpec, class: &str) -> String {
    let known: Vec<&str> = spec.classes.keys().map(|name| name.as_str()).filter(|name| *name != defaults::CLASS).collect();
    if known.is_empty() { format!("add `[class.{class}]` with a `goal`") } else { suggest::help(class, known, "classes") }
}

fn check_apps(reading: &mut Reading, spec: &PoolSpec, name: &AppName, key: &str, others: &BTreeSet<AppName>) {
    for other in others {
        let place = reading.places.value(&format!("app.{name}.{key}.{other}"));
        if other == name {
            let message = match key {
                "needs" => format!("`{name}` needs itself"),
                "apart" => format!("`{name}` cannot be apart from itself"),
                _ => format!("`{name}` is always together with itself"),
            };
            let help = if key == "apart" { "for one instance a node write `per-node = 1`" } else { "leave it out" };
            reading.findings.error(place, message, help);
        } else if !spec.apps.contains_key(other) {
            let known = spec.apps.keys().filter(|known| *known != name).map(|name| name.as_str());
            let help = suggest::help(other.as_str(), known, "other applications");
            reading.findings.error(place, format!("unknown application `{other}`"), help);
        }
    }
}

fn check_variables(reading: &mut Reading, app: &AppSpec) {
    let from_needs = app.needs.iter().flat_map(|need| ["ADDR", "HOST", "PORT"].map(|part| naming::variable(need, part)));
    let mut known: BTreeSet<String> = from_needs.collect();
    known.extend(GIVEN.iter().chain(&INHERITED).map(|name| (*name).to_owned()));
    known.extend(app.env.keys().cloned());
    let mut commands = vec![("run", &app.run)];
    if let HealthProbe::Command { argv } = &app.health.probe {
        commands.push(("health.command", argv));
    }
    for (key, argv) in commands {
        for (index, argument) in argv.iter().enumerate() {
            for unknown in variables(argument).into_iter().filter(|name| !known.contains(*name)) {
                let place = reading.places.value(&format!("app.{}.{key}.{index}", app.name));
                let span = within(reading.findings.source(&place), &place, unknown);
                let names = || known.iter().map(String::as_str).filter(|name| !INHERITED.contains(name));
                let mut help = suggest::help(unknown, names(), "variables");
                if suggest::meant(unknown, names()).is_none() {
                    help.push_str("; write `$$` for a dollar sign");
                }
                reading.findings.warning(span, format!("`${unknown}` is not set by anything here"), help);
            }
        }
    }
}

/// The names in `$NAME` and `${NAME}`.
fn variables(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            rest = after;
            continue;
        }
        let name = rest.strip_prefix('{').unwrap_or(rest);
        let end = name.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(name.len());
        if end > 0 && !name.starts_with(|c: char| c.is_ascii_digit()) {
            found.push(&name[..end]);
        }
        rest = &name[end..];
    }
    found
}

fn check_unused_classes(reading: &mut Reading, spec: &PoolSpec) {
    let by_routes = spec.apps.values().flat_map(|app| &app.routes).map(|route| route.class.as_str());
    let by_jobs = spec.jobs.values().filter_map(|job| job.class.as_ref()).map(|class| class.as_str());
    let used: BTreeSet<&str> = by_routes.chain(by_jobs).collect();
    for name in spec.classes.keys().filter(|name| !used.contains(name.as_str())) {
        let place = reading.places.key(&format!("class.{name}"));
        reading.findings.warning(place, format!("no route uses class `{name}`"), format!("add `class = \"{name}\"` to a route"));
    }
}

/// Reports each cycle of `needs` once, at the entry that closes it.
fn check_needs_cycles(reading: &mut Reading, spec: &PoolSpec) {
    let mut done: BTreeMap<&AppName, bool> = BTreeMap::new();
    for name in spec.apps.keys() {
        visit(reading, spec, name, &mut Vec::new(), &mut done);
    }
}

/// Depth first. `done` is false for applications on the way here and true for those that are finished.
fn visit<'s>(
    reading: &mut Reading,
    spec: &'s PoolSpec,
    name: &'s AppName,
    way: &mut Vec<&'s AppName>,
    done: &mut BTreeMap<&'s AppName, bool>,
) {
    if done.contains_key(name) {
        return;
    }
    done.insert(name, false);
    way.push(name);
    for need in spec.apps[name].needs.iter().filter(|need| *need != name && spec.apps.contains_key(*need)) {
        if done.get(need) == Some(&false) {
            let start = way.iter().position(|passed| *passed == need).unwrap_or(0);
            let mut cycle: Vec<&str> = way[start..].iter().map(|passed| passed.as_str()).collect();
            cycle.push(need.as_str());
            let place = reading.places.value(&format!("app.{name}.needs.{need}"));
            let message = format!("`needs` goes in a circle: {}", cycle.join(" -> "));
            reading.findings.error(place, message, "none of them could ever start: remove one of these needs");
        } else {
            visit(reading, spec, need, way, done);
        }
    }
    way.pop();
    done.insert(name, true);
}
