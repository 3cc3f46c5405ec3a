//! Measures the planner on generated pools and prints one JSON object a line; `cargo xtask bench control` runs it.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock; the planner itself never does")]

use std::time::Instant;

use weal_control::placement::generate::{self, Shape};
use weal_control::placement::problem::Problem;
use weal_control::placement::search::{Solution, solve};

fn main() {
    let seed = 1;
    let cases = [
        ("thesis", None),
        ("hard", Some(Shape { nodes: 100, apps: 200, per_node: 2, load: 1.1 })),
        ("whole-nodes", Some(Shape { nodes: 100, apps: 20, per_node: 1, load: 1.1 })),
        ("large", Some(Shape { nodes: 10_000, apps: 1_000, per_node: 3, load: 1.1 })),
        ("huge", Some(Shape { nodes: 100_000, apps: 10_000, per_node: 3, load: 1.1 })),
    ];
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    for (name, shape) in cases.into_iter().filter(|(name, _)| wanted.is_empty() || wanted.iter().any(|want| want == name)) {
        let mut problem = shape.map_or_else(|| generate::thesis_mix(seed), |shape| generate::pool(shape, seed));
        let (cold, cold_s) = timed(&problem);
        adopt(&mut problem, &cold);
        let (same, same_s) = timed(&problem);
        let app = &mut problem.apps[0];
        app.curve = app.curve.scaled(1.3);
        let (one, one_s) = timed(&problem);
        println!(
            "{name}: cold {:.2} ms, lowest {:.4}, bound {:.4}, changes {} | same {:.2} ms, changes {} | one change {:.2} ms, lowest {:.4} bound {:.4}, changes {}",
            cold_s * 1e3,
            cold.lowest().unwrap(),
            cold.bound.utility,
            cold.changes.count(),
            same_s * 1e3,
            same.changes.count(),
            one_s * 1e3,
            one.lowest().unwrap(),
            one.bound.utility,
            one.changes.count(),
        );
    }
}

fn timed(problem: &Problem) -> (Solution, f64) {
    let start = Instant::now();
    let solution = solve(problem, 1_000_000);
    (solution, start.elapsed().as_secs_f64())
}

fn adopt(problem: &mut Problem, solution: &Solution) {
    for app in &mut problem.apps {
        app.current.clear();
    }
    for (m, n, count, _) in solution.entries() {
        problem.apps[m as usize].current.push((n, count));
    }
    for app in &mut problem.apps {
        app.current.sort_unstable();
    }
}
