//! `weal down`: the graceful end, also of what a killed supervisor left. What lives is told by the processes, not by a record.

use std::collections::BTreeMap;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use crate::args::Down;
use crate::client::block_on;
use crate::config_file;
use crate::failure::{Exit, Failure};
use crate::found;
use crate::output;
use crate::process::ProcessId;
use crate::state::StateDir;
use crate::supervisor::{Console, Needs, Shutdown, leftovers, needs_of};
use crate::users::RoleUsers;

/// Runs it.
///
/// # Errors
/// Nothing runs there (exit code 4), it does not end in time (5), or something of it runs on (1).
pub fn run(order: &Down, json: bool) -> anyhow::Result<()> {
    let state = StateDir::find(&order.target)?;
    block_on(end(&state, Duration::from_secs(order.timeout), json))?;
    if json {
        return output::json(&json!({ "stopped": true }), false);
    }
    output::line("stopped");
    Ok(())
}

async fn end(state: &StateDir, limit: Duration, json: bool) -> anyhow::Result<()> {
    let supervisor = found::supervisor(state);
    if let Some(supervisor) = supervisor {
        end_supervisor(supervisor, limit).await?;
    }
    // A supervisor forgets its record once everything has ended.
    let has_left = !leftovers::settled(state).await.is_empty() || state.has_record();
    if has_left || !leftovers::instances(state).await?.is_empty() {
        let why = if supervisor.is_some() { "the supervisor has not ended everything" } else { "the supervisor was killed" };
        return end_leftovers(state, why, json).await;
    }
    match supervisor {
        Some(_) => Ok(()),
        None => Err(Failure::new(Exit::NotRunning, format!("no pool runs here ({})", state.root.display())).into()),
    }
}

async fn end_supervisor(supervisor: ProcessId, limit: Duration) -> anyhow::Result<()> {
    supervisor.signal(Signal::TERM);
    // One that was stopped would not even learn of it.
    supervisor.signal(Signal::CONT);
    if supervisor.ended_within(limit).await {
        return Ok(());
    }
    let message = format!("pid {} still stops after {} s: see weal logs supervisor", supervisor.pid(), limit.as_secs());
    Err(Failure::new(Exit::TimedOut, message).into())
}

/// Ends what lives of roles and instances without a supervisor, whatever is written down of them.
async fn end_leftovers(state: &StateDir, why: &str, json: bool) -> anyhow::Result<()> {
    if !state.root.exists() {
        // It was removed: it is needed only to keep others out meanwhile.
        state.prepare(RoleUsers::of_this_machine()?.as_ref())?;
    }
    let _lock = state.lock()?;
    let config = state.record().map(|record| record.config);
    let loaded = config.and_then(|config| config_file::load(&config).ok());
    let needs: Needs = loaded.map(|loaded| needs_of(&loaded.spec)).unwrap_or_default();
    let mut roles: BTreeMap<_, Vec<ProcessId>> = BTreeMap::new();
    for role in leftovers::settled(state).await {
        roles.entry(role.role).or_default().push(role.process);
    }
    let console = if json { Console::silent() } else { Console::new(None) };
    console.say(&format!("{why}: stopping what it left"));
    let left = Shutdown { state: state.clone(), console, roles, needs }.run().await;
    if left.is_empty() {
        state.forget_record();
        return Ok(());
    }
    Err(Failure::new(Exit::Failed, format!("not everything ended: {}", left.join(", "))).into())
}
