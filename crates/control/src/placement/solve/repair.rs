//! Brings a placement to given demands with few changes.
//!
//! The maximum flow says which application is short and which nodes are full (the minimum cut). Four remedies, cheapest first:
//!
//! 1. add an instance of the one that is short on a node with spare CPU and memory, taking off idle ones in its way;
//! 2. add one of another application in the cut, so that load moves along and frees CPU where it is needed;
//! 3. let single instances change places (`exchange`);
//! 4. clear a few nodes, those in the cut and as many of those with most spare, and pack them anew; twice as many each time.
//!
//! The first two move nobody. Who asks for a repair says which of the others it may use.

use super::exchange::{Exchanges, exchange};
use super::max_flow::FlowNetwork;
use super::pack;
use crate::placement::problem::Problem;
use crate::placement::problem::layout::Layout;

/// Candidate nodes looked at for one new instance, in order of spare CPU.
const CANDIDATES: usize = 64;

/// Of those, so many that could host it are compared: they come in order of spare CPU, so that the first are the best but
/// for what a change costs there.
const ENOUGH: usize = 6;

/// What a repair may do to those that run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Remedies {
    /// It adds instances, takes off idle ones, and lets one who is short go to a node that has room: nobody is moved for somebody else.
    Move,
    /// It lets single instances change places too.
    Exchange,
    /// It packs whole nodes anew too.
    Repack,
}

/// A search for a placement that gives each application what `want` says.
pub struct Repair<'a> {
    /// The problem.
    pub problem: &'a Problem,
    /// Its flow's working memory.
    pub flow: &'a mut FlowNetwork,
    /// Steps left; each structural change takes one, each repacked node one.
    pub budget: &'a mut u32,
    /// All applications.
    pub all: &'a [u32],
    /// What it may do.
    pub remedies: Remedies,
}

impl Repair<'_> {
    /// Changes `layout` until nothing is short, or the remedies or the budget are used up; returns what stays short.
    pub fn run(&mut self, layout: &mut Layout, want: &[f64]) -> f64 {
        let mut short = self.flow.saturate(self.problem, layout, want, self.all);
        while short > 0.0 && *self.budget > 0 {
            if !self.add_for_the_short(layout, want) && !self.add_for_the_cut(layout, want) {
                break;
            }
            let now = self.flow.saturate(self.problem, layout, want, self.all);
            if now >= short {
                break;
            }
            short = now;
        }
        match self.remedies {
            Remedies::Move | Remedies::Exchange if short > 0.0 => {
                let Self { problem, all, .. } = *self;
                let moves_others = self.remedies == Remedies::Exchange;
                let search = Exchanges { problem, flow: self.flow, budget: self.budget, all, moves_others };
                exchange(search, layout, want, short)
            }
            Remedies::Repack if short > 0.0 => self.repack(layout, want, short),
            _ => short,
        }
    }

    fn by_spare(&self, layout: &Layout) -> Vec<u32> {
        let eps = layout.epsilon();
        let mut nodes: Vec<u32> = (0..self.problem.nodes.len() as u32).filter(|&n| layout.spare(n) > eps).collect();
        nodes.sort_by(|&a, &b| layout.spare(b).total_cmp(&layout.spare(a)).then(a.cmp(&b)));
        nodes
    }

    fn add_for_the_short(&mut self, layout: &mut Layout, want: &[f64]) -> bool {
        let eps = layout.epsilon();
        let mut short: Vec<(f64, u32)> =
            self.all.iter().map(|&m| (want[m as usize] - layout.given(m), m)).filter(|&(lack, _)| lack > eps).collect();
        short.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let nodes = self.by_spare(layout);
        let (mut any, mut full) = (false, 0);
        // No node in sight has the memory for an instance this large.
        let mut too_large = u64::MAX;
        for (_, m) in short {
            while want[m as usize] - layout.given(m) > eps && *self.budget > 0 {
                let newly_full = nodes[full..].iter().take_while(|&&n| layout.spare(n) <= eps).count();
                if newly_full > 0 {
                    (full, too_large) = (full + newly_full, u64::MAX);
                }
                let (lack, memory) = (want[m as usize] - layout.given(m), self.problem.apps[m as usize].memory);
                let in_sight = if memory < too_large { &nodes[full..] } else { &[] };
                let Some((n, gain)) = self.best_place(layout, m, lack, in_sight) else {
                    let lacking = |&&n: &&u32| pack::lacks_only_memory(self.problem, layout, m, n);
                    if memory < too_large && nodes[full..].iter().take(CANDIDATES).all(|n| lacking(&n)) {
                        too_large = memory;
                    }
                    break;
                };
                self.place(layout, m, n, gain);
                any = true;
            }
        }
        any
    }

    // Another application of the cut gets the instance; the flow then shifts load towards who is short.
    fn add_for_the_cut(&mut self, layout: &mut Layout, want: &[f64]) -> bool {
        let eps = layout.epsilon();
        let lack: f64 = self.all.iter().map(|&m| (want[m as usize] - layout.given(m)).max(0.0)).sum();
        let nodes = self.by_spare(layout);
        let mut cut = self.flow.cut_apps.clone();
        cut.sort_by(|&a, &b| layout.given(b).total_cmp(&layout.given(a)).then(a.cmp(&b)));
        let (mut left, mut any) = (lack, false);
        for m in cut.into_iter().take(CANDIDATES) {
            if left <= eps || *self.budget == 0 {
                break;
            }
            let Some((n, gain)) = self.best_place(layout, m, left.min(layout.given(m)), &nodes) else { continue };
            if gain > eps {
                self.place(layout, m, n, 0.0);
                (left, any) = (left - gain, true);
            }
        }
        any
    }

    // The node where one more instance of `m` gets most; the one that is cheaper to have among equals.
    fn best_place(&self, layout: &Layout, m: u32, lack: f64, nodes: &[u32]) -> Option<(u32, f64)> {
        let (app, eps) = (&self.problem.apps[m as usize], layout.epsilon());
        if app.manual || layout.instances(m) >= app.instances.1 {
            return None;
        }
        let known = app.standby.iter().chain(&app.current).map(|place| place.0);
        let listed = app.allowed.as_deref().unwrap_or_default().iter().copied().take(CANDIDATES);
        let mut best: Option<(u32, f64, f64)> = None;
        let mut hosts = 0;
        for n in known.chain(listed).chain(nodes.iter().copied().take(CANDIDATES)) {
            let gain = lack.min(layout.spare(n)).min(app.instance_cpu);
            if gain <= eps || !self.could_host(layout, m, n) {
                continue;
            }
            let returns = layout.count(m, n) < app.current_on(n);
            let value = gain / app.demand().max(eps) - if returns { 0.0 } else { app.cost_of_adding(n) };
            if best.is_none_or(|(_, _, other)| value > other + 1e-12) {
                best = Some((n, gain, value));
            }
            hosts += 1;
            if hosts == ENOUGH {
                break;
            }
        }
        best.map(|(n, gain, _)| (n, gain))
    }

    fn could_host(&self, layout: &Layout, m: u32, n: u32) -> bool {
        if layout.may_add_with_companions(self.problem, m, n).is_ok() {
            return true;
        }
        let idle: u64 = self.idle_on(layout, n).map(|other| self.problem.apps[other as usize].memory).sum();
        pack::lacks_only_memory(self.problem, layout, m, n)
            && self.problem.apps[m as usize].together.is_empty()
            && layout.free_memory(n).saturating_add(idle) >= self.problem.apps[m as usize].memory
    }

    // Applications with an instance on `n` that carries nothing and that can be spared.
    fn idle_on<'b>(&'b self, layout: &'b Layout, n: u32) -> impl Iterator<Item = u32> + 'b {
        let eps = layout.epsilon();
        let edges = layout.on_node(n).iter().map(|&edge| layout.edge(edge));
        edges
            .filter(move |edge| {
                edge.load <= eps && edge.count == 1 && layout.may_remove(self.problem, edge.app, n, false).is_ok()
            })
            .map(|edge| edge.app)
    }

    fn place(&mut self, layout: &mut Layout, m: u32, n: u32, load: f64) {
        while layout.may_add_with_companions(self.problem, m, n).is_err() {
            let Some(idle) = self.idle_on(layout, n).next() else { return };
            layout.remove(self.problem, idle, n);
            *self.budget = self.budget.saturating_sub(1);
        }
        layout.add_with_companions(self.problem, m, n);
        let edge = layout.find(m, n).expect("it was just added");
        layout.shift(edge, load.min(layout.room(self.problem, edge)).min(layout.spare(n)));
        *self.budget = self.budget.saturating_sub(1);
    }

    // Packs the nodes of the cut anew together with those that have most spare, until nothing is short.
    fn repack(&mut self, layout: &mut Layout, want: &[f64], before: f64) -> f64 {
        let nodes = self.problem.nodes.len();
        let mut best = (before, layout.clone());
        let mut extra = self.flow.cut_nodes.len().clamp(1, nodes);
        loop {
            self.flow.saturate(self.problem, layout, want, self.all);
            let mut subset: Vec<u32> = self.flow.cut_nodes.clone();
            let others = self.roomiest(layout);
            subset.extend(others.into_iter().take(extra));
            *self.budget = self.budget.saturating_sub(subset.len() as u32);
            let mut tried = layout.clone();
            pack::clear(self.problem, &mut tried, &subset);
            pack::pack(self.problem, &mut tried, want, &subset);
            let short = self.flow.saturate(self.problem, &mut tried, want, self.all);
            if short < best.0
                && self
                    .all
                    .iter()
                    .all(|&m| tried.instances(m) >= layout.instances(m).min(self.problem.apps[m as usize].instances.0))
            {
                best = (short, pack::keep_places(self.problem, &tried, &subset));
            }
            if best.0 <= 0.0 || subset.len() >= nodes || *self.budget == 0 {
                break;
            }
            extra *= 2;
        }
        *layout = best.1;
        best.0
    }

    // Nodes outside the cut, those with most CPU to spare first, then those with most memory.
    fn roomiest(&self, layout: &Layout) -> Vec<u32> {
        let mut nodes: Vec<u32> = (0..self.problem.nodes.len() as u32).filter(|&n| !self.flow.reached_node(n)).collect();
        nodes.sort_by(|&a, &b| {
            layout.spare(b).total_cmp(&layout.spare(a)).then(layout.free_memory(b).cmp(&layout.free_memory(a))).then(a.cmp(&b))
        });
        nodes
    }
}
