//! What a look at the machine finds of an application.

use std::path::Path;

use weal_model::AppSpec;
use weal_node::find_program;

/// Where the node agent looks for programs when nothing else is said.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What somebody should look at, and under which key it is named.
#[derive(Debug, PartialEq)]
pub(super) struct Found {
    pub key: String,
    pub message: String,
    pub help: String,
}

/// A finding about what stands at `key` of an application.
pub(super) fn found(key: impl Into<String>, message: impl ToString, help: impl Into<String>) -> Found {
    Found { key: key.into(), message: message.to_string(), help: help.into() }
}

/// The path of its program. `Err(None)` where that is not known before its start.
pub(super) fn program(app: &AppSpec) -> Result<String, Option<String>> {
    let name = app.run.first().filter(|name| !name.contains('$')).ok_or(None)?;
    if !Path::new(&app.cwd).is_dir() {
        return Err(None);
    }
    let path = app.env.get("PATH").cloned().or_else(|| std::env::var("PATH").ok()).unwrap_or_else(|| DEFAULT_PATH.to_owned());
    find_program(name, Path::new(&app.cwd), &path).map_err(|error| Some(error.to_string()))
}

/// What is there: the deepest folder that exists, and some of what it holds.
pub(super) fn nearest(path: &Path) -> String {
    let Some(folder) = path.ancestors().skip(1).find(|folder| folder.is_dir()) else { return String::new() };
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| !name.starts_with('.'))
        .collect();
    names.sort();
    let more = names.len().saturating_sub(8);
    names.truncate(8);
    let rest = if more == 0 { String::new() } else { format!(" and {more} more") };
    match names.is_empty() {
        true => format!("{} is empty", folder.display()),
        false => format!("{} holds {}{rest}", folder.display(), names.join(", ")),
    }
}
