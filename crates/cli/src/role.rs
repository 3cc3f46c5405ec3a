//! The hidden commands that the supervisor and the node agent start: one role, or one instance's shim.

use std::fs::File;
use std::io::BufReader;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::Path;

use anyhow::Context;
use rustix::process::{Resource, getrlimit, setrlimit};
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use weal_protocol::tls::ApiCertificate;

use crate::args::RoleCommand;
use crate::supervisor::sockets::inherited;

/// When it is set, the controller writes its loop's inputs and effects down, so that its decisions can be replayed.
const RECORD: &str = "WEAL_RECORD_DECISIONS";

/// So many lines of a role's log are kept in memory while its disk takes none; each is a few hundred bytes.
const LINES_THAT_WAIT: usize = 8192;

/// Runs a role until SIGTERM.
pub fn run(role: &RoleCommand) -> anyhow::Result<()> {
    if matches!(role, RoleCommand::Node { .. }) {
        // It does a little for each instance every second, on any of its threads.
        weal_host::allocator::share_heap();
    }
    // Before there is a second thread, which would keep what this one gives up.
    let kept = give_up_rights(role)?;
    let _writing = log_as_json();
    if let Some(error) = kept {
        tracing::warn!(%error, "the node agent keeps all rights of root");
    }
    name_process(role);
    let _lock = held_lock(role)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start the runtime")?;
    runtime.block_on(async {
        match role {
            RoleCommand::Gateway { name, state, clients_fd, tls_fd, ports_fd, seats_fd, rpc_fd, controller_uid, .. } => {
                raise_descriptor_limit();
                let clients = TcpListener::from(inherited(*clients_fd)?);
                let tls_clients = tls_fd.map(|fd| inherited(fd).map(TcpListener::from)).transpose()?;
                let ports = ports_fd.map(inherited).transpose()?.map(UnixDatagram::from);
                let seats = seats_fd.map(inherited).transpose()?;
                let rpc = UnixListener::from(inherited(*rpc_fd)?);
                let (name, state_dir, wake) = (name.as_str().into(), state.clone(), state.join("run/wake.sock"));
                let controller = *controller_uid;
                let options =
                    weal_gateway::Options { name, state_dir, clients, tls_clients, ports, seats, rpc, controller, wake };
                weal_gateway::run(options).await?;
            }
            RoleCommand::Controller { state, api_fd, api_tls_fd, local_fd, operator_uid, .. } => {
                let api = TcpListener::from(inherited(*api_fd)?);
                let local = UnixListener::from(inherited(*local_fd)?);
                let record = std::env::var_os(RECORD).is_some();
                let (state_dir, operator) = (state.clone(), *operator_uid);
                let api_tls = api_tls_fd.map(inherited).transpose()?.map(api_certificate).transpose()?;
                weal_controller::run(weal_controller::Options { state_dir, api, api_tls, local, operator, record }).await?;
            }
            RoleCommand::Node { state, rpc_fd, wake_fd, controller_uid, gateway_uid, .. } => {
                let rpc = UnixListener::from(inherited(*rpc_fd)?);
                let wake = Some(UnixListener::from(inherited(*wake_fd)?));
                let (controller, gateway) = (*controller_uid, *gateway_uid);
                weal_node::run(weal_node::Options { wake, controller, gateway, ..weal_node::Options::new(state, rpc) }).await?;
            }
        }
        Ok(())
    })
}

/// What the supervisor wrote down for the controller alone.
fn api_certificate(memory: OwnedFd) -> anyhow::Result<ApiCertificate> {
    serde_json::from_reader(BufReader::new(File::from(memory))).context("the certificate of the API was not handed over")
}

/// Keeps one instance; with `adopt` one whose shim was killed.
pub fn shim(dir: &Path, adopt: bool) -> anyhow::Result<()> {
    Ok(weal_node::shim::main(dir, adopt)?)
}

/// Structured, on standard error, which the supervisor sends to the role's log; `WEAL_LOG` filters (default `info`). A thread of its own writes,
/// until what is returned goes: a role whose disk hangs goes on. After [`LINES_THAT_WAIT`] lines that could not be written, further ones are lost.
fn log_as_json() -> WorkerGuard {
    let asked = std::env::var("WEAL_LOG").ok().and_then(|text| text.parse::<Targets>().ok());
    let filter = asked.unwrap_or_else(|| Targets::new().with_default(LevelFilter::INFO));
    let builder = NonBlockingBuilder::default().lossy(true).buffered_lines_limit(LINES_THAT_WAIT).thread_name("log");
    let (writer, writing) = builder.finish(std::io::stderr());
    // A line that finds no place is lost: told of it, the library would write to the same full disk, and panic.
    let lines = tracing_subscriber::fmt::layer().json().log_internal_errors(false).with_writer(writer);
    tracing_subscriber::registry().with(lines).with(filter).init();
    writing
}

/// Gateway and controller start no programs, so they can do without the ways to more rights. In a pool that root started, no other process of their
/// user may look into them or take their sockets either. A node agent of root gives up what changes the machine; where it cannot, it works all
/// the same, and why is returned.
fn give_up_rights(role: &RoleCommand) -> anyhow::Result<Option<weal_sandbox::Failure>> {
    let own = rustix::process::geteuid().as_raw();
    let is_of_root = match role {
        RoleCommand::Node { .. } if own == 0 => {
            return Ok(weal_sandbox::confine_agent().err());
        }
        RoleCommand::Node { .. } => return Ok(None),
        RoleCommand::Gateway { controller_uid, .. } => controller_uid.is_some(),
        RoleCommand::Controller { operator_uid, .. } => *operator_uid != own,
    };
    rustix::thread::set_no_new_privs(true)?;
    if is_of_root {
        rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    }
    Ok(None)
}

/// What says to a later supervisor that this role lives. Its copies end with this process: what it starts does not inherit it.
fn held_lock(role: &RoleCommand) -> anyhow::Result<Option<OwnedFd>> {
    let (RoleCommand::Gateway { lock_fd, .. } | RoleCommand::Controller { lock_fd, .. } | RoleCommand::Node { lock_fd, .. }) =
        role;
    lock_fd.map(inherited).transpose()
}

/// So that `ps` and `top` tell the roles apart: their program is `/proc/self/exe`.
fn name_process(role: &RoleCommand) {
    let name = match role {
        RoleCommand::Gateway { .. } => c"weal-gateway",
        RoleCommand::Controller { .. } => c"weal-controller",
        RoleCommand::Node { .. } => c"weal-node",
    };
    // Only a name: without it everything works.
    let _ = rustix::thread::set_name(name);
}

/// Each client and each request takes a descriptor: the gateway takes as many as it may.
fn raise_descriptor_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "cannot raise the limit on open files");
    }
}
