//! Plans of small pools, from snapshot to actions.

use weal_model::{
    Action, AppSpec, Binding, Bytes, Cpu, Enactment, NodeReserve, Plan, PoolSpec, Report, Rung, Snapshot, Utility, Work,
};

use super::*;
use crate::check::check;
use crate::placement::fixtures::{app, pool, snapshot};
use crate::utility::Curve;

// -1 without CPU, 0 with half of `cpu`, 1 with all of it.
fn wants(cpu: f64) -> Curve {
    Curve::through([(Cpu(0.0), Utility(-1.0)), (Cpu(cpu), Utility(1.0))])
}

fn actions(snapshot: &Snapshot, policy: &Policy) -> Vec<String> {
    let (plan, report) = plan(snapshot, policy, Iterations::default());
    assert_eq!(plan.actions.len(), report.reasons.len());
    assert_eq!(check(snapshot, &policy.pool, &plan), []);
    plan.actions
        .iter()
        .map(|action| match action {
            Action::Start { instance, node, .. } => format!("start {instance} on {node}"),
            Action::Stop { instance, .. } => format!("stop {instance}"),
            Action::Sleep { instance, rung: Rung::Suspended, .. } => format!("suspend {instance}"),
            Action::Sleep { instance, rung, .. } => format!("{} {instance}", if *rung == Rung::Warm { "warm" } else { "park" }),
            Action::Resume { instance, .. } => format!("resume {instance}"),
            other => format!("{other:?}"),
        })
        .collect()
}

use weal_model::InstanceState::{Draining, Failed, Ready, Starting, Suspended};

#[test]
fn an_empty_pool_gets_the_fewest_instances_spread_over_the_nodes() {
    let pool = pool(3, vec![app("a", 300, 2, 3), app("b", 300, 1, 1)]);
    let got = actions(&snapshot(&pool, &[]), &Policy::new(pool.clone()));
    assert_eq!(got, ["start a-1 on n0", "start a-2 on n1", "start b-1 on n2"]);
}

#[test]
fn a_stable_snapshot_gives_an_empty_plan() {
    let pool = pool(3, vec![app("a", 300, 2, 2), app("b", 300, 1, 1)]);
    let snapshot = snapshot(&pool, &[("a-1", 0, Ready), ("a-2", 1, Ready), ("b-1", 2, Ready)]);
    let mut policy = Policy::new(pool.clone());
    policy.demands.insert("a".into(), wants(3.0));
    assert_eq!(actions(&snapshot, &policy), [""; 0]);
}

#[test]
fn demand_brings_up_instances_until_it_is_met_or_they_are_the_most() {
    let pool = pool(4, vec![app("a", 300, 1, 3)]);
    let one = snapshot(&pool, &[("a-4", 2, Ready)]);
    let mut policy = Policy::new(pool.clone());
    policy.demands.insert("a".into(), wants(3.9));
    assert_eq!(actions(&one, &policy), ["start a-5 on n0"]);
    policy.demands.insert("a".into(), wants(30.0));
    policy.next_instance.insert("a".into(), 9);
    assert_eq!(actions(&one, &policy), ["start a-9 on n0", "start a-10 on n1"]);
    let (plan, report) = plan(&one, &policy, Iterations::default());
    assert_eq!(report.apps["a"].binding, Binding::MaxInstances { max: 3 });
    assert!(plan.shares.iter().all(|share| share.cpu == Cpu(2.0)), "{:?}", plan.shares);
}

#[test]
fn a_resume_is_preferred_to_a_start() {
    let pool = pool(3, vec![app("a", 300, 1, 2)]);
    let mut policy = Policy::new(pool.clone());
    policy.demands.insert("a".into(), wants(4.0));
    let snapshot = snapshot(&pool, &[("a-1", 0, Ready), ("a-2", 2, Suspended)]);
    assert_eq!(actions(&snapshot, &policy), ["resume a-2"]);
}

/// Until the former one is gone, an application that moves has one instance too many. Memory alone would take back the move, and a search that
/// doubts the demand would leave it so.
#[test]
fn a_plan_in_the_middle_of_a_move_does_not_take_it_back() {
    let small_and_busy = AppSpec { pinned: true, ..app("b", 100, 1, 1) };
    let large_and_idle = AppSpec { pinned: true, ..app("c", 600, 1, 1) };
    let pool = pool(2, vec![app("a", 300, 1, 1), small_and_busy, large_and_idle]);
    let mut policy = Policy::new(pool.clone());
    policy.demands.extend([("a".into(), wants(2.0)), ("b".into(), wants(0.2)), ("c".into(), wants(0.1))]);
    policy.doubts.extend([("a".into(), 0.3), ("b".into(), 0.3)]);
    let both = snapshot(&pool, &[("a-1", 0, Ready), ("a-2", 1, Ready), ("b-1", 0, Ready), ("c-1", 1, Ready)]);
    assert_eq!(actions(&both, &policy), ["suspend a-1"], "b leaves it less CPU there");
}

/// There is no cooldown: what a change takes, over the time in which it pays, is what it must gain.
#[test]
fn a_change_is_made_only_when_it_gains_more_than_it_costs() {
    let pool = pool(2, vec![app("a", 600, 1, 2)]);
    let ready = snapshot(&pool, &[("a-1", 0, Ready)]);
    let mut policy = Policy::new(pool.clone());
    policy.demands.insert("a".into(), wants(4.0));
    assert_eq!(actions(&ready, &policy), ["start a-2 on n1"], "it gains 1 and costs 0.012");
    policy.costs.insert("a".into(), AppCosts { start_s: 400.0, start_work: Work(400.0), ..AppCosts::default() });
    assert_eq!(actions(&ready, &policy), [""; 0], "it would cost 1.33");
    policy.horizon_s = 6_000.0;
    assert_eq!(actions(&ready, &policy), ["start a-2 on n1"], "over a longer time it pays");
}

/// It is awake until it sleeps, and counts as one of the most that may be.
#[test]
fn what_comes_up_to_stand_by_ends_when_the_application_needs_its_last_instance_elsewhere() {
    let mut crowd = app("b", 300, 1, 1);
    crowd.nodes = Some([super::fixtures::node_name(1)].into());
    let pool = pool(3, vec![app("a", 300, 1, 2), crowd]);
    let mut policy = Policy::new(pool.clone());
    policy.ahead.insert("a-2".into());
    policy.demands.insert("a".into(), wants(3.5));
    policy.demands.insert("b".into(), wants(2.0));
    let rising = snapshot(&pool, &[("a-1", 0, Ready), ("a-2", 1, Starting), ("b-1", 1, Ready)]);
    assert_eq!(actions(&rising, &policy), ["stop a-2", "start a-3 on n2"]);
}

/// While it moves nobody answers, since it may not run twice.
#[test]
fn what_may_run_only_once_moves_for_its_goal_and_not_for_a_little_more() {
    let mut pool = pool(2, vec![app("a", 300, 1, 1)]);
    pool.nodes[1].cpu = Cpu(4.0);
    let mut seen = snapshot(&pool, &[("a-1", 0, Ready)]);
    let mut policy = Policy::new(pool.clone());
    policy.demands.insert("a".into(), wants(2.3));
    policy.costs.insert("a".into(), AppCosts { start_s: 20.0, ..AppCosts::default() });
    assert_eq!(actions(&seen, &policy), [""; 0], "it would gain 0.26");
    let important = wants(2.3).points().map(|(cpu, utility)| (cpu, Utility(2.0 * utility.0))).collect::<Vec<_>>();
    let policy_of_important = Policy { demands: [("a".into(), Curve::through(important))].into(), ..policy.clone() };
    assert_eq!(actions(&seen, &policy_of_important), [""; 0], "it would gain 0.52, and waiting weighs twice as much too");
    seen.nodes[0].cpu_capacity = Cpu(0.3);
    assert_eq!(actions(&seen, &policy).last().map(String::as_str), Some("start a-2 on n1"), "it gains 1.7");
    let mut standby = snapshot(&pool, &[("a-1", 0, Ready), ("a-2", 1, Suspended)]);
    standby.nodes[0].cpu_capacity = Cpu(2.0);
    assert!(actions(&standby, &policy).contains(&"resume a-2".to_owned()), "one that stands by answers at once");
}

/// A node that comes back brings its instances along, besides those that took their place.
#[test]
fn of_more_instances_than_may_run_one_answers_until_they_are_few_enough_to_be_replaced() {
    let mut alone = app("a", 300, 1, 1);
    alone.nodes = Some([super::fixtures::node_name(2)].into());
    let pool = pool(3, vec![alone]);
    let policy = Policy::new(pool.clone());
    let two = snapshot(&pool, &[("a-1", 0, Ready), ("a-2", 1, Starting)]);
    assert_eq!(actions(&two, &policy), ["stop a-2"]);
    let one = snapshot(&pool, &[("a-1", 0, Ready)]);
    assert_eq!(actions(&one, &policy), ["stop a-1", "start a-2 on n2"]);
}

/// `a` and `b` would change places, and neither can before the other.
#[test]
fn two_that_wait_for_each_other_leave_nobody_without_anything() {
    let (mut a, mut b) = (app("a", 700, 2, 2), app("b", 100, 1, 2));
    a.apart.insert("b".into());
    b.apart.insert("c".into());
    let mut pool = pool(3, vec![a, b, app("c", 200, 1, 2)]);
    for (node, cpu) in pool.nodes.iter_mut().zip([2.0, 1.0, 4.0]) {
        node.cpu = Cpu(cpu);
    }
    let mut policy = Policy::new(pool.clone());
    for (name, cpu) in [("a", 1.2), ("b", 1.6), ("c", 3.6)] {
        policy.demands.insert(name.into(), wants(cpu));
    }
    let seen = snapshot(&pool, &[("a-1", 0, Ready), ("a-2", 1, Ready), ("b-1", 2, Ready)]);
    let begun = actions(&seen, &policy);
    assert!(begun.iter().any(|action| action.starts_with("start c-1")), "{begun:?}");
}

/// `a` would be best off where `b` is, and `b` goes only when its replacement answers.
#[test]
fn one_that_runs_nowhere_begins_where_there_is_room_now() {
    let mut a = app("a", 100, 1, 1);
    a.apart.insert("b".into());
    let mut pool = pool(2, vec![a, app("b", 100, 1, 2)]);
    pool.nodes[1].cpu = Cpu(0.8);
    let mut policy = Policy::new(pool.clone());
    for (name, cpu) in [("a", 2.0), ("b", 0.6)] {
        policy.demands.insert(name.into(), wants(cpu));
    }
    let begun = actions(&snapshot(&pool, &[("b-1", 0, Ready)]), &policy);
    assert!(begun.iter().any(|action| action == "start a-1 on n1"), "{begun:?}");
}

/// Who may not be beside it neither meets it on its way to sleep.
#[test]
fn what_comes_up_to_stand_by_ends_when_one_needs_its_node_that_must_be_apart() {
    let mut alone = app("a", 300, 1, 2);
    alone.apart.insert("b".into());
    let pool = pool(2, vec![alone, app("b", 300, 0, 1)]);
    let mut policy = Policy::new(pool.clone());
    policy.ahead.insert("b-1".into());
    policy.demands.insert("a".into(), wants(3.5));
    let rising = snapshot(&pool, &[("a-1", 0, Ready), ("b-1", 1, Starting)]);
    assert_eq!(actions(&rising, &policy), ["stop b-1", "start a-2 on n1"]);
}

/// What is noise in the measurements moves nothing; what misses a goal does.
#[test]
fn a_gain_above_the_goal_must_be_larger_than_the_error_of_the_demand() {
    let mut small = pool(2, vec![app("a", 300, 1, 1), app("b", 300, 1, 1)]);
    small.nodes[0].cpu = Cpu(1.0);
    let here = snapshot(&small, &[("a-1", 0, Ready), ("b-1", 1, Ready)]);
    let mut policy = Policy::new(small.clone());
    let steady = Curve::constant(Utility::AT_GOAL);
    for (name, curve) in [("a", wants(1.1)), ("b", steady)] {
        policy.demands.insert(name.into(), curve);
    }
    assert_eq!(actions(&here, &policy).len(), 2, "a moves to the larger node for the rest that it wants");
    policy.doubts.insert("a".into(), 0.2);
    assert_eq!(actions(&here, &policy), [""; 0]);
    policy.demands.insert("a".into(), wants(2.2));
    assert_ne!(actions(&here, &policy), [""; 0], "below its goal it is helped on suspicion");
}

/// Al-Qudah section 3: enough memory for an average instance of those that may grow is kept free, ahead of need.
#[test]
fn memory_is_kept_free_for_the_next_instance_by_paging_out_what_is_suspended() {
    let pool = pool(1, vec![app("a", 600, 0, 1), AppSpec { per_node: 2, ..app("b", 300, 1, 2) }]);
    let mut policy = Policy::new(pool.clone());
    policy.idle_s.insert("b".into(), 0.0);
    let ready = snapshot(&pool, &[("a-1", 0, Suspended), ("b-1", 0, Ready)]);
    assert_eq!(actions(&ready, &policy), [""; 0], "b wants nothing more");
    policy.demands.insert("b".into(), wants(1.0));
    assert_eq!(actions(&ready, &policy), ["park a-1", "start b-2 on n0"], "room for what stands by, too");
    let reserves = |policy: &Policy| plan(&ready, policy, Iterations::default()).0.reserves;
    assert_eq!(reserves(&policy), [NodeReserve { node: "n0".into(), memory: Bytes::mib(300) }], "its agent goes on keeping it");
    policy.rungs = vec![Rung::Suspended];
    assert_eq!(reserves(&policy), [], "nobody could be paged out for it");
}

/// An instance that is parked for one reason is not parked for another as well.
#[test]
fn what_goes_to_sleep_is_paged_out_once() {
    let pool = pool(1, vec![app("a", 600, 0, 1), app("b", 600, 1, 1)]);
    let mut policy = Policy::new(pool.clone());
    policy.idle_s.insert("a".into(), 3600.0);
    assert_eq!(actions(&snapshot(&pool, &[("a-1", 0, Ready)]), &policy), ["park a-1", "start b-1 on n0"]);
}

#[test]
fn an_idle_application_goes_to_sleep_and_comes_back_when_asked_for() {
    let pool = pool(1, vec![app("a", 300, 0, 1)]);
    let mut policy = Policy::new(pool.clone());
    let ready = snapshot(&pool, &[("a-1", 0, Ready)]);
    policy.demands.insert("a".into(), Curve::constant(Utility::AT_GOAL));
    policy.idle_s.insert("a".into(), 5.0);
    assert_eq!(actions(&ready, &policy), [""; 0], "not yet");
    policy.idle_s.insert("a".into(), 3600.0);
    assert_eq!(actions(&ready, &policy), ["park a-1"]);
    policy.rungs = vec![Rung::Suspended];
    assert_eq!(actions(&ready, &policy), ["suspend a-1"]);
    policy.demands.insert("a".into(), wants(0.5));
    policy.idle_s.insert("a".into(), 0.0);
    assert_eq!(actions(&snapshot(&pool, &[("a-1", 0, Suspended)]), &policy), ["resume a-1"]);
}

#[test]
fn an_application_that_may_be_asleep_is_started_ahead_and_put_to_sleep_once_it_is_ready() {
    let pool = pool(1, vec![app("a", 300, 0, 1)]);
    let mut policy = Policy::new(pool.clone());
    policy.idle_s.insert("a".into(), f64::INFINITY);
    assert_eq!(actions(&snapshot(&pool, &[]), &policy), ["start a-1 on n0"]);
    policy.ahead.insert("a-1".into());
    let (starting, _) = plan(&snapshot(&pool, &[("a-1", 0, Starting)]), &policy, Iterations::default());
    assert_eq!((starting.actions, starting.ahead), (vec![], vec!["a-1".into()]));
    assert_eq!(actions(&snapshot(&pool, &[("a-1", 0, Ready)]), &policy), ["suspend a-1"]);
    policy.demands.insert("a".into(), wants(0.5));
    policy.idle_s.insert("a".into(), 0.0);
    assert_eq!(actions(&snapshot(&pool, &[("a-1", 0, Ready)]), &policy), [""; 0], "asked for meanwhile, it stays");
}

#[test]
fn each_enactment_does_its_own_with_what_is_not_needed() {
    let idle = [("a-1", 0, Ready)];
    let expected = [
        (Enactment::StartStop, vec!["stop a-1"]),
        (Enactment::RunEverywhere, vec![]),
        (Enactment::SuspendResume, vec!["suspend a-1"]),
        (Enactment::Ladder, vec!["park a-1"]),
    ];
    for (enactment, expected) in expected {
        let pool = PoolSpec { enactment, ..pool(1, vec![app("a", 300, 0, 1)]) };
        let mut policy = Policy::new(pool.clone());
        policy.idle_s.insert("a".into(), 3600.0);
        assert_eq!(actions(&snapshot(&pool, &idle), &policy), expected, "{enactment:?}");
    }
}

#[test]
fn instances_stand_by_everywhere_one_after_the_other() {
    let pool = pool(3, vec![app("a", 300, 1, 3)]);
    let mut policy = Policy::new(pool.clone());
    policy.demands.insert("a".into(), wants(0.5));
    policy.idle_s.insert("a".into(), 0.0);
    assert_eq!(actions(&snapshot(&pool, &[("a-1", 0, Ready)]), &policy), ["start a-2 on n1"]);
    policy.ahead.insert("a-2".into());
    assert_eq!(actions(&snapshot(&pool, &[("a-1", 0, Ready), ("a-2", 1, Starting)]), &policy), [""; 0], "one at a time");
    let two = snapshot(&pool, &[("a-1", 0, Ready), ("a-2", 1, Ready)]);
    assert_eq!(actions(&two, &policy), ["suspend a-2", "start a-3 on n2"]);
    policy.demands.insert("a".into(), wants(3.9));
    assert_eq!(actions(&snapshot(&pool, &[("a-1", 0, Ready), ("a-2", 1, Suspended)]), &policy)[0], "resume a-2");
}

#[test]
fn who_was_told_to_sleep_does_so_as_deep_as_told() {
    let mut pool = pool(1, vec![app("a", 300, 1, 1)]);
    let ready = snapshot(&pool, &[("a-1", 0, Ready)]);
    pool.apps.get_mut("a").unwrap().instances.min = 0;
    let mut policy = Policy::new(pool.clone());
    policy.idle_s.insert("a".into(), 0.0);
    policy.resting.insert("a".into(), Some(Rung::Warm));
    assert_eq!(actions(&ready, &policy), ["warm a-1"]);
    policy.refused.insert(("a".into(), Rung::Warm));
    assert_eq!(actions(&ready, &policy), ["suspend a-1"]);
    assert_eq!(actions(&snapshot(&pool, &[("a-1", 0, Suspended)]), &policy), [""; 0]);
}

#[test]
fn suspended_memory_is_paged_out_before_a_start_takes_it() {
    let pool = pool(1, vec![app("a", 600, 0, 1), app("b", 600, 1, 1)]);
    let policy = Policy::new(pool.clone());
    let both = snapshot(&pool, &[("a-1", 0, Suspended)]);
    assert_eq!(actions(&both, &policy), ["park a-1", "start b-1 on n0"]);
    let policy = Policy { rungs: vec![Rung::Suspended], ..policy };
    assert_eq!(actions(&both, &policy), ["stop a-1", "start b-1 on n0"]);
}

#[test]
fn a_vanished_node_is_replaced_and_no_answer_at_all_changes_nothing() {
    let pool = pool(2, vec![app("a", 300, 1, 2)]);
    let policy = Policy::new(pool.clone());
    let mut lost = snapshot(&pool, &[("a-1", 0, Ready)]);
    lost.nodes[0].up = false;
    assert_eq!(actions(&lost, &policy), ["start a-2 on n1"]);
    lost.nodes.clear();
    assert_eq!(actions(&lost, &policy), [""; 0]);
}

#[test]
fn what_the_pool_no_longer_has_is_stopped() {
    let pool = pool(1, vec![app("a", 300, 1, 1)]);
    let snapshot = snapshot(&pool, &[("a-1", 0, Ready), ("gone-3", 0, Ready), ("gone-4", 0, Draining)]);
    assert_eq!(actions(&snapshot, &Policy::new(pool.clone())), ["stop gone-3"]);
}

#[test]
fn an_instance_that_failed_for_good_is_not_replaced_over_and_over() {
    let pool = pool(2, vec![app("a", 300, 1, 2)]);
    assert_eq!(actions(&snapshot(&pool, &[("a-1", 0, Failed)]), &Policy::new(pool.clone())), [""; 0]);
}

#[test]
fn an_application_that_is_needed_runs_even_if_its_own_fewest_is_none() {
    let mut shop = app("shop", 300, 1, 1);
    shop.needs.insert("database".into());
    let pool = pool(1, vec![shop, app("database", 300, 0, 1)]);
    assert_eq!(actions(&snapshot(&pool, &[]), &Policy::new(pool.clone())), ["start database-1 on n0", "start shop-1 on n0"]);
}

#[test]
fn manual_applications_and_a_pool_without_control_only_get_their_fewest() {
    let mut pool = pool(3, vec![AppSpec { manual: true, ..app("a", 300, 1, 3) }, app("b", 300, 1, 3)]);
    pool.control = false;
    let mut policy = Policy::new(pool.clone());
    policy.demands.insert("a".into(), wants(6.0));
    policy.demands.insert("b".into(), wants(6.0));
    assert_eq!(actions(&snapshot(&pool, &[]), &policy), ["start a-1 on n0", "start b-1 on n1"]);
}

#[test]
fn nonsense_in_measurements_still_gives_a_plan() {
    let pool = pool(2, vec![app("a", 300, 1, 2)]);
    let mut snapshot = snapshot(&pool, &[("a-1", 0, Ready)]);
    snapshot.nodes[0].cpu_capacity = Cpu(f64::NAN);
    snapshot.instances[0].cpu_used = Some(Cpu(f64::NAN));
    let mut policy = Policy::new(pool.clone());
    policy.demands.insert("a".into(), wants(f64::NAN));
    policy.idle_s.insert("a".into(), f64::NAN);
    let (plan, report) = plan(&snapshot, &policy, Iterations::default());
    assert!(plan.actions.is_empty(), "{:?}", plan.actions);
    assert!(report.notes[0].contains("measured as NaN"), "{:?}", report.notes);
}

#[test]
fn static_placement_widens_everything_once_and_shares_equally_whatever_is_asked() {
    let mut pool = pool(2, vec![app("a", 300, 1, 2), app("b", 300, 1, 1), app("c", 300, 0, 2)]);
    pool.placement = Algorithm::Static;
    let mut policy = Policy::new(pool.clone());
    policy.demands.insert("a".into(), wants(4.0));
    let got = actions(&snapshot(&pool, &[]), &policy);
    assert_eq!(got, ["start a-1 on n0", "start a-2 on n1", "start b-1 on n1", "start c-1 on n0", "start c-2 on n1"]);
    let all = [("a-1", 0, Ready), ("a-2", 1, Ready), ("b-1", 1, Ready), ("c-1", 0, Ready), ("c-2", 1, Ready)];
    let (plan, report) = plan(&snapshot(&pool, &all), &policy, Iterations::default());
    assert_eq!(plan.actions, []);
    let cpu: Vec<f64> = plan.shares.iter().map(|share| share.cpu.0).collect();
    for (cpu, expected) in cpu.iter().zip([1.0, 2.0 / 3.0, 2.0 / 3.0, 1.0, 2.0 / 3.0]) {
        assert!((cpu - expected).abs() < 1e-9, "{cpu} and not {expected}");
    }
    assert!(report.apps["a"].text.contains("knows no goals"), "{}", report.apps["a"].text);
}

#[test]
fn an_autoscaled_application_has_what_the_autoscaler_asks_for_and_nothing_sleeps() {
    let mut pool = pool(3, vec![app("a", 300, 1, 3), app("b", 300, 1, 1)]);
    pool.placement = Algorithm::Autoscaler;
    let mut policy = Policy::new(pool.clone());
    let two = snapshot(&pool, &[("a-1", 0, Ready), ("a-2", 1, Ready), ("b-1", 2, Ready)]);
    assert_eq!(actions(&two, &policy), [""; 0], "without its word all stays");
    policy.replicas.insert("a".into(), 3);
    assert_eq!(actions(&two, &policy), ["start a-3 on n2"]);
    policy.replicas.insert("a".into(), 1);
    assert_eq!(actions(&two, &policy), ["stop a-1"]);
}

#[test]
fn no_algorithm_changes_what_its_own_plan_led_to() {
    for (word, algorithm) in Algorithm::WORDS {
        let mut pool = PoolSpec { enactment: Enactment::StartStop, ..pool(3, vec![app("a", 300, 1, 3), app("b", 300, 2, 2)]) };
        pool.placement = algorithm;
        let mut policy = Policy::new(pool.clone());
        policy.demands.insert("a".into(), wants(3.0));
        policy.demands.insert("b".into(), wants(1.0));
        let (first, _) = plan(&snapshot(&pool, &[]), &policy, Iterations::default());
        let started = first.actions.iter().filter_map(|action| match action {
            Action::Start { instance, node, .. } => Some((instance.to_string(), node.as_str()[1..].parse().unwrap())),
            _ => None,
        });
        let started: Vec<(String, usize)> = started.collect();
        let running: Vec<_> = started.iter().map(|(id, node)| (id.as_str(), *node, Ready)).collect();
        assert!(!running.is_empty());
        assert_eq!(actions(&snapshot(&pool, &running), &policy), [""; 0], "{word}");
    }
}

#[test]
fn shadow_prices_say_what_more_would_give_the_worst_off() {
    let one = pool(1, vec![app("a", 600, 1, 2), app("b", 600, 0, 1)]);
    let mut policy = Policy::new(one.clone());
    policy.demands.insert("a".into(), wants(4.0));
    let ready = snapshot(&one, &[("a-1", 0, Ready)]);
    let (_plan, report) = plan(&ready, &policy, Iterations::default());
    // -1 without CPU, +1 with 4 cores: half a unit a core.
    assert!((report.utility_per_core - 0.5).abs() < 1e-6, "{}", report.utility_per_core);
    let two = pool(2, vec![app("a", 600, 1, 2), app("b", 600, 1, 1)]);
    let mut policy = Policy::new(two.clone());
    policy.demands.insert("a".into(), wants(4.0));
    policy.demands.insert("b".into(), wants(0.5));
    let both = snapshot(&two, &[("a-1", 0, Ready), ("b-1", 1, Ready)]);
    let (_plan, report) = plan(&both, &policy, Iterations::default());
    // On the other node 1.5 cores are left, and only memory keeps it from there.
    assert!(report.utility_per_gib > 0.4, "{}", report.utility_per_gib);
    policy.demands.insert("a".into(), wants(1.0));
    let (_plan, report) = plan(&both, &policy, Iterations::default());
    assert_eq!((report.utility_per_core, report.utility_per_gib), (0.0, 0.0), "nobody lacks anything");
}

#[test]
fn what_a_plan_is_made_of_can_go_to_another_thread() {
    fn is_data<T: Send + Sync + 'static>() {}
    is_data::<(Snapshot, Policy, Iterations)>();
    is_data::<(Plan, Report)>();
}
