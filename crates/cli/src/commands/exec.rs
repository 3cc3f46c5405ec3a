//! `weal exec APP -- CMD`: a command in the environment, the sandbox and with the user of an application.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::signal::unix::{SignalKind, signal};
use weal_model::{AppState, AppStatus, InstanceId, InstanceState};

use super::app_of;
use crate::args::deploy::Exec;
use crate::client::{Client, Error, block_on};
use crate::failure::{Exit, Failure};
use crate::state::StateDir;

/// Runs it. The answer is the exit code of the command.
///
/// # Errors
/// No pool runs (4); there is no such application, or nothing of it runs (1).
pub fn run(order: &Exec) -> anyhow::Result<u8> {
    let state = StateDir::find(&order.target)?;
    let client = Client::new(&state);
    block_on(async {
        let status = client.status().await.map_err(Error::into_failure)?;
        let app = app_of(&status, &order.app)?;
        let instance = chosen(app, order.instance.as_deref())?;
        // It gets the application's secrets: what cannot be written down is not run.
        client.note_done_here(app.name.as_str(), "exec").await.map_err(Error::into_failure)?;
        let mut command = weal_node::command_beside(&state.root, &app.name, &instance, &order.command)?;
        let program = &order.command[0];
        let child = command.spawn().with_context(|| format!("cannot run {program} beside {instance}"))?;
        Ok(code(attend(child).await?))
    })
}

/// The instance that is meant, or one that is awake.
fn chosen(app: &AppStatus, wanted: Option<&str>) -> Result<InstanceId, Failure> {
    let is_awake = |state| {
        matches!(state, InstanceState::Ready | InstanceState::Unhealthy | InstanceState::Starting | InstanceState::Draining)
    };
    let mut awake = app.instances.iter().filter(|instance| is_awake(instance.state));
    let found = match wanted {
        Some(wanted) => awake.find(|instance| instance.id.as_str() == wanted),
        None => awake.find(|instance| instance.state == InstanceState::Ready),
    };
    found.map(|instance| instance.id.clone()).ok_or_else(|| {
        let name = &app.name;
        let hint = match app.state {
            AppState::Asleep => format!(": `weal wake {name}` wakes it"),
            AppState::Stopped => format!(": `weal start {name}` starts it"),
            _ => String::new(),
        };
        let whom = wanted
            .map_or_else(|| format!("nothing of {name} runs now"), |wanted| format!("{name} has no awake instance {wanted}"));
        Failure::new(Exit::Failed, format!("{whom} (it is {}){hint}", app.state))
    })
}

/// Waits for the end of the command, and hands on what would end this one: the command has a session of its own.
async fn attend(mut child: tokio::process::Child) -> anyhow::Result<ExitStatus> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let group = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
    loop {
        let sent = tokio::select! {
            status = child.wait() => return Ok(status?),
            _ = interrupt.recv() => Signal::INT,
            _ = terminate.recv() => Signal::TERM,
        };
        if let Some(group) = group {
            // It may have ended meanwhile; its number is its own until it is waited for, and then nothing is sent.
            let _ = kill_process_group(group, sent);
        }
    }
}

/// As a shell gives it: 128 and the signal for one that was killed.
fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    u8::try_from(code).unwrap_or(u8::MAX)
}
