//! From the current placement to a better one, with few changes.
//!
//! First what must be so ([`mandatory`]); then, for a common utility `u` between what the worst off has and the bound, a
//! [`repair`](super::repair) of the current placement until everybody has what `u` asks for. The highest `u` that can be
//! repaired is found by bisection, starting just below the bound, where most searches end. Then the worst off are settled and the
//! rest is lifted further, round by round: lexicographic max-min.
//!
//! A placement is taken instead of another only if the first utility (from the worst) that differs by more than the
//! tolerance is better, and those who gain do so by more than what the changes cost. What is gained well above a goal must be
//! more than the error of the demand ([`App::doubt`](super::problem::App::doubt)) makes of it, or instances would change places
//! with each ripple of what is measured; losses count without that, so that nobody slides down in small steps.

use weal_model::Algorithm;

use super::baseline::{Objective, equal_shares, nested_loops};
use super::bound::Bound;
use super::exact;
use super::flow::Flow;
use super::layout::{Changes, Layout};
use super::load::distribute;
use super::mandatory::{self, Missing};
use super::partition::{self, solve_in_parts};
use super::polish::polish;
use super::problem::Problem;
use super::repair::Repair;

/// Rounds of settling the worst off and lifting the rest. Differences between later levels help nobody who is badly off.
const ROUNDS: u32 = 4;

/// Steps of the bisection when lifting the rest: a sixty-fourth of the way is near enough for those who are better off anyway.
const STEPS_FOR_THE_REST: u32 = 6;

/// Searches from the answer of the one before; the second usually finds nothing to change.
const PASSES: u32 = 6;

/// Below this utility somebody is about to miss a goal. Higher, and what helps nobody is done for noise; lower, and a crowd that grows over
/// some cycles is met only when it is there.
const NEAR_GOAL: f64 = 0.3;
/// A gain of so much is tried however doubtful it is: being wrong costs two moves, which are worth hundredths.
const MOST_NOISE: f64 = 0.25;

/// A placement with its loads, and how good it is.
#[derive(Debug, Clone)]
pub struct Solution {
    /// Where everything is and what it gets.
    pub layout: Layout,
    /// The utility of each application.
    pub utilities: Vec<f64>,
    /// What no placement can exceed.
    pub bound: Bound,
    /// What it changes.
    pub changes: Changes,
    /// Fewest instances that could not be brought up.
    pub missing: Vec<Missing>,
}

impl Solution {
    /// The utility of the worst off; `None` without applications.
    pub fn lowest(&self) -> Option<f64> {
        self.utilities.iter().copied().min_by(f64::total_cmp)
    }

    /// How far the worst off is below the bound.
    pub fn gap(&self) -> f64 {
        self.lowest().map_or(0.0, |lowest| (self.bound.utility - lowest).max(0.0))
    }

    /// (application, node, instances, CPU), for judging.
    pub fn entries(&self) -> Vec<(u32, u32, u32, f64)> {
        let apps = 0..self.utilities.len() as u32;
        let edges = apps.flat_map(|m| self.layout.of_app(m)).map(|&edge| self.layout.edge(edge));
        edges.map(|edge| (edge.app, edge.node, edge.count, edge.load)).collect()
    }
}

/// A placement in comparison.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    pub layout: Layout,
    pub utilities: Vec<f64>,
    /// By how much each utility may be wrong, because the demand is not known better.
    doubts: Vec<f64>,
    cost: f64,
}

impl Candidate {
    pub fn of(problem: &Problem, mut layout: Layout, flow: &mut Flow) -> Self {
        let utilities = distribute(problem, &mut layout, flow);
        Self::with(problem, layout, utilities)
    }

    fn with(problem: &Problem, layout: Layout, utilities: Vec<f64>) -> Self {
        let cost = layout.changes(problem).cost;
        let doubts = (0u32..).zip(&problem.apps).map(|(m, app)| app.doubt_at(layout.given(m))).collect();
        Self { layout, utilities, doubts, cost }
    }

    fn is_below(&self, bound: &Bound, tolerance: f64) -> bool {
        self.utilities.iter().any(|&utility| utility < bound.utility - tolerance)
    }

    /// Whether it is worth having instead of `other`.
    pub fn beats(&self, other: &Self, tolerance: f64) -> bool {
        let gained: f64 = self.utilities.iter().zip(&other.utilities).map(|(mine, theirs)| (mine - theirs).max(0.0)).sum();
        for ((mine, doubt), (theirs, other_doubt)) in self.worst_first().into_iter().zip(other.worst_first()) {
            if mine < theirs - tolerance {
                return false;
            }
            // Who misses a goal, or is about to, is helped on suspicion.
            let noise = if theirs < NEAR_GOAL { 0.0 } else { doubt.max(other_doubt).min(MOST_NOISE) };
            if mine > theirs + tolerance + noise {
                return gained > self.cost - other.cost;
            }
        }
        self.cost < other.cost - 1e-12
    }

    // Utilities with their doubts.
    fn worst_first(&self) -> Vec<(f64, f64)> {
        let mut sorted: Vec<(f64, f64)> = self.utilities.iter().copied().zip(self.doubts.iter().copied()).collect();
        sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
        sorted
    }
}

/// A placement by the given algorithm.
pub fn solve_with(problem: &Problem, algorithm: Algorithm, budget: u32) -> Solution {
    match algorithm {
        Algorithm::Weal => solve(problem, budget),
        Algorithm::Thesis => nested_loops(problem, Objective::Utility, budget),
        Algorithm::Demand => nested_loops(problem, Objective::SatisfiedDemand, budget),
        Algorithm::Static => equal_shares(problem, true),
        Algorithm::Autoscaler => equal_shares(problem, false),
    }
}

/// What another placement would bring.
#[derive(Debug)]
pub(super) struct Trial {
    /// The utility of each application.
    pub utilities: Vec<f64>,
    /// What it would cost more, in utility.
    pub cost: f64,
    /// Whether it would be taken.
    pub taken: bool,
}

/// Tries `layout` instead of a solution.
pub(super) fn try_instead(problem: &Problem, solution: &Solution, layout: Layout) -> Trial {
    let before = Candidate::with(problem, solution.layout.clone(), solution.utilities.clone());
    let tried = Candidate::of(problem, layout, &mut Flow::new(problem));
    let taken = tried.beats(&before, problem.tolerance);
    Trial { cost: tried.cost - before.cost, utilities: tried.utilities, taken }
}

/// A placement for `problem`, with `budget` steps for each pass of the search.
///
/// Postcondition: when the search ends before [`PASSES`] do, searching again from the answer changes nothing.
pub fn solve(problem: &Problem, budget: u32) -> Solution {
    if problem.nodes.len() > partition::WHOLE { solve_in_parts(problem, budget) } else { solve_whole(problem, budget) }
}

/// The same without dividing large pools.
pub(super) fn solve_whole(problem: &Problem, budget: u32) -> Solution {
    let mut solution = pass(problem, budget);
    if solution.changes.count() > 0 {
        let mut adopted = problem.clone();
        for _ in 1..PASSES {
            adopt(&mut adopted, &solution);
            let next = pass(&adopted, budget);
            if next.changes.count() == 0 {
                break;
            }
            solution = next;
        }
    }
    solution.changes = solution.layout.changes(problem);
    solution
}

// As if the solution ran already.
fn adopt(problem: &mut Problem, solution: &Solution) {
    for (m, app) in (0u32..).zip(&mut problem.apps) {
        let edges = solution.layout.of_app(m).iter().map(|&edge| solution.layout.edge(edge));
        app.current = edges.map(|edge| (edge.node, edge.count)).collect();
        app.current.sort_unstable();
    }
}

fn pass(problem: &Problem, mut budget: u32) -> Solution {
    let mut flow = Flow::new(problem);
    let mut layout = Layout::current(problem);
    let missing = mandatory::enforce(problem, &mut layout);
    let mut bound = Bound::of(problem);
    let base = Candidate::of(problem, layout, &mut flow);
    let mut best = base.clone();
    let mut settled: Vec<Option<f64>> = vec![None; problem.apps.len()];
    for round in 0..ROUNDS {
        let lifted = lift(problem, &bound, &mut flow, &mut budget, &mut best, &settled);
        if lifted == Lifted::Nobody || (lifted == Lifted::InVain && round > 0) || budget == 0 {
            break;
        }
        settle(problem, &best, &mut settled);
    }
    if best.is_below(&bound, problem.tolerance) {
        polish(problem, &mut flow, &mut best, &mut budget);
        if exact::raise_the_worst_off(problem, &mut bound, &mut flow, &mut best, &mut budget) {
            polish(problem, &mut flow, &mut best, &mut budget);
        }
    }
    // Each step was better than the one before, within the tolerance; only if the last is better than the first is it a change
    // for the better and not a walk in a circle.
    if !best.beats(&base, problem.tolerance) {
        best = base;
    }
    let changes = best.layout.changes(problem);
    Solution { layout: best.layout, utilities: best.utilities, bound, changes, missing }
}

/// What became of lifting those that are not settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lifted {
    /// None of them could be better off.
    Nobody,
    /// No better placement was found.
    InVain,
    /// A better one was found.
    Some,
}

// Those that are no better off than the worst that is not settled yet stay at what they have.
fn settle(problem: &Problem, best: &Candidate, settled: &mut [Option<f64>]) {
    let open = best.utilities.iter().zip(settled.iter()).filter(|(_, settled)| settled.is_none()).map(|(&utility, _)| utility);
    let Some(lowest) = open.min_by(f64::total_cmp) else { return };
    for (settled, &utility) in settled.iter_mut().zip(&best.utilities) {
        if settled.is_none() && utility <= lowest + problem.tolerance {
            *settled = Some(utility);
        }
    }
}

// Looks for the highest common utility of those not settled.
fn lift(
    problem: &Problem,
    bound: &Bound,
    flow: &mut Flow,
    budget: &mut u32,
    best: &mut Candidate,
    settled: &[Option<f64>],
) -> Lifted {
    let all: Vec<u32> = (0..problem.apps.len() as u32).collect();
    let wants_at = |u: f64| -> Vec<f64> {
        let at = |m: usize| problem.apps[m].cpu_for(settled[m].unwrap_or(u).min(u)).min(bound.reach[m]);
        (0..problem.apps.len()).map(at).collect()
    };
    let first = settled.iter().all(Option::is_none);
    let level = if first { bound.common } else { bound.level };
    let reachable = |m: usize| problem.apps[m].utility(bound.reach[m]).min(level);
    let open = || (0..problem.apps.len()).filter(|&m| settled[m].is_none() && !problem.apps[m].manual);
    let missed = open().filter(|&m| best.utilities[m] < reachable(m) - problem.tolerance);
    let Some(mut low) = missed.map(|m| best.utilities[m]).min_by(f64::total_cmp) else {
        return if first && bound.common < bound.level { Lifted::InVain } else { Lifted::Nobody };
    };
    let mut high = open().map(reachable).fold(low, f64::max);
    let base = best.layout.clone();
    let mut lifted = Lifted::InVain;
    let mut u = high - 0.5 * problem.tolerance;
    let mut steps = if first { u32::MAX } else { STEPS_FOR_THE_REST };
    while *budget > 0 && steps > 0 {
        let mut layout = base.clone();
        let want = wants_at(u);
        let short = Repair { problem, flow, budget, all: &all }.run(&mut layout, &want);
        prune(problem, &mut layout);
        let candidate = Candidate::of(problem, layout, flow);
        let reached = open().map(|m| candidate.utilities[m]).fold(f64::INFINITY, f64::min);
        if candidate.beats(best, problem.tolerance) {
            *best = candidate;
            lifted = Lifted::Some;
        }
        if short <= 0.0 {
            low = u
        } else {
            high = u
        }
        low = low.max(reached.min(high));
        if high - low <= problem.tolerance {
            break;
        }
        u = 0.5 * (low + high);
        steps -= 1;
    }
    lifted
}

// New instances that carry nothing and that no bound asks for are not worth their start.
fn prune(problem: &Problem, layout: &mut Layout) {
    let eps = layout.epsilon();
    for m in 0..problem.apps.len() as u32 {
        let idle: Vec<u32> = layout
            .of_app(m)
            .iter()
            .map(|&edge| layout.edge(edge))
            .filter(|edge| edge.load <= eps && edge.count > problem.apps[m as usize].current_on(edge.node))
            .map(|edge| edge.node)
            .collect();
        for n in idle {
            while layout.count(m, n) > problem.apps[m as usize].current_on(n) && layout.may_remove(problem, m, n, false).is_ok() {
                layout.remove(problem, m, n);
            }
        }
    }
}
