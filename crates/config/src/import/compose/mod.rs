//! `import::compose`: a compose file. Each key of its specification has a counterpart here, or a note says that it was left out and why.

mod hosts;
mod image;
mod interpolate;
mod keys;
mod service;
mod values;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};
use weal_model::naming::is_name;

use self::hosts::Hosts;
use self::interpolate::Variables;
use self::keys::Fate;
use self::service::Reader;
use super::app::{App, to_toml};
use super::imported::{ImportError, Imported};
use super::yaml;
use crate::parse::as_name;

/// Makes a `weal.toml` of a compose file. `variables` are those of the `.env` beside it.
///
/// # Errors
/// No YAML; no services in it.
pub fn compose(text: &str, variables: &BTreeMap<String, String>) -> Result<Imported, ImportError> {
    compose_beside(text, variables, &BTreeSet::new())
}

/// The same for a file beside which these archives of images lie.
///
/// # Errors
/// As [`compose`].
pub fn compose_beside(
    text: &str,
    variables: &BTreeMap<String, String>,
    archives: &BTreeSet<String>,
) -> Result<Imported, ImportError> {
    let file = yaml::parse(text)?;
    let services = file.get("services").and_then(Value::as_object).ok_or(ImportError::Nothing("service"))?;
    if services.is_empty() {
        return Err(ImportError::Nothing("service"));
    }
    let mut notes = Vec::new();
    note_top_level(&file, &mut notes);
    let names = app_names(services, &mut notes);
    let secrets = secret_files(&file);
    let tasks = tasks(services);
    let mut apps = Vec::new();
    for (written, service) in services {
        let Some(service) = service.as_object() else {
            notes.push(format!("left out `{written}`: it is not a table"));
            continue;
        };
        let name = names[written].clone();
        let (names, secrets, variables) = (&names, &secrets, Variables::new(variables));
        let is_task = tasks.contains(written);
        let reader = Reader { service, name, is_task, names, secrets, archives, variables, notes: &mut notes };
        apps.extend(reader.read());
    }
    keep_needs_that_are_there(&mut apps, &mut notes);
    // Nobody reaches what ends.
    let names: BTreeMap<String, String> = names.into_iter().filter(|(written, _)| !tasks.contains(written)).collect();
    Hosts::of(&names, services).rewrite(&mut apps, &mut notes);
    Ok(Imported { text: to_toml("compose file", &apps), notes })
}

fn note_top_level(file: &Value, notes: &mut Vec<String>) {
    for key in file.as_object().into_iter().flat_map(Map::keys).filter(|key| !key.starts_with("x-")) {
        match keys::fate_at_top(key) {
            Some(Fate::Mapped | Fate::Needless) => {}
            Some(Fate::LeftOut(why)) => notes.push(format!("left out `{key}`: {why}")),
            None => notes.push(format!("left out `{key}`: no compose file has such a key")),
        }
    }
}

/// What each service is called here; two that would be called the same get numbers.
fn app_names(services: &Map<String, Value>, notes: &mut Vec<String>) -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    let mut taken: BTreeSet<String> = services.keys().filter(|name| is_name(name)).cloned().collect();
    for written in services.keys() {
        if is_name(written) {
            names.insert(written.clone(), written.clone());
            continue;
        }
        let near = as_name(written);
        let near = if is_name(&near) { near } else { format!("app-{near}").trim_end_matches('-').to_owned() };
        let free = |name: &String| !taken.contains(name);
        let numbered = (2_u32..).map(|count| format!("{near}-{count}"));
        let name = std::iter::once(near.clone()).chain(numbered).find(free).unwrap_or(near);
        notes.push(format!("{name}: called `{written}` in the compose file, `{name}` here"));
        taken.insert(name.clone());
        names.insert(written.clone(), name);
    }
    names
}

/// The services for whose end another one waits.
fn tasks(services: &Map<String, Value>) -> BTreeSet<String> {
    let needs = services.values().filter_map(|service| service.get("depends_on")?.as_object()).flatten();
    let ends = |how: &Value| how.get("condition").and_then(Value::as_str) == Some("service_completed_successfully");
    needs.filter(|(_, how)| ends(how)).map(|(name, _)| name.clone()).collect()
}

/// Where the file's secrets are, by their names; `None` for one that another tool keeps.
fn secret_files(file: &Value) -> BTreeMap<String, Option<String>> {
    let source = |secret: &Value| {
        let text = |key: &str| secret.get(key).and_then(values::scalar);
        text("file").map(|path| format!("file:{path}")).or_else(|| text("environment").map(|name| format!("variable:{name}")))
    };
    let secrets = file.get("secrets").and_then(Value::as_object);
    secrets.into_iter().flatten().map(|(name, secret)| (name.clone(), source(secret))).collect()
}

/// A service that was left out is needed by nobody.
fn keep_needs_that_are_there(apps: &mut [App], notes: &mut Vec<String>) {
    let there: BTreeSet<String> = apps.iter().map(|app| app.name.clone()).collect();
    for app in apps {
        for gone in app.needs.iter().filter(|need| !there.contains(*need)) {
            notes.push(format!("{}: needs `{gone}` no more, which is not here", app.name));
        }
        app.needs.retain(|need| there.contains(need));
    }
}
