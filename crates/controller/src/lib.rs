//! The controller: observes, plans, keeps the store, serves the API and the dashboard.
//!
//! It can be killed at any time: requests keep flowing, instances keep running, and the next one picks everything up from the
//! store and from what runs.
//!
//! | module | part |
//! | --- | --- |
//! | `driver` | the I/O around [`weal_control::cycle`], which decides: observe -> profile -> plan -> check -> apply |
//! | [`store`] | what outlives the process |
//! | `api` | HTTP: one table of routes, who may call them, the stream, the dashboard |
//! | `board` | what the loop shows and the API reads |
//! | `why` | the last decisions in plain sentences |
//! | `metrics` | the same in numbers: as text for Prometheus, as data for who pushes them |

mod api;
mod board;
mod clock;
mod desired;
mod driver;
pub mod logs;
mod metrics;
pub mod store;
mod why;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use weal_control::cycle::{Note, Start, StoredJobs};
use weal_control::jobs::Costs;
use weal_engine::Engine;
use weal_engine_local::Local;
use weal_model::{EventKind, Status, Time};
use weal_rpc::{Callers, Client};

use crate::api::{Api, Audit, Door, FileError, Tokens, router, serve_local, serve_tcp};
use crate::board::{Board, View};
use crate::desired::Desired;
use crate::driver::{Driver, Order, Recorder};
use crate::store::{Saved, Store};
use weal_protocol::controller::{ConfigView, PlanView};
use weal_protocol::tls::ApiCertificate;

pub use api::openapi;
pub use api::{ApiTlsError, acceptor};
pub use desired::machine;
pub use driver::record;
pub use why::reason;

/// How long the gateway may take to answer a call.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// The recording of a loop's inputs and effects, in the controller's folder below the state directory.
pub const RECORDING: &str = "decisions.jsonl";
/// The gateway of this machine, as `weal role gateway --name` names it.
const GATEWAY: &str = "gw";
/// Configs that may wait for the loop to take them.
const ORDERS: usize = 16;

/// What the controller is started with. The sockets are bound by the supervisor, so that callers wait while it restarts.
#[derive(Debug)]
pub struct Options {
    /// The pool's state directory; `controller/` in it belongs to the controller.
    pub state_dir: PathBuf,
    /// Where the API and the dashboard are served over TCP.
    pub api: std::net::TcpListener,
    /// What is needed to speak TLS there; `None` speaks plain HTTP.
    pub api_tls: Option<ApiCertificate>,
    /// Where they are served locally, without a token.
    pub local: std::os::unix::net::UnixListener,
    /// The user that is served there, besides root.
    pub operator: u32,
    /// Whether the loop's inputs and effects are written down for a replay, in [`RECORDING`].
    pub record: bool,
}

/// Why the controller cannot run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or folder of its own cannot be used.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// A socket that was passed on cannot be used.
    #[error("the {which} socket cannot be used: {source}")]
    Socket {
        /// `API` or `local`.
        which: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The API cannot speak TLS.
    #[error("api-tls: {0}")]
    Tls(#[from] ApiTlsError),
    /// The store cannot be used.
    #[error("the store cannot be used: {0}")]
    Store(#[from] store::Error),
    /// The loop's inputs cannot be written down.
    #[error("the loop's inputs cannot be recorded: {0}")]
    Record(#[from] driver::RecordError),
    /// Signals cannot be caught.
    #[error("signals cannot be caught: {0}")]
    Signal(io::Error),
}

/// Runs the controller of this machine's pool until SIGTERM or SIGINT.
pub async fn run(options: Options) -> Result<(), Error> {
    let mut terminate = signal(SignalKind::terminate()).map_err(Error::Signal)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::Signal)?;
    let engine = Local::new(options.state_dir.join("run/node.sock"));
    run_with(options, engine, async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
    .await
}

/// Runs a controller over any engine until `stop`.
pub async fn run_with<E: Engine>(options: Options, engine: E, stop: impl Future<Output = ()>) -> Result<(), Error> {
    let folder = options.state_dir.join("controller");
    let file_error = |path: &std::path::Path, source| Error::File { path: path.display().to_string(), source };
    std::fs::create_dir_all(&folder).map_err(|source| file_error(&folder, source))?;
    let tokens = Tokens::load_or_create(&folder, clock::now()).map_err(|FileError { path, source }| file_error(&path, source))?;
    let tokens = Arc::new(tokens);
    let audit = Arc::new(Audit::open(&folder).map_err(|source| file_error(&folder, source))?);
    let (api_listener, address) = tcp(options.api).map_err(|source| Error::Socket { which: "API", source })?;
    let tls = options.api_tls.as_ref().map(acceptor).transpose()?;
    let certified = options.api_tls.is_some_and(|certificate| certificate.client_ca.is_some());
    let local = unix(options.local).map_err(|source| Error::Socket { which: "local", source })?;

    let (store, saved, notes) = Store::open(&folder.join("store.db"))?;
    let (desired, refused) = desired_from(&saved);
    // Profiles of another version are learnt anew, within a few cycles.
    let profiles = saved.values.get(driver::PROFILES).and_then(|body| serde_json::from_str(body).ok()).unwrap_or_default();
    let resting = saved.values.get(driver::RESTING).and_then(|body| serde_json::from_str(body).ok()).unwrap_or_default();
    let app_orders = saved.values.get(driver::APP_ORDERS).and_then(|body| serde_json::from_str(body).ok()).unwrap_or_default();
    let noted_until = saved.events.last().map_or(Time::ZERO, |event| event.time);
    let board = Arc::new(Board::new(store, saved.events, first_view(desired.as_ref())));
    let failed = saved.values.get(board::FAILED_VERSIONS).and_then(|body| serde_json::from_str(body).ok());
    board.recall_failed(failed.unwrap_or_default());
    for note in notes.into_iter().chain(refused) {
        board.note(Note::warning(EventKind::Role, note));
    }
    board.note(Note::info(EventKind::Role, "the controller started"));

    let engine = Arc::new(engine);
    let gateway = Client::new(options.state_dir.join("run/gateway.sock"), CALL_TIMEOUT);
    let (orders, queue) = mpsc::channel::<Order>(ORDERS);
    let recorder = if options.record { Recorder::create(&folder.join(RECORDING))? } else { Recorder::default() };
    let runs = saved.values.get(driver::JOB_RUNS).and_then(|body| serde_json::from_str(body).ok()).unwrap_or_default();
    let schedules = saved.values.get(driver::SCHEDULES).and_then(|body| serde_json::from_str(body).ok()).unwrap_or_default();
    let jobs = StoredJobs { records: saved.jobs.clone(), highest: saved.highest_job, runs, schedules, unread: !saved.is_read };
    let job_costs = Costs::THESIS;
    let start = Start {
        engine: engine.peer().to_owned(),
        gateway: GATEWAY.into(),
        config: None,
        profiles,
        resting,
        orders: app_orders,
        noted_until,
        job_costs,
        jobs,
    };
    let driver = Driver::new(Arc::clone(&board), Arc::clone(&engine), &gateway, desired, start, recorder);
    let (list_logs, read_logs) = (list_logs(Arc::clone(&engine)), read_logs(Arc::clone(&engine)));
    let read_output = read_output(engine);
    let (board_of_api, document) = (Arc::clone(&board), Arc::new(openapi()));
    let api = Api {
        board: board_of_api,
        orders,
        list_logs,
        read_logs,
        read_output,
        gateway,
        started: clock::now(),
        tokens: Arc::clone(&tokens),
        audit,
        document,
    };
    let by_tcp = router(api.clone(), &Door::tcp(address, certified, tokens));
    let operators = Callers::of([options.operator, 0]);
    let strangers = router(api.clone(), &Door::Closed);
    let by_socket = router(api, &Door::Local);
    tokio::select! {
        () = driver.run(queue) => {}
        () = serve_tcp(api_listener, tls, by_tcp) => {}
        () = serve_local(local, &operators, by_socket, strangers) => {}
        () = stop => {}
    }
    board.note(Note::info(EventKind::Role, "the controller stopped"));
    board.store.finish();
    Ok(())
}

fn tcp(listener: std::net::TcpListener) -> io::Result<(tokio::net::TcpListener, std::net::SocketAddr)> {
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    Ok((tokio::net::TcpListener::from_std(listener)?, address))
}

fn unix(listener: std::os::unix::net::UnixListener) -> io::Result<tokio::net::UnixListener> {
    listener.set_nonblocking(true)?;
    tokio::net::UnixListener::from_std(listener)
}

/// The stored config, read again; one that this version does not accept any more is reported and left.
fn desired_from(saved: &Saved) -> (Option<Desired>, Option<String>) {
    let Some(stored) = &saved.config else { return (None, None) };
    match desired::read(&stored.text, &stored.path) {
        Ok((spec, _)) => {
            let (text, path) = (stored.text.clone(), stored.path.clone());
            let (who, origin) = (stored.who.clone(), stored.origin.clone());
            (Some(Desired { generation: stored.generation, text, path, spec: Arc::new(spec), who, origin }), None)
        }
        Err(refused) => (None, Some(format!("the stored config is not accepted any more: {}", refused.outline))),
    }
}

fn first_view(desired: Option<&Desired>) -> View {
    let spec = desired.map(|desired| &desired.spec);
    let url = |address: Option<std::net::SocketAddr>| address.map(|address| format!("http://{address}")).unwrap_or_default();
    let status = Status {
        pool: spec.map(|spec| spec.name.clone()).unwrap_or_default(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        time: clock::now(),
        config_generation: desired.map_or(0, |desired| desired.generation),
        config_error: None,
        control: spec.is_none_or(|spec| spec.control),
        placement: spec.map_or_else(Default::default, |spec| spec.placement),
        listen: url(spec.map(|spec| spec.listen)),
        api: spec.map(|spec| spec.api_url()).unwrap_or_default(),
        limits: Vec::new(),
        problems: Vec::new(),
        nodes: Vec::new(),
        apps: Vec::new(),
        flows: Vec::new(),
        jobs: Vec::new(),
        plan: None,
    };
    let config = match desired {
        Some(desired) => desired.view(),
        None => ConfigView { generation: 0, text: String::new(), path: String::new(), spec: None },
    };
    View {
        status: Arc::new(status),
        plan: Arc::new(PlanView::default()),
        config: Arc::new(config),
        counters: None,
        actions_total: 0,
        transitions: std::collections::BTreeMap::new(),
        put_off: std::collections::BTreeMap::new(),
    }
}

fn list_logs<E: Engine>(engine: Arc<E>) -> api::ListLogs {
    Arc::new(move |name| {
        let engine = Arc::clone(&engine);
        Box::pin(async move { engine.log_sources(&name).await })
    })
}

fn read_logs<E: Engine>(engine: Arc<E>) -> api::ReadLogs {
    Arc::new(move |request| {
        let engine = Arc::clone(&engine);
        Box::pin(async move { engine.logs(&request).await })
    })
}

fn read_output<E: Engine>(engine: Arc<E>) -> api::ReadOutput {
    Arc::new(move |request| {
        let engine = Arc::clone(&engine);
        Box::pin(async move { engine.output(&request).await })
    })
}
