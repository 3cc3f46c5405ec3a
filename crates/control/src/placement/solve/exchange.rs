//! Brings who is short to what it wants by a few moves, so that nobody else is moved for it.
//!
//! Packing nodes anew serves everybody and moves everybody. Where an application lacks CPU on its node, it is often enough that one instance
//! there goes to another node, or changes places with one of that node. Of these exchanges, the one is made after which the two nodes lack least.
//! Among equals it is the cheapest one, and then the one that leaves both nodes most room: demands move on, and who has room is not moved again soon.
//!
//! Each exchange pays for itself: what it gains for the one that it is made for is more than what its changes cost
//! ([`ChangeCost`](crate::placement::problem::ChangeCost)). Sums over a whole plan would hide exchanges that gain nothing behind one that gains much.

use std::collections::BTreeSet;

use super::max_flow::FlowNetwork;
use crate::placement::problem::Problem;
use crate::placement::problem::layout::Layout;

/// Nodes looked at for an exchange, those with most CPU to spare first. Each has a handful of instances, and looking at one takes nanoseconds.
const NODES: usize = 512;
/// So many of the best exchanges are tried: others of them break a rule that numbers do not show.
const TRIED: usize = 4;
/// Who lacks CPU is helped so many times at most, and less often where each try, which distributes the CPU of all nodes, takes longer.
const MOST: usize = 128;
/// Applications and nodes over which as many tries are made in all.
const WORK: usize = 100_000;

/// What a search for exchanges works with.
pub(super) struct Exchanges<'a> {
    /// The problem.
    pub problem: &'a Problem,
    /// Its flow's working memory.
    pub flow: &'a mut FlowNetwork,
    /// Steps left; each try takes one.
    pub budget: &'a mut u32,
    /// All applications.
    pub all: &'a [u32],
    /// An instance may move for another application, and not for its own only.
    pub moves_others: bool,
}

/// Changes `layout` until nobody is short for whom an exchange would pay; returns what stays short then of those who lack more than a move costs.
pub(super) fn exchange(search: Exchanges<'_>, layout: &mut Layout, want: &[f64], mut short: f64) -> f64 {
    let Exchanges { problem, flow, budget, all, moves_others } = search;
    let mut in_vain = BTreeSet::new();
    for _ in 0..(WORK / (problem.nodes.len() + problem.apps.len()).max(1)).clamp(1, MOST) {
        if short <= 0.0 || *budget == 0 {
            break;
        }
        let Some(m) = neediest(problem, layout, want, &in_vain) else { break };
        *budget -= 1;
        let mut possible = exchanges(problem, layout, want, m);
        possible.retain(|exchange| moves_others || exchange.moves_nobody_but(m));
        possible.truncate(TRIED);
        let better = possible.into_iter().find_map(|exchange| {
            let mut tried = exchange.apply(problem, layout)?;
            let now = flow.saturate(problem, &mut tried, want, all);
            (now < short - layout.epsilon()).then_some((tried, now))
        });
        match better {
            Some((tried, now)) => (*layout, short) = (tried, now),
            None => {
                in_vain.insert(m);
            }
        }
    }
    let lacks = (0..problem.apps.len() as u32).any(|m| lack(problem, layout, want, m) > move_price(problem, m));
    if lacks { flow.saturate(problem, layout, want, all) } else { 0.0 }
}

/// By how much the utility of `m` is below what it wants.
fn lack(problem: &Problem, layout: &Layout, want: &[f64], m: u32) -> f64 {
    let (app, given, want) = (&problem.apps[m as usize], layout.given(m), want[m as usize]);
    if want - given > layout.epsilon() { app.utility(want) - app.utility(given) } else { 0.0 }
}

/// What one move of `m` costs at least.
fn move_price(problem: &Problem, m: u32) -> f64 {
    let app = &problem.apps[m as usize];
    let comes = if app.standby.is_empty() { app.cost.start } else { app.cost.start.min(app.cost.resume) };
    comes + app.cost.remove
}

/// Who lacks most, of those for whom an exchange could pay.
fn neediest(problem: &Problem, layout: &Layout, want: &[f64], in_vain: &BTreeSet<u32>) -> Option<u32> {
    let lacking = (0..problem.apps.len() as u32).filter(|m| !in_vain.contains(m));
    let lacking = lacking.map(|m| (lack(problem, layout, want, m), m)).filter(|&(lack, m)| lack > move_price(problem, m));
    lacking.max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1))).map(|(_, m)| m)
}

/// An instance that goes to another node, and perhaps one that comes in its place.
#[derive(Debug, Clone, Copy)]
struct Exchange {
    /// The application that goes, and its node.
    goes: (u32, u32),
    /// The application that comes for it.
    comes: Option<u32>,
    /// Where the first goes to and the second comes from.
    to: u32,
    /// What both nodes lack before it and afterwards, in cores.
    before: f64,
    over: f64,
    /// What it costs.
    cost: f64,
    /// CPU that the fuller of the two nodes has left afterwards.
    room: f64,
}

impl Exchange {
    fn moves_nobody_but(&self, m: u32) -> bool {
        self.goes.0 == m && self.comes.is_none()
    }

    /// `None` when it is not allowed.
    fn apply(&self, problem: &Problem, layout: &Layout) -> Option<Layout> {
        let ((x, from), to) = (self.goes, self.to);
        let mut tried = layout.clone();
        tried.may_remove(problem, x, from, true).ok()?;
        tried.remove(problem, x, from);
        if let Some(y) = self.comes {
            tried.may_remove(problem, y, to, true).ok()?;
            tried.remove(problem, y, to);
            tried.may_add(problem, y, from).ok()?;
            tried.add(problem, y, from);
        }
        tried.may_add(problem, x, to).ok()?;
        tried.add(problem, x, to);
        Some(tried)
    }
}

/// What an application needs of each node: what it gets there, and its part of what it lacks.
fn needs_on(layout: &Layout, want: &[f64], n: u32) -> Vec<(u32, f64)> {
    let need = |&edge: &u32| {
        let edge = layout.edge(edge);
        let lacks = (want[edge.app as usize] - layout.given(edge.app)).max(0.0);
        (edge.app, edge.load + lacks / layout.of_app(edge.app).len().max(1) as f64)
    };
    layout.on_node(n).iter().map(need).collect()
}

/// The best exchanges that help `m` and pay for themselves, the best first.
fn exchanges(problem: &Problem, layout: &Layout, want: &[f64], m: u32) -> Vec<Exchange> {
    let mut nodes: Vec<u32> = (0..problem.nodes.len() as u32).collect();
    if nodes.len() > NODES {
        nodes.sort_by(|&a, &b| layout.spare(b).total_cmp(&layout.spare(a)).then(a.cmp(&b)));
        nodes.truncate(NODES);
    }
    let mut found: Vec<Exchange> = Vec::new();
    for from in layout.of_app(m).iter().map(|&edge| layout.edge(edge).node) {
        let here = needs_on(layout, want, from);
        for &to in nodes.iter().filter(|&&to| to != from) {
            let there = needs_on(layout, want, to);
            let before = over(problem, from, &here) + over(problem, to, &there);
            let between = Between { problem, layout, from, to, here: &here, there: &there, before };
            for &(x, need) in here.iter().filter(|&&(x, _)| !there.iter().any(|&(other, _)| other == x)) {
                let none = std::iter::once(None);
                let others = there.iter().copied().filter(|&(y, _)| !here.iter().any(|&(other, _)| other == y)).map(Some);
                found.extend(none.chain(others).filter_map(|other| between.exchange((x, need), other)));
            }
        }
    }
    let app = &problem.apps[m as usize];
    let gain = |exchange: &Exchange| {
        let given = layout.given(m);
        app.utility((given + exchange.before - exchange.over).min(want[m as usize])) - app.utility(given)
    };
    found.retain(|exchange| exchange.over < exchange.before - layout.epsilon() && gain(exchange) > exchange.cost);
    found.sort_by(|a, b| {
        a.over.total_cmp(&b.over).then(a.cost.total_cmp(&b.cost)).then(b.room.total_cmp(&a.room)).then(a.to.cmp(&b.to))
    });
    found
}

/// What a node lacks for what its applications need, in cores.
fn over(problem: &Problem, n: u32, needs: &[(u32, f64)]) -> f64 {
    (needs.iter().map(|(_, need)| need).sum::<f64>() - problem.nodes[n as usize].cpu).max(0.0)
}

/// Two nodes, with what is on them.
struct Between<'a> {
    problem: &'a Problem,
    layout: &'a Layout,
    from: u32,
    to: u32,
    here: &'a [(u32, f64)],
    there: &'a [(u32, f64)],
    /// What both lack, in cores.
    before: f64,
}

impl Between<'_> {
    /// `x` goes, with what it needs, and `other` comes for it; `None` when there is no memory for that.
    fn exchange(&self, (x, need): (u32, f64), other: Option<(u32, f64)>) -> Option<Exchange> {
        let memory = |m: u32| self.problem.apps[m as usize].memory;
        let (y_memory, y_need) = other.map_or((0, 0.0), |(y, need)| (memory(y), need));
        let has_room = self.layout.free_memory(self.to).saturating_add(y_memory) >= memory(x)
            && self.layout.free_memory(self.from).saturating_add(memory(x)) >= y_memory;
        if !has_room {
            return None;
        }
        let left = |n: u32, needs: &[(u32, f64)], less: f64, more: f64| {
            self.problem.nodes[n as usize].cpu - needs.iter().map(|(_, need)| need).sum::<f64>() + less - more
        };
        let (from, to) = (left(self.from, self.here, need, y_need), left(self.to, self.there, y_need, need));
        let comes = other.map_or(0.0, |(y, _)| self.price(y, self.from));
        Some(Exchange {
            goes: (x, self.from),
            comes: other.map(|(y, _)| y),
            to: self.to,
            before: self.before,
            over: (-from).max(0.0) + (-to).max(0.0),
            cost: self.price(x, self.to) + comes,
            room: from.min(to),
        })
    }

    /// What it costs that `m` goes to `n`: nothing where it runs already and was to be moved away.
    fn price(&self, m: u32, n: u32) -> f64 {
        let app = &self.problem.apps[m as usize];
        if self.layout.count(m, n) < app.current_on(n) { 0.0 } else { app.cost_of_adding(n) + app.cost.remove }
    }
}

#[cfg(test)]
mod tests {
    use super::super::solve;
    use super::*;
    use crate::placement::problem::generate::curve;
    use crate::placement::problem::{App, ChangeCost, Node};

    const COST: ChangeCost = ChangeCost { start: 0.01, resume: 0.001, remove: 0.001 };

    /// Nodes of four cores and two places, each with two applications of these demands, which reach 0.5 at best.
    fn full(demands: &[[f64; 2]]) -> Problem {
        let mut apps = Vec::new();
        for (n, pair) in (0u32..).zip(demands) {
            for &demand in pair {
                let app = App::new(512, curve(0.5, demand));
                apps.push(App { cost: COST, current: vec![(n, 1)], ..app });
            }
        }
        Problem { nodes: vec![Node { cpu: 4.0, memory: 1024 }; demands.len()], apps, tolerance: 0.01 }
    }

    /// What single exchanges make of it when all want their demands: what stays short, and where each application is.
    fn exchanged(problem: &Problem) -> (f64, Vec<u32>) {
        let want: Vec<f64> = problem.apps.iter().map(App::demand).collect();
        let all: Vec<u32> = (0..problem.apps.len() as u32).collect();
        let (mut flow, mut budget, mut layout) = (FlowNetwork::new(problem), 100, Layout::current(problem));
        let short = flow.saturate(problem, &mut layout, &want, &all);
        let search = Exchanges { problem, flow: &mut flow, budget: &mut budget, all: &all, moves_others: true };
        let short = exchange(search, &mut layout, &want, short);
        (short, all.iter().map(|&m| layout.edge(layout.of_app(m)[0]).node).collect())
    }

    #[test]
    fn two_change_places_so_that_one_has_what_it_wants() {
        // The first node lacks a core. Of the others, the last has most room once 2.5 has gone there for 0.5.
        let problem = full(&[[2.5, 2.5], [1.9, 1.9], [0.5, 0.6]]);
        let (short, places) = exchanged(&problem);
        assert_eq!(short, 0.0);
        let moved: Vec<usize> = (0..6).filter(|&m| problem.apps[m].current[0].0 != places[m]).collect();
        assert_eq!(moved.len(), 2, "{places:?}");
        assert!(moved[0] < 2 && moved[1] >= 4, "{places:?}");
    }

    #[test]
    fn nobody_is_moved_for_less_than_that_costs() {
        // 0.04 cores of 4.04 are missing: that is half a hundredth of utility, and an exchange costs 0.022.
        let problem = full(&[[2.02, 2.02], [0.5, 0.5]]);
        assert_eq!(exchanged(&problem), (0.0, vec![0, 0, 1, 1]));
    }

    #[test]
    fn in_a_full_pool_only_those_are_moved_who_have_to_be() {
        // One pair in forty lacks CPU. Packed anew, all would be better paired and all would be moved.
        let mut demands = vec![[1.0, 1.3]; 40];
        demands[7] = [2.6, 2.6];
        let solution = solve(&full(&demands), 10_000);
        assert_eq!(solution.changes.count(), 4, "two instances change places: {:?}", solution.changes);
        assert!(solution.lowest().unwrap() > 0.49, "{:?}", solution.lowest());
    }

    #[test]
    fn who_is_well_is_moved_for_nobody_who_is_well() {
        // The last two are at 0.38 of 0.5 and everybody else at best; but one of them can never be better than 0.35 itself.
        let mut demands = vec![[1.0, 1.0]; 40];
        demands[39] = [2.5, 2.5];
        let mut problem = full(&demands);
        problem.apps[0].curve = curve(0.35, 1.0);
        let solution = solve(&problem, 10_000);
        assert_eq!(solution.changes.count(), 0, "{:?}", solution.changes);
        assert!((solution.utilities[79] - 0.375).abs() < 0.01, "{:?}", solution.utilities[79]);
    }
}
