//! Measures one planning problem and prints one JSON object; `cargo xtask bench control` runs it, each problem in a process of its own so
//! that its peak memory is known.
//!
//!     plan-bench thesis|hard|whole-nodes|seats|NODES [--algorithm weal|thesis|demand] [--rounds N] [--export FILE] [--once]

#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock; the planner itself never does")]

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use serde_json::{Value, json};
use weal_control::flow::seats;
use weal_control::placement::problem::generate::{self, Shape};
use weal_control::placement::problem::{App, Problem};
use weal_control::placement::solve::Solution;
use weal_control::placement::solve_with;
use weal_control::seeded::Seeded;
use weal_model::{Algorithm, Utility};

const SEED: u64 = 1;

/// Steps for each pass: more than any of these problems takes.
const BUDGET: u32 = 10_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let option = |name: &str| arguments.iter().position(|argument| argument == name).and_then(|at| arguments.get(at + 1));
    let case = arguments.first().ok_or("which problem?")?;
    let rounds: usize = option("--rounds").map_or(Ok(1), |rounds| rounds.parse())?;
    let algorithm = match option("--algorithm").map(String::as_str) {
        None | Some("weal") => Algorithm::Weal,
        Some("thesis") => Algorithm::Thesis,
        Some("demand") => Algorithm::Demand,
        Some(other) => return Err(format!("unknown algorithm `{other}`").into()),
    };
    let export = option("--export");
    if case == "seats" {
        return measure_seats(rounds, export);
    }
    let problem = match case.as_str() {
        "thesis" => generate::thesis_mix(SEED),
        "hard" => generate::pool(Shape::HARD, SEED),
        "whole-nodes" => generate::pool(Shape::WHOLE_NODES, SEED),
        nodes => generate::pool(Shape::of_size(nodes.parse()?), SEED),
    };
    if let Some(file) = export {
        std::fs::write(file, exported(&problem).to_string())?;
    }
    if arguments.iter().any(|argument| argument == "--once") {
        black_box(measured(black_box(&problem), algorithm));
        return Ok(());
    }
    let exact = (case == "hard").then(|| generate::exact_by_folding(&problem));
    let (cold, cold_ms) = timed(&problem, algorithm, rounds);
    let (mut living, mut random) = (problem.clone(), Seeded::new(SEED + 1));
    cold.adopt(&mut living);
    let (stable, stable_ms) = timed(&living, algorithm, rounds);
    let changed = if case == "thesis" { living.apps.len() } else { 1 };
    for app in living.apps.iter_mut().take(changed) {
        app.curve = app.curve.scaled(if changed == 1 { 1.3 } else { random.between(0.8, 1.2) });
    }
    let (cycle, cycle_ms) = timed(&living, algorithm, rounds);
    let of = |solution: &Solution, ms: f64| json!({ "ms": ms, "lowest": solution.lowest(), "bound": solution.bound.utility, "changes": solution.changes.count() });
    let result = json!({
        "exact": exact,
        "cold": of(&cold, cold_ms),
        "stable": of(&stable, stable_ms),
        "cycle": of(&cycle, cycle_ms),
        "peak_mib": peak_mib()?,
    });
    println!("{result}");
    Ok(())
}

/// What callgrind counts.
#[inline(never)]
fn measured(problem: &Problem, algorithm: Algorithm) -> Solution {
    solve_with(problem, algorithm, BUDGET)
}

/// The answer, and the median of the times that it took, in milliseconds.
fn timed(problem: &Problem, algorithm: Algorithm, rounds: usize) -> (Solution, f64) {
    let mut last = None;
    let ms = median(rounds, || last = Some(measured(black_box(problem), algorithm)));
    (last.expect("there is at least one round"), ms)
}

fn median(rounds: usize, mut run: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..rounds.max(1))
        .map(|_| {
            let begun = Instant::now();
            run();
            begun.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// The most memory that this process ever had, in MiB.
fn peak_mib() -> Result<f64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).ok_or("no VmHWM")?;
    let kib: f64 = line.split_whitespace().nth(1).ok_or("no value")?.parse()?;
    Ok(kib / 1024.0)
}

/// A placement problem for the solvers, which find the highest common utility: `cpu(u) >= base + slope * u` for each line of an application
/// says what it needs, since its curve is convex from the second point on (the solvers may not go below that).
fn exported(problem: &Problem) -> Value {
    let app = |app: &App| {
        let points: Vec<(f64, f64)> = app.curve.points().skip(1).map(|(cpu, utility)| (cpu.0, utility.0)).collect();
        let lines: Vec<(f64, f64)> = points
            .windows(2)
            .map(|pair| {
                let slope = (pair[1].0 - pair[0].0) / (pair[1].1 - pair[0].1);
                (pair[0].0 - slope * pair[0].1, slope)
            })
            .collect();
        json!({
            "memory": app.memory,
            "instance_cpu": app.instance_cpu.is_finite().then_some(app.instance_cpu),
            "instances": app.instances,
            "lines": lines,
            "least": points[0].1,
            "best": app.best(),
        })
    };
    json!({
        "nodes": problem.nodes.iter().map(|node| (node.cpu, node.memory)).collect::<Vec<_>>(),
        "apps": problem.apps.iter().map(app).collect::<Vec<_>>(),
    })
}

/// `U(o) = 1 - need / o`, as for sessions without think time; at most `most` seats help.
#[derive(Debug, Clone, Copy)]
struct Hyperbola {
    need: f64,
    most: f64,
}

impl seats::Appetite for Hyperbola {
    fn seats_for(&self, utility: Utility) -> f64 {
        (self.need / (1.0 - utility.0.min(1.0 - 1e-12))).min(self.most)
    }
    fn utility_of(&self, seats: f64) -> Utility {
        Utility(1.0 - self.need / seats.min(self.most).max(1e-12))
    }
    fn best(&self) -> Utility {
        self.utility_of(self.most)
    }
}

/// 1,000 flows on 100 clusters, each with instances on 30 of 1,000 nodes of 4 cores; a third of the flows load a second cluster.
/// They ask for about twice what there is.
fn seat_problem() -> seats::SeatProblem<Hyperbola> {
    let (flows, clusters, nodes) = (1000, 100, 1000);
    let mut random = Seeded::new(SEED);
    let flow = |random: &mut Seeded| {
        let need = random.between(2.0, 20.0);
        let first = random.below(clusters) as usize;
        let mut loads = vec![(first, random.between(0.1, 0.5))];
        let second = random.below(clusters) as usize;
        if second != first && random.chance(1.0 / 3.0) {
            loads.push((second, random.between(0.1, 0.5)));
        }
        seats::SeatFlow { appetite: Hyperbola { need, most: need * random.between(1.5, 4.0) }, loads }
    };
    let hosts = |random: &mut Seeded| {
        let mut picked: Vec<usize> = (0..30).map(|_| random.below(nodes) as usize).collect();
        picked.sort_unstable();
        picked.dedup();
        picked.into_iter().map(|node| seats::Host { node, limit: f64::INFINITY }).collect()
    };
    seats::SeatProblem {
        flows: (0..flows).map(|_| flow(&mut random)).collect(),
        clusters: (0..clusters).map(|_| hosts(&mut random)).collect(),
        nodes: vec![4.0; nodes as usize],
    }
}

fn measure_seats(rounds: usize, export: Option<&String>) -> Result<(), Box<dyn Error>> {
    let problem = seat_problem();
    if let Some(file) = export {
        std::fs::write(file, exported_seats(&problem).to_string())?;
    }
    let fewest = vec![1; problem.flows.len()];
    let solution = seats::solve(&problem);
    let solve_ms = median(rounds, || drop(black_box(seats::solve(black_box(&problem)))));
    let whole_ms = median(rounds, || drop(black_box(seats::whole(&problem, &solution, &fewest))));
    let seats = seats::whole(&problem, &solution, &fewest);
    let utilities =
        problem.flows.iter().zip(&seats).map(|(flow, &seats)| seats::Appetite::utility_of(&flow.appetite, f64::from(seats)).0);
    let result = json!({
        "solve_ms": solve_ms,
        "whole_ms": whole_ms,
        "lowest": solution.utilities.iter().map(|utility| utility.0).fold(f64::INFINITY, f64::min),
        "lowest_whole": utilities.fold(f64::INFINITY, f64::min),
        "levels": solution.bottlenecks.len(),
        "peak_mib": peak_mib()?,
    });
    println!("{result}");
    Ok(())
}

/// The seat problem for a linear program: the first level only. `seats(u)` is convex; its tangents are given as lines.
fn exported_seats(problem: &seats::SeatProblem<Hyperbola>) -> Value {
    let flow = |flow: &seats::SeatFlow<Hyperbola>| {
        let need = flow.appetite.need;
        let tangents: Vec<(f64, f64)> = (0..64)
            .map(|i| {
                let u = -0.5 + f64::from(i) / 63.0;
                let slope = need / ((1.0 - u) * (1.0 - u));
                (need / (1.0 - u) - slope * u, slope)
            })
            .collect();
        json!({ "loads": flow.loads, "lines": tangents, "best": seats::Appetite::best(&flow.appetite).0 })
    };
    json!({
        "nodes": problem.nodes,
        "clusters": problem.clusters.iter().map(|hosts| hosts.iter().map(|host| host.node).collect::<Vec<_>>()).collect::<Vec<_>>(),
        "flows": problem.flows.iter().map(flow).collect::<Vec<_>>(),
    })
}
