//! What was measured in one cycle.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{AppName, Bytes, Cpu, FlowId, InstanceId, JobObservation, LatencyHistogram, NodeName, Time, Work};

/// Everything measured in one cycle. Plans are made from this and from the policy, and from nothing else.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Snapshot {
    /// Grows by one per snapshot; a plan names the one it was made for.
    pub generation: u64,
    /// When it was taken.
    pub time: Time,
    /// Seconds that it covers.
    pub window_s: f64,
    /// Nodes, sorted by name.
    pub nodes: Vec<NodeObservation>,
    /// Instances, sorted by id.
    pub instances: Vec<InstanceObservation>,
    /// Flows, sorted by id.
    pub flows: Vec<FlowObservation>,
    /// Jobs, sorted by name.
    pub jobs: Vec<JobObservation>,
}

/// One node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeObservation {
    /// Its name.
    pub name: NodeName,
    /// False when it did not answer in this cycle.
    pub up: bool,
    /// CPU for instances.
    pub cpu_capacity: Cpu,
    /// CPU used by its instances in the window.
    pub cpu_used: Cpu,
    /// Memory for instances.
    pub memory_capacity: Bytes,
    /// Memory used by its instances now.
    pub memory_used: Bytes,
    /// Share of the window (0..=1) in which some runnable process of the node waited for CPU (PSI `some`); `None` if unknown.
    pub cpu_pressure: Option<f64>,
}

/// What an instance does now (design: States of an instance).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum InstanceState {
    /// Started, not ready yet.
    Starting,
    /// Takes requests.
    Ready,
    /// Runs, but fails its health check.
    Unhealthy,
    /// Takes no new requests, finishes those it has.
    Draining,
    /// Frozen: no CPU, memory kept.
    Suspended,
    /// Frozen, and all but its working set paged out: it answers nearly as soon as a suspended one, in little memory.
    Warm,
    /// Frozen and paged out.
    Parked,
    /// Got SIGTERM.
    Stopping,
    /// Ended by itself and waits for its restart.
    Backoff,
    /// Ended.
    Stopped,
    /// Ended by itself and is not started again.
    Failed,
}

impl InstanceState {
    /// True when it has a process, so that it holds memory on its node.
    pub fn holds_memory(self) -> bool {
        !matches!(self, Self::Stopped | Self::Failed | Self::Backoff | Self::Parked)
    }

    /// As it is written in messages and shown to people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Unhealthy => "unhealthy",
            Self::Draining => "draining",
            Self::Suspended => "suspended",
            Self::Warm => "warm",
            Self::Parked => "parked",
            Self::Stopping => "stopping",
            Self::Backoff => "backoff",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
        }
    }

    /// What it does, as the rest of a sentence whose subject is the instance.
    pub fn phrase(self) -> &'static str {
        match self {
            Self::Starting => "is starting",
            Self::Ready => "is ready",
            Self::Unhealthy => "is unhealthy",
            Self::Draining => "is draining",
            Self::Suspended => "is suspended",
            Self::Warm => "is warm",
            Self::Parked => "is parked",
            Self::Stopping => "is stopping",
            Self::Backoff => "backs off",
            Self::Stopped => "is stopped",
            Self::Failed => "has failed",
        }
    }

    /// True when it takes requests or soon will.
    pub fn is_active(self) -> bool {
        matches!(self, Self::Starting | Self::Ready | Self::Unhealthy | Self::Backoff)
    }
}

/// One instance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InstanceObservation {
    /// Its id.
    pub id: InstanceId,
    /// Its application.
    pub app: AppName,
    /// Where it is.
    pub node: NodeName,
    /// What it does now.
    pub state: InstanceState,
    /// CPU used, averaged over the window; `None` when it could not be measured.
    pub cpu_used: Option<Cpu>,
    /// Memory used now; `None` when it could not be measured.
    pub memory_used: Option<Bytes>,
    /// Bytes read and written on disk per second over the window; `None` when unknown.
    pub disk_bytes_per_s: Option<f64>,
    /// Bytes received and sent per second over the window; `None` when unknown.
    pub network_bytes_per_s: Option<f64>,
    /// Requests outstanding at it now, over all gateways.
    pub in_flight: u32,
    /// When it entered its state.
    pub since: Time,
}

/// One flow. Rates are per second over the window; times are from the gateway's clock.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlowObservation {
    /// Which one.
    pub id: FlowId,
    /// Requests that came in.
    pub arrivals: u64,
    /// Requests answered by an instance.
    pub completions: u64,
    /// Requests answered with 503 by the gateway.
    pub rejections: u64,
    /// Requests that ended in an error of an instance or a time-out.
    pub errors: u64,
    /// From arrival at the gateway to the end of the response, of those completed in the window.
    pub response_time: LatencyHistogram,
    /// From dispatch to the end of the response: the time in a seat, `S` in Pacifici section 3.
    pub service_time: LatencyHistogram,
    /// Requests waiting, averaged over the window.
    pub queue_mean: f64,
    /// Requests outstanding, averaged over the window.
    pub in_service_mean: f64,
    /// Seats that were in force at the end of the window.
    pub seats: f64,
    /// The longest that a request now waiting has waited, in seconds.
    pub oldest_wait_s: f64,
    /// Seats now held by requests whose instance has sent nothing since they got them, for half a minute or longer.
    #[serde(default)]
    pub hanging: u32,
    /// Seats now held by requests that wait for their clients, to send or to take more.
    #[serde(default)]
    pub at_clients: u32,
}

impl FlowObservation {
    /// A flow of which nothing was seen.
    pub fn empty(id: FlowId) -> Self {
        Self {
            id,
            arrivals: 0,
            completions: 0,
            rejections: 0,
            errors: 0,
            response_time: LatencyHistogram::default(),
            service_time: LatencyHistogram::default(),
            queue_mean: 0.0,
            in_service_mean: 0.0,
            seats: 0.0,
            oldest_wait_s: 0.0,
            hanging: 0,
            at_clients: 0,
        }
    }

    /// Takes in the window after its own, so that it is about both; their lengths in seconds are `own_s` and `next_s`.
    pub fn extend(&mut self, own_s: f64, next: &Self, next_s: f64) {
        self.arrivals += next.arrivals;
        self.completions += next.completions;
        self.rejections += next.rejections;
        self.errors += next.errors;
        self.response_time.add(&next.response_time);
        self.service_time.add(&next.service_time);
        let mean = |own: f64, next: f64| (own * own_s + next * next_s) / (own_s + next_s).max(1e-9);
        self.queue_mean = mean(self.queue_mean, next.queue_mean);
        self.in_service_mean = mean(self.in_service_mean, next.in_service_mean);
        (self.seats, self.oldest_wait_s) = (next.seats, next.oldest_wait_s);
        (self.hanging, self.at_clients) = (next.hanging, next.at_clients);
    }

    /// Mean number of requests in the system (queue and service): by Little's law the arrival rate times the response time.
    pub fn population_mean(&self) -> f64 {
        self.queue_mean + self.in_service_mean
    }
}

impl InstanceObservation {
    /// An instance that has been in `state` for ever, and of which nothing is measured.
    pub fn unmeasured(id: InstanceId, app: AppName, node: NodeName, state: InstanceState) -> Self {
        Self {
            id,
            app,
            node,
            state,
            cpu_used: None,
            memory_used: None,
            disk_bytes_per_s: None,
            network_bytes_per_s: None,
            in_flight: 0,
            since: Time::ZERO,
        }
    }

    /// CPU-seconds used in a window of `window_s` seconds.
    pub fn work_done(&self, window_s: f64) -> Option<Work> {
        self.cpu_used.map(|cpu| Work(cpu.0 * window_s))
    }
}
