//! Optimality as a postcondition, on thousands of random problems, and against exact oracles.

use good_lp::{Expression, ProblemVariables, Solution as _, SolverModel, constraint, microlp, variable};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use weal_model::Utility;

use super::*;

/// `U(o) = 1 - weight * need / o` below the goal (`o < need`) and `1 - need / o` above it, as for sessions without think time,
/// shifted so that the goal is at 0; at most `most` seats help.
#[derive(Debug, Clone, Copy)]
struct Hyperbola {
    need: f64,
    weight: f64,
    most: f64,
}

impl Appetite for Hyperbola {
    fn seats_for(&self, utility: Utility) -> f64 {
        let relative = if utility.0 < 0.0 { utility.0 / self.weight } else { utility.0.min(1.0 - 1e-12) };
        (self.need / (1.0 - relative)).min(self.most)
    }
    fn utility_of(&self, seats: f64) -> Utility {
        let relative = 1.0 - self.need / seats.min(self.most).max(1e-12);
        Utility(if relative < 0.0 { relative * self.weight } else { relative })
    }
    fn best(&self) -> Utility {
        self.utility_of(self.most)
    }
}

fn random(rng: &mut Pcg64, flows: usize, clusters: usize, nodes: usize) -> SeatProblem<Hyperbola> {
    let flow = |rng: &mut Pcg64| {
        let need = rng.random_range(0.5..20.0);
        let appetite =
            Hyperbola { need, weight: [0.25, 1.0, 4.0][rng.random_range(0..3)], most: need * rng.random_range(0.8..6.0) };
        let first = rng.random_range(0..clusters);
        let mut loads = vec![(first, rng.random_range(0.02..1.0))];
        let second = rng.random_range(0..clusters);
        if second != first && rng.random_range(0..3) == 0 {
            loads.push((second, rng.random_range(0.02..1.0)));
        }
        SeatFlow { appetite, loads }
    };
    let hosts = |rng: &mut Pcg64| {
        let count = rng.random_range(1..=3.min(nodes));
        let mut picked: Vec<usize> = (0..nodes).collect();
        for i in 0..count {
            picked.swap(i, rng.random_range(i..nodes));
        }
        let limit = |rng: &mut Pcg64| if rng.random_range(0..4) == 0 { rng.random_range(0.2..3.0) } else { f64::INFINITY };
        picked[..count].iter().map(|&node| Host { node, limit: limit(rng) }).collect()
    };
    SeatProblem {
        flows: (0..flows).map(|_| flow(rng)).collect(),
        clusters: (0..clusters).map(|_| hosts(rng)).collect(),
        nodes: (0..nodes).map(|_| if rng.random_range(0..20) == 0 { 0.0 } else { rng.random_range(0.5..8.0) }).collect(),
    }
}

fn demands(problem: &SeatProblem<Hyperbola>, seats: &[f64]) -> Vec<f64> {
    let mut demands = vec![0.0; problem.clusters.len()];
    for (flow, seats) in problem.flows.iter().zip(seats) {
        flow.loads.iter().for_each(|&(d, factor)| demands[d] += factor * seats);
    }
    demands
}

/// The share of every demand that fits, by linear programming: at least 1 where the seats are feasible.
fn lp_fits(problem: &SeatProblem<Hyperbola>, seats: &[f64]) -> f64 {
    let mut variables = ProblemVariables::new();
    let share = variables.add(variable().min(0.0).max(2.0));
    let loads: Vec<Vec<_>> = (problem.clusters.iter())
        .map(|hosts| hosts.iter().map(|host| variables.add(variable().min(0.0).max(host.limit))).collect())
        .collect();
    let mut model = variables.maximise(share).using(microlp);
    for (demand, loads) in demands(problem, seats).into_iter().zip(&loads) {
        let sum: Expression = loads.iter().sum();
        model = model.with(constraint!(sum == demand * share));
    }
    for (m, &power) in problem.nodes.iter().enumerate() {
        let here = problem.clusters.iter().zip(&loads).flat_map(|(hosts, loads)| hosts.iter().zip(loads));
        let sum: Expression = here.filter(|(host, _)| host.node == m).map(|(_, load)| *load).sum();
        model = model.with(constraint!(sum <= power));
    }
    model.solve().expect("zero is feasible").value(share)
}

/// The highest level at which all flows fit, each at most at its best: bisection over the linear program.
fn lp_level(problem: &SeatProblem<Hyperbola>) -> f64 {
    let at = |level: f64| {
        problem.flows.iter().map(|f| f.appetite.seats_for(Utility(level.min(f.appetite.best().0)))).collect::<Vec<_>>()
    };
    let (mut low, mut high) = (-1e5, 1.0);
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if lp_fits(problem, &at(middle)) >= 1.0 - 1e-9 { low = middle } else { high = middle }
    }
    low
}

#[test]
fn loads_are_feasible_and_carry_exactly_the_seats() {
    for seed in 0..4000 {
        let mut rng = Pcg64::seed_from_u64(seed);
        let (flows, clusters, nodes) = (rng.random_range(1..12), rng.random_range(1..6), rng.random_range(1..7));
        let problem = random(&mut rng, flows, clusters, nodes);
        let solution = solve(&problem);
        let mut used = vec![0.0; nodes];
        for ((hosts, loads), demand) in problem.clusters.iter().zip(&solution.loads).zip(demands(&problem, &solution.seats)) {
            assert!((loads.iter().sum::<f64>() - demand).abs() < 2e-3 * demand.max(1.0), "seed {seed}");
            for (host, load) in hosts.iter().zip(loads) {
                assert!(*load >= -1e-9 && *load <= host.limit + 1e-6, "seed {seed}");
                used[host.node] += load;
            }
        }
        assert!(used.iter().zip(&problem.nodes).all(|(used, power)| *used <= power * (1.0 + 1e-6) + 2e-3), "seed {seed}");
        assert_eq!(solution, solve(&problem), "seed {seed}: equal arguments give equal answers");
    }
}

/// Pacifici (1) and the paragraph on flows that get stuck: the lexicographic optimum.
#[test]
fn no_flow_can_gain_without_one_at_or_below_it_losing() {
    let mut stuck = 0;
    for seed in 0..400 {
        let mut rng = Pcg64::seed_from_u64(10_000 + seed);
        let (flows, clusters, nodes) = (rng.random_range(1..8), rng.random_range(1..5), rng.random_range(1..5));
        let mut problem = random(&mut rng, flows, clusters, nodes);
        problem.nodes.iter_mut().for_each(|power| *power = power.max(0.5));
        let solution = solve(&problem);
        for f in (0..flows).filter(|&f| solution.stuck[f].is_some()) {
            stuck += 1;
            let own = solution.utilities[f].0;
            // All that are better off fall to this flow's level; the others keep what they have.
            let mut seats: Vec<f64> = (0..flows)
                .map(|g| {
                    solution.seats[g].min(problem.flows[g].appetite.seats_for(Utility(own.max(solution.utilities[g].0.min(own)))))
                })
                .collect();
            seats[f] *= 1.001;
            assert!(lp_fits(&problem, &seats) < 1.0, "seed {seed}: flow {f} could gain: {solution:?}");
        }
        for f in (0..flows).filter(|&f| solution.stuck[f].is_none()) {
            assert!(solution.utilities[f].0 >= problem.flows[f].appetite.best().0 - 1e-6, "seed {seed}");
        }
    }
    assert!(stuck > 300, "{stuck}");
}

#[test]
fn the_first_level_is_that_of_the_linear_program() {
    for seed in 0..150 {
        let mut rng = Pcg64::seed_from_u64(20_000 + seed);
        let mut problem = random(&mut rng, 6, 3, 4);
        problem.nodes.iter_mut().for_each(|power| *power = power.max(0.5));
        let solution = solve(&problem);
        let Some(first) = solution.bottlenecks.first() else { continue };
        let exact = lp_level(&problem);
        assert!((first.level.0 - exact).abs() < 1e-5 * exact.abs().max(1.0), "seed {seed}: {} against {exact}", first.level);
    }
}

#[test]
fn more_capacity_never_lowers_the_lowest_utility() {
    for seed in 0..3000 {
        let mut rng = Pcg64::seed_from_u64(30_000 + seed);
        let mut problem = random(&mut rng, 8, 4, 5);
        let lowest =
            |problem: &SeatProblem<Hyperbola>| solve(problem).utilities.iter().map(|u| u.0).fold(f64::INFINITY, f64::min);
        let before = lowest(&problem);
        let lucky = rng.random_range(0..5);
        problem.nodes[lucky] += rng.random_range(0.1..4.0);
        let after = lowest(&problem);
        assert!(after >= before - 1e-6 * before.abs().max(1.0), "seed {seed}: {before} -> {after}");
    }
}

#[test]
fn whole_seats_are_feasible_and_mostly_the_best_of_all() {
    let (mut exact, mut problems) = (0, 0);
    for seed in 0..150 {
        let mut rng = Pcg64::seed_from_u64(40_000 + seed);
        let mut problem = random(&mut rng, 2, 2, 2);
        problem.nodes.iter_mut().for_each(|power| *power = power.max(2.5));
        problem.clusters.iter_mut().flatten().for_each(|host| host.limit = f64::INFINITY);
        let most = |f: usize| problem.flows[f].appetite.most.ceil() as u32;
        let lowest = |a: u32, b: u32| {
            let utility = |f: usize, seats: u32| problem.flows[f].appetite.utility_of(f64::from(seats)).0;
            utility(0, a).min(utility(1, b))
        };
        let pairs = (1..=most(0)).flat_map(|a| (1..=most(1)).map(move |b| (a, b)));
        let fitting = pairs.filter(|&(a, b)| lp_fits(&problem, &[f64::from(a), f64::from(b)]) >= 1.0 - 1e-9);
        let Some((a, b)) = fitting.max_by(|x, y| lowest(x.0, x.1).total_cmp(&lowest(y.0, y.1))) else { continue };
        let seats = whole(&problem, &solve(&problem), &[1, 1]);
        assert!(lp_fits(&problem, &[f64::from(seats[0]), f64::from(seats[1])]) >= 1.0 - 1e-6, "seed {seed}: {seats:?}");
        let (found, best) = (lowest(seats[0], seats[1]), lowest(a, b));
        exact += u32::from(found >= best - 1e-9);
        problems += 1;
    }
    assert!(problems > 50 && exact * 10 >= problems * 8, "{exact} of {problems} exactly optimal");
}

#[test]
fn each_flow_keeps_a_seat_even_where_there_is_no_power() {
    let mut problem = random(&mut Pcg64::seed_from_u64(7), 5, 2, 3);
    problem.nodes.fill(0.0);
    assert_eq!(whole(&problem, &solve(&problem), &[1; 5]), [1; 5]);
    problem.nodes.clear();
    problem.clusters.iter_mut().for_each(Vec::clear);
    assert_eq!(whole(&problem, &solve(&problem), &[1; 5]), [1; 5]);
}
