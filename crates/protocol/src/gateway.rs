//! What the controller and a gateway say to each other, over `weal_rpc` on the gateway's local socket.
//!
//! | call | meaning |
//! | --- | --- |
//! | `configure` | take these parameters, all of them, at once |
//! | `observe` | counters since the gateway started; the caller takes differences |
//! | `refused` | the last requests that it answered itself with an error |
//!
//! The supervisor hands a gateway the listening sockets of ports and inner addresses: [`Listeners`] says which is which.
//!
//! A gateway keeps the last [`GatewayConfig`] on disk and starts with it, so it serves without a controller. While requests wait and
//! nothing is open, or they wait for longer than its config says, it asks the node agent to wake an instance ([`crate::node::WAKE`]), without a
//! controller too.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weal_model::{
    AppName, ClassName, ClientPolicy, FlowId, FlowPolicy, GatewayName, HttpRules, InstanceId, LatencyHistogram, OwnAnswer,
    RefusedRequest, RouteSpec, StatusCounts, Time, Transport, TransportPort,
};

use crate::Method;
use crate::spans::SpanCounters;

/// How sentences name the role.
pub const PEER: &str = "the gateway";

/// Take these parameters.
pub const CONFIGURE: Method<GatewayConfig, ConfigAck> = Method::new("gateway.v1/configure").up_to(64);
/// What happened so far?
pub const OBSERVE: Method<(), GatewayCounters> = Method::new("gateway.v1/observe");

/// Which requests did you refuse?
pub const REFUSED: Method<RefusedQuery, Vec<RefusedRequest>> = Method::new("gateway.v1/refused");

/// All that a gateway listens at beside its socket for HTTP. The sockets come with the message, in the same order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listeners(pub Vec<Listener>);

/// One listening socket of a gateway.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Listener {
    /// That of a route with a port.
    Port(TransportPort),
    /// The stable address at which applications that need `app` reach it.
    Inner {
        /// Which is reached there.
        app: AppName,
        /// On loopback.
        address: std::net::SocketAddr,
    },
}

impl Listener {
    /// Where it listens.
    pub fn port(&self) -> TransportPort {
        match self {
            Self::Port(port) => *port,
            Self::Inner { address, .. } => TransportPort { transport: Transport::Tcp, address: *address },
        }
    }
}

/// Which refused requests are meant.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RefusedQuery {
    /// Those of one application; `None` is all.
    pub app: Option<AppName>,
    /// Those with this `x-request-id`; `None` is all.
    pub id: Option<String>,
    /// At most so many, the newest.
    pub limit: u32,
}

/// Everything a gateway works by. Complete: what is not in it is not there any more.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GatewayConfig {
    /// Grows with each change; an older one than that in force is refused.
    pub version: u64,
    /// The clusters, with their instances and limits.
    pub clusters: Vec<ClusterConfig>,
    /// What holds for all clients.
    #[serde(default)]
    pub clients: ClientPolicy,
}

/// One cluster, as a gateway sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterConfig {
    /// Its name.
    pub app: AppName,
    /// Which requests it gets.
    pub routes: Vec<RouteSpec>,
    /// Seats over all its flows: `N_g`; `None` does not limit (control off).
    pub seats: Option<u32>,
    /// Its flows: one per class that its routes name.
    pub flows: BTreeMap<ClassName, FlowConfig>,
    /// Where its instances are. Without any that is open, requests wait within their bounds, and the node agent is asked to wake
    /// one.
    pub endpoints: Vec<Endpoint>,
    /// Seconds that a request may take in all, queue included.
    pub request_timeout_s: f64,
    /// Whom to have woken when requests wait although an instance is open: there is a crowd.
    #[serde(default)]
    pub standby: Option<Standby>,
    /// Who may be woken at all; `None` is whoever the node agent finds. The others of the cluster are about to be stopped, which the agent
    /// does not know while they drain: it would name them, since they are awake, and requests would be cut off with them. When it is empty,
    /// requests wait for another config.
    #[serde(default)]
    pub wakeable: Option<Vec<InstanceId>>,
    /// What its requests may ask for, and how their paths are read.
    #[serde(default)]
    pub http: HttpRules,
    /// Why it cannot have an instance that answers; `None` while nothing is known to stand in the way. Without an instance that is open,
    /// requests are refused at once with it instead of waiting.
    #[serde(default)]
    pub unavailable: Option<Unavailable>,
    /// How applications that need it reach it; `None` when none does.
    #[serde(default)]
    pub inner: Option<InnerTier>,
    /// Its instances call others: they are told the class of each request, so that they can pass it on.
    #[serde(default)]
    pub calls: bool,
}

/// How other applications reach a cluster through the gateway.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InnerTier {
    /// True: each request is routed, queued and balanced. False: each connection is.
    pub http: bool,
    /// One per class that a request from outside can bring along, and one for those that bring none. Never empty.
    pub flows: BTreeMap<ClassName, FlowConfig>,
    /// The class of what brings none. Invariant: it is among the flows.
    pub unmarked: ClassName,
    /// The users of those that need it, as far as the engine tells: their calls are bounded by the requests that they belong to. Whoever else
    /// connects to its inner address has the bounds of a client.
    #[serde(default)]
    pub callers: BTreeSet<u32>,
}

/// Why an application has no instance and will have none soon. What is said here reaches everybody who sends a request, so it names no
/// program, path or output; the controller's events do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum Unavailable {
    /// Its program could not even begin.
    #[error("the application cannot be started")]
    CannotStart,
    /// Its program ends, time and again, before it is ready.
    #[error("the application ends each time it is started")]
    EndsAtOnce,
    /// Its program has ended, and the config says not to start it again.
    #[error("the application has ended")]
    Ended,
    /// It was stopped by an order.
    #[error("the application was stopped by an order")]
    Stopped,
}

/// Whom a gateway may have woken by itself when a crowd comes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Standby {
    /// Seconds that a request waits in the queue before one of them is woken. Invariant: finite and positive.
    pub after_s: f64,
    /// Instances that sleep where there is CPU and memory for them.
    pub instances: Vec<InstanceId>,
}

/// One flow, as a gateway sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlowConfig {
    /// Its share when all queues are full, relative to the others of the cluster. Invariant: finite and positive.
    pub weight: f64,
    /// Seats planned for it; their sum is the cluster's. A flow may borrow what others leave.
    pub seats: u32,
    /// Seats that one request of it takes; 1 unless they are counted by power.
    pub size: f64,
    /// Requests that may wait.
    pub queue_limit: u32,
    /// How its requests wait.
    #[serde(default)]
    pub policy: FlowPolicy,
    /// The cookie that says of a request that its session is under way.
    #[serde(default)]
    pub session_cookie: Option<String>,
}

impl Default for FlowConfig {
    /// One seat of one size, and nobody waits.
    fn default() -> Self {
        Self { weight: 1.0, seats: 1, size: 1.0, queue_limit: 0, policy: FlowPolicy::default(), session_cookie: None }
    }
}

/// One instance that takes requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Endpoint {
    /// The instance.
    pub instance: InstanceId,
    /// `127.0.0.1:40001`.
    pub address: std::net::SocketAddr,
    /// Its share of the load relative to the others: the CPU it was given. Invariant: finite and positive.
    pub weight: f64,
    /// True: finish what it has, send nothing new, until the node agent names it to who waits.
    pub draining: bool,
    /// The user of the socket at which it listens: connections to a socket of another's are not used. `None` where the engine does not tell.
    #[serde(default)]
    pub listener: Option<u32>,
}

/// The gateway took a config.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConfigAck {
    /// The version now in force.
    pub version: u64,
}

/// What happened since the gateway started. Counters only grow, so a lost answer loses nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GatewayCounters {
    /// The gateway's name.
    pub gateway: GatewayName,
    /// When it started: a new value says that all counters began again.
    pub started: Time,
    /// When this was taken.
    pub time: Time,
    /// The config version in force.
    pub version: u64,
    /// Per flow.
    pub flows: Vec<FlowCounters>,
    /// Per instance.
    pub instances: Vec<EndpointCounters>,
    /// Per cluster.
    #[serde(default)]
    pub clusters: Vec<ClusterCounters>,
    /// Open client connections.
    pub connections: u64,
    /// TLS handshakes with clients.
    #[serde(default)]
    pub tls: TlsCounters,
    /// Requests that matched no route.
    pub unrouted: u64,
    /// Requests refused as malformed.
    pub malformed: u64,
    /// Connections over HTTP/2 that were cut off because their clients flooded them.
    #[serde(default)]
    pub abusive: u64,
    /// Requests that the gateway answered itself with an error.
    #[serde(default)]
    pub errors: Vec<ErrorCounter>,
    /// Requests of sampled traces.
    #[serde(default)]
    pub spans: SpanCounters,
    /// Calls between applications, by the called one and the class that they bring along. They are part of the work of requests that are
    /// counted in `flows`, so nothing may add the two.
    #[serde(default)]
    pub inner: Vec<FlowCounters>,
    /// Where it listens for calls to each application.
    #[serde(default)]
    pub inner_addresses: BTreeMap<AppName, std::net::SocketAddr>,
}

impl GatewayCounters {
    /// Those of a gateway that has counted nothing.
    pub fn none(gateway: GatewayName, started: Time, time: Time) -> Self {
        Self {
            gateway,
            started,
            time,
            version: 0,
            flows: Vec::new(),
            instances: Vec::new(),
            clusters: Vec::new(),
            connections: 0,
            tls: TlsCounters::default(),
            unrouted: 0,
            malformed: 0,
            abusive: 0,
            errors: Vec::new(),
            spans: SpanCounters::default(),
            inner: Vec::new(),
            inner_addresses: BTreeMap::new(),
        }
    }
}

/// Requests that the gateway answered itself with an error, for one reason, since it started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorCounter {
    /// Where they were to go; `None` when no route matched.
    pub app: Option<AppName>,
    /// Why, in a word: the answer's `x-weal-reason`.
    pub reason: OwnAnswer,
    /// How many.
    pub count: u64,
}

/// TLS handshakes since the gateway started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TlsCounters {
    /// Those in which a certificate was shown.
    pub full: u64,
    /// Those that went on with an earlier session.
    pub resumed: u64,
    /// Those of which nothing came.
    pub failed: u64,
    /// Clients that were turned away because new sessions waited for too long.
    #[serde(default)]
    pub turned_away: u64,
    /// CPU time of the costly part of handshakes, where a certificate was shown, in seconds.
    #[serde(default)]
    pub full_cpu_s: f64,
    /// The same of those that went on with an earlier session.
    #[serde(default)]
    pub resumed_cpu_s: f64,
}

/// One flow since the gateway started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlowCounters {
    /// The flow.
    pub id: FlowId,
    /// Requests that came in.
    pub arrivals: u64,
    /// Requests answered by an instance.
    pub completions: u64,
    /// Requests answered with 503 here.
    pub rejections: u64,
    /// Requests that ended in 502 or 504 here, or broke off.
    pub errors: u64,
    /// Requests sent again to another instance.
    pub retries: u64,
    /// From arrival to the end of the response, without what the client took to send and to take.
    pub response_time: LatencyHistogram,
    /// From dispatch to the end of the response, without what the client took.
    pub service_time: LatencyHistogram,
    /// Integral of the queue length over time, in request-seconds: its difference over a window's length is the mean.
    pub queue_integral_s: f64,
    /// Integral over time of the outstanding requests that do not wait for their clients, in request-seconds.
    pub in_service_integral_s: f64,
    /// Waiting now.
    pub queued: u32,
    /// Outstanding now.
    pub in_service: u32,
    /// Of the rejected, those that had waited until they could no longer meet their goal.
    #[serde(default)]
    pub late: u64,
    /// Of those outstanding now, those whose instance has sent nothing for half a minute since they got their seats.
    #[serde(default)]
    pub hanging: u32,
    /// Seats now held by requests that wait for their clients, to send or to take more.
    #[serde(default)]
    pub at_clients: u32,
    /// Seconds that the oldest waiting request has waited.
    pub oldest_wait_s: f64,
    /// Responses of instances that have ended, broken off ones too, by their status codes.
    #[serde(default)]
    pub responses: StatusCounts,
}

/// One cluster since the gateway started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterCounters {
    /// The cluster.
    pub app: AppName,
    /// Instances that the node agent woke for waiting requests.
    pub wakes: u64,
    /// Those of them that were woken because of a crowd, while others were open.
    #[serde(default)]
    pub crowd_wakes: u64,
    /// Calls to the node agent that brought none.
    pub wake_failures: u64,
    /// From the first request that found no instance open until one was, of those that were woken.
    pub wake_wait: LatencyHistogram,
    /// What passes through its ports, and to it as an inner tier, without being read.
    #[serde(default)]
    pub ports: PortCounters,
    /// Of its seats, those that other gateways of the pool hold now: their requests are under way, so this one may not use these seats.
    #[serde(default)]
    pub seats_lent: u32,
}

/// Connections and sessions that pass through ports, since the gateway started. A connection is counted in its flow too: as a request whose
/// answer is that it stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PortCounters {
    /// TCP connections and UDP sessions that are open now.
    pub open: u64,
    /// Those that were passed on to an instance.
    pub total: u64,
    /// Those that were closed without having reached one.
    pub refused: u64,
    /// Bytes from clients to instances.
    pub bytes_in: u64,
    /// Bytes from instances to clients.
    pub bytes_out: u64,
    /// Datagrams that were dropped: too many waited for an instance, or a socket took no more.
    pub dropped: u64,
}

/// One instance since the gateway started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EndpointCounters {
    /// The instance.
    pub instance: InstanceId,
    /// Takes new requests: it is not draining, or was woken since the last config.
    #[serde(default)]
    pub open: bool,
    /// Requests outstanding now, tunnels included.
    pub in_flight: u32,
    /// Requests it answered.
    pub completions: u64,
    /// Connections to it that failed, and requests that broke off at it.
    pub failures: u64,
}
