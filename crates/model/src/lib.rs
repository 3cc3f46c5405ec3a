//! The nouns of weal: what is desired, what is observed, what is decided, and why.
//!
//! This crate is the glossary. It holds data and the few formulas that *define* a word (what a utility is, when a
//! request matches a route), and nothing that decides anything. It knows no sockets, no clock and no entropy.
//!
//! | term | meaning | type |
//! | --- | --- | --- |
//! | pool | everything managed | [`PoolSpec`] |
//! | node | one machine, or one slice of it | [`NodeSpec`], [`NodeObservation`] |
//! | cluster | the replicas of one application or component; a cluster is named after its `[app.NAME]` | [`AppSpec`] |
//! | instance | one replica | [`InstanceObservation`] |
//! | service class | goal + importance of a kind of request | [`ServiceClass`] |
//! | flow | (gateway, cluster, service class) | [`FlowId`], [`FlowObservation`] |
//! | seat | permission for one request to be outstanding | [`FlowAllocation`] |
//! | work factor | CPU-seconds that a request of a flow costs in a cluster | [`WorkFactor`] |
//! | goal, utility | what was asked; how well it is met | [`Goal`], [`Utility`] |
//! | demand, allocation | CPU wanted for a utility; CPU granted | [`Cpu`] |
//! | placement, load | which instances run where; how much CPU each uses there | [`Placement`] |
//! | job, stage, task | batch unit; a phase of it with its own needs; one process of a parallel job | [`JobSpec`] |
//! | schedule | dates at which a config submits jobs | [`Schedule`], [`ScheduledJob`] |
//! | rung | how deep an instance sleeps, and what that costs | [`Rung`], [`SleepCosts`] |
//! | snapshot, plan, action, report | observed; decided; one step; why | [`Snapshot`], [`Plan`], [`Action`], [`Report`] |
//!
//! `Spec` is desired, `Status` is what users see of the observed, `Observation` is what was measured in one cycle.

mod awake;
mod dispatch;
mod enactment;
mod fnv;
mod goal;
mod histogram;
mod history;
pub mod host;
mod ids;
mod job;
mod job_record;
mod logs_to;
mod manners;
pub mod naming;
mod network;
mod notify;
mod own_answer;
mod plan;
mod process;
pub mod proxy;
mod quota;
mod route;
mod rung;
mod sandbox;
mod schedule;
mod snapshot;
mod spec;
mod status;
mod status_counts;
mod tls;
mod unasked;
mod units;
pub mod written;

pub use awake::{AwakeBy, AwakeSchedule, KeptAwake, LONGEST_AWAKE_S};
pub use dispatch::{DispatchPolicy, DispatchRules, NameHash};
pub use enactment::Enactment;
pub use fnv::fnv1a;
pub use goal::{FlowPolicy, Goal, GoalError, Importance, LatePolicy, ServiceClass};
pub use histogram::LatencyHistogram;
pub use history::{AppSample, FlowSample, HistorySample, JobSample, NodeSample};
pub use ids::{AppName, ClassName, FlowId, GatewayName, InstanceId, JobName, NodeName};
pub use job::{JobObservation, JobSpec, JobState, Stage};
pub use job_record::{
    ArrayPart, Cancellation, Hold, JobChangeCost, JobCommand, JobEnd, JobFiles, JobOutcome, JobPhase, JobRecord, JobStatus,
    Raised, RunEnd, ScheduledFor,
};
pub use logs_to::{CollectorUrl, LogsTo};
pub use manners::{AccessLog, ClientPolicy, HeaderEdits, RedirectRule, RouteExtras};
pub use network::{Network, NetworkError};
pub use notify::{NotifyBy, NotifySpec, Occasion, hidden_address};
pub use own_answer::OwnAnswer;
pub use plan::{
    Action, AppExplanation, Binding, CpuShare, FlowAllocation, FlowExplanation, JobExplanation, NodeReserve, Placement,
    PlacementEntry, Plan, Reason, Report, SeatPlan, Target, WorkFactor,
};
pub use process::{EnvFile, LimitValue, ProcessSignal, ProcessSpec, ResourceLimit, Secret, SecretSource};
pub use proxy::{ListenScheme, ListenSchemes, ProxyVersion};
pub use quota::{JobQuota, QuotaLimit, Submitter};
pub use route::{HeaderMatch, HttpRules, InstanceProtocol, RouteSpec, Transport, TransportPort};
pub use rung::{Rung, RungCost, SleepCosts};
pub use sandbox::{Permit, SandboxMode, SandboxSpec};
pub use schedule::{Missed, Overlap, Schedule, ScheduleError, ScheduleStatus, ScheduledJob, ScheduledJobs};
pub use snapshot::{FlowObservation, InstanceObservation, InstanceState, NodeObservation, Snapshot};
pub use spec::{
    Algorithm, AppKind, AppSpec, HealthCheck, HealthProbe, InstanceRange, NodeSpec, OverloadLimit, PoolSpec, RestartPolicy,
    TimingSpec,
};
pub use status::{
    AppState, AppStatus, Crowd, Event, EventKind, FlowStatus, InstanceStatus, LatencySummary, NodeStatus, NodeVerdict,
    PlanSummary, RefusedRequest, RolloutPhase, RolloutStatus, Severity, Status, Why, WhyNode, WhyRequest,
};
pub use status_counts::StatusCounts;
pub use tls::{AcmeChallenge, AcmeSpec, ApiTls, CertificateSource, TlsSpec, TlsVersion};
pub use unasked::{JUST_NAMED, RECOVERED_AFTER, parked_next, restart_pause, wake_rank};
pub use units::{Bytes, Cpu, Time, Utility, Work};
