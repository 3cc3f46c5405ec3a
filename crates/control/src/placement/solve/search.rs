//! From the current placement to a better one, with few changes.
//!
//! First what must be so ([`mandatory`]); then, for a common utility `u` between what the worst off has and the bound, a
//! [`repair`](super::repair) of the current placement until everybody has what `u` asks for. The highest `u` that can be
//! repaired is found by bisection, starting just below the bound, where most searches end. Then the worst off are settled and the
//! rest is lifted further, round by round: lexicographic max-min.
//!
//! The number of changes comes before the utilities of the rest. An instance that runs is moved for somebody else for two reasons only: to bring the
//! worst off to what all can have, or for one who is near its goal or far below what it could have (`Search::is_needy`). The rest is lifted by what can
//! be added, and by its own moves to where there is room. And each change pays for itself: first single exchanges, each for the one that it is made for; then whole nodes are packed anew only where those
//! who are below the level gain more than that costs. What others gain by the way does not count, or all would change places for a little each.
//! Where nothing runs yet, nobody is moved, and all are lifted by everything.
//!
//! Which of two placements is better is said by `candidate`.

use super::candidate::{Candidate, MOST_NOISE, NEAR_GOAL};
use super::exact;
use super::max_flow::FlowNetwork;
use super::polish::{Trials, polish};
use super::repair::{Remedies, Repair};
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
    let is_empty = problem.apps.iter().all(|app| app.current.is_empty());
    let mut search = Search { problem, bound: &bound, flow: &mut flow, budget: &mut budget, is_empty };
    for round in 0..ROUNDS {
        let lifted = match round {
            0 => search.lift_all(&mut best),
            1 => search.lift_rest(&mut best, &settled, u32::MAX),
            _ => search.lift_rest(&mut best, &settled, STEPS_FOR_THE_REST),
        };
        if lifted == Lifted::Nobody || (lifted == Lifted::InVain && round > 0) || *search.budget == 0 {
            break;
        }
        settle(problem, &best, &mut settled);
    }
    search.lift_needy(&mut best);
    if best.is_below(&bound, problem.tolerance) {
        polish(problem, &mut flow, &mut best, &mut budget, Trials::Exchanges);
        if exact::raise_the_worst_off(problem, &mut bound, &mut flow, &mut best, &mut budget) {
            polish(problem, &mut flow, &mut best, &mut budget, Trials::Exchanges);
        }
    } else {
        // One whom no CPU satisfies leaves nothing for the level of the others, who may gain all the same.
        polish(problem, &mut flow, &mut best, &mut budget, Trials::Additions);
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

impl Lifted {
    /// What became of it after another try.
    fn or(self, other: Self) -> Self {
        if self == Self::Some { self } else { other }
    }
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

/// What a search works with.
struct Search<'a> {
    problem: &'a Problem,
    bound: &'a Bound,
    flow: &'a mut FlowNetwork,
    budget: &'a mut u32,
    /// Nothing runs yet, so nobody is moved by a plan.
    is_empty: bool,
}

/// Who is to be lifted, and by what.
struct Aim<'a> {
    /// Those who are to be lifted.
    open: Vec<usize>,
    /// What each application wants when these are lifted to a utility.
    want: &'a dyn Fn(usize, f64) -> f64,
    /// What may be done for them.
    remedies: Remedies,
    /// Steps of the bisection.
    steps: u32,
}

impl Search<'_> {
    /// Lifts the worst off to the highest level that all can have; where nothing runs yet, all to the highest common one.
    fn lift_all(&mut self, best: &mut Candidate) -> Lifted {
        let (problem, bound) = (self.problem, self.bound);
        let want = |m: usize, u: f64| problem.apps[m].cpu_for(u);
        let open: Vec<usize> = (0..problem.apps.len()).filter(|&m| !problem.apps[m].manual).collect();
        let level = if self.is_empty { bound.common } else { bound.utility };
        let Some((low, high)) = self.range(best, &open, level) else { return Lifted::InVain };
        let aim = |remedies| Aim { open: open.clone(), want: &want, remedies, steps: u32::MAX };
        if self.is_empty {
            return self.lift(best, &aim(Remedies::Repack), (low, high)).1;
        }
        let (reached, lifted) = self.lift(best, &aim(Remedies::Exchange), (low, high));
        if high - reached <= problem.tolerance {
            return lifted;
        }
        lifted.or(self.lift(best, &aim(Remedies::Repack), (reached, high)).1)
    }

    /// Lifts those who are not settled by what can be added, and by their own moves to where there is room.
    fn lift_rest(&mut self, best: &mut Candidate, settled: &[Option<f64>], steps: u32) -> Lifted {
        let problem = self.problem;
        let want = |m: usize, u: f64| problem.apps[m].cpu_for(settled[m].unwrap_or(u).min(u));
        let open: Vec<usize> = (0..problem.apps.len()).filter(|&m| settled[m].is_none() && !problem.apps[m].manual).collect();
        let Some(range) = self.range(best, &open, self.bound.level) else { return Lifted::Nobody };
        let remedies = if self.is_empty { Remedies::Repack } else { Remedies::Move };
        self.lift(best, &Aim { open, want: &want, remedies, steps }, range).1
    }

    /// Lifts those for whom others are moved although they are not the worst off; all others keep what they have.
    fn lift_needy(&mut self, best: &mut Candidate) {
        let (problem, has) = (self.problem, best.utilities.clone());
        let open: Vec<usize> = (0..problem.apps.len()).filter(|&m| self.is_needy(best, m)).collect();
        let want = |m: usize, u: f64| problem.apps[m].cpu_for(if open.binary_search(&m).is_ok() { u } else { has[m] });
        let Some(range) = self.range(best, &open, self.bound.level) else { return };
        let aim = |remedies| Aim { open: open.clone(), want: &want, remedies, steps: STEPS_FOR_THE_REST };
        let (reached, _) = self.lift(best, &aim(Remedies::Exchange), range);
        if range.1 - reached > problem.tolerance {
            self.lift(best, &aim(Remedies::Repack), (reached, range.1));
        }
    }

    /// The utility that `m` can hope for.
    fn reachable(&self, m: usize, level: f64) -> f64 {
        self.problem.apps[m].utility(self.bound.reach[m]).min(level)
    }

    /// Whether others are moved for it: it is near its goal or has missed it, or could have much more.
    fn is_needy(&self, best: &Candidate, m: usize) -> bool {
        let (has, could) = (best.utilities[m], self.reachable(m, self.bound.level));
        let is_near_goal = has < NEAR_GOAL && has < could - self.problem.tolerance;
        !self.problem.apps[m].manual && (is_near_goal || could - has > MOST_NOISE)
    }

    /// What the worst off of these has who could have more, and the most that any of them can have; `None` when nobody could have more.
    fn range(&self, best: &Candidate, open: &[usize], level: f64) -> Option<(f64, f64)> {
        let missed = open.iter().filter(|&&m| best.utilities[m] < self.reachable(m, level) - self.problem.tolerance);
        let low = missed.map(|&m| best.utilities[m]).min_by(f64::total_cmp)?;
        Some((low, open.iter().map(|&m| self.reachable(m, level)).fold(low, f64::max)))
    }

    // Looks for the highest common utility of those who are open; says which is reached.
    fn lift(&mut self, best: &mut Candidate, aim: &Aim, (mut low, mut high): (f64, f64)) -> (f64, Lifted) {
        let problem = self.problem;
        let all: Vec<u32> = (0..problem.apps.len() as u32).collect();
        let base = best.layout.clone();
        let mut lifted = Lifted::InVain;
        let (mut u, mut steps) = (high - 0.5 * problem.tolerance, aim.steps);
        while *self.budget > 0 && steps > 0 {
            let mut layout = base.clone();
            let want: Vec<f64> = (0..problem.apps.len()).map(|m| (aim.want)(m, u).min(self.bound.reach[m])).collect();
            let (flow, budget) = (&mut *self.flow, &mut *self.budget);
            let short = Repair { problem, flow, budget, all: &all, remedies: aim.remedies }.run(&mut layout, &want);
            prune(problem, &mut layout);
            let candidate = Candidate::of(problem, layout, self.flow);
            let reached = aim.open.iter().map(|&m| candidate.utilities[m]).fold(f64::INFINITY, f64::min);
            let level = if short <= 0.0 { u } else { reached };
            let is_free = self.is_empty || aim.remedies < Remedies::Repack;
            let pays = || is_free || candidate.pays_for(best, &aim.open, level);
            if candidate.beats(best, problem.tolerance) && pays() {
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
        (low, lifted)
    }
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
