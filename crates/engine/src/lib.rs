//! Carries decided actions out. The [`Engine`] trait is all that the controller knows of where instances run.
//!
//! | engine | instances are | through |
//! | --- | --- | --- |
//! | [`embedded::Embedded`] | processes of this machine | the node agent's local RPC |
//!
//! An engine chooses nothing: the plan names every instance and its node. What it does not do is drain: whoever applies a
//! plan has made the gateways stop sending to an instance before [`Action::Stop`] and [`Action::Sleep`] come here.

pub mod embedded;

use std::future::Future;
use std::time::Duration;

use weal_model::{Action, LoadEntry, NodeReserve, NodeSpec, PoolSpec};
pub use weal_protocol::node::{
    AgentObservation, InstanceCounters, InstanceEvent, InstanceSpec, LogsChunk, LogsRequest, NodeCounters,
};

/// Why an engine could not be asked at all. What fails for a single action stands in its [`weal_protocol::engine::Outcome`].
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The node agent did not answer, or refused the call.
    #[error("the node agent failed: {0}")]
    Agent(#[from] weal_rpc::Error),
}

/// Where instances run.
///
/// All calls are safe to repeat: starting what runs, or stopping what is gone, does nothing and succeeds.
pub trait Engine: Send + Sync + 'static {
    /// Makes these the nodes. Nodes that hold instances stay until those are gone.
    fn configure(&self, nodes: &[NodeSpec]) -> impl Future<Output = Result<(), Error>> + Send;

    /// Carries `actions` out in their order, each kind of neighbours side by side, and says what became of each (same
    /// order, same length). A start is done when its process runs; that it is ready comes as an event.
    fn apply(
        &self,
        pool: &PoolSpec,
        actions: &[Action],
    ) -> impl Future<Output = Result<Vec<weal_protocol::engine::Outcome>, Error>> + Send;

    /// Gives each instance this share of its node's CPU. Shares bind only while the node is full; an instance that is
    /// gone meanwhile is passed over.
    fn set_loads(&self, pool: &PoolSpec, loads: &[LoadEntry]) -> impl Future<Output = Result<(), Error>> + Send;

    /// Keeps so much memory free on its nodes until told otherwise, at the cost of who sleeps with its memory.
    fn set_reserves(&self, reserves: &[NodeReserve]) -> impl Future<Output = Result<(), Error>> + Send;

    /// What runs now, with counters since each instance started.
    fn observe(&self) -> impl Future<Output = Result<AgentObservation, Error>> + Send;

    /// Waits at most `wait` for events after the one with id `after`; empty when there were none.
    fn events(&self, after: u64, wait: Duration) -> impl Future<Output = Result<Vec<InstanceEvent>, Error>> + Send;

    /// A piece of what an instance has written.
    fn logs(&self, request: &LogsRequest) -> impl Future<Output = Result<LogsChunk, Error>> + Send;
}
