//! Maximum flow on the bipartite graph of applications and nodes, warm-started from the loads that are there.
//!
//! Source -> application m (capacity: what it wants) -> node n (capacity: its instances' limits) -> sink (the node's CPU).
//! Dinic's algorithm: breadth-first levels from every application that lacks CPU, then blocking flow along them. When no
//! node with spare CPU can be reached any more, what was reached is a minimum cut: the applications in it share nodes that
//! are full, and no other distribution of load gives them more together.
//!
//! The flow of seats (`flow::seats`) is another implementation, because it answers another question about the same shape of graph. This
//! one has no graph of its own: it moves the loads of a [`Layout`], which the search clones and changes thousands of times for one plan,
//! and starts from what they are. That one builds its graph once for each cycle, takes back what it tried, and is exact to 1e-13 where
//! this one stops at a billionth of a node.

use crate::placement::problem::Problem;
use crate::placement::problem::layout::Layout;

const UNSEEN: u32 = u32::MAX;

/// Working memory for [`FlowNetwork::saturate`], reusable for any number of calls on problems of one size.
#[derive(Debug, Clone)]
pub struct FlowNetwork {
    app_level: Vec<u32>,
    node_level: Vec<u32>,
    app_next: Vec<u32>,
    node_next: Vec<u32>,
    /// Applications in the cut after [`FlowNetwork::saturate`], which is every application reachable from one that lacks CPU.
    pub cut_apps: Vec<u32>,
    /// Nodes in the cut: all of them full.
    pub cut_nodes: Vec<u32>,
    path: Vec<u32>,
    /// The last walk over nodes that saw each one.
    walk: u32,
    walked: Vec<u32>,
}

impl FlowNetwork {
    /// For problems of this size.
    pub fn new(problem: &Problem) -> Self {
        Self {
            app_level: vec![UNSEEN; problem.apps.len()],
            node_level: vec![UNSEEN; problem.nodes.len()],
            app_next: vec![0; problem.apps.len()],
            node_next: vec![0; problem.nodes.len()],
            cut_apps: Vec::new(),
            cut_nodes: Vec::new(),
            path: Vec::new(),
            walk: 0,
            walked: vec![0; problem.nodes.len()],
        }
    }

    /// Gives each of `apps` the CPU it wants as far as its instances allow, changing loads only; returns what is lacking in
    /// all, in cores. Applications that have more than they want give it back. `want` is indexed by application.
    ///
    /// Postcondition: [`FlowNetwork::cut_apps`] is empty exactly when nothing is lacking.
    pub fn saturate(&mut self, problem: &Problem, layout: &mut Layout, want: &[f64], apps: &[u32]) -> f64 {
        let eps = layout.epsilon();
        for &m in apps {
            keep_floors(problem, layout, m);
            give_back(problem, layout, m, want[m as usize]);
        }
        for &m in apps {
            take_spare(problem, layout, m, want[m as usize]);
        }
        while self.levels(problem, layout, want, apps, eps) {
            for &m in apps {
                while want[m as usize] - layout.given(m) > eps && self.augment(problem, layout, m, want, eps) {}
            }
        }
        apps.iter().map(|&m| (want[m as usize] - layout.given(m)).max(0.0)).filter(|&lack| lack > eps).sum()
    }

    /// Each of `nodes` once.
    pub(super) fn distinct(&mut self, nodes: impl Iterator<Item = u32>) -> impl Iterator<Item = u32> {
        self.walk += 1;
        nodes.filter(move |&n| std::mem::replace(&mut self.walked[n as usize], self.walk) != self.walk)
    }

    /// Whether `m` was reached in the last search for spare CPU.
    pub fn reached(&self, m: u32) -> bool {
        self.app_level[m as usize] != UNSEEN
    }

    /// Whether node `n` was reached in the last search for spare CPU.
    pub fn reached_node(&self, n: u32) -> bool {
        self.node_level[n as usize] != UNSEEN
    }

    // Breadth-first from the applications that lack CPU; true when some node with spare CPU was reached.
    fn levels(&mut self, problem: &Problem, layout: &Layout, want: &[f64], apps: &[u32], eps: f64) -> bool {
        for m in self.cut_apps.drain(..) {
            self.app_level[m as usize] = UNSEEN;
        }
        for n in self.cut_nodes.drain(..) {
            self.node_level[n as usize] = UNSEEN;
        }
        for &m in apps {
            if want[m as usize] - layout.given(m) > eps {
                self.see_app(m, 0);
            }
        }
        let mut last_level = UNSEEN;
        let mut at = 0;
        while at < self.cut_apps.len() {
            let m = self.cut_apps[at];
            at += 1;
            let level = self.app_level[m as usize] + 1;
            if level > last_level {
                break;
            }
            for &edge in layout.of_app(m) {
                let n = layout.edge(edge).node;
                if self.node_level[n as usize] != UNSEEN || layout.room(problem, edge) <= eps {
                    continue;
                }
                self.node_level[n as usize] = level;
                self.node_next[n as usize] = 0;
                self.cut_nodes.push(n);
                if layout.spare(n) > eps {
                    last_level = level;
                    continue;
                }
                for &back in layout.on_node(n) {
                    let other = layout.edge(back).app;
                    if self.app_level[other as usize] == UNSEEN && movable(problem, layout, back) > eps {
                        self.see_app(other, level + 1);
                    }
                }
            }
        }
        last_level != UNSEEN
    }

    fn see_app(&mut self, m: u32, level: u32) {
        self.app_level[m as usize] = level;
        self.app_next[m as usize] = 0;
        self.cut_apps.push(m);
    }

    // One path from `start` to spare CPU along the levels; false when there is none left.
    fn augment(&mut self, problem: &Problem, layout: &mut Layout, start: u32, want: &[f64], eps: f64) -> bool {
        self.path.clear();
        let mut m = start;
        loop {
            let Some(n) = self.step_to_node(problem, layout, m, eps) else {
                // Dead end: step back over the node that led here.
                let Some(back) = self.path.pop() else { return false };
                let node = layout.edge(back).node;
                self.node_next[node as usize] += 1;
                let Some(forward) = self.path.pop() else { return false };
                m = layout.edge(forward).app;
                continue;
            };
            if layout.spare(n) > eps {
                let lack = want[start as usize] - layout.given(start);
                return self.push_along_path(problem, layout, lack.min(layout.spare(n)));
            }
            match self.step_to_app(problem, layout, n, eps) {
                Some(next) => m = next,
                None => {
                    self.path.pop();
                    self.app_next[m as usize] += 1;
                }
            }
        }
    }

    fn step_to_node(&mut self, problem: &Problem, layout: &Layout, m: u32, eps: f64) -> Option<u32> {
        let edges = layout.of_app(m);
        while let Some(&edge) = edges.get(self.app_next[m as usize] as usize) {
            let n = layout.edge(edge).node;
            let next_level = self.app_level[m as usize].wrapping_add(1);
            if self.node_level[n as usize] == next_level && layout.room(problem, edge) > eps {
                self.path.push(edge);
                return Some(n);
            }
            self.app_next[m as usize] += 1;
        }
        None
    }

    fn step_to_app(&mut self, problem: &Problem, layout: &Layout, n: u32, eps: f64) -> Option<u32> {
        let edges = layout.on_node(n);
        while let Some(&edge) = edges.get(self.node_next[n as usize] as usize) {
            let other = layout.edge(edge).app;
            let next_level = self.node_level[n as usize] + 1;
            if self.app_level[other as usize] == next_level && movable(problem, layout, edge) > eps {
                self.path.push(edge);
                return Some(other);
            }
            self.node_next[n as usize] += 1;
        }
        None
    }

    // Forward edges (even positions) gain, backward edges lose.
    fn push_along_path(&mut self, problem: &Problem, layout: &mut Layout, limit: f64) -> bool {
        let amount = self.path.iter().enumerate().fold(limit, |amount, (at, &edge)| {
            amount.min(if at % 2 == 0 { layout.room(problem, edge) } else { movable(problem, layout, edge) })
        });
        for (at, &edge) in self.path.iter().enumerate() {
            layout.shift(edge, if at % 2 == 0 { amount } else { -amount });
        }
        true
    }
}

// Load that may leave an edge: all but what its instances must get.
fn movable(problem: &Problem, layout: &Layout, edge: u32) -> f64 {
    layout.edge(edge).load - floor(problem, layout, edge)
}

// CPU that the instances of an edge must get.
fn floor(problem: &Problem, layout: &Layout, edge: u32) -> f64 {
    let edge = layout.edge(edge);
    problem.apps[edge.app as usize].instance_min_cpu * f64::from(edge.count)
}

fn keep_floors(problem: &Problem, layout: &mut Layout, m: u32) {
    if problem.apps[m as usize].instance_min_cpu <= 0.0 {
        return;
    }
    for at in 0..layout.of_app(m).len() {
        let edge = layout.of_app(m)[at];
        let short = floor(problem, layout, edge) - layout.edge(edge).load;
        if short > 0.0 {
            make_way(problem, layout, edge, short);
            layout.shift(edge, short);
        }
    }
}

// Takes load off other edges of the node until `cpu` is spare there.
fn make_way(problem: &Problem, layout: &mut Layout, edge: u32, cpu: f64) {
    let n = layout.edge(edge).node;
    for at in 0..layout.on_node(n).len() {
        let lack = cpu - layout.spare(n);
        if lack <= 0.0 {
            return;
        }
        let other = layout.on_node(n)[at];
        let off = movable(problem, layout, other).clamp(0.0, lack);
        if other != edge {
            layout.shift(other, -off);
        }
    }
}

fn give_back(problem: &Problem, layout: &mut Layout, m: u32, want: f64) {
    for at in 0..layout.of_app(m).len() {
        let excess = layout.given(m) - want;
        if excess <= 0.0 {
            return;
        }
        let edge = layout.of_app(m)[at];
        let off = movable(problem, layout, edge).clamp(0.0, excess);
        layout.shift(edge, -off);
    }
}

fn take_spare(problem: &Problem, layout: &mut Layout, m: u32, want: f64) {
    for at in 0..layout.of_app(m).len() {
        let lack = want - layout.given(m);
        if lack <= 0.0 {
            return;
        }
        let edge = layout.of_app(m)[at];
        let more = layout.room(problem, edge).min(layout.spare(layout.edge(edge).node)).clamp(0.0, lack);
        layout.shift(edge, more);
    }
}
