//! From the current placement to a better one, with few changes.
//!
//! First what must be so ([`mandatory`]); then, for a common utility `u` between what the worst off has and the bound, a
//! [`repair`](super::repair) of the current placement until everybody has what `u` asks for. The highest `u` that can be
//! repaired is found by bisection, starting just below the bound, where most searches end. Then the worst off are settled and the
//! rest is lifted further, round by round: lexicographic max-min.
//!
//! Which of two placements is better is said by `candidate`.

use super::candidate::Candidate;
use super::exact;
use super::max_flow::FlowNetwork;
use super::polish::polish;
use super::repair::Repair;
use super::solution::Solution;
use crate::placement::problem::Problem;
use crate::placement::problem::bound::Bound;
use crate::placement::problem::layout::Layout;
use crate::placement::problem::mandatory::{self, Missing};

/// Rounds of settling the worst off and lifting the rest. Differences between later levels help nobody who is badly off.
const ROUNDS: u32 = 4;

/// Steps of the bisection when lifting the rest: a sixty-fourth of the way is near enough for those who are better off anyway.
const STEPS_FOR_THE_REST: u32 = 6;

/// So many nodes are tried for an instance too many; each trial distributes the CPU of the pool. With more, the fullest nodes give up theirs.
const MOST_TRIALS: usize = 16;

/// Searches from the answer of the one before; the second usually finds nothing to change.
const PASSES: u32 = 6;

/// The answer for a pool that is searched as a whole.
pub(super) fn solve_whole(problem: &Problem, budget: u32) -> Solution {
    let mut solution = pass(problem, budget);
    if solution.changes.count() > 0 {
        let mut adopted = problem.clone();
        for _ in 1..PASSES {
            solution.adopt(&mut adopted);
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

fn pass(problem: &Problem, mut budget: u32) -> Solution {
    let mut flow = FlowNetwork::new(problem);
    let mut layout = Layout::current(problem);
    let missing = enforce(problem, &mut layout, &mut flow);
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

/// What must be so. An application that moves has two instances until the former one is gone, and a plan that is made meanwhile must not take
/// back the move: which one is too many is said by what the others are worth.
fn enforce(problem: &Problem, layout: &mut Layout, flow: &mut FlowNetwork) -> Vec<Missing> {
    let mut trials = MOST_TRIALS;
    mandatory::enforce_by(problem, layout, &mut |layout, m| {
        let places = layout.of_app(m).len();
        if places > trials {
            return mandatory::fullest(layout, m);
        }
        trials -= places;
        least_missed(problem, layout, flow, m)
    })
}

/// The node that gives up an instance of `m` so that everybody is as well off as can be; among equals the fullest.
fn least_missed(problem: &Problem, layout: &Layout, flow: &mut FlowNetwork, m: u32) -> Option<u32> {
    let mut nodes: Vec<u32> = layout.of_app(m).iter().map(|&edge| layout.edge(edge).node).collect();
    nodes.sort_by_key(|&n| (layout.free_memory(n), n));
    let mut best: Option<(u32, Candidate)> = None;
    for n in nodes {
        let mut without = layout.clone();
        without.remove(problem, m, n);
        let tried = Candidate::of(problem, without, flow);
        if best.as_ref().is_none_or(|(_, best)| tried.is_better_off(best, problem.tolerance)) {
            best = Some((n, tried));
        }
    }
    best.map(|(n, _)| n)
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
    flow: &mut FlowNetwork,
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
