//! Everything a gateway works by, in the form that requests use, and how one config follows another.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::HeaderValue;
use tokio::sync::watch;
use weal_control::admission::inner_class;
use weal_control::flow::pipeline::ClassIndex;
use weal_host::users::APPLICATION_UIDS;
use weal_model::{
    AppName, ClassName, ClientPolicy, DispatchRules, InstanceId, InstanceProtocol, ListenScheme, ProxyVersion, RouteSpec,
    TransportPort,
};
use weal_rpc::RpcRefusal;

use crate::clock::Clock;
use crate::routing::affinity::Tokens;
use crate::routing::cluster::{Cluster, Errands};
use crate::routing::extras::Extras;
use crate::routing::file::Keeper;
use crate::routing::kept::{FILE, Kept};
use crate::routing::marks::Marks;
use crate::routing::pages::Pages;
use crate::routing::routes::Routes;
use crate::sharing::SeatRoom;
use weal_protocol::gateway::{ClusterConfig, ConfigAck, GatewayConfig};

/// What a route leads to.
#[derive(Debug, Clone)]
pub(crate) struct Destination {
    pub cluster: Arc<Cluster>,
    pub class: ClassIndex,
    pub rules: Arc<Rules>,
}

/// What holds for the requests of one route.
#[derive(Debug)]
pub(crate) struct Rules {
    /// For people: `app/class`.
    pub flow: Arc<str>,
    /// What instances speak.
    pub protocol: InstanceProtocol,
    /// What a connection to an instance begins with, to say whose it is.
    pub send_proxy: Option<ProxyVersion>,
    /// True: connections of the route's port begin with a header where a trusted proxy makes them.
    pub accepts_proxy: bool,
    /// True: answers are compressed where that helps.
    pub compresses: bool,
    /// Protocols that may be upgraded to.
    pub upgrades: Vec<String>,
    /// How long nothing may come, in either direction; `None` is as the cluster and the gateway have it.
    pub idle: Option<Duration>,
    /// How long a request may take up to the last byte of its answer.
    pub total: Option<Duration>,
    /// How long a connection that is no longer HTTP may be without a byte.
    pub tunnel_idle: Duration,
    /// Bytes per second that clients send and take at least; 0 is any rate.
    pub min_rate: u32,
    /// True: the route was chosen by normalised paths.
    pub is_normalized: bool,
    /// What is done besides passing requests on; nearly no route has any.
    pub extras: Option<Box<Extras>>,
    /// What tells the instance the class, if it calls others.
    pub mark: Option<HeaderValue>,
    /// Which instance a request goes to.
    pub dispatch: DispatchRules,
    /// The cookie that says of a request that its session is under way.
    pub session_cookie: Option<String>,
}

/// An inner tier: where calls to an application go.
#[derive(Debug)]
pub(crate) struct Inner {
    /// True: each request is passed on by itself. False: each connection.
    pub http: bool,
    by_mark: HashMap<HeaderValue, Destination>,
    unmarked: Destination,
}

impl Inner {
    /// Where a call goes that brings `mark` along.
    pub fn destination(&self, mark: Option<&HeaderValue>) -> &Destination {
        mark.and_then(|mark| self.by_mark.get(mark)).unwrap_or(&self.unmarked)
    }
}

/// One config in force.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub version: u64,
    pub routes: Routes<Destination>,
    /// Where connections and datagrams of ports go.
    pub ports: BTreeMap<TransportPort, Destination>,
    /// Where calls to each application go.
    pub inner: BTreeMap<AppName, Inner>,
    pub clients: ClientPolicy,
    /// Users of the instances that need an application, as far as they are known, by what they need.
    pub callers: BTreeMap<AppName, BTreeSet<u32>>,
    /// Users whose sockets the node agent found at instances' ports, but for those whom whoever runs weal may be.
    listeners: BTreeSet<u32>,
    clusters: BTreeMap<AppName, Arc<Cluster>>,
}

/// The config in force and how to replace it.
#[derive(Debug)]
pub(crate) struct Tables {
    file: PathBuf,
    clock: Clock,
    workers: usize,
    errands: Errands,
    /// Grows with each change, so that connections notice without taking the lock.
    epoch: AtomicU64,
    /// True once there is a config.
    is_ready: watch::Sender<bool>,
    current: Mutex<Arc<Table>>,
    /// Clusters that left the config while requests of theirs were waiting or outstanding.
    leaving: Mutex<Vec<Arc<Cluster>>>,
    /// Who makes a table of a config holds it, and may wait for a disk meanwhile; no request does.
    making: Mutex<Making>,
    /// Writes what outlives this gateway.
    keeper: Arc<Keeper>,
    /// What makes cookies of instances; `None` without random numbers.
    affinity: Option<Tokens>,
    /// What other gateways of the pool hold of its seats; `None` when that cannot be known.
    room: Option<SeatRoom>,
}

/// What is known from one config to the next, besides clusters.
#[derive(Debug)]
struct Making {
    /// Files that routes name.
    pages: Pages,
    /// By which instances and the gateway name classes to each other.
    marks: Marks,
}

/// A connection's view of the config: refreshed only after a change.
#[derive(Debug)]
pub(crate) struct View {
    epoch: u64,
    table: Arc<Table>,
}

impl Table {
    /// True for a proxy in front, whose word about its clients counts.
    pub fn is_trusted(&self, address: IpAddr) -> bool {
        self.clients.trusted_proxies.iter().any(|network| network.contains(address))
    }

    /// True for an address that may take as much as it likes.
    pub fn is_unlimited(&self, address: IpAddr) -> bool {
        self.clients.unlimited_clients.iter().any(|network| network.contains(address))
    }

    /// True for a user whom applications of the pool run as, as far as they have one of their own.
    pub fn is_of_application(&self, user: u32) -> bool {
        APPLICATION_UIDS.contains(&user) || self.listeners.contains(&user)
    }

    /// True for a user whose instances need `app`.
    pub fn calls(&self, user: u32, app: &AppName) -> bool {
        self.callers.get(app).is_some_and(|callers| callers.contains(&user))
    }

    /// True when a connection from `address` has to begin by saying whose it is.
    pub fn expects_proxy_header(&self, scheme: ListenScheme, address: IpAddr) -> bool {
        self.clients.accept_proxy.contains(&scheme) && self.is_trusted(address)
    }
}

impl Tables {
    /// Begins with the config that was in force last, if there is one that can be read.
    pub fn load(state_dir: &Path, seats: Option<OwnedFd>, clock: Clock, workers: usize, errands: Errands) -> Self {
        let keeper = Arc::new(Keeper::default());
        let tables = Self {
            file: state_dir.join(FILE),
            clock,
            workers,
            errands,
            epoch: AtomicU64::new(1),
            is_ready: watch::Sender::new(false),
            current: Mutex::default(),
            leaving: Mutex::default(),
            making: Mutex::new(Making { pages: Pages::beside(state_dir), marks: Marks::load(state_dir, Arc::clone(&keeper)) }),
            keeper,
            affinity: Tokens::load(state_dir)
                .inspect_err(|error| tracing::error!(%error, "no random numbers: sessions stay with no instance"))
                .ok(),
            room: seats.and_then(|memory| {
                let room = SeatRoom::enter(memory);
                room.inspect_err(|error| tracing::warn!(%error, "seats are not shared with a gateway that ends or follows")).ok()
            }),
        };
        match std::fs::read(&tables.file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => tracing::warn!(file = %tables.file.display(), %error, "cannot read the last config"),
            Ok(bytes) => match serde_json::from_slice::<Kept>(&bytes) {
                Ok(kept) => tables.put_in_force(&kept.confirmed(), &mut tables.making()),
                Err(error) => tracing::warn!(file = %tables.file.display(), %error, "the last config is unreadable"),
            },
        }
        tables
    }

    /// Takes a config, as a whole or not at all, and has it kept on disk. It may wait for the disk that error pages are on.
    pub fn configure(&self, config: &GatewayConfig) -> Result<ConfigAck, RpcRefusal> {
        let mut making = self.making();
        let current = self.current();
        if config.version < current.version {
            let message = format!("config {} is older than {}, which is in force", config.version, current.version);
            return Err(RpcRefusal { status: 409, message, refusal: None });
        }
        check(config).map_err(|bad| RpcRefusal::bad_request(bad.to_string()))?;
        self.put_in_force(config, &mut making);
        match Kept::now(config).content() {
            Ok(content) => self.keeper.keep(&self.file, content),
            Err(error) => tracing::warn!(file = %self.file.display(), %error, "cannot keep the config"),
        }
        Ok(ConfigAck { version: config.version })
    }

    /// The config in force.
    pub fn current(&self) -> Arc<Table> {
        Arc::clone(&self.current.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn view(&self) -> View {
        View { epoch: self.epoch.load(Ordering::Acquire), table: self.current() }
    }

    /// Every cluster that has or had requests, those that are leaving included.
    pub fn clusters(&self) -> Vec<Arc<Cluster>> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let mut leaving = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
        let mut clusters: Vec<_> = current.clusters.values().cloned().collect();
        leaving.retain(|cluster| !cluster.is_idle());
        clusters.extend(leaving.iter().cloned());
        clusters
    }

    /// Gives back the seats of gateways that have died.
    pub fn clear_dead(&self) {
        self.room.iter().for_each(SeatRoom::clear_dead);
    }

    /// Waits until what outlives this gateway is written, for so long at most.
    pub fn settle(&self, patience: Duration) {
        self.keeper.settle(patience);
    }

    fn making(&self) -> MutexGuard<'_, Making> {
        self.making.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put_in_force(&self, config: &GatewayConfig, making: &mut Making) {
        let clusters = self.configured(config);
        let table = Arc::new(compile(config, clusters, making));
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let mut leaving = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
        leaving.retain(|cluster| !table.clusters.contains_key(cluster.app()));
        let gone = current.clusters.iter().filter(|(app, _)| !table.clusters.contains_key(*app));
        leaving.extend(gone.map(|(_, cluster)| Arc::clone(cluster)));
        *current = table;
        self.epoch.fetch_add(1, Ordering::AcqRel);
        self.is_ready.send_replace(true);
    }

    /// The clusters of `config`, which work by it from now on.
    fn configured(&self, config: &GatewayConfig) -> BTreeMap<AppName, Arc<Cluster>> {
        // One that comes back while it is leaving still has requests, which count against its seats.
        let known: BTreeMap<_, _> = self.clusters().into_iter().map(|cluster| (cluster.app().clone(), cluster)).collect();
        let configured = |wanted: &ClusterConfig| {
            let cluster = known.get(&wanted.app).map(Arc::clone).unwrap_or_else(|| {
                let affinity = self.affinity.clone();
                Cluster::new(wanted, self.clock, self.workers, self.errands.clone(), affinity, self.room.as_ref())
            });
            cluster.limit_addresses(config.clients.client_seats);
            cluster.configure(wanted);
            cluster
        };
        config.clusters.iter().map(|wanted| (wanted.app.clone(), configured(wanted))).collect()
    }

    /// Waits until there is a config.
    pub async fn ready(&self) {
        let mut is_ready = self.is_ready.subscribe();
        // The sender lives as long as this does.
        let _ = is_ready.wait_for(|is_ready| *is_ready).await;
    }
}

fn compile(config: &GatewayConfig, clusters: BTreeMap<AppName, Arc<Cluster>>, making: &mut Making) -> Table {
    let Making { pages, marks } = making;
    pages.begin();
    let tier = |wanted: &ClusterConfig, marks: &mut Marks| inner_tier(wanted, &clusters[&wanted.app], &config.clients, marks);
    let inner = config.clusters.iter().filter_map(|wanted| Some((wanted.app.clone(), tier(wanted, marks)?))).collect();
    let (mut ports, mut compiled) = (BTreeMap::new(), Vec::new());
    for (wanted, route) in config.clusters.iter().flat_map(|wanted| wanted.routes.iter().map(move |route| (wanted, route))) {
        let cluster = &clusters[&wanted.app];
        let Some(class) = cluster.class(&route.class) else { continue };
        let rules = Arc::new(rules(wanted, route, &config.clients, pages, marks));
        let destination = Destination { cluster: Arc::clone(cluster), class, rules };
        match route.port {
            Some(port) => drop(ports.insert(port, destination)),
            None => compiled.push((route.clone(), wanted.http.normalize_paths, destination)),
        }
    }
    let routes = Routes::compile(compiled);
    let endpoints = config.clusters.iter().flat_map(|wanted| &wanted.endpoints);
    // Whoever may be the operator is none of them.
    let operators = [0, rustix::process::geteuid().as_raw()];
    let listeners = endpoints.filter_map(|endpoint| endpoint.listener).filter(|user| !operators.contains(user)).collect();
    let callers = |wanted: &ClusterConfig| Some((wanted.app.clone(), wanted.inner.as_ref()?.callers.clone()));
    let callers = config.clusters.iter().filter_map(callers).collect();
    Table { version: config.version, routes, ports, inner, clients: config.clients.clone(), callers, listeners, clusters }
}

/// Without a byte in either direction. As long as HAProxy's manual has its `timeout tunnel`; a client that has gone without a word holds a
/// connection of the instance so long.
pub(crate) const TUNNEL_IDLE: Duration = Duration::from_secs(3600);

/// Calls over HTTP/2 may be open for as long as they like: both sides of a stream speak when they have something to say.
fn min_rate(wanted: &ClusterConfig, of_route: Option<u32>, clients: &ClientPolicy) -> u32 {
    let of_pool = if wanted.http.protocol == InstanceProtocol::H2c { 0 } else { clients.client_min_rate };
    of_route.unwrap_or(of_pool)
}

fn rules(wanted: &ClusterConfig, route: &RouteSpec, clients: &ClientPolicy, pages: &mut Pages, marks: &mut Marks) -> Rules {
    let seconds = |seconds: Option<f64>| seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    Rules {
        flow: format!("{}/{}", wanted.app, route.class).into(),
        protocol: wanted.http.protocol,
        send_proxy: wanted.http.send_proxy,
        accepts_proxy: route.extras.accept_proxy,
        compresses: route.extras.compression.unwrap_or(clients.compression),
        upgrades: wanted.http.upgrades.clone(),
        idle: seconds(route.idle_timeout_s),
        tunnel_idle: seconds(route.tunnel_idle_timeout_s).unwrap_or(TUNNEL_IDLE),
        min_rate: min_rate(wanted, route.extras.client_min_rate, clients),
        total: seconds(route.total_timeout_s),
        is_normalized: wanted.http.normalize_paths,
        extras: Extras::compile(&route.extras, pages).map(Box::new),
        mark: wanted.calls.then(|| marks.mark(&route.class)),
        dispatch: wanted.http.dispatch.clone(),
        session_cookie: wanted.flows.get(&route.class).and_then(|flow| flow.session_cookie.clone()),
    }
}

/// Where calls to a cluster go; `None` when nobody calls it.
fn inner_tier(wanted: &ClusterConfig, cluster: &Arc<Cluster>, clients: &ClientPolicy, marks: &mut Marks) -> Option<Inner> {
    let tier = wanted.inner.as_ref()?;
    let destination = |name: &ClassName, marks: &mut Marks| {
        let class = cluster.class(&inner_class(name))?;
        let rules = Arc::new(Rules {
            flow: format!("{}/{name}", wanted.app).into(),
            protocol: wanted.http.protocol,
            send_proxy: wanted.http.send_proxy,
            accepts_proxy: false,
            // Between applications of one pool, CPU is scarcer than bytes.
            compresses: false,
            upgrades: wanted.http.upgrades.clone(),
            idle: None,
            tunnel_idle: TUNNEL_IDLE,
            min_rate: min_rate(wanted, None, clients),
            total: None,
            is_normalized: wanted.http.normalize_paths,
            extras: None,
            mark: wanted.calls.then(|| marks.mark(name)),
            // Calls bring no cookies of browsers.
            dispatch: DispatchRules { affinity: None, ..wanted.http.dispatch.clone() },
            session_cookie: None,
        });
        Some(Destination { cluster: Arc::clone(cluster), class, rules })
    };
    let unmarked = destination(&tier.unmarked, marks)?;
    let by_mark = tier.flows.keys().filter_map(|name| Some((marks.mark(name), destination(name, marks)?))).collect();
    Some(Inner { http: tier.http, by_mark, unmarked })
}

impl View {
    /// The config in force now.
    pub fn table(&mut self, tables: &Tables) -> &Arc<Table> {
        let epoch = tables.epoch.load(Ordering::Acquire);
        if epoch != self.epoch {
            *self = Self { epoch, table: tables.current() };
        }
        &self.table
    }
}

/// What no config may have.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
enum BadConfig {
    #[error("cluster {app} is there twice")]
    Twice { app: AppName },
    #[error("cluster {app}: a request's time of {seconds} s is not positive")]
    RequestTimeout { app: AppName, seconds: f64 },
    #[error("cluster {app}: the weight {weight} of class {class} is not positive")]
    ClassWeight { app: AppName, class: ClassName, weight: f64 },
    #[error("cluster {app}: a route leads to class {class}, which has no flow")]
    RouteWithoutFlow { app: AppName, class: ClassName },
    #[error("cluster {app}: the weight {weight} of {instance} is not positive")]
    InstanceWeight { app: AppName, instance: InstanceId, weight: f64 },
}

fn check(config: &GatewayConfig) -> Result<(), BadConfig> {
    let is_positive = |number: f64| number.is_finite() && number > 0.0;
    let mut seen = std::collections::BTreeSet::new();
    for cluster in &config.clusters {
        let app = cluster.app.clone();
        if !seen.insert(&cluster.app) {
            return Err(BadConfig::Twice { app });
        }
        if !is_positive(cluster.request_timeout_s) {
            return Err(BadConfig::RequestTimeout { app, seconds: cluster.request_timeout_s });
        }
        if let Some((class, flow)) = cluster.flows.iter().find(|(_, flow)| !is_positive(flow.weight)) {
            return Err(BadConfig::ClassWeight { app, class: class.clone(), weight: flow.weight });
        }
        if let Some(route) = cluster.routes.iter().find(|route| !cluster.flows.contains_key(&route.class)) {
            return Err(BadConfig::RouteWithoutFlow { app, class: route.class.clone() });
        }
        if let Some(bad) = cluster.endpoints.iter().find(|endpoint| !is_positive(endpoint.weight)) {
            return Err(BadConfig::InstanceWeight { app, instance: bad.instance.clone(), weight: bad.weight });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fuzz_gateway_configs() {
        let folder = tempfile::tempdir().unwrap();
        let (errands, _received) = tokio::sync::mpsc::unbounded_channel();
        let tables = Tables::load(folder.path(), None, Clock::new(), 1, errands);
        weal_fuzz::target("gateway-config", |bytes| {
            if let Ok(config) = serde_json::from_slice::<GatewayConfig>(bytes)
                && check(&config).is_ok()
            {
                tables.put_in_force(&config, &mut tables.making());
                let _ = tables.current().routes.find("shop.example", "/a/b", &http::HeaderMap::new());
            }
        });
    }
}
