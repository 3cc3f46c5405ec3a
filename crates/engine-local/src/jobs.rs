//! Runs of jobs as the node agent knows them: instances that end.

use weal_model::naming::{job_account, task_id};
use weal_model::{
    Action, Bytes, Cpu, HealthCheck, HealthProbe, InstanceId, InstanceState, JobName, NodeName, RestartPolicy, Rung, SandboxSpec,
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

/// What the agent is told to do, a command for each task.
pub(super) fn commands(order: &JobOrder) -> Result<Vec<Command>, Refusal> {
    let each = |job: &JobName, of: &dyn Fn(InstanceId) -> Command| -> Result<Vec<Command>, Refusal> {
        Ok(order.tasks.iter().map(|task| of(task_id(job, order.attempt, *task))).collect())
    };
    match &order.action {
        Action::StartJob { job, nodes } if !nodes.is_empty() && nodes.len() == order.tasks.len() => {
            let start = |task: &u32| Command::Start { spec: Box::new(spec(order, job, *task, nodes)) };
            Ok(order.tasks.iter().map(start).collect())
        }
        Action::StartJob { job, .. } => Err(Refusal::NoJobs { job: job.clone() }),
        Action::PauseJob { job } => each(job, &|instance| Command::Sleep { instance, rung: Rung::Suspended }),
        Action::SuspendJob { job } => each(job, &|instance| Command::Sleep { instance, rung: Rung::Parked }),
        Action::ResumeJob { job, .. } => each(job, &|instance| Command::Resume { instance }),
        Action::EndJob { job, .. } => each(job, &|instance| Command::Stop { instance }),
        Action::SetJobCpu { job, cpu } => {
            let share = if *cpu < LEAST_SHARE { LEAST_SHARE } else { *cpu };
            each(job, &|instance| Command::SetCpu { instance, share, limit: order.limit, memory: Some(order.memory) })
        }
        Action::MigrateJob { job, .. } => Err(Refusal::NoJobs { job: job.clone() }),
        Action::Start { .. } | Action::Stop { .. } | Action::Sleep { .. } | Action::Resume { .. } => {
            Err(Refusal::failed("this is no action on a job"))
        }
    }
}

/// The address of each task of a gang; none for a job of one process. All slices are of one machine.
fn addresses(nodes: &[NodeName]) -> Vec<String> {
    if nodes.len() > 1 { nodes.iter().map(|_| "127.0.0.1".to_owned()).collect() } else { Vec::new() }
}

/// What a task of a gang finds in its environment: which it is, how many there are, and where each of them is.
fn gang(task: u32, nodes: &[NodeName]) -> [(&'static str, String); 4] {
    let names: Vec<&str> = nodes.iter().map(NodeName::as_str).collect();
    [
        ("WEAL_TASK", task.to_string()),
        ("WEAL_TASKS", nodes.len().to_string()),
        ("WEAL_TASK_NODES", names.join(",")),
        ("WEAL_TASK_ADDRESSES", addresses(nodes).join(",")),
    ]
}

fn spec(order: &JobOrder, job: &JobName, task: u32, nodes: &[NodeName]) -> InstanceSpec {
    let mut env = order.command.env.clone();
    if nodes.len() > 1 {
        env.extend(gang(task, nodes).map(|(name, value)| (name.to_owned(), value)));
    }
    InstanceSpec {
        id: task_id(job, order.attempt, task),
        // Jobs of one name run as one user, which is nobody else's.
        app: job_account(job),
        node: nodes[task as usize].clone(),
        run: order.command.run.clone(),
        env,
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
        datagrams: false,
        needs: std::collections::BTreeMap::new(),
        revision: String::new(),
        job: Some(JobRun {
            job: job.clone(),
            attempt: order.attempt,
            task,
            addresses: addresses(nodes),
            files: order.command.files.clone(),
            checkpoint: order.command.checkpoint.clone(),
        }),
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
        task: run.task,
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
