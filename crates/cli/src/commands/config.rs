//! `weal validate`, `weal config show`, `weal apply`, `weal import`: the config file and the pool that runs by it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::Path;

use anyhow::Context;
use serde_json::json;
use weal_config::import::{ImportError, Imported};
use weal_config::{Diagnostic, render_all};
use weal_protocol::controller::{ConfigTaken, ConfigView};

use crate::args::begin::Import;
use crate::args::{Apply, ConfigCommand, PoolArgs};
use crate::client::{Client, Error, block_on};
use crate::config_file::{Change, Loaded, load};
use crate::output::{self, Stream, Tone, colored, paint};
use crate::state::{DEFAULT_FILE, StateDir};

/// Runs `weal validate`.
///
/// # Errors
/// The file is not valid (exit code 3).
pub fn validate(target: &PoolArgs, json: bool) -> anyhow::Result<()> {
    let loaded = load_of(target)?;
    if json {
        let apps: Vec<_> = loaded.spec.apps.keys().collect();
        return output::json(&json!({ "valid": true, "path": loaded.path, "apps": apps, "warnings": loaded.warnings }), false);
    }
    warn(&loaded.warnings, &loaded.text);
    let (apps, nodes) = (loaded.spec.apps.len(), loaded.spec.nodes.len());
    let good = paint("valid:", Tone::Good, Stream::Out);
    let [apps, nodes] = [(apps, "application"), (nodes, "node")].map(|(count, noun)| counted(count, noun));
    output::line(&format!("{good} {} ({apps} on {nodes})", loaded.path.display()));
    Ok(())
}

/// Runs `weal config show`: what the pool runs by, or the file when none runs. It is made to be shown around, so the addresses of
/// receivers, which are mostly secrets, stay in the file.
pub fn show(command: &ConfigCommand, json: bool) -> anyhow::Result<()> {
    let ConfigCommand::Show { effective, target } = command;
    let client = Client::new(&StateDir::find(target)?);
    let (text, spec) = match block_on(async { Ok(client.config().await) })? {
        Ok(ConfigView { text, spec: Some(spec), .. }) => (text, spec),
        Ok(_) | Err(Error::NotRunning { .. }) => {
            let loaded = load_of(target)?;
            (loaded.text, loaded.spec)
        }
        Err(error) => return Err(error.into_failure().into()),
    };
    let spec = spec.hidden();
    match (json, effective) {
        (true, _) => return output::json(&spec, false),
        (false, true) => output::print(&weal_config::effective(&spec)),
        (false, false) => output::print(&weal_config::hidden_text(&text).unwrap_or_else(|| weal_config::effective(&spec))),
    }
    Ok(())
}

/// Runs `weal apply`.
///
/// # Errors
/// The file is not valid, or the pool would have to be restarted for it (3); no pool runs (4).
pub fn apply(order: &Apply, json: bool) -> anyhow::Result<()> {
    let change = Change::of_file(&order.target, "weal apply")?;
    let client = Client::new(&change.state);
    let taken = block_on(async { if order.dry_run { change.rehearse(&client).await } else { change.put(&client).await } })?;
    if json {
        return output::json(&taken, false);
    }
    change.warn();
    output::print(&summary(&taken, order.dry_run));
    Ok(())
}

/// What changes, or has changed.
pub fn summary(taken: &ConfigTaken, dry_run: bool) -> String {
    let head = match (taken.changes.is_empty(), dry_run) {
        (true, _) => "nothing changes".to_owned(),
        (false, true) => "would change:".to_owned(),
        (false, false) => format!("taken as generation {}:", taken.generation),
    };
    let changes: String = taken.changes.iter().map(|change| format!("  {change}\n")).collect();
    format!("{}\n{changes}", paint(&head, Tone::Strong, Stream::Out))
}

/// Runs `weal import`: the config goes to standard output, what to look at to standard error.
pub fn import(order: &Import, json: bool) -> anyhow::Result<()> {
    let from = order.from.display();
    let text = std::fs::read_to_string(&order.from).with_context(|| format!("cannot read {from}"))?;
    let imported = imported(&order.from, &text).with_context(|| format!("cannot import {from}"))?;
    if json {
        return output::json(&json!({ "text": imported.text, "notes": imported.notes }), false);
    }
    output::print(&imported.text);
    for note in &imported.notes {
        output::complain(&format!("{} {note}", paint("note:", Tone::Warn, Stream::Err)));
    }
    Ok(())
}

/// Reads `text` as what the name of its file says that it is.
fn imported(from: &Path, text: &str) -> Result<Imported, ImportError> {
    match from.extension().and_then(OsStr::to_str) {
        Some("yml" | "yaml") => weal_config::import::compose_beside(text, &variables_beside(from), &archives_beside(from)),
        Some("json") => weal_config::import::pm2(text),
        Some("service") => weal_config::import::systemd(text, &from.file_name().unwrap_or_default().to_string_lossy()),
        _ => weal_config::import::procfile(text),
    }
}

/// Those of the `.env` beside a compose file, which Compose fills in.
fn variables_beside(from: &Path) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(from.with_file_name(".env")).unwrap_or_default();
    weal_config::env_file::parse(&text).unwrap_or_default().into_iter().collect()
}

/// The archives beside a compose file, of which some may be images.
fn archives_beside(from: &Path) -> BTreeSet<String> {
    let folder = from.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let names =
        std::fs::read_dir(folder).into_iter().flatten().flatten().filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.ends_with(".tar")).collect()
}

/// `1 node`, `2 nodes`.
fn counted(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

fn load_of(target: &PoolArgs) -> anyhow::Result<Loaded> {
    load(target.file.as_deref().unwrap_or(DEFAULT_FILE.as_ref()))
}

fn warn(warnings: &[Diagnostic], text: &str) {
    if !warnings.is_empty() {
        output::complain(render_all(warnings, text, colored(Stream::Err)).trim_end());
    }
}
