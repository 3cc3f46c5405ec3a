//! Small pools and snapshots for tests.

use weal_model::naming::parts;
use weal_model::{
    Action, AppSpec, Bytes, Cpu, Importance, InstanceId, InstanceObservation, InstanceRange, InstanceState, JobName,
    JobObservation, JobSpec, JobState, NodeName, NodeObservation, NodeSpec, Plan, PoolSpec, Report, Rung, Snapshot, Stage, Time,
    Work,
};

use super::{Iterations, Policy, plan};
use crate::check::check;
use crate::jobs::Costs;

pub(crate) fn app(name: &str, memory_mib: u64, min: u32, max: u32) -> AppSpec {
    AppSpec { memory: Bytes::mib(memory_mib), instances: InstanceRange { min, max }, ..AppSpec::example(name) }
}

pub(crate) fn pool(nodes: usize, apps: Vec<AppSpec>) -> PoolSpec {
    let node = |i: usize| NodeSpec { name: node_name(i), cpu: Cpu(2.0), memory: Bytes::mib(1000), utilization_limit: 1.0 };
    PoolSpec {
        nodes: (0..nodes).map(node).collect(),
        apps: apps.into_iter().map(|app| (app.name.clone(), app)).collect(),
        ..PoolSpec::example()
    }
}

pub(crate) fn node_name(i: usize) -> NodeName {
    format!("n{i}").into()
}

pub(crate) fn snapshot(pool: &PoolSpec, instances: &[(&str, usize, InstanceState)]) -> Snapshot {
    let node = |spec: &NodeSpec| NodeObservation {
        name: spec.name.clone(),
        up: true,
        cpu_capacity: spec.cpu,
        cpu_used: Cpu(0.0),
        memory_capacity: spec.memory,
        memory_used: Bytes(0),
        cpu_pressure: None,
    };
    let observed = |&(id, node, state): &(&str, usize, InstanceState)| {
        let id = InstanceId::from(id);
        let app = parts(&id).unwrap().0;
        InstanceObservation::unmeasured(id, app, node_name(node), state)
    };
    Snapshot {
        generation: 7,
        nodes: pool.nodes.iter().map(node).collect(),
        instances: instances.iter().map(observed).collect(),
        ..Snapshot::default()
    }
}

/// `work` CPU-seconds a task at up to `speed` cores, due `due_s` seconds from the start of time.
pub(crate) fn job(name: &str, work: f64, speed: f64, memory_mib: u64, due_s: f64) -> JobObservation {
    let stage = Stage { work: Work(work), max_speed: Cpu(speed), min_speed: Cpu(0.0), memory: Bytes::mib(memory_mib) };
    let spec = JobSpec {
        name: name.into(),
        submitted: Time::ZERO,
        desired_start: Time::ZERO,
        deadline: Time::from_secs_f64(due_s),
        importance: Importance::NORMAL,
        priority: 0,
        stages: vec![stage],
        tasks: 1,
    };
    JobObservation { spec, state: JobState::Pending, done: Work(0.0), nodes: Vec::new(), cpu: None }
}

pub(crate) fn running(mut job: JobObservation, nodes: &[usize], cpu: f64) -> JobObservation {
    job.state = JobState::Running;
    job.nodes = nodes.iter().map(|n| NodeName::from(format!("n{n}"))).collect();
    job.cpu = Some(Cpu(cpu));
    job
}

pub(crate) fn with_jobs(pool: &PoolSpec, instances: &[(&str, usize, InstanceState)], jobs: Vec<JobObservation>) -> Snapshot {
    Snapshot { jobs, ..snapshot(pool, instances) }
}

/// Changes of jobs cost nothing.
pub(crate) fn free_policy(pool: &PoolSpec) -> Policy {
    Policy { job_costs: Costs::FREE, ..Policy::new(pool.clone()) }
}

/// A plan that the check accepts.
pub(crate) fn judged(snapshot: &Snapshot, policy: &Policy) -> (Plan, Report) {
    let (plan, report) = plan(snapshot, policy, Iterations::default());
    assert_eq!(check(snapshot, &policy.pool, &plan), [], "{plan:#?}");
    assert_eq!(plan.actions.len(), report.reasons.len());
    (plan, report)
}

/// The actions of a plan in words.
pub(crate) fn words(plan: &Plan) -> Vec<String> {
    let on = |nodes: &[NodeName]| nodes.iter().map(NodeName::as_str).collect::<Vec<_>>().join(" ");
    let word = |action: &Action| match action {
        Action::StartJob { job, nodes } => format!("start {job} on {}", on(nodes)),
        Action::SuspendJob { job } => format!("suspend {job}"),
        Action::ResumeJob { job, nodes } => format!("resume {job} on {}", on(nodes)),
        Action::MigrateJob { job, nodes } => format!("migrate {job} to {}", on(nodes)),
        Action::SetJobCpu { job, cpu } => format!("{job} gets {:.1}", cpu.0),
        other => format!("{other:?}"),
    };
    plan.actions.iter().map(word).collect()
}

/// What becomes of a snapshot when all of a plan is done at once, and no time passes.
pub(crate) fn carried_out(snapshot: &Snapshot, plan: &Plan) -> Snapshot {
    let mut after = snapshot.clone();
    after.generation += 1;
    for action in &plan.actions {
        let job = |after: &mut Snapshot, name: &JobName, change: &dyn Fn(&mut JobObservation)| {
            after.jobs.iter_mut().filter(|job| job.spec.name == *name).for_each(change);
        };
        let mut become_ = |id: &InstanceId, state: InstanceState| {
            after.instances.iter_mut().filter(|seen| seen.id == *id).for_each(|seen| seen.state = state);
        };
        match action {
            Action::Start { instance, app, node } => {
                let ready = InstanceObservation::unmeasured(instance.clone(), app.clone(), node.clone(), InstanceState::Ready);
                after.instances.push(ready);
            }
            Action::Stop { instance, .. } => after.instances.retain(|seen| seen.id != *instance),
            Action::Resume { instance, .. } => become_(instance, InstanceState::Ready),
            Action::Sleep { instance, rung: Rung::Warm, .. } => become_(instance, InstanceState::Warm),
            Action::Sleep { instance, rung: Rung::Suspended, .. } => become_(instance, InstanceState::Suspended),
            Action::Sleep { instance, rung: Rung::Parked, .. } => become_(instance, InstanceState::Parked),
            Action::StartJob { job: name, nodes }
            | Action::ResumeJob { job: name, nodes }
            | Action::MigrateJob { job: name, nodes } => {
                job(&mut after, name, &|job| (job.state, job.nodes) = (JobState::Running, nodes.clone()));
            }
            Action::SuspendJob { job: name } => {
                job(&mut after, name, &|job| (job.state, job.cpu) = (JobState::Suspended, None));
            }
            Action::SetJobCpu { job: name, cpu } => job(&mut after, name, &|job| job.cpu = Some(*cpu)),
            Action::PauseJob { .. } | Action::EndJob { .. } => {}
        }
    }
    after
}
