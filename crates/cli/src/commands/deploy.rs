//! `weal deploy`, `weal history`, `weal rollback`: a config brought out in the open, and back.

mod follow;
mod gone;

use std::io::{BufRead, IsTerminal};

use anyhow::Context;
use serde_json::json;
use weal_model::{RolloutPhase, Status};
use weal_protocol::controller::{ConfigTaken, ConfigVersion};

use super::config::summary;
use super::token::who;
use crate::allowed;
use crate::args::PoolArgs;
use crate::args::deploy::{Deploy, Follow, Rollback};
use crate::client::{Client, Error, block_on};
use crate::config_file::Change;
use crate::failure::{Exit, Failure};
use crate::output::{self, Stream, Table, Tone, cell, date, paint, toned};
use crate::state::StateDir;

/// Runs `weal deploy`.
///
/// # Errors
/// The file is not valid, or the pool would have to be restarted for it (3); no pool runs (4); it takes too long (5); it failed, another one
/// took its place, or nobody said yes (1).
pub fn deploy(order: &Deploy, json: bool) -> anyhow::Result<()> {
    let change = Change::of_file(&order.target, "weal deploy")?;
    if !json {
        change.warn();
    }
    if order.dry_run {
        let client = Client::new(&change.state);
        let taken = block_on(async { change.rehearse(&client).await })?;
        if json {
            return output::json(&taken, false);
        }
        output::print(&summary(&taken, true));
        return Ok(());
    }
    carry_out(&change, &order.follow, json)
}

/// Runs `weal rollback`.
///
/// # Errors
/// As [`deploy`]; there is no such version, it did not come up, or files that it names are gone (1).
pub fn rollback(order: &Rollback, json: bool) -> anyhow::Result<()> {
    let state = StateDir::find(&order.target)?;
    let client = Client::new(&state);
    let version = block_on(async { wanted(&client, order.version).await })?;
    let text = version.text.clone().unwrap_or_default();
    let origin = format!("rollback to {}", version.generation);
    let change = Change::of_text(state, text, version.path.as_ref(), &origin)?;
    let gone = gone::files(&change.spec);
    if let Some(why) = &version.failed {
        let message = format!(
            "version {} did not come up when it was deployed: {why}; `weal history` lists the others",
            version.generation
        );
        return Err(Failure::new(Exit::Failed, message).into());
    }
    if !allowed::is_own(&change.state, change.own_text()) {
        let message = format!(
            "no record says that version {} came from a file, so nobody may have checked its users, commands and files: deploy its text from a \
             file, or roll back to another version (`weal history`)",
            version.generation
        );
        return Err(Failure::new(Exit::Failed, message).into());
    }
    if !gone.is_empty() {
        let message = format!("version {} cannot come back, because files are gone: {}", version.generation, gone.join(", "));
        return Err(Failure::new(Exit::Failed, message).into());
    }
    if !json {
        output::line(&format!("back to version {} of {} ({})", version.generation, date(version.time), version.origin));
    }
    carry_out(&change, &order.follow, json)?;
    let file = std::fs::read_to_string(&change.path).unwrap_or_default();
    if !json && file != change.text {
        let path = change.path.display();
        output::complain(&format!("{path} is not changed by this: the next `weal deploy` or `weal up` brings out what it says"));
    }
    Ok(())
}

/// The version to return to, with its text.
async fn wanted(client: &Client, version: Option<u64>) -> anyhow::Result<ConfigVersion> {
    if let Some(version) = version {
        return client.version(version).await.map_err(|error| error.into_failure().into());
    }
    let now = client.config().await.map_err(Error::into_failure)?;
    for version in client.versions().await.map_err(Error::into_failure)?.iter().filter(|one| one.generation < now.generation) {
        let version = client.version(version.generation).await.map_err(Error::into_failure)?;
        if version.failed.is_none() && version.text.as_ref() != Some(&now.text) {
            return Ok(version);
        }
    }
    Err(Failure::new(Exit::Failed, "no version before this one came up: `weal history` lists all that are kept").into())
}

/// Says what changes, asks, brings it out, and waits.
fn carry_out(change: &Change, how: &Follow, json: bool) -> anyhow::Result<()> {
    let client = Client::new(&change.state);
    block_on(async {
        let rehearsed = change.rehearse(&client).await?;
        let status = client.status().await.map_err(Error::into_failure)?;
        if !json {
            say_before(&rehearsed, &status);
        }
        confirm(how.yes || rehearsed.changes.is_empty(), json)?;
        let before = client.config().await.map_err(Error::into_failure)?;
        let taken = change.put(&client).await?;
        let touched = follow::touched(before.spec.as_ref(), &change.spec);
        let done = follow::until_done(&client, &taken, &touched, how.timeout, json).await?;
        if json {
            let (generation, changes) = (taken.generation, &taken.changes);
            return output::json(&json!({ "generation": generation, "changes": changes, "done": done }), false);
        }
        output::line(&format!("{} version {} is in force", paint("deployed:", Tone::Good, Stream::Out), taken.generation));
        Ok(())
    })
}

fn say_before(rehearsed: &ConfigTaken, status: &Status) {
    output::print(&summary(rehearsed, true));
    let moving =
        status.apps.iter().filter(|app| app.rollout.as_ref().is_some_and(|rollout| rollout.phase != RolloutPhase::Draining));
    let moving: Vec<&str> = moving.map(|app| app.name.as_str()).collect();
    if !moving.is_empty() {
        let text = format!(
            "version {} is still being brought out ({}): this takes its place",
            status.config_generation,
            moving.join(", ")
        );
        output::complain(&paint(&text, Tone::Warn, Stream::Err));
    }
}

/// Asks, unless the answer is there already.
///
/// # Errors
/// Nobody says yes.
fn confirm(yes: bool, json: bool) -> anyhow::Result<()> {
    if yes {
        return Ok(());
    }
    if json || !std::io::stdin().is_terminal() {
        return Err(Failure::new(Exit::Usage, "there is no terminal to ask on: say --yes").into());
    }
    output::write(b"go on? [y/N] ");
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).context("cannot read the answer")?;
    if matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes") {
        return Ok(());
    }
    Err(Failure::new(Exit::Failed, "nothing was changed").into())
}

/// Runs `weal history`.
pub fn history(target: &PoolArgs, json: bool) -> anyhow::Result<()> {
    let client = Client::new(&StateDir::find(target)?);
    let (versions, now) = block_on(async {
        let versions = client.versions().await.map_err(Error::into_failure)?;
        let now = client.config().await.map_err(Error::into_failure)?.generation;
        Ok((versions, now))
    })?;
    if json {
        return output::json(&versions, false);
    }
    let mut table = Table::new(&["VERSION", "TIME", "WHO", "HOW", "RESULT", "FILE"]);
    for version in &versions {
        let number = version.generation.to_string();
        let is_now = version.generation == now;
        table.row(vec![
            if is_now { toned(format!("{number} (now)"), Tone::Good) } else { cell(number) },
            cell(date(version.time)),
            cell(version.who.as_ref().map_or_else(|| "-".to_owned(), who)),
            cell(crate::terminal::visible(&version.origin).into_owned()),
            version.failed.as_ref().map_or_else(|| cell(""), |_| toned("failed", Tone::Bad)),
            cell(crate::terminal::visible(&version.path).into_owned()),
        ]);
    }
    output::print(&table.render());
    Ok(())
}
