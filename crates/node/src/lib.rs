//! The node agent: starts, suspends, resumes, limits and measures processes. The only privileged role.
//!
//! ```text
//! controller --rpc--> agent --spawns--> shim --spawns--> instance (in its control group)
//! ```
//!
//! The agent never outlives its use and is never needed by what it started: instances hang on their [`shim`]s, and all that
//! an agent knows lies on disk beside them. Kill it at any time; the next one goes on.

mod accounts;
mod agent;
mod archive;
mod awake;
mod blocking;
pub mod capabilities;
mod clock;
mod confidential;
mod costs;
mod events;
mod exec;
mod files;
pub mod folder;
mod given;
mod hash;
mod hosts;
mod idle;
mod image;
mod instance;
pub mod isolation;
pub mod ladder;
mod listener;
pub mod logbook;
mod lost;
mod paging;
mod parking;
mod ports;
mod priority;
mod privileges;
mod probe;
mod progress;
mod reserve;
pub mod shim;
mod shim_work;
mod signals;
mod site;
mod sleepers;
mod strays;
mod variables;
mod wake;

use std::ffi::OsString;
use std::fs;
use std::io;
use std::ops::RangeInclusive;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};
use weal_rpc::Callers;

pub use accounts::numbers::Numbers;
pub use accounts::permits::Permits;
pub use confidential::{Confidential, Hidden};
pub use exec::{ExecError, command_beside, signal_instance};
pub use instance::{NoProgram, find_program};
pub use isolation::Kind;
pub use privileges::{Barrier, barrier, close_descriptors};
pub use site::Prefetch;
pub use strays::{Stray, Strays, end_strays, living};

/// Ports for instances unless told otherwise: below those that Linux gives to outgoing connections (32768 and up), which
/// would otherwise take a port just when an instance comes back for it.
pub const PORT_RANGE: RangeInclusive<u16> = 20_000..=29_999;

/// What an agent needs to know.
#[derive(Debug)]
pub struct Options {
    /// The pool's state directory; the agent owns `node` in it.
    pub state_dir: PathBuf,
    /// Where calls come in.
    pub rpc: UnixListener,
    /// Where the gateway asks for applications that sleep: it answers [`weal_protocol::node::WAKE`] and nothing else.
    pub wake: Option<UnixListener>,
    /// The user of the controller, who may call the first socket; `None` is the agent's own.
    pub controller: Option<u32>,
    /// The user of the gateway, who may call the second; `None` is the agent's own.
    pub gateway: Option<u32>,
    /// `/`, or a folder that stands for it: where users are looked up, and where their numbers are claimed.
    pub root: PathBuf,
    /// Ports for instances.
    pub port_range: RangeInclusive<u16>,
    /// The isolation to use; `None` takes the best there is.
    pub isolation: Option<Kind>,
    /// What is read ahead when an instance wakes; `None` decides by the swap device.
    pub prefetch: Option<Prefetch>,
    /// The program that runs [`shim::main`] when it is called with `shim --dir DIR [--adopt]`.
    pub shim_program: OsString,
}

impl Options {
    /// The usual: no wake socket, default ports, the best isolation, and our own program as shim (as it was when we started, even if the
    /// file was replaced since).
    pub fn new(state_dir: impl Into<PathBuf>, rpc: UnixListener) -> Self {
        let shim_program = OsString::from("/proc/self/exe");
        Self {
            state_dir: state_dir.into(),
            rpc,
            wake: None,
            controller: None,
            gateway: None,
            root: PathBuf::from("/"),
            port_range: PORT_RANGE,
            isolation: None,
            prefetch: None,
            shim_program,
        }
    }
}

/// Why an agent cannot run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its folder cannot be used.
    #[error("the node agent cannot use {}: {source}", .path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The system refused something basic.
    #[error("the node agent cannot start: {0}")]
    System(#[from] io::Error),
}

/// Runs the agent until SIGTERM or SIGINT. Instances run on after it.
pub async fn run(options: Options) -> Result<(), Error> {
    let dir = options.state_dir.join("node");
    let instances = dir.join("instances");
    // Applications pass through it to their secrets, whatever the umask is.
    let made = fs::create_dir_all(&instances).and_then(|()| folder::Folder::open(&instances)?.set_mode(0o711));
    made.map_err(|source| Error::Folder { path: instances.clone(), source })?;
    let (listener, wake) = (listen(options.rpc)?, options.wake.map(listen).transpose()?);
    let isolation = isolation::detect::choose(&dir, &site::group_name(&options.state_dir), options.isolation);
    tracing::info!(isolation = isolation.kind().as_str(), lost = ?isolation.losses(), "the node agent runs");
    let roles: Vec<u32> = options.controller.into_iter().chain(options.gateway).collect();
    let callers = |role: Option<u32>| role.into_iter().fold(Callers::own(), Callers::and);
    let place = isolation::roles::RolePlace::take(isolation.as_ref());
    let site = site::Site {
        instances,
        archive: dir.join("runs"),
        logbook: logbook::Logbook::of_pool(&options.state_dir),
        data: options.state_dir.join("data"),
        accounts: accounts::Accounts::new(&options.root, &options.state_dir, roles.iter().copied().collect()),
        images: weal_image::Cache::new(dir.join("images")),
        ports: std::sync::Mutex::new(ports::Ports::new(options.port_range, hash::hash(&options.state_dir))),
        confinement: weal_sandbox::ConfinementSupport::probe(),
        isolation,
        costs: costs::Costs::load(dir.join("costs.json")),
        events: Arc::default(),
        idle: idle::Idle::of_this_machine(),
        prefetch: options.prefetch,
        shim_program: options.shim_program,
        proc: weal_host::Proc::system(),
    };
    let agent = agent::Agent::new(site, dir);
    tokio::task::spawn_blocking({
        let agent = Arc::clone(&agent);
        move || image::sweep(&agent.site)
    });
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        () = weal_rpc::serve(listener, agent.router(callers(options.controller))) => {}
        () = serve_wakes(wake, agent.wake_router(callers(options.gateway))) => {}
        () = Arc::clone(&agent).keep_reserves() => {}
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    agent.restore_files();
    place.leave();
    agent.clear();
    Ok(())
}

/// Instances shall not inherit it.
fn listen(socket: UnixListener) -> io::Result<tokio::net::UnixListener> {
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC).map_err(io::Error::from)?;
    socket.set_nonblocking(true)?;
    tokio::net::UnixListener::from_std(socket)
}

async fn serve_wakes(socket: Option<tokio::net::UnixListener>, router: weal_rpc::Router) {
    match socket {
        Some(socket) => weal_rpc::serve(socket, router).await,
        None => std::future::pending().await,
    }
}

/// Stops every instance below `state_dir` without an agent, one after the other, and says which could not be stopped.
///
/// Only for when no agent runs: one that does would start them again.
pub fn stop_all(state_dir: &Path) -> io::Result<Vec<String>> {
    let dir = state_dir.join("node");
    let entries = match fs::read_dir(dir.join("instances")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let isolation = isolation::detect::recorded(&dir, &site::group_name(state_dir));
    let logbook = logbook::Logbook::of_pool(state_dir);
    let mut failed = Vec::new();
    for instance in entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()) {
        let stopped = match files::read_json::<shim::Record>(&instance.join(shim::SPEC_FILE)) {
            Ok(Some(record)) => instance::finish_off(isolation.as_ref(), &logbook, &record, &instance),
            // Nobody can tell what it was: a full disk cut it short, or the agent died before it was written.
            Ok(None) | Err(_) => instance::discard(isolation.as_ref(), &agent::node_names(&dir), &instance),
        };
        if let Err(error) = stopped {
            failed.push(format!("{}: {error}", instance.display()));
        }
    }
    isolation.clear();
    Ok(failed)
}
