//! The engine for this machine: turns actions into commands of the node agent.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use weal_model::{
    Action, AppName, AppSpec, InstanceId, InstanceState, LoadEntry, NodeName, NodeReserve, NodeSpec, PoolSpec, naming,
};
use weal_protocol::Refusal;
use weal_protocol::engine::Outcome;
use weal_protocol::node::{self, AgentObservation, Command, CommandOutcome, EventsAfter, InstanceEvent, InstanceSpec};
use weal_protocol::node::{LogsChunk, LogsRequest};
use weal_rpc::Client;

use crate::{Engine, Error};

/// The longest that a call without waiting may take. The agent answers from memory and from a few hundred small files.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// What a batch of commands may take beyond the longest stop timeout in it: freezing, paging out, slow starts.
const APPLY_MARGIN: Duration = Duration::from_secs(120);

/// Runs instances on this machine through its node agent.
#[derive(Debug, Clone)]
pub struct Embedded {
    client: Client,
}

impl Embedded {
    /// Through the agent that listens at `socket`.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self { client: Client::new(socket, CALL_TIMEOUT) }
    }
}

impl Engine for Embedded {
    async fn configure(&self, nodes: &[NodeSpec]) -> Result<(), Error> {
        Ok(self.client.call(node::CONFIGURE, &nodes.to_vec()).await?)
    }

    async fn apply(&self, pool: &PoolSpec, actions: &[Action]) -> Result<Vec<Outcome>, Error> {
        if actions.is_empty() {
            return Ok(Vec::new());
        }
        let addresses = if actions.iter().any(|action| starts_with_needs(pool, action)) {
            ready_addresses(&self.observe().await?)
        } else {
            BTreeMap::new()
        };
        let commands: Vec<Result<Command, Refusal>> = actions.iter().map(|action| command(pool, &addresses, action)).collect();
        let sent: Vec<Command> = commands.iter().filter_map(|command| command.clone().ok()).collect();
        let timeout = APPLY_MARGIN + longest_stop(pool);
        let mut answers = self.client.with_timeout(timeout).call(node::APPLY, &sent).await?.into_iter();
        let outcome = |(action, command): (&Action, Result<Command, Refusal>)| match command {
            Err(refusal) => Outcome { action: action.clone(), took_s: 0.0, refusal: Some(refusal) },
            Ok(_) => match answers.next() {
                Some(CommandOutcome { took_s, error, .. }) => {
                    Outcome { action: action.clone(), took_s, refusal: error.map(Refusal::failed) }
                }
                None => {
                    let refusal = Some(Refusal::failed("the node agent gave no answer"));
                    Outcome { action: action.clone(), took_s: 0.0, refusal }
                }
            },
        };
        Ok(actions.iter().zip(commands).map(outcome).collect())
    }

    async fn set_loads(&self, pool: &PoolSpec, loads: &[LoadEntry]) -> Result<(), Error> {
        let limit = |load: &LoadEntry| {
            let own = app_of(pool, &load.instance).and_then(|app| app.cpu_limit);
            [own, load.limit].into_iter().flatten().reduce(|a, b| if b < a { b } else { a })
        };
        let commands: Vec<Command> = loads
            .iter()
            .map(|load| Command::SetCpu { instance: load.instance.clone(), share: load.cpu, limit: limit(load) })
            .collect();
        if !commands.is_empty() {
            self.client.call(node::APPLY, &commands).await?;
        }
        Ok(())
    }

    async fn set_reserves(&self, reserves: &[NodeReserve]) -> Result<(), Error> {
        Ok(self.client.call(node::RESERVE, &reserves.to_vec()).await?)
    }

    async fn observe(&self) -> Result<AgentObservation, Error> {
        Ok(self.client.call(node::OBSERVE, &()).await?)
    }

    async fn events(&self, after: u64, wait: Duration) -> Result<Vec<InstanceEvent>, Error> {
        let request = EventsAfter { after, wait_s: wait.as_secs_f64() };
        Ok(self.client.with_timeout(wait + CALL_TIMEOUT).call(node::EVENTS, &request).await?)
    }

    async fn logs(&self, request: &LogsRequest) -> Result<LogsChunk, Error> {
        let timeout = Duration::from_secs_f64(request.wait_s.clamp(0.0, 60.0)) + CALL_TIMEOUT;
        Ok(self.client.with_timeout(timeout).call(node::LOGS, request).await?)
    }
}

/// What an instance of `app` is started from. `addresses` are those of the applications it needs; one without an
/// address leaves its variables out.
pub fn instance_spec(
    app: &AppSpec,
    instance: &InstanceId,
    node: &NodeName,
    addresses: &BTreeMap<AppName, SocketAddr>,
) -> InstanceSpec {
    let mut env = BTreeMap::new();
    for (needed, address) in app.needs.iter().filter_map(|needed| Some((needed, addresses.get(needed)?))) {
        env.insert(naming::variable(needed, "ADDR"), address.to_string());
        env.insert(naming::variable(needed, "HOST"), address.ip().to_string());
        env.insert(naming::variable(needed, "PORT"), address.port().to_string());
    }
    env.extend(app.env.clone());
    InstanceSpec {
        id: instance.clone(),
        app: app.name.clone(),
        node: node.clone(),
        run: app.run.clone(),
        env,
        cwd: app.cwd.clone(),
        user: app.user.clone(),
        memory: app.memory,
        cpu_limit: app.cpu_limit,
        health: app.health.clone(),
        restart: app.restart,
        stop_timeout_s: app.stop_timeout_s,
        on_resume: app.on_resume.clone(),
        needs: BTreeMap::new(),
        revision: fingerprint(app),
    }
}

/// A fingerprint of the part of `app` that a process is started from: when it differs, instances must be replaced.
///
/// Health checks, restarts and the stop timeout are not in it: the agent takes those over for a running instance when it
/// is told to start it again.
pub fn fingerprint(app: &AppSpec) -> String {
    let part = (&app.run, &app.env, &app.cwd, &app.user, app.memory, app.cpu_limit, &app.needs);
    let text = serde_json::to_string(&part).unwrap_or_default();
    format!("{:016x}", fnv1a(text.as_bytes()))
}

/// FNV-1a, 64 bits: stable over versions of Rust, unlike the standard library's hasher. Nobody attacks these strings.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
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
        | Action::SuspendJob { job }
        | Action::ResumeJob { job, .. }
        | Action::MigrateJob { job, .. }
        | Action::SetJobCpu { job, .. } => Err(Refusal::NoJobs { job: job.clone() }),
    }
}

/// The application of an instance that is named `APP-NUMBER`.
fn app_of<'a>(pool: &'a PoolSpec, instance: &InstanceId) -> Option<&'a AppSpec> {
    let (app, _) = naming::parts(instance)?;
    pool.apps.get(&app)
}

fn longest_stop(pool: &PoolSpec) -> Duration {
    let longest = pool.apps.values().map(|app| app.stop_timeout_s).fold(0.0, f64::max);
    Duration::from_secs_f64(longest.clamp(0.0, 3600.0))
}
