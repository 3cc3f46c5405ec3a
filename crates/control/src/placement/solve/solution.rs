//! What an algorithm answers: a placement with its loads.

use crate::placement::problem::Problem;
use crate::placement::problem::bound::Bound;
use crate::placement::problem::layout::{Changes, Layout};
use crate::placement::problem::mandatory::Missing;

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

    /// Makes `problem` one in which this runs already.
    pub fn adopt(&self, problem: &mut Problem) {
        for (m, app) in (0u32..).zip(&mut problem.apps) {
            let edges = self.layout.of_app(m).iter().map(|&edge| self.layout.edge(edge));
            app.current = edges.map(|edge| (edge.node, edge.count)).collect();
            app.current.sort_unstable();
        }
    }

    /// (application, node, instances, CPU), for judging.
    pub fn entries(&self) -> Vec<(u32, u32, u32, f64)> {
        let apps = 0..self.utilities.len() as u32;
        let edges = apps.flat_map(|m| self.layout.of_app(m)).map(|&edge| self.layout.edge(edge));
        edges.map(|edge| (edge.app, edge.node, edge.count, edge.load)).collect()
    }
}
