//! Against an exact solver: mixed integer programming on small problems, and folding on the benchmark's hard case.

use good_lp::{Expression, ProblemVariables, Solution as _, SolverModel, constraint, microlp, variable};

use super::solve;
use crate::placement::problem::generate::{Shape, constrained, exact_by_folding, pool};
use crate::placement::problem::{App, ChangeCost, Problem};
use crate::seeded::Seeded;

/// The highest utility of the worst off, by MILP: `load >= base + slope * u` for each line of an application's curve, which is convex from
/// its second point on. `None` when nobody can be above that.
fn milp(problem: &Problem) -> Option<f64> {
    let least = problem.apps.iter().map(second_utility).fold(f64::NEG_INFINITY, f64::max);
    let best = problem.apps.iter().map(App::best).fold(f64::INFINITY, f64::min);
    if best <= least {
        return None;
    }
    let mut variables = ProblemVariables::new();
    let u = variables.add(variable().min(least).max(best));
    let grid = |variables: &mut ProblemVariables, whole: bool| -> Vec<Vec<_>> {
        let cell = |m: usize, n: usize| {
            let most = f64::from(problem.apps[m].per_node.min(problem.apps[m].instances.1));
            if whole { variable().integer().min(0.0).max(most) } else { variable().min(0.0).max(problem.nodes[n].cpu) }
        };
        let apps = 0..problem.apps.len();
        apps.map(|m| (0..problem.nodes.len()).map(|n| variables.add(cell(m, n))).collect()).collect()
    };
    let (places, loads) = (grid(&mut variables, true), grid(&mut variables, false));
    let mut model = variables.maximise(u).using(microlp);
    for (n, node) in problem.nodes.iter().enumerate() {
        let cpu: Expression = loads.iter().map(|row| row[n]).sum();
        let memory: Expression = places.iter().zip(&problem.apps).map(|(row, app)| row[n] * app.memory as f64).sum();
        model = model.with(constraint!(cpu <= node.cpu)).with(constraint!(memory <= node.memory as f64));
    }
    for (m, app) in problem.apps.iter().enumerate() {
        let count: Expression = places[m].iter().sum();
        model = model.with(constraint!(count <= f64::from(app.instances.1)));
        for (n, node) in problem.nodes.iter().enumerate() {
            model = model.with(constraint!(loads[m][n] <= places[m][n] * app.instance_cpu.min(node.cpu)));
        }
        let points: Vec<(f64, f64)> = app.curve.points().skip(1).map(|(cpu, utility)| (cpu.0, utility.0)).collect();
        for pair in points.windows(2) {
            let slope = (pair[1].0 - pair[0].0) / (pair[1].1 - pair[0].1);
            let given: Expression = loads[m].iter().sum();
            model = model.with(constraint!(given - slope * u >= pair[0].0 - slope * pair[0].1));
        }
    }
    model.solve().ok().map(|solved| solved.value(u))
}

fn second_utility(app: &App) -> f64 {
    app.curve.points().nth(1).map_or(app.best(), |(_, utility)| utility.0)
}

fn small(seed: u64) -> Problem {
    let mut problem = constrained(&mut Seeded::new(seed));
    problem.nodes.truncate(3);
    problem.apps.truncate(4);
    problem.apps.retain(|app| app.demand() > 0.0);
    for app in &mut problem.apps {
        (app.current, app.standby, app.together, app.apart) = (vec![], vec![], vec![], vec![]);
        (app.nodes, app.instances.0) = ((0, u32::MAX), 0);
        (app.manual, app.pinned, app.allowed) = (false, false, None);
        app.cost = ChangeCost { start: 0.0, resume: 0.0, remove: 0.0 };
    }
    problem
}

#[test]
fn small_placements_are_as_good_as_those_of_an_exact_solver() {
    let (mut compared, mut below) = (0, Vec::new());
    for seed in 0..150 {
        let problem = small(seed);
        let Some(exact) = milp(&problem) else { continue };
        let solution = solve(&problem, 100_000);
        let lowest = solution.lowest().unwrap();
        assert!(lowest <= exact + 1e-5 * (1.0 + exact.abs()), "seed {seed}: {lowest} is better than {exact}");
        assert!(solution.bound.utility >= exact - 1e-6, "seed {seed}: the bound {} is below {exact}", solution.bound.utility);
        if lowest < exact - 1.5 * problem.tolerance {
            below.push((seed, lowest, exact));
        }
        compared += 1;
    }
    assert!(compared > 40 && below.is_empty(), "{} of {compared} below the optimum: {below:?}", below.len());
}

/// Carrera 5.6.1.3, the hard case: within a thousandth of sort and fold, with a bound that says so, and at rest.
#[test]
fn the_hard_case_is_solved_exactly() {
    for seed in 0..20 {
        let mut problem = pool(Shape::HARD, seed);
        let exact = exact_by_folding(&problem);
        let solution = solve(&problem, 1_000_000);
        let lowest = solution.lowest().unwrap();
        assert!(
            (lowest - exact).abs() < 1e-3 && solution.gap() < 1e-3,
            "seed {seed}: {lowest} of {exact}, gap {}",
            solution.gap()
        );
        solution.adopt(&mut problem);
        assert_eq!(solve(&problem, 1_000_000).changes.count(), 0, "seed {seed}");
    }
}

#[test]
fn whole_nodes_are_handed_out_exactly() {
    for seed in 0..20 {
        let solution = solve(&pool(Shape::WHOLE_NODES, seed), 1_000_000);
        assert!(solution.gap() < 1e-6, "seed {seed}: {}", solution.gap());
    }
}

/// After one change, the answer from the running placement is as good as one from nothing.
#[test]
fn the_incremental_answer_equals_the_cold_one() {
    for seed in 0..20 {
        let cold = pool(Shape::of_size(60), seed);
        let mut living = cold.clone();
        solve(&cold, 1_000_000).adopt(&mut living);
        let mut random = Seeded::new(seed ^ 0x55);
        let m = random.below(living.apps.len() as u64) as usize;
        living.apps[m].curve = living.apps[m].curve.scaled(random.between(0.5, 2.0));
        let mut fresh = living.clone();
        fresh.apps.iter_mut().for_each(|app| app.current.clear());
        let (warm, anew) = (solve(&living, 1_000_000), solve(&fresh, 1_000_000));
        let (mine, best) = (warm.lowest().unwrap(), anew.lowest().unwrap());
        assert!(mine >= best - 0.005, "seed {seed}: {mine} after a change, {best} from nothing");
        assert!(warm.changes.count() * 3 < anew.changes.count(), "seed {seed}: {:?} of {:?}", warm.changes, anew.changes);
    }
}
