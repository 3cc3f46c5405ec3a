//! C13, C14: placement of web applications against satisfied demand, cycle by cycle (Carrera 5.6.1.2, 5.6.1.3).

use weal_control::placement::problem::bound::Bound;
use weal_control::placement::problem::generate::curve;
use weal_control::placement::problem::layout::Layout;
use weal_control::placement::problem::{App, ChangeCost, Node, Problem};
use weal_control::placement::solve::distribute::utilities;
use weal_control::placement::solve::max_flow::FlowNetwork;
use weal_control::placement::solve::pack;
use weal_control::placement::{Algorithm, AppCosts, solve_with};
use weal_control::seeded::Seeded;
use weal_model::Work;

use crate::{Figure, Record, Reproduction, Setting, at_least, at_most, mean, near, within};

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
/// A change must pay for itself within so many seconds, as in `weal up`.
const HORIZON_S: f64 = 600.0;
/// Seconds from the order to start until the first answer: WildFly, Tomcat, DokuWiki and a catalogue on Python (docs/benchmarks/al-qudah.md,
/// "other-applications").
const STARTS_S: [f64; 4] = [4.8957, 1.4764, 0.2189, 0.5081];
/// Cores that are busy during a start: 9.7965 CPU-seconds of WildFly (there, "figures-3-and-7") over the seconds that its start takes.
const START_CPU: f64 = 9.7965 / 4.8957;
/// Seconds until a WildFly is asleep (docs/decisions/sleep.md: 0.4 to 0.6).
const REMOVE_S: f64 = 0.5;

/// What is placed.
#[derive(Clone, Copy)]
struct Pool {
    apps: usize,
    /// Instances that fit on a node.
    per_node: u64,
    /// Demand over capacity, at the first and the last cycle of a wave that lasts the run.
    load: [f64; 2],
}

/// Cycles of one run under one planner.
struct Run {
    lowest: Vec<f64>,
    average: Vec<f64>,
    changes: Vec<f64>,
}

/// Who places.
#[derive(Clone, Copy)]
enum Planner {
    /// weal, with a price of changes.
    Weal(ChangeCost),
    /// The thesis' rival, near what runs.
    Demand,
    /// The same with all freedom.
    FreeDemand,
}

/// What changes cost: as real applications were measured, by the rule of `weal up`.
fn price() -> ChangeCost {
    let start_s = mean(&STARTS_S);
    let costs = AppCosts { start_s, start_work: Work(START_CPU * start_s), remove_s: REMOVE_S, ..AppCosts::default() };
    ChangeCost::measured(costs, HORIZON_S)
}

fn times(price: ChangeCost, factor: f64) -> ChangeCost {
    ChangeCost { start: price.start * factor, resume: price.resume * factor, remove: price.remove * factor }
}

/// The wave of the load: its first value, its second in the middle of the run, and back.
fn load_at(pool: Pool, cycle: usize, cycles: usize) -> f64 {
    let phase = 2.0 * std::f64::consts::PI * cycle as f64 / cycles as f64;
    pool.load[0] + (pool.load[1] - pool.load[0]) * 0.5 * (1.0 - phase.cos())
}

fn run(pool: Pool, planner: Planner, cycles: usize, seed: u64) -> Run {
    let mut random = Seeded::new(seed);
    let weights: Vec<f64> = (0..pool.apps).map(|_| random.between(0.5, 1.5)).collect();
    let bests: Vec<f64> = (0..pool.apps).map(|_| random.between(0.4, 0.8)).collect();
    let mut moods = vec![1.0f64; pool.apps];
    // Whatever the price, there is a first placement.
    let app = |&best: &f64| App { instances: (0, u32::MAX), cost: price(), ..App::new(MEMORY / pool.per_node, curve(best, 1.0)) };
    let mut problem = Problem {
        nodes: vec![Node { cpu: NODE_CPU, memory: MEMORY }; NODES],
        apps: bests.iter().map(app).collect(),
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
        let layout = match planner {
            Planner::Weal(_) => solve_with(&problem, Algorithm::Weal, BUDGET).layout,
            Planner::Demand => solve_with(&problem, Algorithm::Demand, BUDGET).layout,
            Planner::FreeDemand => most_demand(&problem),
        };
        let reached = utilities(&problem, &layout);
        seen.lowest.push(reached.iter().copied().fold(f64::INFINITY, f64::min));
        seen.average.push(mean(&reached));
        // The first placement is made from nothing: it is no change.
        if cycle > 0 {
            seen.changes.push(f64::from(layout.changes(&problem).count()));
        }
        for (m, app) in (0u32..).zip(&mut problem.apps) {
            let edges = layout.of_app(m).iter().map(|&edge| layout.edge(edge));
            app.current = edges.map(|edge| (edge.node, edge.count)).collect();
            app.current.sort_unstable();
            if let Planner::Weal(price) = planner {
                app.cost = price;
            }
        }
    }
    seen
}

/// The rival: as much satisfied demand as it finds, near what runs or placed anew, whatever that changes. A demand is what water-filling gives
/// (5.6.1.1: "we use the same technique" as for capping demands).
fn most_demand(problem: &Problem) -> Layout {
    let caps = Bound::of(problem).cpu;
    let mut capped = problem.clone();
    for (app, &cap) in capped.apps.iter_mut().zip(&caps) {
        app.curve = curve(app.utility(cap), cap);
    }
    let near = solve_with(&capped, Algorithm::Demand, BUDGET).layout;
    let nodes: Vec<u32> = (0..problem.nodes.len() as u32).collect();
    let mut anew = Layout::empty(&capped);
    pack::pack(&capped, &mut anew, &caps, &nodes);
    let mut anew = pack::keep_places(&capped, &anew, &nodes);
    let all: Vec<u32> = (0..problem.apps.len() as u32).collect();
    FlowNetwork::new(&capped).saturate(&capped, &mut anew, &caps, &all);
    let satisfied = |layout: &Layout| all.iter().map(|&m| layout.given(m)).sum::<f64>();
    if satisfied(&anew) > satisfied(&near) + problem.tolerance { anew } else { near }
}

/// Both with each seed: weal, then satisfied demand.
fn compare(setting: &Setting, pool: Pool, rival: Planner, cycles: usize, seeds: u64) -> [Vec<Run>; 2] {
    [Planner::Weal(price()), rival].map(|planner| setting.seeds(seeds, |seed| run(pool, planner, cycles, seed)))
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
    let price = price();
    record.assume(&format!(
        "a start costs {:.4} of utility and an end {:.4}: four real applications, as measured, over the 600 s of weal up; utilities within 0.01 are equal",
        price.start, price.remove
    ));
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
        (per_node, compare(setting, pool, Planner::Demand, cycles, seeds))
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

/// The three loads of 5.6.1.3, with what weal made of the same runs before single exchanges were tried: changes a cycle, and the lowest utility.
const LOADS: [(&str, [f64; 2], [f64; 2]); 3] = [
    ("not overloaded", [0.8, 0.8], [7.0903, 0.4010]),
    ("partly overloaded", [0.8, 1.1], [62.9766, 0.3918]),
    ("overloaded", [1.1, 1.1], [109.9398, 0.3681]),
];
/// Prices of a change on the front, over the measured one. The last forbids all changes after the first placement.
const PRICES: [f64; 6] = [0.0, 0.1, 0.3, 3.0, 10.0, 1e6];

pub(super) fn changes(setting: &Setting) -> Reproduction {
    let cycles = setting.pick(300, 4);
    let mut record = Record::new(
        "C14",
        "Carrera 5.6.1.3, Figures 5.12-5.13",
        "where memory leaves hardly a choice, weal makes few changes while satisfied demand keeps moving instances; its lowest utility is better under overload, about equal otherwise",
        &format!(
            "100 nodes, 200 applications, 2 instances to a node, demand at 80%, 80-110% and 110% of the CPU; one run of {cycles} cycles, seed 1"
        ),
    );
    assume_workload(&mut record);
    record.assume("the rival's demands are capped by water-filling (5.6.1.1); it also places all anew where that satisfies more, at no cost");
    let of = |load: [f64; 2]| Pool { apps: 200, per_node: 2, load };
    let mut figures: Vec<(&str, [Vec<Run>; 2])> = Vec::new();
    for (name, load, former) in LOADS {
        let runs = compare(setting, of(load), Planner::FreeDemand, cycles, 1);
        compare_run(&mut record, name, &runs, former);
        figures.push((name, runs));
    }
    let rivals = figures.iter().map(|(_, [_, demand])| demand[0].changes.iter().copied().fold(0.0, f64::max));
    record.number("satisfied demand: most changes in a cycle of all three", rivals.fold(0.0, f64::max)).paper(near(400.0, 40.0));
    front(setting, &mut record, cycles, &figures);
    for (name, title, of) in FIGURES {
        record.figure(by_cycle(name, title, &figures, cycles, of));
    }
    record.done()
}

/// One load: weal beside satisfied demand, and beside what weal made of it before.
fn compare_run(record: &mut Record, name: &str, [weal, demand]: &[Vec<Run>; 2], [changes, lowest]: [f64; 2]) {
    let (weal, demand) = (&weal[0], &demand[0]);
    let row = record.number(&format!("{name}: changes per cycle"), mean(&weal.changes));
    row.paper(at_most("satisfied demand", &demand.changes)).recalculated(within(f64::NEG_INFINITY..=0.1 * changes));
    let slack = if name == "overloaded" { 0.0 } else { 0.1 };
    let row = record.number(&format!("{name}: lowest utility"), mean(&weal.lowest));
    row.paper(at_least("satisfied demand", &[mean(&demand.lowest)], slack)).recalculated(within(lowest - 0.02..=f64::INFINITY));
    let apart = mean(&weal.average) - mean(&demand.average);
    if name == "overloaded" {
        record.claim("overloaded: average utility is above that for satisfied demand", apart > 0.0);
    } else {
        record.number(&format!("{name}: average utility, over that for satisfied demand"), apart).paper(near(0.0, 0.05));
    }
    record.number(&format!("{name}: weal: average utility"), mean(&weal.average));
    record.number(&format!("{name}: satisfied demand: average utility"), mean(&demand.average));
    let most = |run: &Run| run.changes.iter().copied().fold(0.0, f64::max);
    record.number(&format!("{name}: weal: most changes in a cycle"), most(weal)).paper(near(0.0, 0.0));
    record.number(&format!("{name}: satisfied demand: most changes in a cycle"), most(demand));
}

/// The lowest utility against changes, as the price of a change goes from nothing to more than anything gains; the measured price among them.
fn front(setting: &Setting, record: &mut Record, cycles: usize, measured: &[(&str, [Vec<Run>; 2])]) {
    let names: Vec<&str> = LOADS.iter().map(|(name, ..)| *name).collect();
    let mut figure = Figure::new(
        "front",
        "lowest utility against changes, by the price of a change",
        ["changes a cycle", "lowest utility"],
        &names,
    );
    for (at, (name, load, _)) in LOADS.into_iter().enumerate() {
        let pool = Pool { apps: 200, per_node: 2, load };
        let runs = setting.map(PRICES.len(), |i| run(pool, Planner::Weal(times(price(), PRICES[i])), cycles, 1));
        let mut points: Vec<(f64, &Run)> = PRICES.into_iter().zip(&runs).collect();
        points.push((1.0, &measured[at].1[0][0]));
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (factor, run) in points {
            let (changes, lowest) = (mean(&run.changes), mean(&run.lowest));
            record.number(&format!("{name}: front, price x {factor}: changes per cycle"), changes);
            record.number(&format!("{name}: front, price x {factor}: lowest utility"), lowest);
            figure.point(changes, at, lowest);
        }
    }
    record.figure(figure);
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
