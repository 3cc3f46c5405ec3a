//! What is desired: the content of a `weal.toml` with every default filled in.
//!
//! `weal-config` makes these from text; nothing else does. Durations are in seconds so that they print as written.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    ApiTls, AppName, AwakeSchedule, Bytes, ClassName, ClientPolicy, CollectorUrl, Cpu, Enactment, HttpRules, InstanceProtocol,
    KeptAwake, LogsTo, NodeName, NotifySpec, ProcessSpec, ProxyVersion, RouteSpec, SandboxSpec, ScheduledJobs, ServiceClass,
    TlsSpec, Transport,
};

/// A whole pool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PoolSpec {
    /// Its name, for people; the config file's folder when nothing is said.
    pub name: String,
    /// Where clients connect.
    pub listen: SocketAddr,
    /// TLS towards clients; `None` speaks plain HTTP only.
    #[serde(default)]
    pub tls: Option<TlsSpec>,
    /// Where the API and the dashboard are.
    pub api: SocketAddr,
    /// TLS at the API; `None` speaks plain HTTP there.
    #[serde(default)]
    pub api_tls: Option<ApiTls>,
    /// The API may speak plain HTTP to other machines.
    #[serde(default)]
    pub api_insecure: bool,
    /// A change of the config file is deployed by itself, without anybody's order.
    #[serde(default)]
    pub watch: bool,
    /// False only watches: no seats are limited and no instance is moved (`control = "off"`), for comparisons.
    pub control: bool,
    /// Which algorithm places instances.
    #[serde(default)]
    pub placement: Algorithm,
    /// How many times as fast as Kubernetes' defaults the autoscaler acts, for rehearsals that compress a day into minutes.
    #[serde(default = "as_in_life")]
    pub autoscaler_speed: f64,
    /// How placement is enacted.
    #[serde(default)]
    pub enactment: Enactment,
    /// What a gateway counts against a cluster's limit.
    #[serde(default)]
    pub overload_limit: OverloadLimit,
    /// What holds for all clients of its gateways.
    #[serde(default)]
    pub clients: ClientPolicy,
    /// How often things are decided.
    pub timing: TimingSpec,
    /// The nodes. Never empty: without any `[[node]]`, the machine is one node.
    pub nodes: Vec<NodeSpec>,
    /// The service classes.
    pub classes: BTreeMap<ClassName, ServiceClass>,
    /// The applications.
    pub apps: BTreeMap<AppName, AppSpec>,
    /// The jobs that are submitted at their dates.
    #[serde(default)]
    pub jobs: ScheduledJobs,
    /// Who is told when something happens.
    #[serde(default)]
    pub notify: Vec<NotifySpec>,
    /// Who keeps logs besides weal.
    #[serde(default)]
    pub logs_to: Option<LogsTo>,
    /// To whom metrics are pushed.
    #[serde(default)]
    pub metrics_to: Option<CollectorUrl>,
    /// To whom spans of requests are pushed.
    #[serde(default)]
    pub traces_to: Option<CollectorUrl>,
}

impl PoolSpec {
    /// A pool without nodes, classes and applications, for tests and examples.
    pub fn example() -> Self {
        Self {
            name: "test".to_owned(),
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            tls: None,
            api: SocketAddr::from(([127, 0, 0, 1], 8081)),
            api_tls: None,
            api_insecure: false,
            watch: false,
            control: true,
            placement: Algorithm::default(),
            autoscaler_speed: 1.0,
            enactment: Enactment::default(),
            overload_limit: OverloadLimit::default(),
            clients: ClientPolicy::default(),
            timing: TimingSpec { flow_cycle_s: 1.0, placement_cycle_s: 10.0 },
            nodes: Vec::new(),
            classes: BTreeMap::new(),
            apps: BTreeMap::new(),
            jobs: ScheduledJobs::new(),
            notify: Vec::new(),
            logs_to: None,
            metrics_to: None,
            traces_to: None,
        }
    }

    /// The same for others to see: without what may be secret of the receivers' addresses.
    #[must_use]
    pub fn hidden(mut self) -> Self {
        self.notify.iter_mut().for_each(|receiver| receiver.by = receiver.by.hidden());
        self.logs_to = self.logs_to.as_ref().map(LogsTo::hidden);
        self.metrics_to = self.metrics_to.as_ref().map(CollectorUrl::hidden);
        self.traces_to = self.traces_to.as_ref().map(CollectorUrl::hidden);
        self
    }

    /// Applications that others need, and which the gateway therefore gives an inner address.
    pub fn needed(&self) -> BTreeSet<&AppName> {
        let needs = self.apps.values().flat_map(|app| &app.needs);
        needs.filter(|needed| self.apps.contains_key(*needed)).collect()
    }

    /// The API and the dashboard, as a URL.
    pub fn api_url(&self) -> String {
        let scheme = if self.api_tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.api)
    }

    /// Whether flows have seats, and instances CPU, by their goals. Otherwise requests pass unlimited, and CPU is shared equally.
    pub fn limits_seats(&self) -> bool {
        self.control && self.placement.knows_goals()
    }
}

/// What a gateway counts of the requests that are outstanding in a cluster (Pacifici sections 2 and 6).
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OverloadLimit {
    /// Each takes one seat, whatever it costs.
    #[default]
    Seats,
    /// Each takes as much as it uses of the nodes while it is outstanding (`kappa`), so that a class that borrows from another
    /// brings no more load than was planned.
    Power,
}

impl OverloadLimit {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Seats, Self::Power];

    /// As it is written in a config.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Seats => "seats",
            Self::Power => "power",
        }
    }
}

fn sleeps() -> bool {
    true
}

fn as_in_life() -> f64 {
    1.0
}

/// Which algorithm places instances: weal's own, or one to compare it with.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Algorithm {
    /// Utilities as equal and as great as can be, with the fewest changes.
    #[default]
    Weal,
    /// The three nested loops of Carrera 5.3.2, for the same objective.
    Thesis,
    /// Maximise satisfied demand, as the literature before it did.
    Demand,
    /// As many instances of everything as fit, once, with equal shares of CPU; no seats.
    Static,
    /// Instances by mean CPU utilisation, with a cooldown, as Kubernetes' HorizontalPodAutoscaler does; no seats.
    Autoscaler,
}

impl Algorithm {
    /// All of them with their names in configs.
    pub const WORDS: [(&str, Self); 5] = [
        ("weal", Self::Weal),
        ("thesis", Self::Thesis),
        ("demand", Self::Demand),
        ("static", Self::Static),
        ("autoscaler", Self::Autoscaler),
    ];

    /// Its name in configs.
    pub fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(_, algorithm)| *algorithm == self).map_or("weal", |(word, _)| word)
    }

    /// By its name in configs.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::WORDS.iter().find(|(known, _)| *known == word).map(|(_, algorithm)| *algorithm)
    }

    /// False for those that do what they do whatever the goals are.
    pub fn knows_goals(self) -> bool {
        !matches!(self, Self::Static | Self::Autoscaler)
    }
}

/// How often things are decided, and other spans of the whole pool.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TimingSpec {
    /// Seconds between two decisions about seats and weights. Too short follows noise, too long lets queues grow.
    pub flow_cycle_s: f64,
    /// Seconds between two decisions about placement, besides those that an event causes.
    pub placement_cycle_s: f64,
}

/// One node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeSpec {
    /// Its name.
    pub name: NodeName,
    /// Its computing power, in cores.
    pub cpu: Cpu,
    /// Its memory for instances.
    pub memory: Bytes,
    /// The share of its CPU that plans may fill (Pacifici's utilisation limit, section 3), 0..=1. Above about 0.95 queues
    /// grow inside the node where nobody can reorder them.
    pub utilization_limit: f64,
}

impl NodeSpec {
    /// Its CPU as it was `measured`; the spec's where that is no measure.
    pub fn measured_cpu(&self, measured: Cpu) -> Cpu {
        if measured.0.is_finite() && measured.0 >= 0.0 { measured } else { Cpu(self.cpu.0.max(0.0)) }
    }

    /// The CPU that plans may fill of a node which was `measured` to have so much.
    pub fn usable_cpu(&self, measured: Cpu) -> Cpu {
        let limit = if self.utilization_limit.is_finite() { self.utilization_limit.clamp(0.0, 1.0) } else { 1.0 };
        Cpu(self.measured_cpu(measured).0 * limit)
    }
}

/// One application: a cluster of equal instances.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AppSpec {
    /// Its name.
    pub name: AppName,
    /// Program and arguments; `$PORT`, `$DATA` and other variables of the instance's environment are filled in.
    pub run: Vec<String>,
    /// Whether it serves, or runs once per deploy.
    #[serde(default)]
    pub kind: AppKind,
    /// The application whose step it is (`release`): it has its folder and its user. `None` for one of its own.
    #[serde(default)]
    pub step_of: Option<AppName>,
    /// How readiness and health are told.
    pub health: HealthCheck,
    /// Memory per instance: what placement counts, and where the limit is.
    pub memory: Bytes,
    /// The most CPU that one instance can use, in cores; `None` knows no such limit.
    pub cpu_limit: Option<Cpu>,
    /// How many instances there may be.
    pub instances: InstanceRange,
    /// How many instances one node may hold.
    pub per_node: u32,
    /// Which requests it gets. Empty: not HTTP, reached only by applications that need it.
    pub routes: Vec<RouteSpec>,
    /// The applications that it calls. It starts after they are healthy and gets `NAME_ADDR`, `NAME_HOST`, `NAME_PORT`.
    pub needs: BTreeSet<AppName>,
    /// Tasks that must be done before it starts.
    #[serde(default)]
    pub after: BTreeSet<AppName>,
    /// The user that instances run as. `None` is one of the application's own where root runs weal, and else the one that runs weal.
    pub user: Option<String>,
    /// How far instances are confined.
    #[serde(default)]
    pub sandbox: SandboxSpec,
    /// Added to the environment.
    pub env: BTreeMap<String, String>,
    /// What else its processes are started with.
    #[serde(default)]
    pub process: ProcessSpec,
    /// The working directory, absolute.
    pub cwd: String,
    /// Seconds from SIGTERM to SIGKILL.
    pub stop_timeout_s: f64,
    /// Run in an instance that was woken, before it is asked whether it is ready; empty runs nothing.
    #[serde(default)]
    pub on_resume: Vec<String>,
    /// Two of its instances never run at a time, not even while a rollout replaces one. Invariant: then `instances.max` is 1.
    #[serde(default)]
    pub singleton: bool,
    /// Seconds that what is under way at an instance may take before the instance is stopped; `None` is as long as a request may take.
    #[serde(default)]
    pub drain_timeout_s: Option<f64>,
    /// True: an instance is given its listening socket as descriptor 3, in the way of systemd (`LISTEN_FDS`), and need not bind its port. The socket
    /// stays open while the instance is started again.
    #[serde(default)]
    pub pass_socket: bool,
    /// Nodes that it may run on; `None` allows all.
    pub nodes: Option<BTreeSet<NodeName>>,
    /// Applications that must be on the same node wherever this one is.
    pub together: BTreeSet<AppName>,
    /// Applications that must not share a node with this one.
    pub apart: BTreeSet<AppName>,
    /// Its instances are never stopped or moved to make room; more may be started.
    pub pinned: bool,
    /// Its placement is never changed by weal, beyond bringing up `instances.min`.
    pub manual: bool,
    /// What happens when an instance ends by itself.
    pub restart: RestartPolicy,
    /// Requests that may wait per flow before new ones are rejected.
    pub queue_limit: u32,
    /// Seconds that a request may wait for its answer, queue included, before it is answered 504. While its body flows the time does not
    /// run.
    pub request_timeout_s: f64,
    /// How its requests are treated.
    #[serde(default)]
    pub http: HttpRules,
    /// Seconds without a request after which it sleeps as far as `instances.min` allows; `None` when that pays.
    #[serde(default)]
    pub sleep_after_s: Option<f64>,
    /// False: no instance ever sleeps, and one that no request needs runs on.
    #[serde(default = "sleeps")]
    pub sleep: bool,
    /// When it is kept awake, as if `sleep` were false.
    #[serde(default)]
    pub keep_awake: Option<AwakeSchedule>,
    /// Where applications that need it reach it at the gateway, as the gateway says; no config says it. `None` before that.
    #[serde(skip)]
    pub inner: Option<SocketAddr>,
    /// Somebody ordered it to stop, and nobody to start again; no config says it.
    #[serde(skip)]
    pub halted: bool,
    /// It is kept awake now, by an order or by its schedule; no config says it. Invariant: then `sleep` is false and `instances.min` is not 0.
    #[serde(skip)]
    pub awake: Option<KeptAwake>,
    /// Of a task, the deploy that it runs for; no config says it.
    #[serde(skip)]
    pub deploy: u64,
}

impl AppSpec {
    /// What is spoken to it by applications that need it. Not HTTP is what has a port for connections, and what has neither a route, nor a
    /// health check, nor a protocol for HTTP: a database.
    pub fn speaks_http(&self) -> bool {
        let is_http = matches!(self.health.probe, HealthProbe::Http { .. }) || self.http.protocol == InstanceProtocol::H2c;
        is_http || self.routes.iter().any(|route| route.port.is_none())
    }

    /// Whether the gateway passes datagrams on to it.
    pub fn takes_datagrams(&self) -> bool {
        self.routes.iter().any(|route| route.port.is_some_and(|port| port.transport == Transport::Udp))
    }

    /// A small application for tests and examples: one instance, no routes, no constraints.
    pub fn example(name: &str) -> Self {
        Self {
            name: name.into(),
            run: vec!["serve".to_owned()],
            kind: AppKind::Service,
            step_of: None,
            health: HealthCheck {
                probe: HealthProbe::Tcp,
                interval_s: 1.0,
                timeout_s: 1.0,
                start_timeout_s: 60.0,
                failures: 3,
                replace_after: 9,
                send_proxy: None,
                host: None,
            },
            memory: Bytes::mib(64),
            cpu_limit: None,
            instances: InstanceRange { min: 1, max: 1 },
            per_node: 1,
            routes: Vec::new(),
            needs: BTreeSet::new(),
            after: BTreeSet::new(),
            user: None,
            sandbox: SandboxSpec::default(),
            env: BTreeMap::new(),
            process: ProcessSpec::default(),
            cwd: "/".to_owned(),
            stop_timeout_s: 10.0,
            on_resume: Vec::new(),
            singleton: false,
            drain_timeout_s: None,
            pass_socket: false,
            nodes: None,
            together: BTreeSet::new(),
            apart: BTreeSet::new(),
            pinned: false,
            manual: false,
            restart: RestartPolicy::Always,
            queue_limit: 100,
            request_timeout_s: 60.0,
            http: HttpRules::default(),
            sleep_after_s: None,
            sleep: true,
            keep_awake: None,
            inner: None,
            halted: false,
            awake: None,
            deploy: 0,
        }
    }
}

/// Whether an application serves, or runs once per deploy.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AppKind {
    /// It runs on.
    #[default]
    Service,
    /// It runs to its end once per deploy.
    Task,
}

impl AppKind {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Service, Self::Task];

    /// As it is written in a config.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Service => "service",
            Self::Task => "task",
        }
    }
}

/// Bounds on the number of instances. Invariant: min <= max, max >= 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InstanceRange {
    /// At least so many run.
    pub min: u32,
    /// At most so many run.
    pub max: u32,
}

/// How readiness and health are told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HealthCheck {
    /// What is asked.
    pub probe: HealthProbe,
    /// Seconds between two checks of a ready instance.
    pub interval_s: f64,
    /// Seconds that one check may take.
    pub timeout_s: f64,
    /// Seconds that a new instance may take to become ready; then it counts as failed.
    pub start_timeout_s: f64,
    /// So many failed checks in a row make a ready instance unhealthy.
    pub failures: u32,
    /// After so many failed checks in a row the instance is ended and started anew; 0 is never.
    #[serde(default)]
    pub replace_after: u32,
    /// What a connection to the instance begins with: a header of the PROXY protocol. `None` sends none.
    #[serde(default)]
    pub send_proxy: Option<ProxyVersion>,
    /// The host that `GET` asks for; `None` is the instance's address.
    #[serde(default)]
    pub host: Option<String>,
}

/// What a health check asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum HealthProbe {
    /// `GET path` answers 2xx or 3xx.
    Http {
        /// Begins with `/`.
        path: String,
    },
    /// The port accepts a connection.
    Tcp,
    /// The command ends with 0.
    Command {
        /// Program and arguments.
        argv: Vec<String>,
    },
}

/// What happens when an instance ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RestartPolicy {
    /// Started again, with growing pauses.
    Always,
    /// Started again unless it ended with 0.
    OnFailure,
    /// Left alone.
    Never,
}
