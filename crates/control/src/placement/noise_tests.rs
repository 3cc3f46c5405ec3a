//! Delayed, noisy and missing measurements do not make a pool swing: the number of changes is bounded.
//!
//! Each scenario is run twice: with what is true, and with what is measured. What the second changes beyond what it must undo is for
//! nothing.

use std::collections::BTreeMap;
use std::f64::consts::TAU;

use weal_model::{AppName, PoolSpec};

use super::{Iterations, Policy, plan};
use crate::check::check;
use crate::placement::fixtures::{app, pool, snapshot};
use crate::placement::problem::generate::curve;
use crate::placement::robust_tests::carry_out;
use crate::seeded::Seeded;
use crate::utility::Curve;

const CYCLES: usize = 200;
/// Cycles until the first placement stands; they do not count.
const START: usize = 20;
const APPS: usize = 8;
const SEEDS: u64 = 5;
/// Changes that errors of measurement may cause in all runs of a scenario: one for each application in 100 cycles.
const FOR_NOTHING: usize = SEEDS as usize * APPS * (CYCLES - START) / 100;

/// How demand really goes, relative to its mean, and how it is measured.
struct Scenario {
    name: &'static str,
    truth: fn(cycle: usize, app: usize) -> f64,
    /// Cycles until a measurement arrives.
    delay: usize,
    /// A measurement is off by up to so large a part.
    noise: f64,
    /// The share of measurements that are lost.
    missing: f64,
}

fn steady(_: usize, _: usize) -> f64 {
    1.0
}

/// The first application doubles for good.
fn step(cycle: usize, app: usize) -> f64 {
    if app == 0 && cycle >= CYCLES / 2 { 2.0 } else { 1.0 }
}

/// Day and night, applications half a day apart.
fn wave(cycle: usize, app: usize) -> f64 {
    1.0 + 0.4 * (TAU * cycle as f64 / 60.0 + TAU * app as f64 / 2.0).sin()
}

/// A crowd of ten cycles, again and again.
fn bursts(cycle: usize, app: usize) -> f64 {
    if app == 0 && cycle % 40 < 10 { 2.5 } else { 1.0 }
}

/// Applications of 300 MiB, three to a node of two cores, that want `load` of the pool's CPU.
fn crowded_pool() -> PoolSpec {
    pool(6, (0..APPS).map(|i| app(&format!("a{i}"), 300, 1, 6)).collect())
}

fn demands(names: &[AppName], load: f64, truth: impl Fn(usize) -> f64) -> BTreeMap<AppName, Curve> {
    let mean = load * 12.0 / APPS as f64;
    let of = |(i, name): (usize, &AppName)| {
        let weight = 0.6 + 0.8 * i as f64 / (APPS - 1) as f64;
        (name.clone(), curve(0.6, mean * weight * truth(i)))
    };
    names.iter().enumerate().map(of).collect()
}

/// Changes after the start when measured so.
fn changes(scenario: &Scenario, load: f64, seed: u64, measured: bool) -> usize {
    let pool = crowded_pool();
    let names: Vec<AppName> = pool.apps.keys().cloned().collect();
    let mut random = Seeded::new(seed);
    let mut seen = snapshot(&pool, &[]);
    let mut policy = Policy::new(pool.clone());
    policy.idle_s = names.iter().map(|name| (name.clone(), 0.0)).collect();
    let mut count = 0;
    for cycle in 0..CYCLES {
        let at = if measured { cycle.saturating_sub(scenario.delay) } else { cycle };
        let noise = if measured { scenario.noise } else { 0.0 };
        let errors: Vec<f64> = (0..APPS).map(|_| 1.0 + random.between(-noise, noise)).collect();
        let now = demands(&names, load, |i| (scenario.truth)(at, i) * errors[i]);
        // What is missing leaves the last that was known.
        policy.demands.extend(now.into_iter().filter(|_| !measured || cycle == 0 || !random.chance(scenario.missing)));
        let (plan, _report) = plan(&seen, &policy, Iterations::default());
        assert_eq!(check(&seen, &pool, &plan), [], "{} seed {seed} cycle {cycle}", scenario.name);
        count += if cycle >= START { plan.actions.len() } else { 0 };
        policy.ahead = plan.ahead.iter().cloned().collect();
        carry_out(&mut seen, &plan);
    }
    count
}

#[test]
fn delayed_noisy_and_missing_measurements_change_little_for_nothing() {
    let scenarios = [
        Scenario { name: "steady, noise", truth: steady, delay: 0, noise: 0.05, missing: 0.0 },
        Scenario { name: "steady, more noise", truth: steady, delay: 0, noise: 0.15, missing: 0.0 },
        Scenario { name: "steady, late and lost", truth: steady, delay: 3, noise: 0.05, missing: 0.3 },
        Scenario { name: "step", truth: step, delay: 3, noise: 0.05, missing: 0.1 },
        Scenario { name: "wave", truth: wave, delay: 3, noise: 0.05, missing: 0.1 },
        Scenario { name: "bursts", truth: bursts, delay: 3, noise: 0.05, missing: 0.1 },
    ];
    for scenario in &scenarios {
        for load in [0.7, 1.1] {
            let (mut measured, mut truly) = (0, 0);
            for seed in 0..SEEDS {
                measured += changes(scenario, load, seed, true);
                truly += changes(scenario, load, seed, false);
            }
            println!("{} at {load}: {measured} changes, {truly} with what is true", scenario.name);
            assert!(measured <= 2 * truly + FOR_NOTHING, "{} at {load}: {measured} changes instead of {truly}", scenario.name);
        }
    }
}
