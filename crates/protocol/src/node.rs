//! What the controller and a node agent say to each other, over `weal_rpc` on the agent's local socket.
//!
//! | call | meaning |
//! | --- | --- |
//! | `configure` | these are your nodes (slices of this machine) |
//! | `reserve` | so much memory is to be free on them |
//! | `apply` | carry out these commands; answers when each is done or has failed |
//! | `observe` | what runs, with counters since each instance started; the caller takes differences |
//! | `events` | waits for what happened after a given event |
//! | `logs` | a piece of what an instance has written |
//! | `log-sources` | whose logs are kept |
//! | `output` | a piece of what a run of a job has written, byte for byte |
//! | `prefer` | these processes of weal's own come before all instances |
//! | `wake` | an application is asked for: wake an instance of it; alone on a socket of its own, for the gateway |
//!
//! The agent keeps what it needs to adopt its instances on disk, beside them; no instance depends on it to live.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
pub use weal_model::NodeReserve;
use weal_model::{
    AppName, AppSpec, Bytes, Cpu, HealthCheck, InstanceId, InstanceState, JobFiles, JobName, NodeName, NodeSpec, ProcessSpec,
    RestartPolicy, RunEnd, Rung, SandboxSpec, SleepCosts, Time,
};

use crate::engine::{OutputPiece, OutputRequest};
use crate::{Capabilities, Method, Refusal};

/// How sentences name the role.
pub const PEER: &str = "the node agent";

/// These are your nodes.
pub const CONFIGURE: Method<Vec<NodeSpec>, ()> = Method::new("node.v1/configure").up_to(1);
/// So much memory is to be free on your nodes, until told otherwise; one that is not named keeps none free.
pub const RESERVE: Method<Vec<NodeReserve>, ()> = Method::new("node.v1/reserve").up_to(1);
/// Do these.
pub const APPLY: Method<Vec<Command>, Vec<CommandOutcome>> = Method::new("node.v2/apply").up_to(16);
/// What runs?
pub const OBSERVE: Method<(), AgentObservation> = Method::new("node.v2/observe");
/// What happened?
pub const EVENTS: Method<EventsAfter, Vec<InstanceEvent>> = Method::new("node.v1/events");
/// What did it write?
pub const LOGS: Method<LogsRequest, LogsChunk> = Method::new("node.v1/logs");
/// Which logs of this application, or else of this job, are kept?
pub const LOG_SOURCES: Method<String, Vec<LogSource>> = Method::new("node.v1/log-sources");
/// What did a run of a job write?
pub const OUTPUT: Method<OutputRequest, OutputPiece> = Method::new("node.v1/output");
/// These processes, by their ids, run this very program as other roles: they come before all instances when cores are short.
pub const PREFER: Method<Vec<u32>, ()> = Method::new("node.v1/prefer");

/// Wake an instance of this application: the cheapest that sleeps, or wait for the one that starts. The only call on the wake
/// socket, which the gateway may use; several at once cause one wake. Refused with [`Refusal::NobodyToWake`] when there is no instance to
/// wait for, and with [`Refusal::TimedOut`] when none answers in time.
pub const WAKE: Method<WakeRequest, WakeAnswer> = Method::new("node.v1/wake");

/// What an instance needs to be started. Complete: it is stored beside the instance and suffices to start it again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InstanceSpec {
    /// The instance.
    pub id: InstanceId,
    /// Its application.
    pub app: AppName,
    /// Its node.
    pub node: NodeName,
    /// Program and arguments. `$NAME` and `${NAME}` are filled in from `env` plus what the agent adds (`PORT`, `DATA`,
    /// `INSTANCE`, `NODE`); `$$` is a dollar sign.
    pub run: Vec<String>,
    /// The environment, complete but for what the agent adds. `NAME_ADDR` of needed applications are in it.
    pub env: BTreeMap<String, String>,
    /// What else it is started with.
    #[serde(default)]
    pub process: ProcessSpec,
    /// The working directory, absolute.
    pub cwd: String,
    /// The user to run as; `None` is the agent's own.
    pub user: Option<String>,
    /// How far it is confined.
    #[serde(default)]
    pub sandbox: SandboxSpec,
    /// The memory limit.
    pub memory: Bytes,
    /// The CPU limit; `None` is the node's.
    pub cpu_limit: Option<Cpu>,
    /// How readiness and health are told.
    pub health: HealthCheck,
    /// What happens when it ends by itself.
    pub restart: RestartPolicy,
    /// Seconds from SIGTERM to SIGKILL.
    pub stop_timeout_s: f64,
    /// Run as the instance's user after it was thawed, before it is asked whether it is ready; empty runs nothing.
    #[serde(default)]
    pub on_resume: Vec<String>,
    /// True: it is given its listening socket as descriptor 3.
    #[serde(default)]
    pub pass_socket: bool,
    /// True: it takes datagrams at its port.
    #[serde(default)]
    pub datagrams: bool,
    /// Where it was told that the applications are which it needs. One whose address the config itself gives is not in it.
    #[serde(default)]
    pub needs: BTreeMap<AppName, SocketAddr>,
    /// The revision that it is started from, as its engine writes it: another one means that it must be replaced.
    #[serde(alias = "fingerprint")]
    pub revision: String,
    /// The run of a job that it is; `None` for an instance of an application. Such a one listens nowhere, is not asked for its health, and its
    /// end is told until it is stopped; nothing is filled in in its command; an empty working directory is its own folder.
    #[serde(default)]
    pub job: Option<JobRun>,
    /// The application whose folder and user it has, where that is not its own.
    #[serde(default)]
    pub step_of: Option<AppName>,
}

impl InstanceSpec {
    /// The application whose folder and user it has.
    pub fn owner(&self) -> &AppName {
        self.step_of.as_ref().unwrap_or(&self.app)
    }

    /// Whether `other` can be started where this one was: for the same application or run of a job, on the same node.
    pub fn is_in_place_of(&self, other: &Self) -> bool {
        (&self.app, &self.step_of, &self.node, &self.job) == (&other.app, &other.step_of, &other.node, &other.job)
    }

    /// Whether its processes have the same rights as those of `other`.
    pub fn has_rights_of(&self, other: &Self) -> bool {
        (&self.user, &self.sandbox, &self.process) == (&other.user, &other.sandbox, &other.process)
    }
}

/// One run of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobRun {
    /// The job.
    pub job: JobName,
    /// Which of its runs, from 1.
    pub attempt: u32,
    /// Which task of that run, from 0.
    #[serde(default)]
    pub task: u32,
    /// The addresses of all tasks of that run, in their order; empty for a job of one process.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// What is copied into its folder and out of it.
    #[serde(default)]
    pub files: JobFiles,
    /// What saves its state, run beside it when it is to be parked: then it is ended, and [`RunEnd::Saved`](weal_model::RunEnd) says so. Empty: it
    /// is frozen and paged out as an instance is.
    #[serde(default)]
    pub checkpoint: Vec<String>,
}

impl InstanceSpec {
    /// What `instance` of `app` is started from on `node`, as far as the application itself says it. The engine adds the addresses of what it
    /// needs, and writes its revision.
    pub fn of(app: &AppSpec, instance: InstanceId, node: NodeName) -> Self {
        Self {
            id: instance,
            app: app.name.clone(),
            node,
            run: app.run.clone(),
            env: app.env.clone(),
            process: app.process.clone(),
            cwd: app.cwd.clone(),
            user: app.user.clone(),
            sandbox: app.sandbox.clone(),
            memory: app.memory,
            cpu_limit: app.cpu_limit,
            health: app.health.clone(),
            restart: app.restart,
            stop_timeout_s: app.stop_timeout_s,
            on_resume: app.on_resume.clone(),
            pass_socket: app.pass_socket,
            datagrams: app.takes_datagrams(),
            needs: BTreeMap::new(),
            revision: String::new(),
            job: None,
            step_of: app.step_of.clone(),
        }
    }
}

/// One thing to do to one instance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "command", rename_all = "kebab-case")]
pub enum Command {
    /// Start it. Answers as soon as the process runs; readiness comes as an event.
    Start {
        /// What to start.
        spec: Box<InstanceSpec>,
    },
    /// SIGTERM, and SIGKILL after its stop timeout. Answers when nothing of it is left.
    Stop {
        /// Which.
        instance: InstanceId,
    },
    /// Freeze it, and page in or out what the rung says. Answers when it sleeps there.
    Sleep {
        /// Which.
        instance: InstanceId,
        /// How deep. One that sleeps already changes its rung, deeper or lighter.
        rung: Rung,
    },
    /// Prefetch what it needs, thaw. Answers when it answers its health check.
    Resume {
        /// Which.
        instance: InstanceId,
    },
    /// Give it this share of its node's CPU, and this limit.
    SetCpu {
        /// Which.
        instance: InstanceId,
        /// Share relative to the node's other instances.
        share: Cpu,
        /// The most it may use; `None` is the node's capacity.
        limit: Option<Cpu>,
        /// The most memory from now on; `None` leaves it as it is.
        #[serde(default)]
        memory: Option<Bytes>,
    },
}

/// What became of a command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CommandOutcome {
    /// The instance concerned.
    pub instance: InstanceId,
    /// Seconds that it took.
    pub took_s: f64,
    /// Why it was refused, or failed; `None` when it did what it says.
    pub refusal: Option<Refusal>,
}

/// What runs on this machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentObservation {
    /// When the agent started.
    pub started: Time,
    /// When this was taken.
    pub time: Time,
    /// What can be done here, and how instances are kept apart.
    pub capabilities: Capabilities,
    /// The nodes.
    pub nodes: Vec<NodeCounters>,
    /// The instances, also those that ended until they are stopped by a command.
    pub instances: Vec<InstanceCounters>,
}

/// One node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeCounters {
    /// Its name.
    pub name: NodeName,
    /// CPU for instances.
    pub cpu_capacity: Cpu,
    /// It is smaller than its machine: what runs on it spends a quota.
    #[serde(default)]
    pub is_slice: bool,
    /// Memory for instances.
    pub memory_capacity: Bytes,
    /// CPU-seconds used by its instances since the node was set up.
    pub cpu_seconds: f64,
    /// Memory used now.
    pub memory_used: Bytes,
    /// Seconds in which some process of it waited for CPU (PSI `some` total); `None` if the kernel does not tell.
    pub cpu_pressure_seconds: Option<f64>,
    /// Memory that is to be free on it.
    #[serde(default)]
    pub memory_reserve: Bytes,
    /// Instances that were parked since the agent started because less was free.
    #[serde(default)]
    pub parked_for_reserve: u64,
}

/// One instance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InstanceCounters {
    /// What it was started from.
    pub spec: InstanceSpec,
    /// What it does now.
    pub state: InstanceState,
    /// Why, in a sentence; may be empty.
    pub detail: String,
    /// When it entered its state.
    pub since: Time,
    /// Its main process.
    pub pid: Option<u32>,
    /// Where it listens.
    pub address: SocketAddr,
    /// CPU-seconds since it started, all its processes; `None` if it cannot be told.
    pub cpu_seconds: Option<f64>,
    /// Memory now, all its processes; `None` if it cannot be told.
    pub memory_used: Option<Bytes>,
    /// Bytes read and written on disk since it started; `None` if it cannot be told.
    pub disk_bytes: Option<u64>,
    /// How often it was started again.
    pub restarts: u32,
    /// Seconds from its start to ready; `None` before.
    pub start_took_s: Option<f64>,
    /// Memory of it that is in swap now; `None` if it cannot be told.
    #[serde(default)]
    pub swap_used: Option<Bytes>,
    /// Seconds from the last order to wake it until it answered its health check; `None` before.
    #[serde(default)]
    pub last_wake_s: Option<f64>,
    /// What sleeping has cost it, or its application's other instances.
    #[serde(default)]
    pub costs: SleepCosts,
    /// How it ended, if it is a run of a job and has.
    #[serde(default)]
    pub end: Option<RunEnd>,
    /// How far it says it is, from 0 to 1, if it is a run of a job and writes that down.
    #[serde(default)]
    pub progress: Option<f64>,
    /// It says that it works for nobody's request and must not sleep.
    #[serde(default)]
    pub keeps_awake: bool,
    /// The user of the socket at which it listens; `None` if it cannot be told.
    #[serde(default)]
    pub listener: Option<u32>,
}

/// Which events are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EventsAfter {
    /// Those with a higher id. Ids begin again when the agent does: an id from the future counts as 0.
    pub after: u64,
    /// Seconds to wait for one; at most 60.
    pub wait_s: f64,
}

/// An instance changed its state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InstanceEvent {
    /// Grows by one per event.
    pub id: u64,
    /// When.
    pub time: Time,
    /// The instance.
    pub instance: InstanceId,
    /// Its application.
    pub app: AppName,
    /// Its node.
    pub node: NodeName,
    /// The new state.
    pub state: InstanceState,
    /// Why, in a sentence.
    pub detail: String,
    /// The job, if the instance is a run of one.
    #[serde(default)]
    pub job: Option<JobName>,
}

/// Which part of an instance's log is wanted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LogsRequest {
    /// The instance.
    pub instance: InstanceId,
    /// Continue here: the `next` of an earlier chunk. `None` begins `tail_lines` before the end.
    pub cursor: Option<String>,
    /// How many lines before the end to begin.
    pub tail_lines: u32,
    /// Seconds to wait for more when there is none; at most 60.
    pub wait_s: f64,
    /// Begin with no line that is older.
    #[serde(default)]
    pub since: Option<Time>,
    /// The log of the instance that ended then; `None` is the one that runs, or the last that did.
    #[serde(default)]
    pub ended: Option<Time>,
}

/// A log that is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogSource {
    /// The instance, or the run of a job.
    pub instance: InstanceId,
    /// When it was taken away; `None` while it is there.
    pub ended: Option<Time>,
}

/// When lines of a piece came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LineTime {
    /// From this line of the piece on, counted from 0.
    pub line: u32,
    /// When it was read from the instance.
    pub time: Time,
}

/// A piece of an instance's log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LogsChunk {
    /// Whole lines, stdout and stderr as they came; bytes that are not UTF-8 are replaced. At most 1 MiB.
    pub text: String,
    /// Where to continue; stays valid across rotation, and says so in `text` when lines were lost by it.
    pub next: String,
    /// When its lines came: each entry holds up to the next. Lines before the first have no known time.
    #[serde(default)]
    pub times: Vec<LineTime>,
    /// Nothing more will come: the instance is gone, and this is the end.
    #[serde(default)]
    pub is_over: bool,
}

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
    /// The user whose socket that is; `None` where nobody can tell.
    #[serde(default)]
    pub listener: Option<u32>,
}
