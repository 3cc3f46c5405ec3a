//! Spans of requests, on their way from a gateway to whoever takes them to a collector. A gateway reaches no collector itself: it keeps a bounded
//! number of spans, and the supervisor fetches them.

use std::net::{IpAddr, SocketAddr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weal_model::{AppName, ClassName, GatewayName, Time};

use crate::Method;

/// Which requests of sampled traces have ended? Each is told once.
pub const SPANS: Method<SpansQuery, SpansTaken> = Method::new("gateway.v1/spans");

/// How many spans are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SpansQuery {
    /// At most so many, the oldest.
    pub most: u32,
}

/// Spans that the gateway keeps no longer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SpansTaken {
    /// Whose they are.
    pub gateway: GatewayName,
    /// In the order in which the requests ended.
    pub spans: Vec<RequestSpan>,
    /// True when more wait than were asked for.
    #[serde(default)]
    pub has_more: bool,
}

/// One request at a gateway, from its head to the end of its answer. What its client has sent is bounded, and what is no UTF-8 in it is replaced.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RequestSpan {
    /// Its trace: 32 hexadecimal digits.
    pub trace: String,
    /// Itself: 16 hexadecimal digits. The `traceparent` that its instance gets names it.
    pub id: String,
    /// What its client's `traceparent` names; `None` where the trace begins here.
    #[serde(default)]
    pub parent: Option<String>,
    /// When its head was there.
    pub begun: Time,
    /// When its answer was sent.
    pub ended: Time,
    /// Where it went; `None` when no route matched.
    #[serde(default)]
    pub app: Option<AppName>,
    /// Its class there.
    #[serde(default)]
    pub class: Option<ClassName>,
    /// As it was sent.
    pub method: String,
    /// True when its client used TLS.
    pub secure: bool,
    /// The host that it named, with its port.
    pub host: String,
    /// Its path, with the query.
    pub target: String,
    /// The version of HTTP: `1.1`, `2`.
    pub version: String,
    /// 0 when nothing was answered.
    pub status: u16,
    /// Why the gateway answered itself, in a word: the answer's `x-weal-reason`; `None` for an instance's answer.
    #[serde(default)]
    pub reason: Option<String>,
    /// Bytes of the answer's body.
    pub sent: u64,
    /// Its client, as far as trusted proxies say it.
    pub client: IpAddr,
    /// Who connected.
    pub peer: SocketAddr,
    /// What its client says that it is; may be empty.
    pub agent: String,
    /// Its `x-request-id`.
    pub request_id: String,
}

/// Spans since a gateway started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SpanCounters {
    /// Those of all requests of sampled traces.
    pub ended: u64,
    /// Of those, the ones that found no room because nobody took the ones before.
    pub dropped: u64,
}
