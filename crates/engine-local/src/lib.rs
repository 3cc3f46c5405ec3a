//! The engine for this machine: turns actions into commands of the node agent, and the agent's words into neutral ones.

mod jobs;
mod observation;
mod spec;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use weal_engine::{Engine, Error};
use weal_model::{Action, AppName, AppSpec, CpuShare, InstanceState, NodeReserve, NodeSpec, PoolSpec};
use weal_protocol::Refusal;
use weal_protocol::engine::{ActionOutcome, JobOrder, Observation, OutputPiece, OutputRequest, Revision};
use weal_protocol::node::{
    self, AgentObservation, Command, CommandOutcome, EventsAfter, InstanceEvent, LogSource, LogsChunk, LogsRequest, PEER,
};
use weal_rpc::Client;

pub use spec::{instance_spec, revision};

/// The longest that a call without waiting may take. The agent answers from memory and from a few hundred small files.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// The same for what runs, which is asked for again soon: longer than this the agent is stuck or away.
const OBSERVE_TIMEOUT: Duration = Duration::from_secs(5);
/// What a batch of commands may take beyond the longest stop timeout in it: freezing, paging out, slow starts.
const APPLY_MARGIN: Duration = Duration::from_secs(120);
/// The longest that anybody may wait for more lines of a log.
const LONGEST_LOG_WAIT_S: f64 = 60.0;

/// Runs instances on this machine through its node agent.
#[derive(Debug, Clone)]
pub struct Local {
    client: Client,
}

impl Local {
    /// Through the agent that listens at `socket`.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self { client: Client::new(socket, CALL_TIMEOUT) }
    }

    async fn agent(&self) -> Result<AgentObservation, Error> {
        self.client.with_timeout(OBSERVE_TIMEOUT).call(node::OBSERVE, &()).await.map_err(failed)
    }
}

impl Engine for Local {
    fn peer(&self) -> &'static str {
        PEER
    }

    fn revision(&self, app: &AppSpec) -> Revision {
        revision(app)
    }

    async fn configure(&self, nodes: &[NodeSpec]) -> Result<(), Error> {
        self.client.call(node::CONFIGURE, &nodes.to_vec()).await.map_err(failed)
    }

    async fn apply(&self, pool: &PoolSpec, actions: &[Action]) -> Result<Vec<ActionOutcome>, Error> {
        if actions.is_empty() {
            return Ok(Vec::new());
        }
        let addresses = if actions.iter().any(|action| starts_with_needs(pool, action)) {
            addresses(pool, &self.agent().await?)
        } else {
            BTreeMap::new()
        };
        let commands: Vec<Result<Command, Refusal>> = actions.iter().map(|action| command(pool, &addresses, action)).collect();
        let sent: Vec<Command> = commands.iter().filter_map(|command| command.clone().ok()).collect();
        let mut answers = if sent.is_empty() {
            Vec::new()
        } else {
            let timeout = APPLY_MARGIN + longest_stop(pool);
            self.client.with_timeout(timeout).call(node::APPLY, &sent).await.map_err(failed)?
        }
        .into_iter();
        let outcome = |(action, command): (&Action, Result<Command, Refusal>)| {
            let (took_s, refusal) = match command {
                Err(refusal) => (0.0, Some(refusal)),
                Ok(_) => match answers.next() {
                    Some(CommandOutcome { took_s, refusal, .. }) => (took_s, refusal),
                    None => (0.0, Some(Refusal::failed("the node agent gave no answer"))),
                },
            };
            ActionOutcome { action: action.clone(), took_s, refusal }
        };
        Ok(actions.iter().zip(commands).map(outcome).collect())
    }

    async fn set_cpu_shares(&self, shares: &[CpuShare]) -> Result<(), Error> {
        let set = |wanted: &CpuShare| {
            let instance = wanted.instance.clone();
            Command::SetCpu { instance, share: wanted.cpu, limit: wanted.limit, memory: None }
        };
        let commands: Vec<Command> = shares.iter().map(set).collect();
        if !commands.is_empty() {
            self.client.call(node::APPLY, &commands).await.map_err(failed)?;
        }
        Ok(())
    }

    async fn set_reserves(&self, reserves: &[NodeReserve]) -> Result<(), Error> {
        self.client.call(node::RESERVE, &reserves.to_vec()).await.map_err(failed)
    }

    async fn observe(&self) -> Result<Observation, Error> {
        Ok(observation::neutral(self.agent().await?))
    }

    async fn events(&self, after: u64, wait: Duration) -> Result<Vec<InstanceEvent>, Error> {
        let request = EventsAfter { after, wait_s: wait.as_secs_f64() };
        self.client.with_timeout(wait + CALL_TIMEOUT).call(node::EVENTS, &request).await.map_err(failed)
    }

    async fn log_sources(&self, name: &str) -> Result<Vec<LogSource>, Error> {
        self.client.call(node::LOG_SOURCES, &name.to_owned()).await.map_err(failed)
    }

    async fn logs(&self, request: &LogsRequest) -> Result<LogsChunk, Error> {
        let timeout = Duration::from_secs_f64(request.wait_s.clamp(0.0, LONGEST_LOG_WAIT_S)) + CALL_TIMEOUT;
        self.client.with_timeout(timeout).call(node::LOGS, request).await.map_err(failed)
    }

    async fn apply_to_job(&self, order: &JobOrder) -> Result<ActionOutcome, Error> {
        let outcome = |took_s, refusal| ActionOutcome { action: order.action.clone(), took_s, refusal };
        let commands = match jobs::commands(order) {
            Ok(commands) => commands,
            Err(refusal) => return Ok(outcome(0.0, Some(refusal))),
        };
        let answers = self.client.with_timeout(APPLY_MARGIN).call(node::APPLY, &commands).await.map_err(failed)?;
        if answers.len() < commands.len() {
            return Ok(outcome(0.0, Some(Refusal::failed("the node agent gave no answer"))));
        }
        // What one task is refused, the job is.
        let took_s = answers.iter().map(|answer| answer.took_s).fold(0.0, f64::max);
        Ok(outcome(took_s, answers.into_iter().find_map(|answer| answer.refusal)))
    }

    async fn output(&self, request: &OutputRequest) -> Result<OutputPiece, Error> {
        let timeout = Duration::from_secs_f64(request.wait_s.clamp(0.0, LONGEST_LOG_WAIT_S)) + CALL_TIMEOUT;
        self.client.with_timeout(timeout).call(node::OUTPUT, request).await.map_err(failed)
    }
}

fn failed(error: weal_rpc::Error) -> Error {
    if let Some(detail) = error.silence() {
        return Error::Away { peer: PEER, detail };
    }
    match error {
        weal_rpc::Error::Refused { .. } => Error::Refused { peer: PEER, refusal: error.into_refusal(PEER) },
        weal_rpc::Error::Unreadable { method, source } => Error::Unreadable { peer: PEER, detail: format!("{method}: {source}") },
        error => Error::Unreadable { peer: PEER, detail: error.to_string() },
    }
}

/// Where each application that has a ready instance is reached: at the gateway, which balances the calls over its instances. One that the
/// gateway has no address for yet, at its first ready instance.
fn addresses(pool: &PoolSpec, observed: &AgentObservation) -> BTreeMap<AppName, SocketAddr> {
    let mut addresses = ready_addresses(observed);
    for (app, address) in &mut addresses {
        *address = pool.apps.get(app).and_then(|app| app.inner).unwrap_or(*address);
    }
    addresses
}

/// One ready address per application: that of its first instance by id.
fn ready_addresses(observed: &AgentObservation) -> BTreeMap<AppName, SocketAddr> {
    let mut ready: Vec<_> = observed.instances.iter().filter(|instance| instance.state == InstanceState::Ready).collect();
    ready.sort_by(|a, b| a.spec.id.cmp(&b.spec.id));
    let mut addresses = BTreeMap::new();
    for instance in ready {
        addresses.entry(instance.spec.app.clone()).or_insert(instance.address);
    }
    addresses
}

fn starts_with_needs(pool: &PoolSpec, action: &Action) -> bool {
    matches!(action, Action::Start { app, .. } if pool.apps.get(app).is_some_and(|app| !app.needs.is_empty()))
}

fn command(pool: &PoolSpec, addresses: &BTreeMap<AppName, SocketAddr>, action: &Action) -> Result<Command, Refusal> {
    match action {
        Action::Start { instance, app, node } => {
            let app = pool.apps.get(app).ok_or_else(|| Refusal::NoApplication { app: app.clone() })?;
            if let Some(missing) = app.needs.iter().find(|needed| !addresses.contains_key(*needed)) {
                return Err(Refusal::NeedNotReady { app: app.name.clone(), needed: missing.clone() });
            }
            Ok(Command::Start { spec: Box::new(instance_spec(app, instance, node, addresses)) })
        }
        Action::Stop { instance, .. } => Ok(Command::Stop { instance: instance.clone() }),
        Action::Sleep { instance, rung, .. } => Ok(Command::Sleep { instance: instance.clone(), rung: *rung }),
        Action::Resume { instance, .. } => Ok(Command::Resume { instance: instance.clone() }),
        Action::StartJob { job, .. }
        | Action::PauseJob { job }
        | Action::EndJob { job, .. }
        | Action::SuspendJob { job }
        | Action::ResumeJob { job, .. }
        | Action::MigrateJob { job, .. }
        | Action::SetJobCpu { job, .. } => Err(Refusal::NoJobs { job: job.clone() }),
    }
}

fn longest_stop(pool: &PoolSpec) -> Duration {
    let longest = pool.apps.values().map(|app| app.stop_timeout_s).fold(0.0, f64::max);
    Duration::from_secs_f64(longest.clamp(0.0, 3600.0))
}
