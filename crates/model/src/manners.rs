//! How gateways treat requests besides passing them on: what a route adds, and what holds for every client.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::network::Network;
use crate::{Bytes, ListenSchemes};

/// What a route does besides passing requests on. The default does nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RouteExtras {
    /// Removed from the start of paths before an instance gets them: `/api`, without a slash at the end.
    pub strip_prefix: Option<String>,
    /// Requests are sent elsewhere instead of to an instance.
    pub redirect: Option<RedirectRule>,
    /// What is changed in the heads of requests, after everything that the gateway says itself.
    pub request_headers: HeaderEdits,
    /// What is changed in the heads of answers, the gateway's own included.
    pub response_headers: HeaderEdits,
    /// The longest body that a request may have; `None` does not limit it.
    pub body_limit: Option<Bytes>,
    /// True: requests are answered 503 instead of being passed on.
    pub maintenance: bool,
    /// Files with what is said in place of the gateway's own errors, by status: `404`, or `5xx` for all of a hundred.
    pub error_pages: BTreeMap<String, String>,
    /// True: connections of its port begin with a header of the PROXY protocol where a trusted proxy makes them.
    pub accept_proxy: bool,
    /// Whether answers are compressed; `None` as the pool says.
    pub compression: Option<bool>,
    /// Bytes per second that its clients send and take at least; `None` as the pool says.
    pub client_min_rate: Option<u32>,
}

/// Where requests of a route are sent instead.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RedirectRule {
    /// A URL in which `$host` and `$path` (with its query) of the request are filled in.
    pub to: String,
    /// 301, 302, 303, 307 or 308.
    pub status: u16,
}

/// Changes of a head: first what is removed, then what is set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct HeaderEdits {
    /// Names, lower case, with the only value that the head has afterwards.
    pub set: BTreeMap<String, String>,
    /// Names, lower case.
    pub remove: Vec<String>,
}

impl HeaderEdits {
    /// True when nothing changes.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.remove.is_empty()
    }
}

/// What holds for all clients of a pool's gateways.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ClientPolicy {
    /// Proxies in front, which say who their clients are. Anybody else's word about that is replaced. None by default: also programs of this
    /// machine, hosted applications among them, could speak in the name of other clients.
    pub trusted_proxies: Vec<Network>,
    /// Where connections of trusted proxies begin with a header of the PROXY protocol. Ports say it by themselves.
    pub accept_proxy: ListenSchemes,
    /// Whether answers are compressed where the route does not say it.
    pub compression: bool,
    /// How requests are written to the access log.
    pub access_log: AccessLog,
    /// True: each request carries a `traceparent` (W3C Trace Context), a new one where it had no valid one.
    pub traceparent: bool,
    /// True: gateways keep a span of each request of a sampled trace, for whoever takes it to a collector.
    pub spans: bool,
    /// The share of traces to sample of those that begin at a gateway. Whoever began another one has decided. Invariant: from 0 to 1.
    pub trace_ratio: f64,
    /// Networks whose addresses none of the three following limits holds for. By default that is this machine, where proxies and makers of load run.
    pub unlimited_clients: Vec<Network>,
    /// Connections that one address may have open; 0 does not limit them. Trusted proxies are not limited.
    pub client_connections: u32,
    /// Requests per second of one address; 0 does not limit them. Twice as many may come at once.
    pub client_rate: u32,
    /// Percent of an application's seats that requests of one address may hold, one seat at least; 100 are all. Trusted proxies are not limited.
    pub client_seats: u32,
    /// Bytes per second that a client sends of a request's body, and takes of an answer, at least; 0 is any rate. One below it has some
    /// seconds, and is then cut off.
    pub client_min_rate: u32,
}

impl Default for ClientPolicy {
    fn default() -> Self {
        Self {
            trusted_proxies: Vec::new(),
            accept_proxy: ListenSchemes::new(),
            compression: false,
            access_log: AccessLog::default(),
            traceparent: false,
            spans: false,
            trace_ratio: 1.0,
            unlimited_clients: Network::loopback().to_vec(),
            client_connections: Self::CONNECTIONS,
            client_rate: Self::RATE,
            client_seats: Self::SEATS,
            client_min_rate: Self::MIN_RATE,
        }
    }
}

impl ClientPolicy {
    /// Whether requests carry a `traceparent`: a span has no children without.
    pub fn is_traced(&self) -> bool {
        self.traceparent || self.spans
    }

    /// A browser has six connections to a host, and an office of fifty people behind one address three hundred. A twentieth of what a
    /// gateway has in all, so that one address cannot take all.
    pub const CONNECTIONS: u32 = 1000;
    /// A page of a hundred parts for each of ten people behind one address, each second. Less would hit offices, more would not stop a flood.
    pub const RATE: u32 = 1000;
    /// So many that an office behind one address hardly notices, and whoever comes from elsewhere finds a seat. More leaves small applications
    /// no other seat; less makes an application slow whose users share one address.
    pub const SEATS: u32 = 75;
    /// A modem of 1983 sends a little more. As Kestrel and IIS have it; Apache asks for twice as much.
    pub const MIN_RATE: u32 = 240;
}

/// How requests are written to the access log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AccessLog {
    /// They are not.
    #[default]
    Off,
    /// In the combined format of Apache and nginx.
    Combined,
    /// One JSON object a line.
    Json,
}

impl AccessLog {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Off, Self::Combined, Self::Json];

    /// As it is written in a config.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Combined => "combined",
            Self::Json => "json",
        }
    }
}
