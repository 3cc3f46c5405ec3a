//! Measures how long a plan takes for `RUNNING` jobs that run and `WAITING` that wait, beside `APPS` applications, and prints one JSON
//! object; `cargo xtask bench jobs` runs it.
//!
//!     jobs-bench WAITING RUNNING APPS ROUNDS

#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock; the planner itself never does")]

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use serde_json::json;
use weal_control::cycle::PlanRequest;
use weal_control::placement::Policy;
use weal_control::seeded::Seeded;
use weal_control::utility::Curve;
use weal_model::{
    AppName, AppSpec, Bytes, Cpu, Importance, InstanceObservation, InstanceState, JobObservation, JobSpec, JobState, NodeName,
    NodeObservation, NodeSpec, PoolSpec, Snapshot, Stage, Time, Utility, Work,
};

/// Jobs that run on one node.
const PER_NODE: usize = 4;
/// Of a node: for its jobs and one instance.
const MEMORY: Bytes = Bytes(4864 << 20);
const INSTANCE: Bytes = Bytes(512 << 20);
const NOW_S: f64 = 10_000.0;

fn main() -> Result<(), Box<dyn Error>> {
    let numbers: Vec<usize> = std::env::args().skip(1).map(|word| word.parse()).collect::<Result<_, _>>()?;
    let &[waiting, running, apps, rounds] = numbers.as_slice() else { return Err("WAITING RUNNING APPS ROUNDS".into()) };
    let request = request(waiting, running, apps);
    let mut actions = 0;
    let mut times: Vec<f64> = Vec::new();
    for _ in 0..rounds.max(1) {
        let begun = Instant::now();
        let planned = black_box(&request).run();
        times.push(begun.elapsed().as_secs_f64() * 1e3);
        actions = planned.result?.0.actions.len();
    }
    times.sort_by(f64::total_cmp);
    println!("{}", json!({ "median_ms": times[times.len() / 2], "worst_ms": times.last(), "actions": actions }));
    Ok(())
}

fn request(waiting: usize, running: usize, apps: usize) -> PlanRequest {
    let nodes: Vec<NodeName> = (0..running.div_ceil(PER_NODE)).map(|n| NodeName::from(format!("n{n:04}"))).collect();
    let mut random = Seeded::new(1);
    let mut jobs: Vec<JobObservation> = (0..running).map(|m| job(m, Some(&nodes[m / PER_NODE]), &mut random)).collect();
    jobs.extend((running..running + waiting).map(|m| job(m, None, &mut random)));
    let node = |name: &NodeName| NodeObservation {
        name: name.clone(),
        up: true,
        cpu_capacity: Cpu(PER_NODE as f64),
        cpu_used: Cpu(PER_NODE as f64),
        memory_capacity: MEMORY,
        memory_used: Bytes(0),
        cpu_pressure: None,
    };
    let spec =
        |name: &NodeName| NodeSpec { name: name.clone(), cpu: Cpu(PER_NODE as f64), memory: MEMORY, utilization_limit: 1.0 };
    let names: Vec<AppName> = (0..apps).map(|m| AppName::from(format!("app-{m:04}"))).collect();
    let specs = names.iter().map(|name| (name.clone(), AppSpec { memory: INSTANCE, ..AppSpec::example(name.as_str()) }));
    let pool = PoolSpec { nodes: nodes.iter().map(spec).collect(), apps: specs.collect(), ..PoolSpec::example() };
    let curve = Curve::through([(Cpu(0.0), Utility(-5.0)), (Cpu(0.5), Utility(0.0)), (Cpu(2.0), Utility(0.8))]);
    let policy = Policy { demands: names.iter().map(|name| (name.clone(), curve.clone())).collect(), ..Policy::new(pool) };
    let ready = |(app, node): (&AppName, &NodeName)| {
        InstanceObservation::unmeasured(format!("{app}-1").into(), app.clone(), node.clone(), InstanceState::Ready)
    };
    let instances = names.iter().zip(nodes.iter().cycle()).map(ready).collect();
    let snapshot = Snapshot {
        generation: 1,
        time: Time::from_secs_f64(NOW_S),
        window_s: 2.0,
        nodes: nodes.iter().map(node).collect(),
        instances,
        flows: Vec::new(),
        jobs,
    };
    PlanRequest { snapshot, policy }
}

/// One of a core and a GiB, with a goal between twice and eight times its work at full speed.
fn job(m: usize, node: Option<&NodeName>, random: &mut Seeded) -> JobObservation {
    let work_s = random.between(60.0, 3600.0);
    let age_s = random.between(0.0, work_s);
    let submitted = Time::from_secs_f64(NOW_S - age_s);
    let spec = JobSpec {
        name: format!("job-{m:05}").into(),
        submitted,
        desired_start: submitted,
        deadline: Time::from_secs_f64(NOW_S - age_s + work_s * random.between(2.0, 8.0)),
        importance: Importance::NORMAL,
        priority: 0,
        stages: vec![Stage { work: Work(work_s), max_speed: Cpu(1.0), min_speed: Cpu(0.0), memory: Bytes::gib(1) }],
        tasks: 1,
    };
    let done = node.map_or(0.0, |_| age_s * 0.9);
    let state = if node.is_some() { JobState::Running } else { JobState::Pending };
    JobObservation { spec, state, done: Work(done), nodes: node.cloned().into_iter().collect(), cpu: node.map(|_| Cpu(1.0)) }
}
