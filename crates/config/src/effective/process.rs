//! What processes get besides their command, as a config says it. Secrets stand there by their places.

use toml_edit::{InlineTable, Value};
use weal_model::written::show_size;
use weal_model::{AppSpec, Bytes, EnvFile, LimitValue, ProcessSpec, ResourceLimit, Secret};

use crate::page::{Section, texts};

/// What it runs.
pub(super) fn add_command(app: &mut Section, spec: &AppSpec) {
    let words = |words: &[String]| texts(words.iter().map(String::as_str));
    match &spec.process.image {
        Some(_) if spec.run.is_empty() => app.add_absent("run", "the image's"),
        _ => app.add("run", words(&spec.run)),
    }
    match &spec.process.image {
        Some(path) => app.add("image", path),
        None => app.add_absent("image", "none: it has the machine's files"),
    }
    match &spec.process.entrypoint {
        Some(argv) => app.add("entrypoint", words(argv)),
        None if spec.process.image.is_some() => app.add_absent("entrypoint", "the image's"),
        None => {}
    }
}

pub(super) fn add(app: &mut Section, spec: &ProcessSpec) {
    let files: Vec<String> = spec.env_files.iter().map(env_file).collect();
    app.add_marked("env-file", texts(files.iter().map(String::as_str)), files.is_empty());
    let secrets: InlineTable = spec.secrets.iter().map(|(name, from)| (name.as_str(), secret(from))).collect();
    app.add_marked("secrets", secrets, spec.secrets.is_empty());
    let optional = [
        ("group", spec.group.clone(), "the user's own"),
        ("stop-signal", spec.stop_signal.map(|signal| signal.as_str().to_owned()), "SIGTERM"),
        ("reload-signal", spec.reload_signal.map(|signal| signal.as_str().to_owned()), "none"),
        ("time-zone", spec.time_zone.clone(), "that of weal's own environment"),
        ("stdin", spec.stdin.clone(), "empty"),
        ("umask", spec.umask.map(|mask| format!("{mask:03o}")), "022"),
    ];
    for (key, value, default) in optional {
        match value {
            Some(value) => app.add(key, value),
            None => app.add_absent(key, default),
        }
    }
    let limits: InlineTable = spec.limits.iter().map(|(limit, value)| (limit.as_str(), limit_value(*limit, *value))).collect();
    app.add_marked("limits", limits, spec.limits.is_empty());
}

/// As a config names it.
pub(crate) fn env_file(file: &EnvFile) -> String {
    format!("{}{}", if file.required { "" } else { "-" }, file.path)
}

fn secret(secret: &Secret) -> Value {
    let from = secret.from.to_string();
    if !secret.as_file {
        return from.into();
    }
    [("from", from), ("as", "file".to_owned())].into_iter().collect::<InlineTable>().into()
}

fn limit_value(limit: ResourceLimit, value: LimitValue) -> Value {
    match value {
        LimitValue::Infinity => "infinity".into(),
        LimitValue::AtMost(bytes) if limit.is_size() => show_size(Bytes(bytes)).into(),
        LimitValue::AtMost(count) => i64::try_from(count).unwrap_or(i64::MAX).into(),
    }
}
