//! What the search misses in small pools: every exchange of a few instances, tried.
//!
//! The search thinks in flows and packings, which is right for hundreds of nodes. With a handful, one instance decides, and trying is
//! cheap: for every application and node, adding an instance there; where that is not possible, taking one of another application off the
//! node, or one of its own off another, or both, and then also giving the other the place that became free. The first exchange that is
//! better is taken, and all are tried again until none is.

use super::candidate::Candidate;
use super::max_flow::FlowNetwork;
use crate::placement::problem::Problem;
use crate::placement::problem::layout::Layout;

/// Pools with more than so many pairs of application and node are left alone: exchanges grow with the square of that.
const PAIRS: usize = 64;

/// Placements that may be judged; each takes some microseconds.
const JUDGED: u32 = 1_500;

/// What is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trials {
    /// One more instance of each application that could use more, on each node.
    Additions,
    /// Every exchange.
    Exchanges,
}

/// Improves `best` until no trial is better. Each judged placement takes a step of the budget.
pub(super) fn polish(problem: &Problem, flow: &mut FlowNetwork, best: &mut Candidate, budget: &mut u32, trials: Trials) {
    if problem.apps.len() * problem.nodes.len() > PAIRS {
        return;
    }
    let mut left = JUDGED.min(*budget);
    let before = left;
    while let Some(better) = first_better(problem, flow, best, &mut left, trials) {
        *best = better;
    }
    *budget -= before - left;
}

fn first_better(
    problem: &Problem,
    flow: &mut FlowNetwork,
    best: &Candidate,
    left: &mut u32,
    trials: Trials,
) -> Option<Candidate> {
    let mut order: Vec<u32> = (0..problem.apps.len() as u32).collect();
    order.sort_by(|&a, &b| best.utilities[a as usize].total_cmp(&best.utilities[b as usize]).then(a.cmp(&b)));
    for &m in order.iter().filter(|&&m| !problem.apps[m as usize].manual) {
        for n in 0..problem.nodes.len() as u32 {
            let tried = match trials {
                Trials::Additions if best.utilities[m as usize] >= problem.apps[m as usize].best() - problem.tolerance => {
                    Vec::new()
                }
                Trials::Additions => vec![addition(m, n)],
                Trials::Exchanges => exchanges(problem, &best.layout, m, n),
            };
            for exchange in tried {
                if *left == 0 {
                    return None;
                }
                let Some(layout) = exchange.apply(problem, &best.layout) else { continue };
                *left -= 1;
                let candidate = Candidate::of(problem, layout, flow);
                if candidate.beats(best, problem.tolerance) {
                    return Some(candidate);
                }
            }
        }
    }
    None
}

/// Instances to take off and to add: (application, node).
#[derive(Debug, Default, Clone)]
struct Exchange {
    off: Vec<(u32, u32)>,
    on: Vec<(u32, u32)>,
}

impl Exchange {
    /// `None` when it is not allowed.
    fn apply(&self, problem: &Problem, layout: &Layout) -> Option<Layout> {
        let mut layout = layout.clone();
        for &(m, n) in &self.off {
            layout.may_remove(problem, m, n, true).ok()?;
            layout.remove(problem, m, n);
        }
        for &(m, n) in &self.on {
            layout.may_add_with_companions(problem, m, n).ok()?;
            layout.add_with_companions(problem, m, n);
        }
        let short = |&(m, _): &(u32, u32)| {
            let app = &problem.apps[m as usize];
            layout.instances(m) < app.instances.0 || (layout.of_app(m).len() as u32) < app.nodes.0
        };
        (!self.off.iter().any(short)).then_some(layout)
    }
}

fn addition(m: u32, n: u32) -> Exchange {
    Exchange { off: Vec::new(), on: vec![(m, n)] }
}

// All that put an instance of `m` on `n`, the smallest first.
fn exchanges(problem: &Problem, layout: &Layout, m: u32, n: u32) -> Vec<Exchange> {
    let own: Vec<u32> = layout.of_app(m).iter().map(|&edge| layout.edge(edge).node).filter(|&from| from != n).collect();
    let others: Vec<u32> = layout.on_node(n).iter().map(|&edge| layout.edge(edge).app).filter(|&other| other != m).collect();
    let on = vec![(m, n)];
    let mut exchanges = vec![addition(m, n)];
    exchanges.extend(own.iter().map(|&from| Exchange { off: vec![(m, from)], on: on.clone() }));
    for &other in &others {
        exchanges.push(Exchange { off: vec![(other, n)], on: on.clone() });
        for to in (0..problem.nodes.len() as u32).filter(|&to| to != n) {
            exchanges.push(Exchange { off: vec![(other, n)], on: vec![(m, n), (other, to)] });
        }
        for &from in &own {
            exchanges.push(Exchange { off: vec![(other, n), (m, from)], on: vec![(m, n), (other, from)] });
            exchanges.push(Exchange { off: vec![(other, n), (m, from)], on: on.clone() });
        }
    }
    exchanges
}
