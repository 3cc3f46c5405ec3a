//! What a gateway and a node agent say to each other when requests wait for an application that sleeps.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{AppName, InstanceId};

/// An application is asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WakeRequest {
    /// Which.
    pub app: AppName,
    /// Seconds that the caller waits for an instance that answers; at most 600.
    pub wait_s: f64,
    /// One of these, and no other; any when empty.
    #[serde(default)]
    pub instances: Vec<InstanceId>,
}

/// An instance that answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WakeAnswer {
    /// Which.
    pub instance: InstanceId,
    /// Where it listens.
    pub address: SocketAddr,
    /// Seconds from the order to wake it until it answered its health check; 0 when it was awake.
    pub took_s: f64,
}

/// Whom a gateway may have woken by itself when a crowd comes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Standby {
    /// Seconds that a request waits in the queue before one of them is woken. Invariant: finite and positive.
    pub after_s: f64,
    /// Instances that sleep where there is CPU and memory for them.
    pub instances: Vec<InstanceId>,
}
