//! Steps that change instances and jobs together.

use weal_model::{Action, Cpu, InstanceState, JobObservation, JobState, Plan, PoolSpec, Snapshot, Utility};

use crate::jobs::Costs;
use crate::placement::Policy;
use crate::placement::fixtures::{app, carried_out, free_policy, job, judged, node_name, pool, running, with_jobs, words};
use crate::utility::Curve;

/// Each application wants `cpu` cores for the best, and has a utility of -5 without any.
fn wishes(pool: &PoolSpec, cpu: f64) -> Policy {
    let mut policy = free_policy(pool);
    let curve = Curve::through([(Cpu(0.0), Utility(-5.0)), (Cpu(cpu), Utility(0.9))]);
    policy.demands = pool.apps.keys().map(|name| (name.clone(), curve.clone())).collect();
    policy
}

/// What the plans make of a snapshot in the end.
fn settled(mut snapshot: Snapshot, mut policy: Policy) -> Snapshot {
    for _ in 0..4 {
        let plan = judged(&snapshot, &policy).0;
        snapshot = carried_out(&snapshot, &plan);
        policy.ahead = plan.ahead.into_iter().collect();
    }
    snapshot
}

fn awake_on(snapshot: &Snapshot) -> Vec<String> {
    let awake = snapshot.instances.iter().filter(|seen| seen.state.is_active());
    let mut on: Vec<String> = awake.map(|seen| format!("{} on {}", seen.app, seen.node)).collect();
    on.sort();
    on
}

fn starts(plan: &Plan) -> Vec<String> {
    words(plan).into_iter().filter(|word| word.contains("start")).collect()
}

fn runs(snapshot: &Snapshot, name: &str) -> bool {
    snapshot.jobs.iter().any(|job| job.spec.name.as_str() == name && job.state == JobState::Running)
}

#[test]
fn no_instance_is_begun_in_the_memory_that_a_job_needs_to_run_at_all() {
    let pool = pool(2, vec![app("a", 700, 1, 2)]);
    let snapshot = with_jobs(&pool, &[("a-1", 0, InstanceState::Ready)], vec![job("j", 50.0, 0.5, 700, 1000.0)]);
    let plan = judged(&snapshot, &wishes(&pool, 3.0)).0;
    assert_eq!(starts(&plan), ["start j on n1"], "{:?}", words(&plan));
}

#[test]
fn an_instance_beyond_the_fewest_makes_room_for_a_job_that_would_never_run() {
    let apart = |min: u32| {
        let pool = pool(2, vec![app("a", 700, min, 2)]);
        let instances = [("a-1", 0, InstanceState::Ready), ("a-2", 1, InstanceState::Ready)];
        let snapshot = with_jobs(&pool, &instances, vec![job("j", 50.0, 0.5, 700, 1000.0)]);
        settled(snapshot, wishes(&pool, 3.0))
    };
    let after = apart(1);
    assert!(runs(&after, "j") && awake_on(&after).len() == 1, "{:?}", awake_on(&after));
    let after = apart(2);
    assert!(!runs(&after, "j") && awake_on(&after).len() == 2, "an application keeps its fewest: {:?}", awake_on(&after));
}

#[test]
fn an_instance_moves_so_that_a_job_has_room() {
    let pool = pool(2, vec![app("a", 300, 1, 2), app("b", 300, 1, 2)]);
    let instances = [("a-1", 0, InstanceState::Ready), ("b-1", 1, InstanceState::Ready)];
    let snapshot = with_jobs(&pool, &instances, vec![job("j", 50.0, 0.5, 900, 1000.0)]);
    let policy = wishes(&pool, 0.5);
    let first = judged(&snapshot, &policy).0;
    assert!(
        !first.actions.iter().any(|action| matches!(action, Action::Stop { .. } | Action::Sleep { .. })),
        "{:?}",
        words(&first)
    );
    let after = settled(snapshot, policy);
    assert!(runs(&after, "j") && awake_on(&after).len() == 2, "{:?}", awake_on(&after));
}

/// The instance that answers stays until its replacement does.
#[test]
fn an_instance_that_is_replaced_stays_while_the_other_one_starts() {
    let pool = pool(2, vec![app("a", 300, 1, 2), app("b", 300, 1, 2)]);
    let instances = [("a-1", 0, InstanceState::Ready), ("a-2", 1, InstanceState::Starting), ("b-1", 1, InstanceState::Ready)];
    let mut snapshot = with_jobs(&pool, &instances, vec![job("j", 50.0, 0.5, 900, 1000.0)]);
    let policy = wishes(&pool, 0.5);
    let begins = |plan: &Plan| words(plan).iter().any(|word| word.starts_with("start j"));
    let plan = judged(&snapshot, &policy).0;
    assert!(!begins(&plan) && plan.actions.is_empty(), "{:?}", words(&plan));
    snapshot.instances[1].state = InstanceState::Ready;
    let plan = judged(&snapshot, &policy).0;
    assert!(begins(&plan), "{:?}", words(&plan));
}

fn holder() -> JobObservation {
    running(job("holder", 500.0, 0.5, 800, 100_000.0), &[0], 0.5)
}

#[test]
fn a_job_makes_room_for_the_fewest_instances_of_an_application() {
    let pool = pool(1, vec![app("a", 700, 1, 1)]);
    let plan = judged(&with_jobs(&pool, &[], vec![holder()]), &wishes(&pool, 1.0)).0;
    assert_eq!(words(&plan)[0], "suspend holder", "{:?}", words(&plan));
    assert!(matches!(&plan.actions[1], Action::Start { app, .. } if app.as_str() == "a"), "{:?}", words(&plan));
}

#[test]
fn a_job_that_cannot_leave_memory_makes_no_room() {
    let pool = pool(1, vec![app("a", 700, 1, 1)]);
    let policy = Policy { job_costs: Costs::FREE.where_possible(false, false), ..wishes(&pool, 1.0) };
    assert_eq!(words(&judged(&with_jobs(&pool, &[], vec![holder()]), &policy).0), [""; 0]);
}

#[test]
fn a_job_moves_so_that_an_application_has_room() {
    let mut fixed = app("b", 400, 1, 1);
    fixed.nodes = Some([node_name(1)].into());
    let pool = pool(2, vec![app("a", 700, 1, 1), fixed]);
    let small = running(job("small", 500.0, 0.5, 400, 2000.0), &[0], 0.5);
    let snapshot = with_jobs(&pool, &[("b-1", 1, InstanceState::Ready)], vec![small]);
    let plan = judged(&snapshot, &wishes(&pool, 1.0)).0;
    assert!(words(&plan)[0].starts_with("migrate small to n1"), "{:?}", words(&plan));
    assert!(matches!(&plan.actions[1], Action::Start { app, .. } if app.as_str() == "a"), "{:?}", words(&plan));
}

#[test]
fn what_was_never_measured_keeps_what_it_has() {
    let pool = pool(2, vec![app("a", 700, 1, 2)]);
    let instances = [("a-1", 0, InstanceState::Ready), ("a-2", 1, InstanceState::Ready)];
    let snapshot = with_jobs(&pool, &instances, vec![job("j", 50.0, 0.5, 700, 1000.0)]);
    assert_eq!(words(&judged(&snapshot, &free_policy(&pool)).0), [""; 0]);
}

#[test]
fn nobody_else_makes_room_while_an_instance_is_on_its_way_out() {
    let pool = pool(2, vec![app("a", 500, 1, 2)]);
    let instances = [("a-1", 0, InstanceState::Draining), ("a-2", 1, InstanceState::Ready)];
    let beside = |name: &str, memory_mib: u64, node: usize| running(job(name, 500.0, 0.5, memory_mib, 100_000.0), &[node], 0.5);
    let jobs = vec![beside("small", 100, 0), beside("patient", 500, 1), job("urgent", 50.0, 0.5, 500, 120.0)];
    let mut snapshot = with_jobs(&pool, &instances, jobs);
    assert_eq!(words(&judged(&snapshot, &wishes(&pool, 0.5)).0), [""; 0], "it waits for what is on its way out");
    snapshot.instances[0].state = InstanceState::Stopped;
    assert_eq!(starts(&judged(&snapshot, &wishes(&pool, 0.5)).0), ["start urgent on n0"]);
}
