//! What the control loop learns from an engine, whichever it is: neutral words for nodes, instances and jobs.
//!
//! Counters only grow, so a lost observation loses nothing: the reader takes differences.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weal_model::{
    Action, AppName, Bytes, Cpu, InstanceId, InstanceState, JobCommand, JobName, NodeName, NodeSpec, RunEnd, SleepCosts, Time,
};

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
    /// Runs of jobs, also those that ended until they are taken away.
    #[serde(default)]
    pub runs: Vec<RunSeen>,
}

/// What a run of a job does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RunState {
    /// Its processes are being started.
    Starting,
    /// Runs.
    Running,
    /// Stands still and keeps its memory.
    Paused,
    /// Stands still, and its image has left memory.
    Suspended,
    /// Is being ended.
    Stopping,
    /// Has ended: [`RunSeen::end`] says how.
    Ended,
}

/// One run of a job, or one task of a run that is a gang.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunSeen {
    /// The job.
    pub job: JobName,
    /// Which of its runs, from 1.
    pub attempt: u32,
    /// Which task of a gang, from 0; the only one of any other job.
    #[serde(default)]
    pub task: u32,
    /// Where.
    pub node: NodeName,
    /// What it does now.
    pub state: RunState,
    /// Why, in a sentence; may be empty.
    pub detail: String,
    /// When it entered its state, by the engine's clock.
    pub since: Time,
    /// CPU-seconds since it began, all its processes; `None` if that cannot be told.
    pub cpu_seconds: Option<f64>,
    /// Memory now, all its processes; `None` if that cannot be told.
    pub memory_used: Option<Bytes>,
    /// How it ended; `None` until it has.
    pub end: Option<RunEnd>,
    /// How far it says it is, from 0 to 1; `None` when it says nothing.
    #[serde(default)]
    pub progress: Option<f64>,
}

/// An action on a job of the controller's queue, with all that an engine needs for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobOrder {
    /// The action.
    pub action: Action,
    /// Which run it is about. A start of one that is there already is done.
    pub attempt: u32,
    /// Which tasks of that run it is about; the nodes of a start or a resume are theirs, in this order.
    #[serde(default = "only_task")]
    pub tasks: Vec<u32>,
    /// What is run.
    pub command: JobCommand,
    /// The most memory from now on, of each task.
    pub memory: Bytes,
    /// The most CPU from now on, of each task; `None` is its node's.
    #[serde(default)]
    pub limit: Option<Cpu>,
}

fn only_task() -> Vec<u32> {
    vec![0]
}

/// Which part of a run's output is wanted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OutputRequest {
    /// The job.
    pub job: JobName,
    /// Which of its runs.
    pub attempt: u32,
    /// Which task of it, from 0.
    #[serde(default)]
    pub task: u32,
    /// Continue here: the `next` of an earlier piece. `None` begins `tail_lines` before the end, or at the beginning without them.
    pub cursor: Option<String>,
    /// How many lines before the end to begin; `None` is all that is kept.
    pub tail_lines: Option<u32>,
    /// Seconds to wait for more when there is none; at most 60.
    pub wait_s: f64,
}

/// A piece of a run's output, byte for byte.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OutputPiece {
    /// The bytes, in base64; at most 256 KiB.
    pub data: String,
    /// Where to continue.
    pub next: String,
    /// Nothing more will come.
    pub is_over: bool,
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
    /// It is smaller than its machine: what runs on it spends a quota, on several processors at once.
    #[serde(default)]
    pub is_slice: bool,
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

impl NodeSeen {
    /// A node that answers and has all that `spec` says, of which nobody has used anything yet: for tests.
    pub fn example(spec: &NodeSpec) -> Self {
        Self {
            name: spec.name.clone(),
            up: true,
            cpu_capacity: spec.cpu,
            is_slice: false,
            memory_capacity: spec.memory,
            cpu_seconds: 0.0,
            memory_used: Bytes(0),
            cpu_pressure_seconds: None,
            memory_reserve: Bytes(0),
            parked_for_reserve: 0,
        }
    }
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
    /// It says that it works for nobody's request and must not sleep.
    #[serde(default)]
    pub keeps_awake: bool,
    /// The user of the socket at which it listens, where the engine runs processes of this machine; `None` if it cannot be told.
    #[serde(default)]
    pub listener: Option<u32>,
}

impl InstanceSeen {
    /// An instance that was just begun, of which nothing is measured yet: for tests.
    pub fn example(id: &str, app: &str, node: &str) -> Self {
        Self {
            id: id.into(),
            app: app.into(),
            node: node.into(),
            revision: Revision::default(),
            state: InstanceState::Starting,
            detail: String::new(),
            since: Time::ZERO,
            is_running: true,
            pid: None,
            address: ([127, 0, 0, 1], 20_000).into(),
            needs: BTreeMap::new(),
            memory_limit: Bytes::mib(64),
            cpu_seconds: None,
            memory_used: None,
            swap_used: None,
            disk_bytes: None,
            restarts: 0,
            start_took_s: None,
            last_wake_s: None,
            costs: SleepCosts::default(),
            keeps_awake: false,
            listener: None,
        }
    }
}
