//! `weal run -- COMMAND`: hosts one program at once, without a config file, until it is interrupted.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::Context;
use weal_config::init::{Sketch, app_name};
use weal_model::naming::is_name;
use weal_model::written::show_size;

use crate::args::begin::Run;
use crate::failure::{Exit, Failure};
use crate::state::{DEFAULT_FILE, StateDir, home, make_all};
use crate::supervisor;

/// Where clients connect when nothing is said; the API follows.
const FIRST_PORT: u16 = 8080;
/// So many ports are tried, one after the other, before the system chooses.
const TRIED_PORTS: u16 = 100;

/// Runs it.
///
/// # Errors
/// The program does not come up (says its last lines), a name or a port cannot be had, or the pool cannot be started.
pub fn run(order: &Run) -> anyhow::Result<()> {
    let folder = std::env::current_dir().context("cannot tell the current folder")?;
    let name = name_of(order, &folder)?;
    let state = match &order.state {
        Some(state) => StateDir { root: std::path::absolute(state)? },
        None => StateDir { root: home()?.join(format!("run-{name}-{}", std::process::id())) },
    };
    let config = state.root.join(DEFAULT_FILE);
    let text = sketch(order, &name, &folder).whole_config();
    write(&config, &text)?;
    let ended = supervisor::host(&config, &state, &name);
    // The record is there for as long as anything may run.
    if order.state.is_none() && !state.has_record() {
        // What cannot be removed is seen by its name.
        let _ = fs::remove_dir_all(&state.root);
    }
    ended
}

fn name_of(order: &Run, folder: &Path) -> anyhow::Result<String> {
    match &order.name {
        Some(name) if !is_name(name) => {
            let message = format!("`{name}` cannot be the name of an application: did you mean `{}`?", app_name([name.as_str()]));
            Err(Failure::new(Exit::Usage, message).into())
        }
        Some(name) => Ok(name.clone()),
        None => Ok(app_name([folder.file_name().unwrap_or_default().to_string_lossy().as_ref()])),
    }
}

fn sketch(order: &Run, name: &str, folder: &Path) -> Sketch {
    let listen = order.port.unwrap_or_else(|| free_port(FIRST_PORT, None));
    let api = free_port(listen.saturating_add(1), Some(listen));
    let address = |port: u16| Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port)).to_string());
    Sketch {
        run: order.command.clone(),
        listen: address(listen),
        api: address(api),
        cwd: Some(folder.display().to_string()),
        user: order.user.clone(),
        goal: order.goal.as_ref().map(ToString::to_string),
        memory: order.memory.map(show_size),
        most_instances: order.instances,
        ..Sketch::new(name)
    }
}

/// The first port from `first` on at which nobody listens. Somebody may take it before the supervisor does, which then says so.
fn free_port(first: u16, beside: Option<u16>) -> u16 {
    let is_free = |port: &u16| Some(*port) != beside && TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    (first..=first.saturating_add(TRIED_PORTS)).find(is_free).or_else(system_port).unwrap_or(first)
}

fn system_port() -> Option<u16> {
    Some(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).ok()?.local_addr().ok()?.port())
}

fn write(config: &Path, text: &str) -> anyhow::Result<()> {
    let folder = config.parent().context("the state directory has no place")?;
    make_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    // A command may hold a secret.
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(config);
    file.and_then(|mut file| file.write_all(text.as_bytes())).with_context(|| format!("cannot write {}", config.display()))
}
