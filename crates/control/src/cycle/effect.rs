//! What goes in and out of the control loop.
//!
//! The driver of a [`Cycle`](super::Cycle) carries out its [`Effect`]s, beside each other, and hands back what came of them as
//! [`Input`]s. Both are plain data, so that a pool's inputs can be recorded and replayed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use weal_model::{
    Action, AppName, CpuShare, EventKind, GatewayName, InstanceId, JobName, JobRecord, JobSpec, NodeName, NodeReserve, NodeSpec,
    Plan, PoolSpec, Report, Rung, Severity, Snapshot, Submitter, Target, Time, WhyNode,
};
use weal_protocol::Refusal;
use weal_protocol::controller::{AppVerb, JobSubmission, JobVerb};
use weal_protocol::engine::{ActionOutcome, JobOrder, Observation, Revision};
use weal_protocol::gateway::{GatewayConfig, GatewayCounters};
use weal_protocol::node::InstanceEvent;

use super::app_orders::AppOrders;
use super::queue::StoredJobs;
use super::schedules::Marks;
use crate::check::{self, Finding};
use crate::jobs::{Costs, Runs};
use crate::placement::{self, Iterations, Policy};
use crate::profile::Profiles;

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Input {
    /// The time of [`Cycle::poll_timeout`](super::Cycle::poll_timeout) has come.
    Timeout,
    /// A config is in force.
    Config(Config),
    /// The gateway answered [`Effect::ObserveGateway`], or did not.
    Gateway(Result<GatewayCounters, Refusal>),
    /// The engine answered [`Effect::ObserveEngine`], or did not.
    Engine(Result<Observation, Refusal>),
    /// Instances changed their states.
    Events(Vec<InstanceEvent>),
    /// The store writes again, or why it cannot.
    Store(Result<(), StoreProblem>),
    /// Somebody gave an order.
    Order(Order),
    /// An effect was carried out, or could not be.
    Done(Done),
}

/// What a loop goes on from.
#[derive(Debug, Clone)]
pub struct Start {
    /// Who carries actions out, as sentences name it: `the node agent`.
    pub engine: String,
    /// The gateway, by its name.
    pub gateway: GatewayName,
    /// The config in force; without one, the loop waits for it.
    pub config: Option<Config>,
    /// What an earlier controller had learnt.
    pub profiles: Profiles,
    /// Applications that were told to sleep, and how deep at most.
    pub resting: BTreeMap<AppName, Option<Rung>>,
    /// What people ordered about applications, beside the config.
    pub orders: AppOrders,
    /// Instance events up to here were noted by an earlier controller.
    pub noted_until: Time,
    /// What changes to jobs cost.
    pub job_costs: Costs,
    /// The jobs that an earlier controller had.
    pub jobs: StoredJobs,
}

impl Start {
    /// A controller that no other one was before.
    pub fn first(gateway: GatewayName, config: Option<Config>, job_costs: Costs) -> Self {
        Self {
            engine: "the engine".to_owned(),
            gateway,
            config,
            profiles: Profiles::default(),
            resting: BTreeMap::new(),
            orders: AppOrders::default(),
            noted_until: Time::ZERO,
            job_costs,
            jobs: StoredJobs::default(),
        }
    }
}

/// A config that is in force.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// Grows by one with each config.
    pub generation: u64,
    /// What it says.
    pub pool: Arc<PoolSpec>,
    /// What the engine would start each application from.
    pub revisions: BTreeMap<AppName, Revision>,
}

/// What a person may ask of the loop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Let an application sleep until somebody asks for it.
    Sleep {
        /// Which.
        app: AppName,
        /// How deep at most.
        rung: Option<Rung>,
    },
    /// Wake it.
    Wake {
        /// Which.
        app: AppName,
    },
    /// Do this to an application.
    App {
        /// Which.
        app: AppName,
        /// What.
        verb: AppVerb,
    },
    /// Run a job.
    Submit {
        /// What is to be run.
        submission: Box<JobSubmission>,
        /// The token by which it is submitted.
        #[serde(default)]
        submitter: Option<Submitter>,
    },
    /// Run a job that says all of itself, its name, goal and importance too, as one of a scenario does.
    Run {
        /// The job.
        spec: Box<JobSpec>,
    },
    /// Do this to a job.
    Job {
        /// Which.
        job: JobName,
        /// What.
        verb: JobVerb,
        /// The token by which it is ordered.
        #[serde(default)]
        by: Option<Submitter>,
    },
}

/// What came of an effect.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Done {
    /// [`Effect::ConfigureGateway`]: the version in force.
    Gateway(Result<u64, Refusal>),
    /// [`Effect::ConfigureNodes`].
    Nodes(Result<(), Refusal>),
    /// [`Effect::Act`].
    Acted(ActionOutcome),
    /// [`Effect::Update`].
    Updated(Result<Vec<ActionOutcome>, Refusal>),
    /// [`Effect::SetCpuShares`].
    CpuShares(Result<(), Refusal>),
    /// [`Effect::SetReserves`].
    Reserves(Result<(), Refusal>),
    /// [`Kept::Jobs`].
    JobsKept {
        /// Which.
        jobs: Vec<JobName>,
        /// Which write of them.
        write: u64,
        /// Whether they are on disk.
        result: Result<(), StoreProblem>,
    },
    /// [`Effect::Plan`].
    Planned(Box<Planned>),
}

/// What is to be done. Effects may be carried out in any order and beside each other: the loop asks for nothing that must wait for an
/// effect which it has not heard of yet.
#[derive(Debug, Clone)]
pub enum Effect {
    /// Ask the gateway for its counters.
    ObserveGateway,
    /// Tell the gateway what it works by.
    ConfigureGateway(GatewayConfig),
    /// Ask the engine what runs.
    ObserveEngine,
    /// Make these the engine's nodes.
    ConfigureNodes(Vec<NodeSpec>),
    /// Carry one action out.
    Act {
        /// The config that it is made for.
        pool: Arc<PoolSpec>,
        /// The action.
        action: Action,
        /// What the engine needs for it, if it is one on a job of the controller's queue.
        job: Option<Box<JobOrder>>,
    },
    /// Hand running instances the settings of the config.
    Update {
        /// The config.
        pool: Arc<PoolSpec>,
        /// Which: each as the start of an instance that runs.
        starts: Vec<Action>,
    },
    /// Give instances these shares of CPU, and these limits.
    SetCpuShares(Vec<CpuShare>),
    /// Keep so much memory free.
    SetReserves(Vec<NodeReserve>),
    /// Make a plan: [`PlanRequest::run`]. It may take long, so it has a thread of its own.
    Plan(Box<PlanRequest>),
    /// Store this, so that a later controller goes on from it.
    Keep(Kept),
    /// Tell people.
    Note(Note),
    /// What people are shown has changed. With a sample, it goes into the history too.
    Show {
        /// A flow cycle is over.
        sample: bool,
    },
}

/// What outlives a controller.
#[derive(Debug, Clone, PartialEq)]
pub enum Kept {
    /// What was learnt.
    Profiles(Box<Profiles>),
    /// Applications that were told to sleep, and how deep at most.
    Resting(BTreeMap<AppName, Option<Rung>>),
    /// What people ordered about applications, beside the config.
    Orders(AppOrders),
    /// How some jobs are. Unlike the others, it is answered: [`Done::JobsKept`].
    Jobs {
        /// All of each, which are written together or not at all.
        records: Vec<JobRecord>,
        /// Its number among the writes.
        write: u64,
        /// They were submitted just now: they are taken once they are written, or not at all.
        is_submission: bool,
    },
    /// What was learnt from jobs that are done.
    Runs(Box<Runs>),
    /// Up to which dates jobs of schedules were submitted.
    Schedules(Box<Marks>),
    /// The last plan that changed something, and why.
    Plan(Box<(Plan, Report)>),
}

/// Everything that a plan is made from.
#[derive(Debug, Clone)]
pub struct PlanRequest {
    /// What was measured, as far as placement decides about it.
    pub snapshot: Snapshot,
    /// What it is judged by.
    pub policy: Policy,
}

/// A plan that was made, or why none was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Planned {
    /// The snapshot that it was made for.
    pub generation: u64,
    /// How long that took.
    pub took_ms: f64,
    /// The plan and its report.
    pub result: Result<(Plan, Report), NotPlanned>,
}

/// Why no plan was made that may be applied.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum NotPlanned {
    /// The judge found something wrong with it.
    #[error("{}", sentences(.findings))]
    Unsound {
        /// What; not empty.
        findings: Vec<Finding>,
    },
    /// The planner ended without a plan: a mistake in weal.
    #[error("the planner failed: {detail}")]
    Failed {
        /// What it said.
        detail: String,
    },
}

fn sentences(findings: &[Finding]) -> String {
    findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Why nothing can be stored now. The pool runs on, and the store tries again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum StoreProblem {
    /// The database cannot be opened.
    #[error("the store cannot be opened: {detail}")]
    Closed {
        /// What the database said, and of which file.
        detail: String,
    },
    /// A write has failed.
    #[error("the store cannot write: {detail}")]
    Unwritable {
        /// What the database said, and of which file.
        detail: String,
    },
    /// The thread that owns the database has ended: a mistake in weal.
    #[error("the store's thread has ended")]
    Ended,
}

impl PlanRequest {
    /// Plans, and has the plan judged. Whoever calls measures how long it takes.
    pub fn run(&self) -> Planned {
        let (plan, report) = placement::plan(&self.snapshot, &self.policy, Iterations::default());
        let findings = check::check(&self.snapshot, &self.policy.pool, &plan);
        let result = if findings.is_empty() { Ok((plan, report)) } else { Err(NotPlanned::Unsound { findings }) };
        Planned { generation: self.snapshot.generation, took_ms: 0.0, result }
    }

    /// Why `app` is on `node`, or not.
    pub fn why_node(&self, app: &AppName, node: &NodeName) -> WhyNode {
        placement::why_node(&self.snapshot, &self.policy, Iterations::default(), app, node)
    }
}

/// An event before it has an id and a time.
#[derive(Debug, Clone, PartialEq)]
pub struct Note {
    /// How bad it is.
    pub severity: Severity,
    /// What it is about.
    pub kind: EventKind,
    /// The application concerned.
    pub app: Option<AppName>,
    /// The instance concerned.
    pub instance: Option<InstanceId>,
    /// The node concerned.
    pub node: Option<NodeName>,
    /// The action that begins, where the event is that one does.
    pub action: Option<Action>,
    /// One plain sentence.
    pub text: String,
}

impl Note {
    /// As planned.
    pub fn info(kind: EventKind, text: impl Into<String>) -> Self {
        Self { severity: Severity::Info, kind, app: None, instance: None, node: None, action: None, text: text.into() }
    }

    /// Somebody may want to know.
    pub fn warning(kind: EventKind, text: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::info(kind, text) }
    }

    /// Somebody must act.
    pub fn error(kind: EventKind, text: impl Into<String>) -> Self {
        Self { severity: Severity::Error, ..Self::info(kind, text) }
    }

    /// It concerns this application.
    #[must_use]
    pub fn app(mut self, app: &AppName) -> Self {
        self.app = Some(app.clone());
        self
    }

    /// It concerns this instance.
    #[must_use]
    pub fn instance(mut self, instance: &InstanceId) -> Self {
        self.instance = Some(instance.clone());
        self
    }

    /// It concerns this node.
    #[must_use]
    pub fn node(mut self, node: &NodeName) -> Self {
        self.node = Some(node.clone());
        self
    }

    /// This action begins.
    #[must_use]
    pub(super) fn begins(self, action: &Action) -> Self {
        Self { action: Some(action.clone()), ..self.target(&action.target()) }
    }

    /// It concerns what an action is done to.
    #[must_use]
    pub fn target(self, target: &Target) -> Self {
        match target {
            Target::Instance { instance, app } => self.app(app).instance(instance),
            Target::Job { .. } => self,
        }
    }
}

/// Ids of instances.
pub(super) type Ids = BTreeSet<InstanceId>;
