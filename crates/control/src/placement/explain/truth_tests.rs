//! Whatever is said of a placement agrees with the plan: on random pools, no sentence denies what a plan does or what another sentence says.

use weal_model::{Action, AppName, Binding, NodeName, NodeVerdict, Plan, PoolSpec, Report, Snapshot, WhyNode};

use crate::placement::robust_tests::{policy, random_pool, random_snapshot};
use crate::placement::{Iterations, Policy, plan, why_node};
use crate::seeded::Seeded;

/// A random pool with its plan.
struct Case {
    seed: u64,
    pool: PoolSpec,
    seen: Snapshot,
    policy: Policy,
    plan: Plan,
    report: Report,
}

impl Case {
    fn of(seed: u64) -> Self {
        let mut random = Seeded::new(seed);
        let pool = random_pool(&mut random);
        let seen = random_snapshot(&mut random, &pool);
        let policy = policy(&mut random, &pool);
        let (plan, report) = plan(&seen, &policy, Iterations::default());
        Self { seed, pool, seen, policy, plan, report }
    }

    fn why(&self, app: &AppName, node: &NodeName) -> WhyNode {
        why_node(&self.seen, &self.policy, Iterations::default(), app, node)
    }

    /// Instances that the plan starts because somebody asks for them.
    fn starts(&self) -> impl Iterator<Item = (&AppName, &NodeName)> {
        self.plan.actions.iter().filter_map(|action| match action {
            Action::Start { instance, app, node } if !self.plan.ahead.contains(instance) => Some((app, node)),
            _ => None,
        })
    }
}

/// Seed 719 is among them.
const SEEDS: std::ops::Range<u64> = 0..1_500;

#[test]
fn why_says_of_each_start_of_a_plan_that_it_is_about_to_come() {
    let mut starts = 0;
    for case in SEEDS.map(Case::of) {
        for (app, node) in case.starts() {
            let why = case.why(app, node);
            assert_eq!(
                why.verdict,
                NodeVerdict::There,
                "seed {}: {app} on {node}: {:?}\n{:?}",
                case.seed,
                why.sentences,
                case.plan.actions
            );
            starts += 1;
        }
    }
    assert!(starts > 500, "only {starts} starts");
}

#[test]
fn an_instance_that_would_cost_more_than_it_gains_is_none_that_a_coming_plan_may_start() {
    let mut told = 0;
    for case in SEEDS.map(Case::of) {
        for (app, explained) in case.report.apps.iter().filter(|(_, explained)| explained.binding == Binding::ChangeCost) {
            told += 1;
            for node in case.pool.nodes.iter().map(|node| &node.name) {
                let why = case.why(app, node);
                let text = format!("seed {}: {app} on {node}: {} but {:?}", case.seed, explained.text, why.sentences);
                assert_ne!(why.verdict, NodeVerdict::Gain, "{text}");
            }
        }
    }
    assert!(told > 0, "nothing is told to cost more than it gains");
}
