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
