//! What the control loop learns from an engine, whichever it is: neutral words for nodes, instances and jobs.
//!
//! Counters only grow, so a lost observation loses nothing: the reader takes differences.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weal_model::{Action, AppName, Bytes, Cpu, InstanceId, InstanceState, JobObservation, NodeName, SleepCosts, Time};

use crate::{Capabilities, Refusal};

/// What an instance was started from, or would be. Opaque: only the engine that made it can tell what is in it.
#[derive(Debug, Default, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Revision {
    /// Of what a process is started from. Another one means that the instance must be replaced.
    pub start: String,
    /// Of what a running instance takes over without a restart: health check, restarts, time-outs.
    pub settings: String,
}

/// What became of an action.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ActionOutcome {
    /// The action.
    pub action: Action,
    /// Seconds that it took.
    pub took_s: f64,
    /// Why it failed; `None` when it did what it says.
    pub refusal: Option<Refusal>,
}

/// What runs, as an engine sees it.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Observation {
    /// When the engine's memory began: a new value says that it has forgotten what it was told.
    pub began: Time,
    /// When this was taken, by the engine's clock.
    pub time: Time,
    /// What can be done there.
    pub capabilities: Capabilities,
    /// The nodes.
    pub nodes: Vec<NodeSeen>,
    /// The instances, also those that ended until they are stopped.
    pub instances: Vec<InstanceSeen>,
    /// The jobs.
    pub jobs: Vec<JobObservation>,
}

/// One node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeSeen {
    /// Its name.
    pub name: NodeName,
    /// It answers.
    pub up: bool,
    /// CPU for instances and jobs.
    pub cpu_capacity: Cpu,
    /// Memory for instances and jobs.
    pub memory_capacity: Bytes,
    /// CPU-seconds used by its instances since the node was set up.
    pub cpu_seconds: f64,
    /// Memory used now.
    pub memory_used: Bytes,
    /// Seconds in which some process of it waited for CPU; `None` if that cannot be told.
    pub cpu_pressure_seconds: Option<f64>,
    /// Memory that is to be free on it.
    pub memory_reserve: Bytes,
    /// Instances that were parked because less was free, since the engine's memory began.
    pub parked_for_reserve: u64,
}

/// One instance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InstanceSeen {
    /// Its id.
    pub id: InstanceId,
    /// Its application.
    pub app: AppName,
    /// Where it is.
    pub node: NodeName,
    /// What it was started from.
    pub revision: Revision,
    /// What it does now.
    pub state: InstanceState,
    /// Why, in a sentence for people; may be empty.
    pub detail: String,
    /// When it entered its state, by the engine's clock.
    pub since: Time,
    /// Its process is there, so that it can be given CPU.
    pub is_running: bool,
    /// The main process, where the engine runs processes of this machine: for people.
    pub pid: Option<u32>,
    /// Where it listens.
    pub address: SocketAddr,
    /// Where it was told that the applications are which it needs. One whose address the config itself gives is not in it.
    pub needs: BTreeMap<AppName, SocketAddr>,
    /// Memory that it may use.
    pub memory_limit: Bytes,
    /// CPU-seconds since it started, all its processes; `None` if that cannot be told.
    pub cpu_seconds: Option<f64>,
    /// Memory now, all its processes; `None` if that cannot be told.
    pub memory_used: Option<Bytes>,
    /// Memory of it that is in swap now; `None` if that cannot be told.
    pub swap_used: Option<Bytes>,
    /// Bytes read and written on disk since it started; `None` if that cannot be told.
    pub disk_bytes: Option<u64>,
    /// How often it was started again.
    pub restarts: u32,
    /// Seconds from its start to ready; `None` before.
    pub start_took_s: Option<f64>,
    /// Seconds from the last order to wake it until it answered its health check; `None` before.
    pub last_wake_s: Option<f64>,
    /// What sleeping has cost it, or its application's other instances.
    pub costs: SleepCosts,
}
