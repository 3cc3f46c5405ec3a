//! From the current placement to a better one, with few changes.

use super::bound::Bound;
use super::flow::Flow;
use super::layout::{Changes, Layout};
use super::load::distribute;
use super::mandatory::{self, Missing};
use super::problem::Problem;

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
}

/// Starts from what runs and adds instances for who is worst off.
pub fn solve(problem: &Problem, budget: u32) -> Solution {
    let mut flow = Flow::new(problem);
    let mut layout = Layout::current(problem);
    let missing = mandatory::enforce(problem, &mut layout);
    let bound = Bound::of(problem);
    let mut utilities = distribute(problem, &mut layout, &mut flow);
    let mut given_up = vec![false; problem.apps.len()];
    for _ in 0..budget {
        let short = |m: &u32| {
            let app = &problem.apps[*m as usize];
            !given_up[*m as usize] && !app.manual && utilities[*m as usize] < app.best().min(bound.level) - app.cost.resume
        };
        let worst = (0..problem.apps.len() as u32).filter(short);
        let Some(m) = worst.min_by(|&a, &b| utilities[a as usize].total_cmp(&utilities[b as usize])) else { break };
        let Ok(n) = mandatory::best_node(problem, &layout, m, false) else {
            given_up[m as usize] = true;
            continue;
        };
        let mut tried = layout.clone();
        mandatory::add_with_companions(problem, &mut tried, m, n);
        let after = distribute(problem, &mut tried, &mut flow);
        let cost = problem.apps[m as usize].cost_of_adding(n);
        if after[m as usize] > utilities[m as usize] + cost {
            (layout, utilities) = (tried, after);
        } else {
            given_up[m as usize] = true;
        }
    }
    let changes = layout.changes(problem);
    Solution { layout, utilities, bound, changes, missing }
}
