//! The exact load distribution for a given placement: lexicographic max-min utility (Carrera 5.3.2.3).
//!
//! At a common utility `u` application `m` wants `d_m(u)`. Whether all can have it is a maximum flow. If not, the minimum
//! cut names the applications `S` that are short and the CPU `c` of the nodes they share; no distribution lifts `S` above
//! the `u'` with `sum of d_m(u') over S = c`. Continuing from `u'` ends after finitely many cuts with the highest level that
//! all can have, where the last cut is tight: those applications are done, and the rest goes on alone. The thesis
//! approximates this; here it is exact.
//!
//! Postcondition: no application can gain without one that is no better off losing.

use super::bound::highest_between;
use super::flow::Flow;
use super::layout::Layout;
use super::problem::{App, Problem};

/// So many levels are solved exactly in each connected part; what lies above shares spare CPU greedily. In practice only
/// pools of thousands of nodes have more, where levels differ in the fourth digit.
const MOST_LEVELS: usize = 256;

/// Distributes load over the instances of `layout` so that utilities are lexicographically as great as can be.
/// Returns the utility of each application.
pub fn distribute(problem: &Problem, layout: &mut Layout, flow: &mut Flow) -> Vec<f64> {
    distribute_levels(problem, layout, flow, MOST_LEVELS)
}

/// Like [`distribute`], but solves only the lowest `levels` of each connected part exactly.
pub fn distribute_levels(problem: &Problem, layout: &mut Layout, flow: &mut Flow, levels: usize) -> Vec<f64> {
    let mut want = vec![0.0; problem.apps.len()];
    for part in parts(problem, layout) {
        distribute_part(problem, layout, flow, &part, &mut want, levels);
    }
    utilities(problem, layout)
}

/// The utility of each application under the loads that it has.
pub fn utilities(problem: &Problem, layout: &Layout) -> Vec<f64> {
    (0u32..).zip(&problem.apps).map(|(m, app)| app.utility(layout.given(m))).collect()
}

fn distribute_part(problem: &Problem, layout: &mut Layout, flow: &mut Flow, part: &[u32], want: &mut [f64], levels: usize) {
    let mut free = part.to_vec();
    for _ in 0..levels {
        if free.is_empty() {
            return;
        }
        let tight = raise(problem, layout, flow, part, &free, want);
        if tight.is_empty() {
            return;
        }
        free.retain(|m| tight.binary_search(m).is_err());
    }
    for &m in &free {
        want[m as usize] = problem.apps[m as usize].demand();
    }
    flow.saturate(problem, layout, want, part);
}

// Lifts the `free` applications to the highest common utility; returns those that cannot go on, sorted.
fn raise(problem: &Problem, layout: &mut Layout, flow: &mut Flow, part: &[u32], free: &[u32], want: &mut [f64]) -> Vec<u32> {
    let mut tight = Vec::new();
    let mut u = free.iter().map(|&m| problem.apps[m as usize].best()).fold(f64::NEG_INFINITY, f64::max);
    loop {
        for &m in free {
            want[m as usize] = problem.apps[m as usize].cpu_for(u);
        }
        if flow.saturate(problem, layout, want, part) <= 0.0 {
            return tight;
        }
        let short: Vec<u32> = free.iter().copied().filter(|&m| flow.reached(m)).collect();
        let fixed: f64 = flow.cut_apps.iter().filter(|m| free.binary_search(m).is_err()).map(|&m| want[m as usize]).sum();
        let cpu: f64 = flow.cut_apps.iter().map(|&m| layout.given(m)).sum::<f64>() - fixed;
        let lower = level_for(problem, &short, cpu);
        tight = short;
        tight.sort_unstable();
        if lower.is_nan() || lower >= u {
            // Only rounding is left: what the flow found is the answer.
            for &m in free {
                want[m as usize] = want[m as usize].min(layout.given(m));
            }
            return tight;
        }
        u = lower;
    }
}

// The highest common utility of `apps` on `cpu` cores in all.
fn level_for(problem: &Problem, apps: &[u32], cpu: f64) -> f64 {
    let apps: Vec<&App> = apps.iter().map(|&m| &problem.apps[m as usize]).collect();
    let worst = apps.iter().map(|app| app.worst()).fold(f64::INFINITY, f64::min);
    let best = apps.iter().map(|app| app.best()).fold(f64::NEG_INFINITY, f64::max);
    highest_between(worst, best, |u| apps.iter().map(|app| app.cpu_for(u)).sum::<f64>() <= cpu)
}

/// The connected parts of the graph of applications and nodes: each a sorted list of applications.
fn parts(problem: &Problem, layout: &Layout) -> Vec<Vec<u32>> {
    let mut seen_app = vec![false; problem.apps.len()];
    let mut seen_node = vec![false; problem.nodes.len()];
    let mut parts = Vec::new();
    for first in 0..problem.apps.len() as u32 {
        if seen_app[first as usize] || layout.of_app(first).is_empty() {
            continue;
        }
        seen_app[first as usize] = true;
        let mut part = vec![first];
        let mut at = 0;
        while at < part.len() {
            for &edge in layout.of_app(part[at]) {
                let n = layout.edge(edge).node;
                if std::mem::replace(&mut seen_node[n as usize], true) {
                    continue;
                }
                for &other in layout.on_node(n) {
                    let other = layout.edge(other).app;
                    if !std::mem::replace(&mut seen_app[other as usize], true) {
                        part.push(other);
                    }
                }
            }
            at += 1;
        }
        part.sort_unstable();
        parts.push(part);
    }
    parts
}
