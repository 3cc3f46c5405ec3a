//! `weal upgrade`: a running pool goes on with the program that lies there now.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::Signal;
use serde_json::json;

use crate::args::Upgrade;
use crate::client::block_on;
use crate::config_file;
use crate::failure::{Exit, Failure};
use crate::found;
use crate::output;
use crate::process::ProcessId;
use crate::role_name::RoleName;
use crate::state::{Record, StateDir};

/// Between two looks at what runs.
const LOOK: Duration = Duration::from_millis(100);

/// Runs it.
///
/// # Errors
/// No pool runs there (exit code 4), it was started from another file (1), this version does not take its config (3), or it takes too
/// long (5). The pool goes on with the former version then.
pub fn run(order: &Upgrade, json: bool) -> anyhow::Result<()> {
    let state = StateDir::find(&order.target)?;
    let supervisor = found::supervisor(&state);
    let supervisor = supervisor.ok_or_else(|| {
        Failure::new(Exit::NotRunning, format!("no pool runs here ({}): start it with weal up", state.root.display()))
    })?;
    let record = state.record().context("the pool has not written down yet what runs: try again")?;
    if !is_upgraded(&record) {
        check_place(&record)?;
        config_file::load_trusted(&record.config)?;
        block_on(replace(&state, supervisor, Duration::from_secs(order.timeout)))?;
    }
    let version = env!("CARGO_PKG_VERSION");
    if json {
        return output::json(&json!({ "upgraded": true, "version": version }), false);
    }
    output::line(&format!("the pool in {} runs this program, version {version}", state.root.display()));
    Ok(())
}

/// The supervisor becomes what lies where it was started from: that has to be this program.
fn check_place(record: &Record) -> anyhow::Result<()> {
    let own = std::env::current_exe().context("cannot find the path of this program")?;
    match &record.program {
        None => bail!("version {} cannot become another one while it runs: weal down, then weal up", record.version),
        Some(program) if is_same_file(program, &own) => Ok(()),
        Some(program) => {
            bail!("the pool was started from {}, not from {}: put the new program there", program.display(), own.display())
        }
    }
}

fn is_same_file(a: &Path, b: &Path) -> bool {
    matches!((weal_host::files::file_id(a), weal_host::files::file_id(b)), (Ok(a), Ok(b)) if a == b)
}

async fn replace(state: &StateDir, supervisor: ProcessId, limit: Duration) -> anyhow::Result<()> {
    supervisor.signal(Signal::HUP);
    let deadline = Instant::now() + limit;
    while !state.record().is_some_and(|record| is_upgraded(&record)) {
        if !supervisor.is_alive() {
            bail!("the supervisor has ended: see {}", state.log("supervisor").display());
        }
        if Instant::now() >= deadline {
            let text = format!("not done within {} s: see {}", limit.as_secs(), state.log("supervisor").display());
            return Err(Failure::new(Exit::TimedOut, text).into());
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

/// Whether everything of the pool runs this program. A former gateway that still finishes requests is not in the record.
fn is_upgraded(record: &Record) -> bool {
    let roles = record.roles.iter().map(|role| role.process);
    record.roles.len() == RoleName::ALL.len()
        && std::iter::once(record.supervisor).chain(roles).all(|process| process.is_alive() && process.runs_this_program())
}
