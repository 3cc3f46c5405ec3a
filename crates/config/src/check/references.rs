//! Names that point at something else: classes, needed applications, variables.

use std::collections::{BTreeMap, BTreeSet};

use weal_model::{AppKind, AppName, AppSpec, HealthProbe, PoolSpec, ScheduledJob, naming};

use crate::given::GIVEN_TO_INSTANCES;
use crate::section::{Reading, within};
use crate::{defaults, suggest};

/// What every instance has without being asked.
const INHERITED: [&str; 3] = ["PATH", "HOME", "USER"];
/// What an instance has where weal itself has it.
const PERHAPS: [&str; 5] = ["LANG", "LC_ALL", "TZ", "TMPDIR", "JAVA_HOME"];

pub(super) fn check(reading: &mut Reading, spec: &PoolSpec) {
    for (name, app) in spec.apps.iter().filter(|(_, app)| app.step_of.is_none()) {
        check_classes(reading, spec, app);
        for (key, names) in [("needs", &app.needs), ("needs", &app.after), ("together", &app.together), ("apart", &app.apart)] {
            check_apps(reading, spec, name, key, names);
        }
        check_tasks(reading, spec, app);
    }
    spec.apps.values().for_each(|app| check_variables(reading, app));
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

/// Only a task is ever done.
fn check_tasks(reading: &mut Reading, spec: &PoolSpec, app: &AppSpec) {
    let is_service = |other: &&AppName| spec.apps.get(*other).is_some_and(|other| other.kind != AppKind::Task);
    for other in app.after.iter().filter(is_service).filter(|other| **other != app.name) {
        let place = reading.places.value(&format!("app.{}.needs.{other}", app.name));
        let help = format!("write `{other} = \"ready\"`, or `kind = \"task\"` in [app.{other}] if it ends by itself");
        reading.findings.error(place, format!("`{other}` is never done: it is no task"), help);
    }
}

/// An instance whose command or environment names a variable that nobody sets does not start.
fn check_variables(reading: &mut Reading, app: &AppSpec) {
    let known = known_variables(app);
    for (path, text) in texts_with_variables(app) {
        for unknown in variables(text).into_iter().filter(|name| !known.contains(*name)) {
            let place = reading.places.value(&path);
            let span = within(reading.findings.source(&place), &place, unknown);
            let message = format!("`${unknown}` is not set by anything here");
            if app.process.secrets.contains_key(unknown) {
                let help = "a secret is filled in nowhere, because everybody could read it there: the program finds it in its environment";
                reading.findings.error(span, format!("`${unknown}` is a secret"), help);
            } else if !app.process.env_files.is_empty() {
                reading.findings.warning(span, message, "its start fails unless an `env-file` sets it");
            } else if app.process.image.is_some() {
                reading.findings.warning(span, message, "its start fails unless its image sets it");
            } else if PERHAPS.contains(&unknown) {
                reading.findings.warning(span, message, "its start fails unless weal itself has it in its environment");
            } else {
                reading.findings.error(span, message, unknown_variable_help(unknown, &known));
            }
        }
    }
}

fn unknown_variable_help(unknown: &str, known: &BTreeSet<String>) -> String {
    let names = || known.iter().map(String::as_str).filter(|name| !INHERITED.contains(name));
    let help = suggest::help(unknown, names(), "variables");
    if suggest::meant(unknown, names()).is_some() { help } else { help + "; write `$$` for a dollar sign" }
}

fn known_variables(app: &AppSpec) -> BTreeSet<String> {
    let from_needs = app.needs.iter().flat_map(|need| ["ADDR", "HOST", "PORT"].map(|part| naming::variable(need, part)));
    let fixed = GIVEN_TO_INSTANCES.iter().chain(&INHERITED).map(|name| (*name).to_owned());
    let of_zone = app.process.time_zone.iter().map(|_| "TZ".to_owned());
    from_needs.chain(fixed).chain(of_zone).chain(app.env.keys().cloned()).collect()
}

/// Everything of `app` in which variables are filled in, with the path of its place.
fn texts_with_variables(app: &AppSpec) -> Vec<(String, &str)> {
    if let Some(owner) = &app.step_of {
        // All else of it is its owner's.
        let words = app.run.iter().enumerate();
        return words.map(|(index, word)| (format!("app.{owner}.release.{index}"), word.as_str())).collect();
    }
    let mut commands = vec![("run", &app.run), ("on-resume", &app.on_resume)];
    commands.extend(app.process.entrypoint.as_ref().map(|argv| ("entrypoint", argv)));
    if let HealthProbe::Command { argv } = &app.health.probe {
        commands.push(("health.command", argv));
    }
    let of_commands = commands.into_iter().flat_map(|(key, argv)| {
        argv.iter().enumerate().map(move |(index, word)| (format!("app.{}.{key}.{index}", app.name), word.as_str()))
    });
    let of_env = app.env.iter().map(|(name, value)| (format!("app.{}.env.{name}", app.name), value.as_str()));
    of_commands.chain(of_env).collect()
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
    let app = &spec.apps[name];
    for need in app.needs.iter().chain(&app.after).filter(|need| *need != name && spec.apps.contains_key(*need)) {
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
