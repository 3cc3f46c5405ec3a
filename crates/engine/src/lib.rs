//! What a controller needs of whatever runs instances and jobs: the [`Engine`] trait.
//!
//! | engine | nodes are | instances are |
//! | --- | --- | --- |
//! | `engine-local` | slices of this machine, as the config names them | processes, through the node agent |
//!
//! An engine chooses nothing: the plan names every instance and its node. What it does not do is drain: before
//! [`Action::Stop`] and [`Action::Sleep`] come here, the controller has made the gateways stop sending to the instance.
//!
//! It speaks neutral words ([`Observation`], [`Capabilities`](weal_protocol::Capabilities), [`Revision`], [`Refusal`]), so that the control
//! loop is the same over processes of this machine and over pods of a cluster.

use std::future::Future;
use std::time::Duration;

use weal_model::{Action, AppSpec, CpuShare, NodeReserve, NodeSpec, PoolSpec};
use weal_protocol::Refusal;
use weal_protocol::engine::{ActionOutcome, JobOrder, Observation, OutputPiece, OutputRequest, Revision};
use weal_protocol::node::{InstanceEvent, LogSource, LogsChunk, LogsRequest};

/// Why an engine could not be asked at all. What fails for a single action stands in its [`ActionOutcome`].
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// Whoever carries things out does not answer.
    #[error("{peer} does not answer: {detail}")]
    Away {
        /// `the node agent`, `the API server`.
        peer: &'static str,
        /// What the system said.
        detail: String,
    },
    /// It answered that it does not do this.
    #[error("{peer} refused: {refusal}")]
    Refused {
        /// Which.
        peer: &'static str,
        /// Why.
        refusal: Refusal,
    },
    /// Its answer cannot be read: it may be another version of weal.
    #[error("{peer} gave an unreadable answer: {detail}")]
    Unreadable {
        /// Which.
        peer: &'static str,
        /// What is wrong with it.
        detail: String,
    },
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        match error {
            Error::Away { peer, detail } => Self::Away { peer: peer.to_owned(), detail },
            Error::Refused { refusal, .. } => refusal,
            Error::Unreadable { .. } => Self::failed(error.to_string()),
        }
    }
}

/// Where instances and jobs run.
///
/// All calls are safe to repeat: starting what runs, or stopping what is gone, does nothing and succeeds. A caller must expect any of them to
/// take as long as the engine's own time-out, and therefore makes them beside each other.
pub trait Engine: Send + Sync + 'static {
    /// Who carries things out, as sentences name it: `the node agent`, `the API server`.
    fn peer(&self) -> &'static str;

    /// What an instance of `app` would be started from now. Pure: equal specs give equal revisions, in every version that can start from
    /// them alike.
    fn revision(&self, app: &AppSpec) -> Revision;

    /// Makes these the nodes, where nodes are [configured](weal_protocol::NodeOrigin::Configured). Nodes that hold instances stay until
    /// those are gone.
    fn configure(&self, nodes: &[NodeSpec]) -> impl Future<Output = Result<(), Error>> + Send;

    /// Carries `actions` out in their order, each kind of neighbours side by side, and says what became of each (same
    /// order, same length). A start is done when its process runs; that it is ready comes as an event. The start of an instance that runs
    /// hands it the settings of its application.
    fn apply(&self, pool: &PoolSpec, actions: &[Action]) -> impl Future<Output = Result<Vec<ActionOutcome>, Error>> + Send;

    /// Gives each instance this share of its node's CPU, and this limit. Shares bind only while the node is full; an instance that is
    /// gone meanwhile is passed over.
    fn set_cpu_shares(&self, shares: &[CpuShare]) -> impl Future<Output = Result<(), Error>> + Send;

    /// Keeps so much memory free on its nodes until told otherwise, at the cost of sleepers that hold memory.
    fn set_reserves(&self, reserves: &[NodeReserve]) -> impl Future<Output = Result<(), Error>> + Send;

    /// What runs now, with counters since each instance started.
    fn observe(&self) -> impl Future<Output = Result<Observation, Error>> + Send;

    /// Waits at most `wait` for events after the one with id `after`; empty when there were none.
    fn events(&self, after: u64, wait: Duration) -> impl Future<Output = Result<Vec<InstanceEvent>, Error>> + Send;

    /// Whose logs are kept: of the application of that name, or else of the job.
    fn log_sources(&self, name: &str) -> impl Future<Output = Result<Vec<LogSource>, Error>> + Send;

    /// A piece of what an instance has written.
    fn logs(&self, request: &LogsRequest) -> impl Future<Output = Result<LogsChunk, Error>> + Send;

    /// Carries an action on a job of the controller's queue out, and says what became of it. Starting a run that is there already, or ending
    /// one that is gone, does nothing and succeeds; a run that has ended and was taken away is never started again.
    fn apply_to_job(&self, order: &JobOrder) -> impl Future<Output = Result<ActionOutcome, Error>> + Send;

    /// A piece of what a run of a job has written, also after it was taken away, as long as it is kept.
    fn output(&self, request: &OutputRequest) -> impl Future<Output = Result<OutputPiece, Error>> + Send;
}
