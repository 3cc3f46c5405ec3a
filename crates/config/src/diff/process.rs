//! What changes about what processes get besides their command.

use weal_model::{LimitValue, ProcessSpec, Secret};

use super::change::{KeyChange, show_argv};
use crate::effective::process::env_file;

/// One for each key that differs. Of secrets only their places are known here.
pub(super) fn changes(was: &ProcessSpec, is: &ProcessSpec) -> Vec<KeyChange> {
    let (before, after) = (shown(was), shown(is));
    let differing = before.into_iter().zip(after).filter(|((_, was), (_, is))| was != is);
    differing
        .map(|((key, was), (_, is))| KeyChange { key: key.to_owned(), text: format!("{key} = {was} becomes {is}") })
        .collect()
}

fn shown(spec: &ProcessSpec) -> [(&'static str, String); 10] {
    let or = |value: &Option<String>, default: &str| value.clone().unwrap_or_else(|| default.to_owned());
    let mask = spec.umask.map(|mask| format!("{mask:03o}"));
    let signal = spec.stop_signal.map(|signal| signal.as_str().to_owned());
    [
        ("env-file", list(spec.env_files.iter().map(env_file))),
        ("secrets", list(spec.secrets.iter().map(|(name, secret)| format!("{name} from {}", place(secret))))),
        ("group", or(&spec.group, "the user's own")),
        ("umask", or(&mask, "022")),
        ("limits", list(spec.limits.iter().map(|(limit, value)| format!("{} {}", limit.as_str(), number(*value))))),
        ("stop-signal", or(&signal, "SIGTERM")),
        ("time-zone", or(&spec.time_zone, "weal's own")),
        ("stdin", or(&spec.stdin, "empty")),
        ("image", or(&spec.image, "none")),
        ("entrypoint", spec.entrypoint.as_ref().map_or_else(|| "the image's".to_owned(), |argv| show_argv(argv))),
    ]
}

fn list(parts: impl Iterator<Item = String>) -> String {
    let parts: Vec<String> = parts.collect();
    if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
}

fn place(secret: &Secret) -> String {
    format!("{}{}", secret.from, if secret.as_file { " as a file" } else { "" })
}

fn number(value: LimitValue) -> String {
    match value {
        LimitValue::AtMost(most) => most.to_string(),
        LimitValue::Infinity => "infinity".to_owned(),
    }
}
