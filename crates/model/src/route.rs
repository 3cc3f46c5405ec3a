//! Routes: which requests belong to which cluster and class.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ClassName, DispatchRules, ProxyVersion, RouteExtras};

/// One route of an application. A request matches when every part that is given matches; among several matching routes
/// the most specific wins: exact host before wildcard before none, then the longest path, then the one with a header.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RouteSpec {
    /// `shop.example` or `*.shop.example`, lower case, without port; `None` matches every host.
    pub host: Option<String>,
    /// `/exact` or `/prefix/*`; `None` matches every path.
    pub path: Option<String>,
    /// A header that must be there, with this value if one is given.
    pub header: Option<HeaderMatch>,
    /// The service class of the requests that match.
    pub class: ClassName,
    /// Seconds without a byte in either direction after which a request ends; `None` is the application's time for requests until the
    /// answer begins, and the gateway's own afterwards.
    #[serde(default)]
    pub idle_timeout_s: Option<f64>,
    /// Seconds from a request's arrival to the last byte of its answer; `None` does not limit them.
    #[serde(default)]
    pub total_timeout_s: Option<f64>,
    /// Seconds without a byte in either direction after which a connection ends that is no longer HTTP, such as a WebSocket; `None` is an hour.
    #[serde(default)]
    pub tunnel_idle_timeout_s: Option<f64>,
    /// What it does besides passing requests on.
    #[serde(default)]
    pub extras: RouteExtras,
    /// A port of its own at the gateway, whose connections or datagrams are passed on as they come; `None` is a route for HTTP.
    #[serde(default)]
    pub port: Option<TransportPort>,
}

/// A port at which the gateway listens for one application alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct TransportPort {
    /// What comes in there.
    pub transport: Transport,
    /// Where; on loopback unless the config says otherwise.
    pub address: SocketAddr,
}

impl std::fmt::Display for TransportPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.transport.as_str(), self.address)
    }
}

/// A protocol of the transport layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// Connections.
    Tcp,
    /// Datagrams.
    Udp,
}

impl Transport {
    /// As it is written in a config.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

impl RouteSpec {
    /// Every request, as `class`.
    pub fn any(class: ClassName) -> Self {
        Self {
            host: None,
            path: None,
            header: None,
            class,
            idle_timeout_s: None,
            total_timeout_s: None,
            tunnel_idle_timeout_s: None,
            port: None,
            extras: RouteExtras::default(),
        }
    }
}

/// A header to match.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HeaderMatch {
    /// Its name, lower case.
    pub name: String,
    /// Its exact value; `None` matches any.
    pub value: Option<String>,
}

/// How a gateway treats the requests of one application.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HttpRules {
    /// Protocols that a connection may be upgraded to, in lower case; `*` is any. Others are not granted: a tunnel passes routes, classes
    /// and seats by.
    pub upgrades: Vec<String>,
    /// What instances speak.
    #[serde(default)]
    pub protocol: InstanceProtocol,
    /// True: a route's path is compared with the normalised path of a request (RFC 3986 section 6.2.2), false: with the path as it came.
    pub normalize_paths: bool,
    /// What each connection to an instance begins with: a header of the PROXY protocol, which says whose it is. `None` sends none.
    #[serde(default)]
    pub send_proxy: Option<ProxyVersion>,
    /// Which instance a request goes to.
    #[serde(default)]
    pub dispatch: DispatchRules,
}

/// The version of HTTP that an application's instances speak. What its clients speak does not depend on that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum InstanceProtocol {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2 without TLS, known beforehand (RFC 9113 section 3.3), as gRPC needs it.
    H2c,
}

impl InstanceProtocol {
    /// As it is written in a config.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http1 => "http1",
            Self::H2c => "h2c",
        }
    }
}

impl Default for HttpRules {
    fn default() -> Self {
        Self {
            upgrades: vec!["websocket".to_owned()],
            protocol: InstanceProtocol::Http1,
            normalize_paths: true,
            send_proxy: None,
            dispatch: DispatchRules::default(),
        }
    }
}
