//! The exact load distribution for a given placement: lexicographic max-min utility (Carrera 5.3.2.3).
//!
//! At a common utility `u` application `m` wants `d_m(u)`. Whether all can have it is a maximum flow. If not, the minimum
//! cut names the applications `S` that are short and the CPU `c` of the nodes they share; no distribution lifts `S` above
//! the `u'` with `sum of d_m(u') over S = c`. Continuing from `u'` ends after finitely many cuts with the highest level that
//! all can have, where the last cut is tight: those applications are done, and the rest goes on alone. The thesis
//! approximates this; here it is exact.
//!
//! Postcondition: no application can gain without one that is no better off losing.

use super::max_flow::FlowNetwork;
use crate::placement::problem::Problem;
use crate::placement::problem::bound::highest_with;
use crate::placement::problem::layout::Layout;

/// With more applications in one part, levels nearer to each other than [`NEARLY`] of the tolerance count as one: there would be
/// hundreds that differ in the fifth digit.
const MANY: usize = 64;
const NEARLY: f64 = 0.5;

/// Distributes load over the instances of `layout` so that utilities are lexicographically as great as can be.
/// Returns the utility of each application.
pub fn distribute(problem: &Problem, layout: &mut Layout, flow: &mut FlowNetwork) -> Vec<f64> {
    let mut want = vec![0.0; problem.apps.len()];
    for part in parts(problem, layout) {
        distribute_part(problem, layout, flow, part, &mut want);
    }
    utilities(problem, layout)
}

/// The utility of each application under the loads that it has.
pub fn utilities(problem: &Problem, layout: &Layout) -> Vec<f64> {
    (0u32..).zip(&problem.apps).map(|(m, app)| app.utility(layout.given(m))).collect()
}

// Settled applications keep their loads: all nodes that they could shift load to are full of settled ones.
fn distribute_part(problem: &Problem, layout: &mut Layout, flow: &mut FlowNetwork, part: Vec<u32>, want: &mut [f64]) {
    let mut free = part;
    let mut reached = None;
    let mut nearly = Vec::new();
    while !free.is_empty() {
        let level = raise(problem, layout, flow, &free, want, reached);
        if level.settled.is_empty() {
            break;
        }
        free.retain(|m| level.settled.binary_search(m).is_err());
        if level.exact {
            reached = Some(level.utility);
        } else {
            nearly.extend(level.settled);
        }
    }
    // What those who are nearly where they can be leave over goes to whom it comes to.
    for &m in &nearly {
        want[m as usize] = problem.apps[m as usize].demand();
    }
    if !nearly.is_empty() {
        flow.saturate(problem, layout, want, &nearly);
    }
}

/// What one level settles.
struct Level {
    utility: f64,
    /// Applications that cannot go on, sorted.
    settled: Vec<u32>,
    /// False when they could still gain a little.
    exact: bool,
}

// Lifts the `free` applications, all of which have what `reached` asks for, to the highest common utility.
fn raise(
    problem: &Problem,
    layout: &mut Layout,
    flow: &mut FlowNetwork,
    free: &[u32],
    want: &mut [f64],
    reached: Option<f64>,
) -> Level {
    let top = free.iter().map(|&m| problem.apps[m as usize].best()).fold(f64::NEG_INFINITY, f64::max);
    let nearly = |u: f64| reached.filter(|reached| free.len() > MANY && u - reached <= NEARLY * problem.tolerance);
    // If all CPU that they can reach were one node's.
    let mut u = level_for(problem, free, within_reach(layout, flow, free));
    let mut tight = if u < top { free.to_vec() } else { Vec::new() };
    if let (Some(reached), false) = (nearly(u), tight.is_empty()) {
        return Level { utility: reached, settled: tight, exact: false };
    }
    loop {
        ask(problem, free, want, u);
        if flow.saturate(problem, layout, want, free) <= 0.0 {
            return Level { utility: u, settled: tight, exact: true };
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
            return Level { utility: u, settled: tight, exact: true };
        }
        if let Some(reached) = nearly(lower) {
            ask(problem, free, want, reached);
            flow.saturate(problem, layout, want, free);
            return Level { utility: reached, settled: tight, exact: false };
        }
        u = lower;
    }
}

// CPU that `apps` have or could have: settled ones keep theirs.
fn within_reach(layout: &Layout, flow: &mut FlowNetwork, apps: &[u32]) -> f64 {
    let given: f64 = apps.iter().map(|&m| layout.given(m)).sum();
    let nodes = apps.iter().flat_map(|&m| layout.of_app(m)).map(|&edge| layout.edge(edge).node);
    given + flow.distinct(nodes).map(|n| layout.spare(n)).sum::<f64>()
}

fn ask(problem: &Problem, apps: &[u32], want: &mut [f64], utility: f64) {
    for &m in apps {
        want[m as usize] = problem.apps[m as usize].cpu_for(utility);
    }
}

/// The highest common utility of `apps` on `cpu` cores in all.
pub(in crate::placement) fn level_for(problem: &Problem, apps: &[u32], cpu: f64) -> f64 {
    let apps = || apps.iter().map(|&m| &problem.apps[m as usize]);
    let worst = apps().map(|app| app.worst()).fold(f64::INFINITY, f64::min);
    let best = apps().map(|app| app.best()).fold(f64::NEG_INFINITY, f64::max);
    highest_with(worst, best, cpu, |u| apps().map(|app| app.cpu_for(u)).sum())
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
