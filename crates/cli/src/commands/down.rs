//! `weal down`: the graceful end, also of what a killed supervisor left.

use std::collections::BTreeMap;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use crate::args::Down;
use crate::client::block_on;
use crate::config_file;
use crate::failure::{Exit, Failure};
use crate::output;
use crate::state::{Record, StateDir};
use crate::supervisor::{Console, Needs, Shutdown, needs_of};

/// Runs it.
///
/// # Errors
/// Nothing runs there (exit code 4), or it does not end in time (5).
pub fn run(order: &Down, json: bool) -> anyhow::Result<()> {
    let state = StateDir::find(&order.target)?;
    let not_running = || Failure::new(Exit::NotRunning, format!("no pool runs here ({})", state.root.display()));
    let record = state.record().ok_or_else(not_running)?;
    if record.supervisor.is_alive() {
        block_on(end_supervisor(&record, Duration::from_secs(order.timeout)))?;
    } else {
        block_on(end_leftovers(&state, &record, json))?;
    }
    if json {
        return output::json(&json!({ "stopped": true }), false);
    }
    output::line("stopped");
    Ok(())
}

async fn end_supervisor(record: &Record, limit: Duration) -> anyhow::Result<()> {
    record.supervisor.signal(Signal::TERM);
    if record.supervisor.ended_within(limit).await {
        return Ok(());
    }
    let message = format!("pid {} still stops after {} s: see weal logs supervisor", record.supervisor.pid(), limit.as_secs());
    Err(Failure::new(Exit::TimedOut, message).into())
}

/// The supervisor was killed: its roles and instances may live.
async fn end_leftovers(state: &StateDir, record: &Record, json: bool) -> anyhow::Result<()> {
    let _lock = state.lock()?;
    let needs: Needs = config_file::load(&record.config).map(|loaded| needs_of(&loaded.spec)).unwrap_or_default();
    let living = record.roles.iter().filter(|role| role.process.is_alive()).map(|role| (role.role, role.process));
    let roles: BTreeMap<_, _> = living.collect();
    let console = if json { Console::silent() } else { Console::new(None) };
    console.say("the supervisor was killed: stopping what it left");
    let left = Shutdown { state: state.clone(), console, roles, needs }.run().await;
    if left.is_empty() {
        state.forget_record();
        return Ok(());
    }
    Err(Failure::new(Exit::Failed, format!("not everything ended: {}", left.join(", "))).into())
}
