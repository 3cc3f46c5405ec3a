//! The algorithms that came before, for comparison: the thesis' three nested loops (Carrera 5.3.2) and the demand-based
//! placement of the older literature (\[58\] there: maximise satisfied demand), in the same interface.
//!
//! Both visit node after node (outer loop), take instances off it one by one (intermediate loop), and put instances of
//! applications that lack something in their place (inner loop). They differ in the order and in what they compare: sorted
//! utilities there, satisfied demand here.
//!
//! [`equal_shares`] is what there is without any of this: instances in equal numbers, or as many as an
//! [autoscaler](super::autoscaler) asks for, that share the CPU of their node equally.

use std::cmp::Ordering;

use crate::placement::problem::bound::Bound;
use crate::placement::problem::layout::Layout;
use crate::placement::problem::mandatory::{best_node, enforce};
use crate::placement::problem::{App, Problem};
use crate::placement::solve::Solution;
use crate::placement::solve::distribute::{distribute, utilities};
use crate::placement::solve::max_flow::FlowNetwork;

/// The thesis: "We perform up to 10 rounds."
const ROUNDS: u32 = 10;

/// What a baseline compares placements by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Objective {
    /// Utilities, sorted from the worst (Carrera eq. 5.2).
    Utility,
    /// The sum of what each application gets of its demand; utility curves count only through the demand.
    SatisfiedDemand,
}

struct Nested<'a> {
    problem: &'a Problem,
    objective: Objective,
    flow: FlowNetwork,
    all: Vec<u32>,
    /// CPU up to which each application is worth an instance: the cap of 5.3.2.2, or the demand.
    cap: Vec<f64>,
}

/// A placement by nested loops; `budget` counts evaluated configurations.
pub fn nested_loops(problem: &Problem, objective: Objective, budget: u32) -> Solution {
    let bound = Bound::of(problem);
    let cap = match objective {
        Objective::Utility => bound.cpu.clone(),
        Objective::SatisfiedDemand => problem.apps.iter().map(App::demand).collect(),
    };
    let all = (0..problem.apps.len() as u32).collect();
    let mut nested = Nested { problem, objective, flow: FlowNetwork::new(problem), all, cap };
    let mut layout = Layout::current(problem);
    let missing = enforce(problem, &mut layout);
    let mut budget = budget;
    let mut value = nested.evaluate(&mut layout);
    for _ in 0..ROUNDS {
        let before = value.clone();
        nested.round(&mut layout, &mut value, &mut budget);
        if nested.compare(&value, &before) != Ordering::Greater || budget == 0 {
            break;
        }
    }
    let changes = layout.changes(problem);
    Solution { utilities: utilities(problem, &layout), changes, layout, bound, missing }
}

impl Nested<'_> {
    // Distributes load as the objective has it, and says how good that is.
    fn evaluate(&mut self, layout: &mut Layout) -> Vec<f64> {
        match self.objective {
            Objective::Utility => {
                let mut sorted = distribute(self.problem, layout, &mut self.flow);
                sorted.sort_by(f64::total_cmp);
                sorted
            }
            Objective::SatisfiedDemand => {
                self.flow.saturate(self.problem, layout, &self.cap, &self.all);
                vec![self.all.iter().map(|&m| layout.given(m)).sum()]
            }
        }
    }

    fn compare(&self, a: &[f64], b: &[f64]) -> Ordering {
        let differing = a.iter().zip(b).find(|(a, b)| (*a - *b).abs() > self.problem.tolerance);
        differing.map_or(Ordering::Equal, |(a, b)| a.total_cmp(b))
    }

    fn round(&mut self, layout: &mut Layout, value: &mut Vec<f64>, budget: &mut u32) {
        let mut order: Vec<(f64, f64, u32)> =
            (0..self.problem.nodes.len() as u32).map(|n| (self.node_ease(layout, n), layout.spare(n), n)).collect();
        order.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1)).then(a.2.cmp(&b.2)));
        for (_, _, n) in order {
            let mut base = layout.clone();
            let mut best: Option<(Vec<f64>, Layout)> = None;
            loop {
                let mut tried = base.clone();
                self.fill(&mut tried, n);
                let reached = self.evaluate(&mut tried);
                *budget = budget.saturating_sub(1);
                let than = best.as_ref().map_or(&*value, |(value, _)| value);
                if self.compare(&reached, than) == Ordering::Greater {
                    best = Some((reached, tried));
                }
                let Some(m) = self.easiest(&base, n) else { break };
                base.remove(self.problem, m, n);
                if *budget == 0 {
                    break;
                }
            }
            if let Some((reached, tried)) = best {
                (*value, *layout) = (reached, tried);
            }
            if *budget == 0 {
                return;
            }
        }
    }

    // Utility that an application would keep without its instances on a node (or, by demand, what it would not lose).
    fn stopping(&self, layout: &Layout, m: u32, n: u32) -> f64 {
        let load = layout.find(m, n).map_or(0.0, |edge| layout.edge(edge).load);
        match self.objective {
            Objective::Utility => self.problem.apps[m as usize].utility(layout.given(m) - load),
            Objective::SatisfiedDemand => -load,
        }
    }

    fn node_ease(&self, layout: &Layout, n: u32) -> f64 {
        if self
            .all
            .iter()
            .filter(|&&m| self.lacks(layout, m))
            .any(|&m| layout.may_add_with_companions(self.problem, m, n).is_ok())
        {
            return 1.0;
        }
        let here = layout.on_node(n).iter().map(|&edge| layout.edge(edge).app);
        here.map(|m| self.stopping(layout, m, n)).fold(f64::NEG_INFINITY, f64::max)
    }

    fn lacks(&self, layout: &Layout, m: u32) -> bool {
        !self.problem.apps[m as usize].manual && self.cap[m as usize] - layout.given(m) > layout.epsilon()
    }

    fn easiest(&self, layout: &Layout, n: u32) -> Option<u32> {
        let here = layout.on_node(n).iter().map(|&edge| layout.edge(edge).app);
        let removable = here.filter(|&m| layout.may_remove(self.problem, m, n, false).is_ok());
        removable.max_by(|&a, &b| self.stopping(layout, a, n).total_cmp(&self.stopping(layout, b, n)).then(b.cmp(&a)))
    }

    // Instances of those that lack something, the worst off first, as far as they fit.
    fn fill(&self, layout: &mut Layout, n: u32) {
        let mut short: Vec<u32> = self.all.iter().copied().filter(|&m| self.lacks(layout, m)).collect();
        match self.objective {
            Objective::Utility => {
                let utility = |m: u32| self.problem.apps[m as usize].utility(layout.given(m));
                short.sort_by(|&a, &b| utility(a).total_cmp(&utility(b)).then(a.cmp(&b)));
            }
            Objective::SatisfiedDemand => {
                let lack = |m: u32| self.cap[m as usize] - layout.given(m);
                short.sort_by(|&a, &b| lack(b).total_cmp(&lack(a)).then(a.cmp(&b)));
            }
        }
        let mut cpu = layout.spare(n);
        for m in short {
            if cpu <= layout.epsilon() {
                return;
            }
            if layout.may_add_with_companions(self.problem, m, n).is_ok() {
                let lack = self.cap[m as usize] - layout.given(m);
                layout.add_with_companions(self.problem, m, n);
                cpu -= lack.min(self.problem.apps[m as usize].instance_cpu);
            }
        }
    }
}

/// Fewest instances where CPU is least spoken for; when `wide`, then one more of each application in turn, until all have
/// their most or nothing fits. Every instance gets the same share of its node, whatever it could do with it.
pub fn equal_shares(problem: &Problem, wide: bool) -> Solution {
    let mut layout = Layout::current(problem);
    let missing = enforce(problem, &mut layout);
    let mut growing: Vec<u32> = (0u32..).zip(&problem.apps).filter(|(_, app)| wide && !app.manual).map(|(m, _)| m).collect();
    while !growing.is_empty() {
        growing.retain(|&m| match best_node(problem, &layout, m, false) {
            Ok(n) => {
                layout.add_with_companions(problem, m, n);
                true
            }
            Err(_) => false,
        });
    }
    share_equally(problem, &mut layout);
    let changes = layout.changes(problem);
    Solution { utilities: utilities(problem, &layout), changes, layout, bound: Bound::of(problem), missing }
}

// What one instance cannot use stays with its node, where the kernel lets the others have it.
fn share_equally(problem: &Problem, layout: &mut Layout) {
    layout.clear_loads(problem);
    for (n, node) in (0u32..).zip(&problem.nodes) {
        let edges = layout.on_node(n).to_vec();
        let instances: u32 = edges.iter().map(|&edge| layout.edge(edge).count).sum();
        let share = node.cpu / f64::from(instances.max(1));
        for edge in edges {
            let cpu = (share * f64::from(layout.edge(edge).count)).min(layout.room(problem, edge));
            layout.shift(edge, cpu);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::problem::generate::constrained;
    use crate::placement::problem::{App, Node};
    use crate::seeded::Seeded;
    use crate::utility::Curve;
    use weal_model::{Cpu, Utility};

    // Tables 5.4 and 5.5: four nodes of 3,800 MHz and 2,500 MB; A1 and A2 take 1,200 MB, A3 takes 1,800 MB.
    fn prototype(demands: [f64; 3], places: [&[u32]; 3]) -> Problem {
        let memory = [1200, 1200, 1800];
        let app = |i: usize| App {
            current: places[i].iter().map(|&n| (n, 1)).collect(),
            ..App::new(memory[i], Curve::through([(Cpu(0.0), Utility(-1.0)), (Cpu(demands[i]), Utility(0.5))]))
        };
        Problem { nodes: vec![Node { cpu: 3800.0, memory: 2500 }; 4], apps: (0..3).map(app).collect(), tolerance: 1.0 }
    }

    /// Carrera 5.7.1.2, Figure 5.28 (case C11): the demand-based rule keeps, changes, keeps.
    #[test]
    fn satisfied_demand_decides_as_the_thesis_says_it_would() {
        let satisfied = |solution: &Solution| (0..3).map(|m| solution.layout.given(m)).sum::<f64>() / 3800.0;
        let one = [&[0, 1, 2][..], &[0, 1, 2], &[3]];
        let keeps = nested_loops(&prototype([7500.0, 1000.0, 4000.0], one), Objective::SatisfiedDemand, 10_000);
        assert_eq!(keeps.changes.count(), 0);
        assert!((satisfied(&keeps) - 3.24).abs() < 0.01, "{}", satisfied(&keeps));

        let changes = nested_loops(&prototype([6000.0, 1000.0, 6000.0], one), Objective::SatisfiedDemand, 10_000);
        assert!((satisfied(&changes) - 3.42).abs() < 0.01, "{}", satisfied(&changes));
        assert_eq!(changes.layout.instances(2), 2, "a node goes to A3");

        let two = [&[0, 1][..], &[0, 1], &[2, 3]];
        let keeps = nested_loops(&prototype([4000.0, 1000.0, 8000.0], two), Objective::SatisfiedDemand, 10_000);
        assert_eq!(keeps.changes.count(), 0);
        assert!((satisfied(&keeps) - 3.316).abs() < 0.01, "{}", satisfied(&keeps));
        let three = [&[0][..], &[0], &[1, 2, 3]];
        let alternative = nested_loops(&prototype([4000.0, 1000.0, 8000.0], three), Objective::SatisfiedDemand, 0);
        assert!((satisfied(&alternative) - 3.105).abs() < 0.01, "{}", satisfied(&alternative));
    }

    #[test]
    fn both_baselines_are_feasible_and_the_search_is_at_least_as_good_nearly_always() {
        let (mut worse, total) = (0, 2_000);
        for seed in 0..total {
            let problem = constrained(&mut Seeded::new(seed));
            let ours = crate::placement::solve::solve(&problem, 2_000);
            for objective in [Objective::Utility, Objective::SatisfiedDemand] {
                let baseline = nested_loops(&problem, objective, 2_000);
                let lacking = |m| baseline.missing.iter().any(|missing| missing.app == m);
                assert_eq!(
                    crate::check::dense::check(&problem, &baseline.entries(), lacking),
                    [""; 0],
                    "seed {seed}, {objective:?}"
                );
                let gained = baseline.lowest().unwrap() - ours.lowest().unwrap();
                worse += u32::from(gained > 0.1);
            }
        }
        assert!(worse * 50 <= total as u32, "{worse} of {total} are better by the older algorithms");
    }
}
