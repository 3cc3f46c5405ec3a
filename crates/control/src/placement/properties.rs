//! Properties of the planner on thousands of seeded random problems. A failure prints its seed.

use super::bound::Bound;
use super::flow::Flow;
use super::generate::{Seeded, constrained};
use super::layout::Layout;
use super::load::{distribute, utilities};
use super::mandatory::enforce;
use super::problem::Problem;
use super::search::{Solution, solve};
use crate::check::dense;

const BUDGET: u32 = 2_000;

fn problem(seed: u64) -> Problem {
    constrained(&mut Seeded::new(seed))
}

fn judge(problem: &Problem, solution: &Solution) -> Vec<String> {
    dense::check(problem, &solution.entries(), |m| solution.missing.iter().any(|missing| missing.app == m))
}

fn adopt(problem: &mut Problem, solution: &Solution) {
    for (m, app) in problem.apps.iter_mut().enumerate() {
        app.current = solution.entries().iter().filter(|entry| entry.0 as usize == m).map(|entry| (entry.1, entry.2)).collect();
        app.current.sort_unstable();
    }
}

fn lowest(utilities: &[f64]) -> f64 {
    utilities.iter().copied().fold(f64::INFINITY, f64::min)
}

#[test]
fn every_placement_is_feasible_within_the_bound_and_the_same_for_the_same_problem() {
    for seed in 0..20_000 {
        let problem = problem(seed);
        let solution = solve(&problem, BUDGET);
        assert_eq!(judge(&problem, &solution), [""; 0], "seed {seed}");
        let lowest = lowest(&solution.utilities);
        assert!(lowest <= solution.bound.utility + 1e-6, "seed {seed}: {lowest} above {}", solution.bound.utility);
        if seed % 10 == 0 {
            assert_eq!(solve(&problem, BUDGET).entries(), solution.entries(), "seed {seed}");
        }
    }
}

#[test]
fn a_placement_that_was_just_made_is_kept() {
    for seed in 0..10_000 {
        let mut problem = problem(seed);
        let first = solve(&problem, BUDGET);
        adopt(&mut problem, &first);
        let second = solve(&problem, BUDGET);
        assert_eq!(second.changes.count(), 0, "seed {seed}: {:?} then {:?}", first.entries(), second.entries());
    }
}

/// No application can gain without one that is no better off losing (Carrera 5.3.1): lifting any one application a little at
/// the expense of the better off is not a feasible flow.
#[test]
fn loads_are_lexicographically_as_great_as_can_be() {
    for seed in 0..10_000 {
        let problem = problem(seed);
        let mut layout = Layout::current(&problem);
        enforce(&problem, &mut layout);
        let mut flow = Flow::new(&problem);
        let utilities = distribute(&problem, &mut layout, &mut flow);
        let all: Vec<u32> = (0..problem.apps.len() as u32).collect();
        let floor = |m: u32| layout.of_app(m).iter().map(|&edge| layout.edge(edge).load).sum::<f64>();
        for &m in &all {
            let app = &problem.apps[m as usize];
            if utilities[m as usize] >= app.best() - 1e-6 || layout.instances(m) == 0 {
                continue;
            }
            let level = utilities[m as usize];
            let want: Vec<f64> = all
                .iter()
                .map(|&other| match () {
                    () if other == m => app.cpu_for(level + 1e-3),
                    () => problem.apps[other as usize].cpu_for(level.min(utilities[other as usize])).min(floor(other)),
                })
                .collect();
            let lack = flow.saturate(&problem, &mut layout.clone(), &want, &all);
            let least = 1e-7 * app.demand();
            assert!(lack > least, "seed {seed}: application {m} at {level} could gain: {utilities:?}");
        }
    }
}

#[test]
fn more_cpu_never_lowers_the_bound_or_the_worst_off_of_a_placement() {
    for seed in 0..10_000 {
        let poor = problem(seed);
        let mut rich = poor.clone();
        let mut random = Seeded::new(seed ^ 0xABCD);
        let n = random.below(rich.nodes.len() as u64) as usize;
        rich.nodes[n].cpu += random.between(0.0, 4.0);
        assert!(Bound::of(&rich).utility >= Bound::of(&poor).utility - 1e-9, "seed {seed}: bound");
        let worst = |problem: &Problem| {
            let mut layout = Layout::current(problem);
            lowest(&distribute(problem, &mut layout, &mut Flow::new(problem)))
        };
        assert!(worst(&rich) >= worst(&poor) - 1e-6, "seed {seed}: worst off {} then {}", worst(&poor), worst(&rich));
    }
}

#[test]
fn hardly_anything_moves_for_a_ripple() {
    let (mut moved, total) = (0, 5_000);
    for seed in 0..total {
        let mut problem = problem(seed);
        problem.tolerance = 0.02;
        let first = solve(&problem, BUDGET);
        adopt(&mut problem, &first);
        let mut random = Seeded::new(seed ^ 0x77);
        for app in &mut problem.apps {
            app.curve = app.curve.scaled(random.between(0.998, 1.002));
        }
        moved += u64::from(solve(&problem, BUDGET).changes.count() > 0);
    }
    assert!(moved * 100 <= total, "{moved} of {total} placements changed for 0.2% of demand");
}

/// Every placement of one-instance-a-node problems with at most 4 nodes and 3 applications, tried.
#[test]
fn tiny_problems_come_close_to_brute_force() {
    let (mut total, mut worse, mut most) = (0, 0, 0.0f64);
    for seed in 0..3_000 {
        let mut random = Seeded::new(seed);
        let mut problem = constrained(&mut random);
        problem.nodes.truncate(4);
        problem.apps.truncate(3);
        for app in &mut problem.apps {
            (app.current, app.standby, app.together, app.apart) = (vec![], vec![], vec![], vec![]);
            (app.nodes, app.per_node, app.instances.0) = ((0, u32::MAX), 1, 0);
            (app.manual, app.pinned, app.allowed) = (false, false, None);
            app.cost = super::problem::ChangeCost { start: 0.0, resume: 0.0, remove: 0.0 };
        }
        let solution = solve(&problem, 100_000);
        let exact = brute_force(&problem);
        let gap = exact - lowest(&solution.utilities);
        assert!(gap > -1e-6, "seed {seed}: better than all placements");
        total += 1;
        worse += u32::from(gap > 2e-3);
        most = most.max(gap / (1.0 + exact.abs()));
    }
    println!("{worse} of {total} below the optimum, by at most {most:.3} of it");
    assert!(worse * 50 <= total, "{worse} of {total} below the optimum, by at most {most:.3} of it");
}

fn brute_force(problem: &Problem) -> f64 {
    let cells = problem.nodes.len() * problem.apps.len();
    let mut flow = Flow::new(problem);
    let mut best = f64::NEG_INFINITY;
    for mask in 0u32..1 << cells {
        let mut layout = Layout::empty(problem);
        let fits = (0..cells).filter(|cell| mask >> cell & 1 == 1).all(|cell| {
            let (m, n) = ((cell / problem.nodes.len()) as u32, (cell % problem.nodes.len()) as u32);
            let may = layout.may_add(problem, m, n).is_ok();
            if may {
                layout.add(problem, m, n);
            }
            may
        });
        if fits {
            distribute(problem, &mut layout, &mut flow);
            best = best.max(lowest(&utilities(problem, &layout)));
        }
    }
    best
}
