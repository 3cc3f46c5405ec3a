//! Sockets around `weal_control::admission`: the role that faces clients.
//!
//! A request's way: `listen` accepts its connection. `http` checks it, finds its flow in `routing`, takes a seat there, writes its head
//! anew, sends it over a connection of `upstream` and relays the answer, which holds the seat to its end. Whatever goes wrong becomes an
//! answer of the gateway's own, which `telemetry` remembers. Where no instance is open, `wake` has the node agent wake one, when the
//! cluster says so. `sharing` keeps seats exact while one gateway ends and the next begins.
//!
//! Deliberately absent: state that matters. All a gateway knows comes with a config, and it can be killed at any time.

mod clock;
mod http;
mod limits;
mod listen;
mod routing;
mod sharing;
mod telemetry;
mod tls;
mod upstream;
mod wake;

use std::future::Future;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use weal_control::admission::class_of_inner;
use weal_model::{FlowId, GatewayName, ListenScheme};
use weal_rpc::{Callers, RpcRefusal};

use crate::clock::Clock;
use crate::http::deadline::Deadlines;
use crate::http::origin::RequestIds;
use crate::http::session::Gateway;
pub use crate::limits::Limits;
use crate::listen::accepting::Entrance;
use crate::listen::guard::Guard;
use crate::listen::l4::Ports;
use crate::listen::registry::Registry;
use crate::listen::workers::Workers;
use crate::routing::table::Tables;
pub use crate::sharing::{seats_memory, seats_of_another};
use crate::telemetry::access_log::AccessLogWriter;
use crate::telemetry::ended::Ended;
use crate::telemetry::refused::Refused;
use crate::telemetry::spans::Spans;
use crate::tls::Tls;
use weal_protocol::gateway::{CONFIGURE, FlowCounters, GatewayConfig, GatewayCounters, OBSERVE, REFUSED, RefusedQuery};
use weal_protocol::spans::{SPANS, SpansQuery};
use weal_protocol::tls::{CERTIFY, TlsConfig};

/// What a gateway needs to run.
#[derive(Debug)]
pub struct Options {
    /// Its name, unique in the pool.
    pub name: GatewayName,
    /// The state directory; the gateway keeps its last config below it, in `gateway/`.
    pub state_dir: PathBuf,
    /// Where clients connect.
    pub clients: std::net::TcpListener,
    /// Where clients connect over TLS. They wait in its backlog until the supervisor has said which certificates there are.
    pub tls_clients: Option<std::net::TcpListener>,
    /// Where the sockets of ports come in: those that [`weal_protocol::gateway::Listeners`] names. `None` has no ports.
    pub ports: Option<std::os::unix::net::UnixDatagram>,
    /// Memory from [`seats_memory`] by an opening of its own, through which it shares seats with other gateways of the pool; `None` shares with none.
    pub seats: Option<std::os::fd::OwnedFd>,
    /// Where the controller calls.
    pub rpc: std::os::unix::net::UnixListener,
    /// The controller's user; `None` is the gateway's own.
    pub controller: Option<u32>,
    /// Where the node agent wakes instances.
    pub wake: PathBuf,
}

/// Why a gateway cannot run.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what}: {source}")]
pub struct Error {
    what: &'static str,
    source: std::io::Error,
}

/// Serves until SIGTERM, then finishes what is running.
///
/// # Errors
/// When the sockets cannot be used or no thread can be started. Nothing after that ends it.
pub async fn run(options: Options) -> Result<(), Error> {
    let mut terminate = signal(SignalKind::terminate()).map_err(failed_to("listen to SIGTERM"))?;
    let stop = async move {
        terminate.recv().await;
    };
    run_until(options, Limits::default(), stop).await
}

/// Serves by `limits` until `stop` completes, then finishes what is running.
///
/// # Errors
/// As [`run`].
pub async fn run_until(options: Options, limits: Limits, stop: impl Future<Output = ()>) -> Result<(), Error> {
    let clock = Clock::new();
    let Options { name, state_dir, clients, tls_clients, ports, seats, rpc, controller, wake } = options;
    let limits = Arc::new(limits);
    let (errands, received) = tokio::sync::mpsc::unbounded_channel();
    let gateway = Arc::new(Gateway {
        tables: Tables::load(&state_dir, seats, clock, limits.workers, errands),
        limits: Arc::clone(&limits),
        ids: RequestIds::new(clock.begun().0 ^ u64::from(std::process::id()).rotate_left(40)),
        guard: Guard::default(),
        ended: Arc::new(Ended {
            access_log: AccessLogWriter::start(&state_dir).map_err(failed_to("start the access log's thread"))?,
            spans: Spans::default(),
        }),
        refused: Refused::new(clock),
        tls: Tls::new(limits.handshakes),
        compressions: Arc::new(Semaphore::new(limits.compressions)),
        gathers: Semaphore::new(limits.gathers),
        deadlines: Deadlines::new(limits.workers),
        unrouted: AtomicU64::new(0),
        malformed: AtomicU64::new(0),
        abusive: AtomicU64::new(0),
        inner: Mutex::default(),
    });
    let registry = Arc::new(Registry::default());
    let clients = listening(clients)?;
    let tls_clients = tls_clients.map(listening).transpose()?;
    rpc.set_nonblocking(true).map_err(failed_to("use the controller's socket"))?;
    let rpc = UnixListener::from_std(rpc).map_err(failed_to("use the controller's socket"))?;
    let workers = Arc::new(Workers::start(&gateway, &registry, clock).map_err(failed_to("start a worker"))?);
    let l4 = Ports {
        gateway: Arc::clone(&gateway),
        registry: Arc::clone(&registry),
        workers: Arc::clone(&workers),
        clock,
        first_config: limits.first_config,
    };
    let callers = controller.into_iter().fold(Callers::own(), Callers::and);
    let router = rpc_router(callers, &gateway, &registry, clock, name);
    let sweep = listen::workers::sweep(Arc::clone(&gateway), Arc::clone(&registry), clock);
    let around = async { tokio::join!(weal_rpc::serve(rpc, router), wake::serve(&wake, received), sweep) };
    tokio::select! {
        _ = around => unreachable!("both serve for ever"),
        ended = async {
            let accepted = async {
                // Meanwhile clients wait in the backlog, which is bounded: better than to be told that there is no route.
                let _ = tokio::time::timeout(limits.first_config, gateway.tables.ready()).await;
                accept_all(&clients, tls_clients.as_ref(), &workers, &gateway.tls).await;
            };
            tokio::select! {
                () = accepted => {}
                // At once: the config says where calls between applications come in, and instances are started with it.
                failed = serve_ports(l4, ports) => return failed,
                () = stop => {}
            }
            drop((clients, tls_clients));
            drain(&registry, clock, &limits).await;
            gateway.tables.settle(Duration::from_secs(1));
            Ok(())
        } => ended
    }
}

/// Listens at ports, until this is dropped.
async fn serve_ports(l4: Ports, handover: Option<std::os::unix::net::UnixDatagram>) -> Result<(), Error> {
    match handover {
        Some(handover) => listen::l4::serve(l4, handover).await.map_err(failed_to("take over the ports' sockets")),
        None => std::future::pending().await,
    }
}

fn failed_to(what: &'static str) -> impl FnOnce(std::io::Error) -> Error {
    move |source| Error { what, source }
}

fn listening(socket: std::net::TcpListener) -> Result<Entrance, Error> {
    Entrance::new(socket).map_err(failed_to("use the clients' socket"))
}

/// Accepts clients with and without TLS. Those without wait for a moment too, so that none is answered that is to be sent on to TLS.
async fn accept_all(clients: &Entrance, tls_clients: Option<&Entrance>, workers: &Workers, tls: &Tls) {
    const MOMENT: Duration = Duration::from_secs(2);
    let Some(tls_clients) = tls_clients else { return accept(clients, workers, ListenScheme::Http).await };
    let secure = async {
        tls.ready().await;
        accept(tls_clients, workers, ListenScheme::Https).await;
    };
    let plain = async {
        let _ = tokio::time::timeout(MOMENT, tls.ready()).await;
        accept(clients, workers, ListenScheme::Http).await;
    };
    tokio::join!(secure, plain);
}

async fn accept(clients: &Entrance, workers: &Workers, scheme: ListenScheme) {
    clients.accept_each(|| workers.room(), |accepted| workers.hand_over(accepted, scheme, None)).await;
}

/// Lets what is running end, within the limit for it.
async fn drain(registry: &Arc<Registry>, clock: Clock, limits: &Limits) {
    let ended = async {
        while registry.count() > 0 {
            // Again and again, because a connection may have been handed over just before.
            registry.close_all(clock, limits.quiet);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    if tokio::time::timeout(limits.drain, ended).await.is_err() {
        tracing::warn!(connections = registry.count(), "cut off what was still running at the end of the drain");
    }
}

fn rpc_router(
    callers: Callers,
    gateway: &Arc<Gateway>,
    registry: &Arc<Registry>,
    clock: Clock,
    name: GatewayName,
) -> weal_rpc::Router {
    let (configured, refused, certified) = (Arc::clone(gateway), Arc::clone(gateway), Arc::clone(gateway));
    let (observed, registry) = (Arc::clone(gateway), Arc::clone(registry));
    let (traced, own_name) = (Arc::clone(gateway), name.clone());
    weal_rpc::Router::new(callers)
        .on(CONFIGURE, move |config: GatewayConfig| {
            let gateway = Arc::clone(&configured);
            async move {
                let configured = tokio::task::spawn_blocking(move || gateway.tables.configure(&config));
                configured.await.map_err(|error| RpcRefusal::internal(error.to_string()))?
            }
        })
        .on(REFUSED, move |query: RefusedQuery| {
            let refused = refused.refused.last(&query);
            async move { Ok(refused) }
        })
        .on(OBSERVE, move |()| {
            let counters = observe(&observed, &registry, clock, &name);
            async move { Ok(counters) }
        })
        // Not the controller: it has nothing to do with private keys.
        .callers(Callers::own())
        .on(CERTIFY, move |config: TlsConfig| {
            let taken = certified.tls.configure(&config).map_err(|error| RpcRefusal::bad_request(error.to_string()));
            async move { taken }
        })
        // Nor with what clients have asked for.
        .on(SPANS, move |query: SpansQuery| {
            let taken = traced.ended.spans.take(&own_name, query);
            async move { Ok(taken) }
        })
}

fn observe(gateway: &Gateway, registry: &Registry, clock: Clock, name: &GatewayName) -> GatewayCounters {
    // Read first: a config may come in while the clusters are looked at, and what was counted before it must not bear its version.
    let version = gateway.tables.current().version;
    let (mut flows, mut instances) = (Vec::new(), Vec::new());
    let clusters = gateway.tables.clusters();
    let clusters = clusters.iter().map(|cluster| cluster.observe(name, &mut flows, &mut instances)).collect();
    let (inner, flows): (Vec<_>, Vec<_>) = flows.into_iter().partition(|flow| class_of_inner(&flow.id.class).is_some());
    let inner = inner.into_iter().map(|flow: FlowCounters| {
        let class = class_of_inner(&flow.id.class).unwrap_or_else(|| flow.id.class.clone());
        FlowCounters { id: FlowId { class, ..flow.id }, ..flow }
    });
    GatewayCounters {
        gateway: name.clone(),
        started: clock.begun(),
        time: clock.now(),
        version,
        flows,
        instances,
        clusters,
        connections: registry.count() as u64,
        tls: gateway.tls.counters(),
        unrouted: gateway.unrouted.load(Ordering::Relaxed),
        malformed: gateway.malformed.load(Ordering::Relaxed),
        abusive: gateway.abusive.load(Ordering::Relaxed),
        errors: gateway.refused.counters(),
        spans: gateway.ended.spans.counters(),
        inner: inner.collect(),
        inner_addresses: gateway.inner.lock().unwrap_or_else(PoisonError::into_inner).clone(),
    }
}
