//! C13, C14: placement of web applications against satisfied demand, cycle by cycle (Carrera 5.6.1.2, 5.6.1.3).

use weal_control::placement::problem::generate::curve;
use weal_control::placement::problem::{App, Node, Problem};
use weal_control::placement::{Algorithm, solve_with};
use weal_control::seeded::Seeded;

use crate::{Figure, Record, Reproduction, Setting, at_least, at_most, mean, near};

const NODES: usize = 100;
/// CPU of a node, and its memory; applications' memory is a part of that.
const NODE_CPU: f64 = 4.0;
const MEMORY: u64 = 6 << 30;
/// Steps of the search, as many as `weal up` allows.
const BUDGET: u32 = 10_000;
/// Utilities that differ by less are equal, as in `weal up`.
const TOLERANCE: f64 = 0.01;
/// How far a demand moves in a cycle, relative to its mean.
const STEP: f64 = 0.15;

/// What is placed.
#[derive(Clone, Copy)]
struct Pool {
    apps: usize,
    /// Instances that fit on a node.
    per_node: u64,
    /// Demand over capacity, at the first and the last cycle of a wave that lasts the run.
    load: [f64; 2],
}

/// Cycles of one run under one algorithm.
struct Run {
    lowest: Vec<f64>,
    average: Vec<f64>,
    changes: Vec<f64>,
}

/// The wave of the load: its first value, its second in the middle of the run, and back.
fn load_at(pool: Pool, cycle: usize, cycles: usize) -> f64 {
    let phase = 2.0 * std::f64::consts::PI * cycle as f64 / cycles as f64;
    pool.load[0] + (pool.load[1] - pool.load[0]) * 0.5 * (1.0 - phase.cos())
}

fn run(pool: Pool, algorithm: Algorithm, cycles: usize, seed: u64) -> Run {
    let mut random = Seeded::new(seed);
    let weights: Vec<f64> = (0..pool.apps).map(|_| random.between(0.5, 1.5)).collect();
    let bests: Vec<f64> = (0..pool.apps).map(|_| random.between(0.4, 0.8)).collect();
    let mut moods = vec![1.0f64; pool.apps];
    let mut problem = Problem {
        nodes: vec![Node { cpu: NODE_CPU, memory: MEMORY }; NODES],
        apps: bests
            .iter()
            .map(|&best| App { instances: (0, u32::MAX), ..App::new(MEMORY / pool.per_node, curve(best, 1.0)) })
            .collect(),
        tolerance: TOLERANCE,
    };
    let mut seen = Run { lowest: Vec::new(), average: Vec::new(), changes: Vec::new() };
    for cycle in 0..cycles {
        moods.iter_mut().for_each(|mood| *mood = (*mood + random.between(-STEP, STEP)).clamp(0.5, 1.5));
        let wanted: f64 = weights.iter().zip(&moods).map(|(weight, mood)| weight * mood).sum();
        let scale = load_at(pool, cycle, cycles) * NODE_CPU * NODES as f64 / wanted;
        for (m, app) in problem.apps.iter_mut().enumerate() {
            app.curve = curve(bests[m], weights[m] * moods[m] * scale);
        }
        let solution = solve_with(&problem, algorithm, BUDGET);
        for app in &mut problem.apps {
            app.current.clear();
        }
        for (app, node, count, _) in solution.entries() {
            problem.apps[app as usize].current.push((node, count));
        }
        problem.apps.iter_mut().for_each(|app| app.current.sort_unstable());
        seen.lowest.push(solution.lowest().unwrap_or(f64::NAN));
        seen.average.push(mean(&solution.utilities));
        // The first placement is made from nothing: it is no change.
        if cycle > 0 {
            seen.changes.push(f64::from(solution.changes.count()));
        }
    }
    seen
}

/// Both algorithms with each seed: weal's, then satisfied demand.
fn compare(setting: &Setting, pool: Pool, cycles: usize, seeds: u64) -> [Vec<Run>; 2] {
    [Algorithm::Weal, Algorithm::Demand].map(|algorithm| setting.seeds(seeds, |seed| run(pool, algorithm, cycles, seed)))
}

fn means(runs: &[Run], of: impl Fn(&Run) -> &[f64]) -> Vec<f64> {
    runs.iter().map(|run| mean(of(run))).collect()
}

fn inputs(pool: &str, cycles: usize, seeds: u64) -> String {
    format!("100 nodes, {pool}; {cycles} cycles with each of {seeds} seeds from 1")
}

fn assume_workload(record: &mut Record) {
    record.assume("curves as Figure 5.10's: cpu(u) = (1 - best) demand / (1 - u), best utility uniform in 0.4..0.8");
    record.assume("demands are uniform in 0.5..1.5 of their mean and move by up to 15% of it in a cycle");
    record.assume("an application may have no instance, under both algorithms: the thesis names no least number");
    record.assume("a change costs 0.01 of utility, and utilities within 0.01 are equal, as in weal up");
}

pub(super) fn lowest_utility(setting: &Setting) -> Reproduction {
    let (cycles, seeds) = setting.pick((15, 20), (3, 2));
    let mut record = Record::new(
        "C13",
        "Carrera 5.6.1.2, Figure 5.11",
        "the lowest utility is higher than with satisfied demand, the more so the harder memory makes it, and hardly depends on memory",
        &inputs("20 applications that want 110% of the CPU, 6, 2 or 1 instances to a node", cycles, seeds),
    );
    assume_workload(&mut record);
    let scenarios = [6, 2, 1].map(|per_node| {
        let pool = Pool { apps: 20, per_node, load: [1.1, 1.1] };
        (per_node, compare(setting, pool, cycles, seeds))
    });
    let mut levels = Vec::new();
    let mut gains = Vec::new();
    for (per_node, [weal, demand]) in &scenarios {
        let (own, other) = (means(weal, |run| &run.lowest), means(demand, |run| &run.lowest));
        record.mean(&format!("{per_node} to a node: lowest utility"), &own).paper(at_least("satisfied demand", &other, 0.0));
        levels.push(mean(&own));
        gains.push(mean(&own) - mean(&other));
    }
    record.claim("the harder, the larger the difference", gains.windows(2).all(|pair| pair[1] >= pair[0]));
    let (low, high) =
        levels.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), &level| (low.min(level), high.max(level)));
    record.number("lowest utility: largest difference between the three scenarios", high - low).paper(near(0.0, 0.05));
    let curves = ["weal, 6", "demand, 6", "weal, 2", "demand, 2", "weal, 1", "demand, 1"];
    let mut figure =
        Figure::new("figure-5.11", "lowest utility by cycle and instances to a node (seed 1)", ["cycle", "utility"], &curves);
    for cycle in 0..cycles {
        let values: Vec<f64> = scenarios.iter().flat_map(|(_, runs)| runs.each_ref().map(|runs| runs[0].lowest[cycle])).collect();
        figure.row(cycle as f64, &values);
    }
    record.figure(figure);
    record.done()
}

pub(super) fn changes(setting: &Setting) -> Reproduction {
    let (cycles, seeds) = setting.pick((15, 20), (3, 1));
    let mut record = Record::new(
        "C14",
        "Carrera 5.6.1.3, Figures 5.12-5.13",
        "where memory leaves hardly a choice, weal makes few changes while satisfied demand keeps moving instances; its lowest utility is better under overload, about equal otherwise",
        &inputs("200 applications, 2 instances to a node, demand at 80%, 80-110% and 110% of the CPU", cycles, seeds),
    );
    assume_workload(&mut record);
    let loads = [("not overloaded", [0.8, 0.8]), ("partly overloaded", [0.8, 1.1]), ("overloaded", [1.1, 1.1])];
    let mut figures: Vec<(&str, [Vec<Run>; 2])> = Vec::new();
    for (name, load) in loads {
        let runs = compare(setting, Pool { apps: 200, per_node: 2, load }, cycles, seeds);
        let [weal, demand] = &runs;
        let changes = |runs: &[Run]| means(runs, |run| &run.changes);
        let row = record.mean(&format!("{name}: changes per cycle"), &changes(weal));
        row.paper(at_most("satisfied demand", &changes(demand)));
        let lowest = |runs: &[Run]| means(runs, |run| &run.lowest);
        let slack = if name == "overloaded" { 0.0 } else { 0.1 };
        let row = record.mean(&format!("{name}: lowest utility"), &lowest(weal));
        row.paper(at_least("satisfied demand", &lowest(demand), slack));
        let average = |runs: &[Run]| means(runs, |run| &run.average);
        let apart = mean(&average(weal)) - mean(&average(demand));
        if name != "overloaded" {
            record.number(&format!("{name}: average utility, over that for satisfied demand"), apart).paper(near(0.0, 0.05));
        } else {
            record.claim("overloaded: average utility is above that for satisfied demand", apart > 0.0);
        }
        record.mean(&format!("{name}: weal: average utility"), &average(weal));
        record.mean(&format!("{name}: satisfied demand: average utility"), &average(demand));
        let most = |runs: &[Run]| runs.iter().flat_map(|run| &run.changes).copied().fold(0.0, f64::max);
        record.number(&format!("{name}: weal: most changes in a cycle"), most(weal)).paper(near(0.0, 0.0));
        record.number(&format!("{name}: satisfied demand: most changes in a cycle"), most(demand));
        figures.push((name, runs));
    }
    for (name, title, of) in FIGURES {
        record.figure(by_cycle(name, title, &figures, cycles, of));
    }
    record.done()
}

type Series = fn(&Run) -> &[f64];
const FIGURES: [(&str, &str, Series); 3] = [
    ("figure-5.13-changes", "changes", |run| &run.changes),
    ("figure-5.13-lowest", "lowest utility", |run| &run.lowest),
    ("figure-5.13-average", "average utility", |run| &run.average),
];

fn by_cycle(name: &str, title: &str, scenarios: &[(&str, [Vec<Run>; 2])], cycles: usize, of: Series) -> Figure {
    let names: Vec<String> =
        scenarios.iter().flat_map(|(load, _)| [format!("weal, {load}"), format!("demand, {load}")]).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut figure = Figure::new(name, &format!("{title} by cycle (seed 1)"), ["cycle", title], &names);
    for cycle in 0..cycles {
        let value = |run: &Run| {
            let series = of(run);
            // Changes begin with the second cycle.
            (cycle + series.len()).checked_sub(cycles).and_then(|at| series.get(at)).copied().unwrap_or(f64::NAN)
        };
        let row: Vec<f64> = scenarios.iter().flat_map(|(_, runs)| runs.each_ref().map(|runs| value(&runs[0]))).collect();
        figure.row(cycle as f64, &row);
    }
    figure
}
