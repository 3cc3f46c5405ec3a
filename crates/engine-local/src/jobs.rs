//! Runs of jobs as the node agent knows them: instances that end.

use weal_model::naming::run_id;
use weal_model::{
    Action, AppName, Bytes, Cpu, HealthCheck, HealthProbe, InstanceState, JobName, NodeName, RestartPolicy, Rung, SandboxSpec,
};
use weal_protocol::Refusal;
use weal_protocol::engine::{JobOrder, RunSeen, RunState};
use weal_protocol::node::{Command, InstanceCounters, InstanceSpec, JobRun};

/// Seconds from SIGTERM to SIGKILL for a run that is ended.
const STOP_TIMEOUT_S: f64 = 10.0;
/// The least share of its node: what has none at all would not even end.
const LEAST_SHARE: Cpu = Cpu(0.02);
/// A run is not asked for its health; this only has to be a number.
const NEVER_S: f64 = 86_400.0;

/// What the agent is told to do.
pub(super) fn command(order: &JobOrder) -> Result<Command, Refusal> {
    let run = |job: &JobName| run_id(job, order.attempt);
    match &order.action {
        Action::StartJob { job, nodes } => match nodes.as_slice() {
            [node] => Ok(Command::Start { spec: Box::new(spec(order, job, node)) }),
            // Parallel jobs are for a later version.
            _ => Err(Refusal::NoJobs { job: job.clone() }),
        },
        Action::PauseJob { job } => Ok(Command::Sleep { instance: run(job), rung: Rung::Suspended }),
        Action::SuspendJob { job } => Ok(Command::Sleep { instance: run(job), rung: Rung::Parked }),
        Action::ResumeJob { job, .. } => Ok(Command::Resume { instance: run(job) }),
        Action::EndJob { job, .. } => Ok(Command::Stop { instance: run(job) }),
        Action::SetJobCpu { job, cpu } => {
            let share = if *cpu < LEAST_SHARE { LEAST_SHARE } else { *cpu };
            Ok(Command::SetCpu { instance: run(job), share, limit: None, memory: Some(order.memory) })
        }
        Action::MigrateJob { job, .. } => Err(Refusal::NoJobs { job: job.clone() }),
        Action::Start { .. } | Action::Stop { .. } | Action::Sleep { .. } | Action::Resume { .. } => {
            Err(Refusal::failed("this is no action on a job"))
        }
    }
}

/// Jobs of one name run as one user, which is nobody else's.
fn account(job: &JobName) -> AppName {
    let name = job.as_str().rsplit_once('-').map_or(job.as_str(), |(name, _)| name);
    format!("job.{name}").into()
}

fn spec(order: &JobOrder, job: &JobName, node: &NodeName) -> InstanceSpec {
    InstanceSpec {
        id: run_id(job, order.attempt),
        app: account(job),
        node: node.clone(),
        run: order.command.run.clone(),
        env: order.command.env.clone(),
        process: weal_model::ProcessSpec::default(),
        cwd: order.command.cwd.clone().unwrap_or_default(),
        user: None,
        sandbox: SandboxSpec::default(),
        memory: order.memory,
        cpu_limit: None,
        health: HealthCheck {
            probe: HealthProbe::Tcp,
            interval_s: NEVER_S,
            timeout_s: 1.0,
            failures: 1,
            start_timeout_s: NEVER_S,
            replace_after: 0,
            send_proxy: None,
            host: None,
        },
        restart: RestartPolicy::Never,
        stop_timeout_s: STOP_TIMEOUT_S,
        on_resume: Vec::new(),
        pass_socket: false,
        needs: std::collections::BTreeMap::new(),
        revision: String::new(),
        job: Some(JobRun { job: job.clone(), attempt: order.attempt, files: order.command.files.clone() }),
        step_of: None,
    }
}

/// The agent's words for a run in neutral ones; `None` for an instance of an application.
pub(super) fn seen(counters: &InstanceCounters) -> Option<RunSeen> {
    let run = counters.spec.job.clone()?;
    let is_over = matches!(counters.state, InstanceState::Stopped | InstanceState::Failed);
    Some(RunSeen {
        job: run.job,
        attempt: run.attempt,
        node: counters.spec.node.clone(),
        state: if is_over { RunState::Ended } else { state(counters.state) },
        detail: counters.detail.clone(),
        since: counters.since,
        cpu_seconds: counters.cpu_seconds,
        memory_used: counters.memory_used.filter(|used| *used > Bytes(0)),
        end: counters.end.filter(|_| is_over),
        progress: counters.progress,
    })
}

fn state(state: InstanceState) -> RunState {
    match state {
        InstanceState::Starting => RunState::Starting,
        InstanceState::Suspended => RunState::Paused,
        InstanceState::Warm | InstanceState::Parked => RunState::Suspended,
        InstanceState::Stopping => RunState::Stopping,
        InstanceState::Stopped | InstanceState::Failed => RunState::Ended,
        InstanceState::Ready | InstanceState::Unhealthy | InstanceState::Draining | InstanceState::Backoff => RunState::Running,
    }
}
