//! Each kind of mistake is found, and nothing is found in a plan without one.

use weal_model::naming::parts;
use weal_model::{CpuShare, InstanceObservation, Rung, Time};

use super::*;
use crate::placement::fixtures::{app, node_name, pool, snapshot};

fn id(name: &str) -> InstanceId {
    name.into()
}

fn start(name: &str, node: usize) -> Action {
    let (app, _) = parts(&id(name)).unwrap();
    Action::Start { instance: id(name), app, node: node_name(node) }
}

fn plan_of(actions: Vec<Action>, shares: &[(&str, f64)]) -> Plan {
    let shares = shares.iter().map(|&(name, cpu)| CpuShare { instance: id(name), cpu: Cpu(cpu), limit: None }).collect();
    Plan { generation: 7, actions, shares, ..Plan::default() }
}

fn words(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(Finding::to_string).collect()
}

const READY: InstanceState = InstanceState::Ready;

#[test]
fn a_sound_plan_has_no_findings() {
    let pool = pool(2, vec![app("a", 600, 1, 2)]);
    let plan = plan_of(vec![start("a-2", 1)], &[("a-1", 1.0), ("a-2", 2.0)]);
    assert_eq!(check(&snapshot(&pool, &[("a-1", 0, READY)]), &pool, &plan), []);
}

#[test]
fn too_much_memory_is_found_at_the_very_step() {
    let pool = pool(1, vec![app("a", 600, 0, 1), app("b", 600, 0, 1)]);
    let both = snapshot(&pool, &[("a-1", 0, READY)]);
    let shares = [("b-1", 1.0)];
    let late = plan_of(vec![start("b-1", 0), Action::Stop { instance: id("a-1"), app: "a".into() }], &shares);
    assert_eq!(words(&check(&both, &pool, &late)), ["node `n0` would hold 1.2GiB of 1000MiB memory once `b-1` is there"]);
    let early = plan_of(vec![Action::Stop { instance: id("a-1"), app: "a".into() }, start("b-1", 0)], &shares);
    assert_eq!(check(&both, &pool, &early), []);
}

#[test]
fn impossible_steps_say_why() {
    let pool = pool(1, vec![app("a", 100, 0, 3)]);
    let instances = [("a-1", 0, READY), ("a-2", 0, InstanceState::Suspended)];
    let actions = vec![
        start("a-1", 0),
        start("b-1", 0),
        start("a-3", 5),
        Action::Resume { instance: id("a-1"), app: "a".into() },
        Action::Sleep { instance: id("a-2"), app: "a".into(), rung: Rung::Suspended },
        Action::Sleep { instance: id("a-9"), app: "a".into(), rung: Rung::Parked },
    ];
    let found = words(&check(&snapshot(&pool, &instances), &pool, &plan_of(actions, &[("a-1", 1.0)])));
    assert_eq!(
        found,
        [
            "cannot start a-1: it exists already",
            "cannot start b-1: the pool has no application `b`",
            "cannot start a-3: node `n5` does not answer",
            "cannot resume a-1: it is ready",
            "cannot suspend a-2: it is suspended",
            "cannot park a-9: it does not exist",
        ]
    );
}

#[test]
fn every_constraint_is_judged() {
    let mut pool = pool(2, vec![app("a", 10, 1, 1), app("b", 10, 0, 9), app("c", 10, 0, 9), app("d", 10, 1, 1)]);
    pool.apps.get_mut("b").unwrap().apart.insert("a".into());
    pool.apps.get_mut("b").unwrap().nodes = Some([node_name(1)].into());
    pool.apps.get_mut("c").unwrap().together.insert("b".into());
    pool.apps.get_mut("d").unwrap().pinned = true;
    let before = snapshot(&pool, &[("a-1", 0, READY), ("d-1", 0, READY)]);
    let actions = vec![
        start("a-2", 1),
        start("b-1", 0),
        start("c-1", 1),
        start("c-2", 1),
        Action::Stop { instance: id("d-1"), app: "d".into() },
    ];
    let shares = [("a-1", 0.1), ("a-2", 0.1), ("b-1", 0.1), ("c-1", 0.1), ("c-2", 0.1)];
    let found = words(&check(&before, &pool, &plan_of(actions, &shares)));
    assert_eq!(
        found,
        [
            "`d` is pinned and would lose `d-1`",
            "`a` would have 2 instances of at most 1",
            "`b` may not be on `n0`",
            "`c` would have 2 instances on `n1`, at most 1",
            "`d` would be left with 0 instances of at least 1",
            "`b` must be apart from `a`, which is on `n0`",
            "`c` must be together with `b`, which is not on `n1`",
            "`c` must be together with `b`, which is not on `n1`",
            "`d` is starved: nothing of it runs, and `n0` has the room",
        ]
    );
}

#[test]
fn what_must_be_apart_from_somebody_waits_until_that_one_is_gone() {
    let mut pool = pool(1, vec![app("a", 10, 1, 1), app("b", 10, 0, 1)]);
    pool.apps.get_mut("a").unwrap().apart.insert("b".into());
    let stop = plan_of(vec![Action::Stop { instance: id("b-1"), app: "b".into() }], &[]);
    assert_eq!(check(&snapshot(&pool, &[("b-1", 0, InstanceState::Starting)]), &pool, &stop), []);
    let nothing = plan_of(Vec::new(), &[]);
    let found = words(&check(&snapshot(&pool, &[]), &pool, &nothing));
    assert_eq!(found, ["`a` is starved: nothing of it runs, and `n0` has the room"]);
}

#[test]
fn loads_must_be_numbers_within_limits_and_capacity() {
    let mut pool = pool(1, vec![app("a", 10, 0, 9)]);
    let spec = pool.apps.get_mut("a").unwrap();
    (spec.per_node, spec.cpu_limit) = (9, Some(Cpu(1.5)));
    let before = snapshot(&pool, &[("a-1", 0, READY), ("a-2", 0, READY), ("a-3", 0, READY)]);
    let plan = plan_of(Vec::new(), &[("a-1", 1.6), ("a-2", f64::NAN), ("a-3", 1.0), ("a-4", 1.0)]);
    let found = words(&check(&before, &pool, &plan));
    assert_eq!(
        found,
        [
            "`a-1` would get 1.60 CPU, which is more than one instance can use",
            "`a-2` would get NaN CPU, which is no amount of CPU",
            "`a-4` would get 1.00 CPU, which is for nobody",
        ]
    );
    let plan = plan_of(Vec::new(), &[("a-1", 1.0), ("a-2", 1.0), ("a-3", 1.0)]);
    assert_eq!(words(&check(&before, &pool, &plan)), ["node `n0` would give out 3.00 CPU of 2.00 CPU"]);
}

#[test]
fn a_plan_for_another_snapshot_and_churn_are_found() {
    let pool = pool(1, vec![app("a", 10, 0, 1)]);
    let plan = Plan { generation: 6, ..plan_of(vec![start("a-1", 0)], &[("a-1", 1.0)]) };
    assert_eq!(words(&check(&snapshot(&pool, &[]), &pool, &plan)), ["the plan was made for snapshot 6 and not for 7"]);
    assert_eq!(words(&check_stable(&plan)), ["the snapshot equals the last one, yet the plan has 1 action"]);
}

#[test]
fn what_was_wrong_before_and_is_not_made_worse_is_let_pass() {
    let pool = pool(1, vec![app("a", 900, 0, 9), app("b", 900, 0, 9)]);
    let mut crowded = snapshot(&pool, &[("a-1", 0, READY), ("b-1", 0, READY)]);
    crowded.instances.push(InstanceObservation { id: id("b-2"), since: Time::ZERO, ..crowded.instances[1].clone() });
    let plan = plan_of(vec![Action::Stop { instance: id("b-2"), app: "b".into() }], &[("a-1", 1.0), ("b-1", 1.0)]);
    assert_eq!(check(&crowded, &pool, &plan), []);
}
