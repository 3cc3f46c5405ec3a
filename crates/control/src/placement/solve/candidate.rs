//! Which of two placements is better, when what changes cost counts too.
//!
//! A placement is taken instead of another only if the first utility (from the worst) that differs by more than the
//! tolerance is better, and those who gain do so by more than what the changes cost. What is gained well above a goal must be
//! more than the error of the demand ([`App::doubt`](crate::placement::problem::App::doubt)) makes of it, or instances would change
//! places with each ripple of what is measured; losses count without that, so that no application slides down in small steps.

use super::distribute::distribute;
use super::max_flow::FlowNetwork;
use super::solution::Solution;
use crate::placement::problem::Problem;
use crate::placement::problem::bound::Bound;
use crate::placement::problem::layout::Layout;

/// Below this utility somebody is about to miss a goal. Higher, and what helps nobody is done for noise; lower, and a crowd that grows over
/// some cycles is met only when it is there.
pub(super) const NEAR_GOAL: f64 = 0.3;
/// A gain of so much is tried however doubtful it is: being wrong costs two moves, which are worth hundredths.
pub(super) const MOST_NOISE: f64 = 0.25;

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
    pub fn of(problem: &Problem, mut layout: Layout, flow: &mut FlowNetwork) -> Self {
        let utilities = distribute(problem, &mut layout, flow);
        Self::with(problem, layout, utilities)
    }

    fn with(problem: &Problem, layout: Layout, utilities: Vec<f64>) -> Self {
        let cost = layout.changes(problem).cost;
        let doubts = (0u32..).zip(&problem.apps).map(|(m, app)| app.doubt_at(layout.given(m))).collect();
        Self { layout, utilities, doubts, cost }
    }

    pub fn is_below(&self, bound: &Bound, tolerance: f64) -> bool {
        self.utilities.iter().any(|&utility| utility < bound.utility - tolerance)
    }

    /// Whether it is worth having instead of `other`.
    pub fn beats(&self, other: &Self, tolerance: f64) -> bool {
        self.worth().beats(&other.worth(), tolerance)
    }

    fn worth(&self) -> Worth<'_> {
        Worth { utilities: &self.utilities, doubts: &self.doubts, cost: self.cost }
    }

    /// Whether what these `apps` gain, up to `level`, is more than what it costs more than `other`. What others gain by the way does not count.
    pub fn pays_for(&self, other: &Self, apps: &[usize], level: f64) -> bool {
        let gain = |&m: &usize| (self.utilities[m].min(level) - other.utilities[m]).max(0.0);
        apps.iter().map(gain).sum::<f64>() > self.cost - other.cost
    }

    /// Whether the first utility (from the worst) that differs by more than the tolerance is better, whatever it costs.
    pub fn is_better_off(&self, other: &Self, tolerance: f64) -> bool {
        let (mine, theirs) = (self.worth().worst_first(), other.worth().worst_first());
        let mut differences = mine.into_iter().zip(theirs).map(|((mine, _), (theirs, _))| mine - theirs);
        differences.find(|difference| difference.abs() > tolerance).is_some_and(|difference| difference > 0.0)
    }
}

/// What counts of a placement in comparison.
#[derive(Debug, Clone, Copy)]
pub(in crate::placement) struct Worth<'a> {
    /// Everybody's utility, in an order that does not change.
    pub utilities: &'a [f64],
    /// By how much each of them may be wrong.
    pub doubts: &'a [f64],
    /// What the changes cost, in utility.
    pub cost: f64,
}

impl Worth<'_> {
    /// Whether it is worth having instead of `other`.
    pub fn beats(&self, other: &Self, tolerance: f64) -> bool {
        let gained: f64 = self.utilities.iter().zip(other.utilities).map(|(mine, theirs)| (mine - theirs).max(0.0)).sum();
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

/// What another placement would bring.
#[derive(Debug)]
pub(in crate::placement) struct Trial {
    /// The utility of each application.
    pub utilities: Vec<f64>,
    /// What it would cost more, in utility.
    pub cost: f64,
    /// Whether it would be taken.
    pub taken: bool,
}

/// Tries `layout` instead of a solution.
pub(in crate::placement) fn try_instead(problem: &Problem, solution: &Solution, layout: Layout) -> Trial {
    let before = Candidate::with(problem, solution.layout.clone(), solution.utilities.clone());
    let tried = Candidate::of(problem, layout, &mut FlowNetwork::new(problem));
    let taken = tried.beats(&before, problem.tolerance);
    Trial { cost: tried.cost - before.cost, utilities: tried.utilities, taken }
}
