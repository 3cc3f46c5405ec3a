//! The engine and the gateway of the controller under test: each call waits until the test answers it.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::oneshot::{self, Sender};
use tokio::task::JoinHandle;
use weal_engine::Engine;
use weal_model::{Action, AppName, AppSpec, CpuShare, NodeReserve, NodeSpec, PoolSpec};
use weal_protocol::Refusal;
use weal_protocol::engine::{ActionOutcome, JobOrder, Observation, OutputPiece, OutputRequest, Revision};
use weal_protocol::gateway::{ConfigAck, GatewayConfig, GatewayCounters};
use weal_protocol::node::{InstanceEvent, LogSource, LogsChunk, LogsRequest};
use weal_rpc::RpcRefusal;

/// What is asked, and where the answer goes.
#[derive(Debug)]
pub enum Asked {
    ObserveEngine(Sender<Observation>),
    ConfigureNodes(Sender<()>),
    Apply(Sender<Vec<ActionOutcome>>),
    ApplyToJob(Sender<ActionOutcome>),
    SetCpuShares(Sender<()>),
    SetReserves(Sender<()>),
    Events(Sender<Vec<InstanceEvent>>),
    ObserveGateway(Sender<Result<GatewayCounters, Refusal>>),
    ConfigureGateway(Sender<Result<u64, Refusal>>),
}

/// One call that waits.
#[derive(Debug)]
pub struct Call {
    /// All that it says.
    pub words: String,
    pub asked: Asked,
}

/// The calls that wait, oldest first.
#[derive(Debug, Clone, Default)]
pub struct Desk(Arc<Mutex<Vec<Call>>>);

impl Desk {
    /// Takes the oldest call that is `wanted`.
    pub fn take(&self, wanted: impl Fn(&Call) -> bool) -> Option<Call> {
        let mut calls = self.0.lock().unwrap();
        let at = calls.iter().position(wanted)?;
        Some(calls.remove(at))
    }

    /// What waits, in words.
    pub fn words(&self) -> Vec<String> {
        self.0.lock().unwrap().iter().map(|call| call.words.clone()).collect()
    }

    async fn ask<T>(&self, words: String, asked: impl FnOnce(Sender<T>) -> Asked) -> T {
        let (reply, answer) = oneshot::channel();
        self.0.lock().unwrap().push(Call { words, asked: asked(reply) });
        match answer.await {
            Ok(answer) => answer,
            // The test is over.
            Err(_) => std::future::pending().await,
        }
    }
}

/// What a call says, as [`Call::words`] has it.
pub fn words(verb: &str, what: &impl Debug) -> String {
    format!("{verb} {what:?}")
}

/// A number that stands for all of a pool, which is long.
pub fn mark(pool: &PoolSpec) -> u64 {
    let mut hasher = DefaultHasher::new();
    format!("{pool:?}").hash(&mut hasher);
    hasher.finish()
}

/// What each application is started from, by the config in force.
pub type Revisions = Arc<Mutex<BTreeMap<AppName, Revision>>>;

/// The engine.
#[derive(Debug, Clone)]
pub struct AskedEngine {
    pub desk: Desk,
    pub revisions: Revisions,
}

impl Engine for AskedEngine {
    fn peer(&self) -> &'static str {
        weal_protocol::node::PEER
    }

    fn revision(&self, app: &AppSpec) -> Revision {
        self.revisions.lock().unwrap()[&app.name].clone()
    }

    async fn configure(&self, nodes: &[NodeSpec]) -> Result<(), weal_engine::Error> {
        self.desk.ask(words("nodes", &nodes), Asked::ConfigureNodes).await;
        Ok(())
    }

    async fn apply(&self, pool: &PoolSpec, actions: &[Action]) -> Result<Vec<ActionOutcome>, weal_engine::Error> {
        Ok(self.desk.ask(words("apply", &(actions, mark(pool))), Asked::Apply).await)
    }

    async fn set_cpu_shares(&self, shares: &[CpuShare]) -> Result<(), weal_engine::Error> {
        self.desk.ask(words("shares", &shares), Asked::SetCpuShares).await;
        Ok(())
    }

    async fn set_reserves(&self, reserves: &[NodeReserve]) -> Result<(), weal_engine::Error> {
        self.desk.ask(words("reserves", &reserves), Asked::SetReserves).await;
        Ok(())
    }

    async fn observe(&self) -> Result<Observation, weal_engine::Error> {
        Ok(self.desk.ask("observe the engine".to_owned(), Asked::ObserveEngine).await)
    }

    async fn events(&self, _after: u64, _wait: Duration) -> Result<Vec<InstanceEvent>, weal_engine::Error> {
        Ok(self.desk.ask("wait for events".to_owned(), Asked::Events).await)
    }

    async fn log_sources(&self, name: &str) -> Result<Vec<LogSource>, weal_engine::Error> {
        panic!("nobody reads logs here: {name}")
    }

    async fn logs(&self, request: &LogsRequest) -> Result<LogsChunk, weal_engine::Error> {
        panic!("nobody reads logs here: {request:?}")
    }

    async fn apply_to_job(&self, order: &JobOrder) -> Result<ActionOutcome, weal_engine::Error> {
        Ok(self.desk.ask(words("job", order), Asked::ApplyToJob).await)
    }

    async fn output(&self, request: &OutputRequest) -> Result<OutputPiece, weal_engine::Error> {
        panic!("nobody reads output here: {request:?}")
    }
}

/// Serves the gateway at `socket`.
pub fn serve_gateway(desk: Desk, socket: &Path) -> JoinHandle<()> {
    let listener = tokio::net::UnixListener::from_std(weal_rpc::bind(socket).unwrap()).unwrap();
    let (observed, configured) = (desk.clone(), desk);
    let refused = |refusal| RpcRefusal::refused(503, refusal);
    let router = weal_rpc::Router::new(weal_rpc::Callers::own())
        .on(weal_protocol::gateway::OBSERVE, move |()| {
            let desk = observed.clone();
            async move { desk.ask("observe the gateway".to_owned(), Asked::ObserveGateway).await.map_err(refused) }
        })
        .on(weal_protocol::gateway::CONFIGURE, move |config: GatewayConfig| {
            let desk = configured.clone();
            async move {
                let version = desk.ask(words("gateway", &config), Asked::ConfigureGateway).await.map_err(refused)?;
                Ok(ConfigAck { version })
            }
        });
    tokio::spawn(weal_rpc::serve(listener, router))
}
