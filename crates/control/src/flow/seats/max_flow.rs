//! Maximum flow from clusters' demands through their hosts to nodes' capacities, in floating point.
//!
//! Dinic's algorithm on the graph source -> cluster -> node -> sink. Amounts below `tiny`, a fixed share of the biggest
//! capacity, count as nothing, so rounding cannot keep it busy.
//!
//! Whole seats are given out one by one, each only if the flow can still serve all: so this graph can try an addition and take it back
//! ([`MaxFlow::try_more`]). The maximum flow of placement cannot, and works on the loads of a placement instead of a graph.

use std::collections::VecDeque;

/// Arcs come in pairs: arc `a` and its reverse `a ^ 1`; `residual` is what may still pass.
#[derive(Debug, Clone)]
pub(super) struct MaxFlow {
    clusters: usize,
    /// The arcs that leave vertex `v` are `leaving[first[v]..first[v + 1]]`. Vertices: source, clusters, nodes, sink.
    leaving: Vec<u32>,
    first: Vec<u32>,
    head: Vec<u32>,
    residual: Vec<f64>,
    /// `residual` before anything was asked for.
    empty: Vec<f64>,
    /// Where each vertex' search goes on within a phase.
    cursor: Vec<u32>,
    level: Vec<u32>,
    /// First arc of each cluster's hosts; the arc of host `i` is `hosts[d] + 2 i`.
    hosts: Vec<u32>,
    tiny: f64,
    /// The number of the last search by [`MaxFlow::try_more`], and the last one that saw each vertex.
    search: u32,
    seen_in: Vec<u32>,
    /// The arc by which it was seen.
    found_by: Vec<u32>,
    /// The vertices seen by the last search.
    queue: Vec<u32>,
    /// What the attempt under way has let pass.
    journal: Vec<(u32, f64)>,
    /// No cluster can be served more than this beyond what it is.
    room: Vec<f64>,
}

const UNSEEN: u32 = u32::MAX;

impl MaxFlow {
    /// `hosts[d]` lists (node, most that may pass); `capacity[m]` is what node `m` takes. Demands start at zero.
    pub(super) fn new(hosts: &[Vec<(usize, f64)>], capacity: &[f64]) -> Self {
        let vertices = hosts.len() + capacity.len() + 2;
        let biggest = capacity.iter().copied().fold(0.0, f64::max);
        let mut graph = Self {
            clusters: hosts.len(),
            leaving: Vec::new(),
            first: Vec::new(),
            head: Vec::new(),
            residual: Vec::new(),
            empty: Vec::new(),
            cursor: vec![0; vertices],
            level: vec![UNSEEN; vertices],
            hosts: Vec::with_capacity(hosts.len()),
            tiny: 1e-13 * biggest.max(1e-300),
            search: 0,
            seen_in: vec![0; vertices],
            found_by: vec![0; vertices],
            queue: Vec::new(),
            journal: Vec::new(),
            room: vec![f64::INFINITY; hosts.len()],
        };
        for d in 0..hosts.len() {
            graph.add_arc(0, 1 + d, 0.0);
        }
        for (m, &takes) in capacity.iter().enumerate() {
            graph.add_arc(1 + hosts.len() + m, vertices - 1, takes.max(0.0));
        }
        for (d, list) in hosts.iter().enumerate() {
            graph.hosts.push(graph.head.len() as u32);
            for &(m, limit) in list {
                graph.add_arc(1 + d, 1 + hosts.len() + m, limit.max(0.0));
            }
        }
        graph.empty = graph.residual.clone();
        graph.sort_arcs(vertices);
        graph
    }

    /// Lists the arcs by the vertex that they leave, in the order in which they were added.
    fn sort_arcs(&mut self, vertices: usize) {
        self.first = vec![0; vertices + 1];
        let tails = || (0..self.head.len()).map(|arc| self.head[arc ^ 1] as usize);
        for tail in tails() {
            self.first[tail + 1] += 1;
        }
        for vertex in 0..vertices {
            self.first[vertex + 1] += self.first[vertex];
        }
        let mut next = self.first.clone();
        let mut leaving = vec![0; self.head.len()];
        for (arc, tail) in tails().enumerate() {
            leaving[next[tail] as usize] = arc as u32;
            next[tail] += 1;
        }
        self.leaving = leaving;
    }

    /// The positions in `leaving` of a vertex' arcs.
    fn arcs_of(&self, vertex: usize) -> std::ops::Range<usize> {
        self.first[vertex] as usize..self.first[vertex + 1] as usize
    }

    fn sink(&self) -> usize {
        self.first.len() - 2
    }

    /// The arc from a node's vertex to the sink.
    fn to_sink(&self, node: usize) -> usize {
        2 * (node - 1)
    }

    /// Forgets all demands.
    pub(super) fn restart(&mut self) {
        self.residual.clone_from(&self.empty);
        self.room.fill(f64::INFINITY);
    }

    fn add_arc(&mut self, from: usize, to: usize, amount: f64) {
        for (other, amount) in [(to, amount), (from, 0.0)] {
            self.head.push(other as u32);
            self.residual.push(amount);
        }
    }

    /// Asks for `demand` more in cluster `d`.
    pub(super) fn demand(&mut self, d: usize, demand: f64) {
        self.residual[2 * d] += demand;
    }

    /// Lets `amount` of demand that was not asked for yet pass from cluster `d` to its host number `host`. The caller knows that
    /// it fits.
    pub(super) fn carry(&mut self, d: usize, host: usize, amount: f64) {
        let towards = self.hosts[d] as usize + 2 * host;
        let onwards = self.to_sink(self.head[towards] as usize);
        for arc in [towards, onwards] {
            self.residual[arc] = (self.residual[arc] - amount).max(0.0);
            self.residual[arc ^ 1] += amount;
        }
        self.residual[2 * d + 1] += amount;
    }

    /// Lets pass what can pass; returns how much of the demand stays unserved.
    pub(super) fn serve(&mut self) -> f64 {
        while self.levels() {
            self.cursor.fill(0);
            while self.push(0, f64::INFINITY) > 0.0 {}
        }
        self.unserved()
    }

    /// Forgets the demand that could not be served.
    pub(super) fn drop_unserved(&mut self) {
        for d in 0..self.clusters {
            self.residual[2 * d] = 0.0;
        }
    }

    /// Demand that could not be served so far.
    pub(super) fn unserved(&self) -> f64 {
        (0..self.clusters).map(|d| self.residual[2 * d]).filter(|&left| left > self.tiny).sum()
    }

    /// What passes from cluster `d` to its host number `host`.
    pub(super) fn load(&self, d: usize, host: usize) -> f64 {
        self.residual[self.hosts[d] as usize + 2 * host + 1]
    }

    /// After [`MaxFlow::serve`] left something unserved: the side of a minimum cut that holds the source, as flags per
    /// cluster and per node. These clusters ask for more than these nodes and the limits towards other nodes allow.
    pub(super) fn short(&self) -> (Vec<bool>, Vec<bool>) {
        let reached = |vertex: usize| self.level[vertex] != UNSEEN;
        let nodes = self.sink() - 1 - self.clusters;
        ((0..self.clusters).map(|d| reached(1 + d)).collect(), (0..nodes).map(|m| reached(1 + self.clusters + m)).collect())
    }

    /// True when each (cluster, amount) more can be served, all of them at once; if not, nothing changes.
    ///
    /// What cannot be served now cannot be served later, since demand only grows: each failure leaves a bound on what its
    /// side of the cut can still get, so that most later failures are seen without a search.
    pub(super) fn try_more(&mut self, wanted: &[(usize, f64)]) -> bool {
        if wanted.iter().any(|&(d, amount)| amount > self.room[d]) {
            return false;
        }
        self.journal.clear();
        let mut total = 0.0;
        for &(d, amount) in wanted {
            let lack = self.serve_from(1 + d, amount);
            total += amount;
            if lack > 1e-9 * amount.max(self.tiny) {
                for &reached in self.queue.iter().filter(|&&vertex| (1..=self.clusters).contains(&(vertex as usize))) {
                    let room = &mut self.room[reached as usize - 1];
                    *room = room.min((total - lack) * (1.0 + 1e-9));
                }
                for (arc, amount) in self.journal.drain(..) {
                    self.residual[arc as usize] += amount;
                    self.residual[arc as usize ^ 1] -= amount;
                }
                return false;
            }
        }
        for &(d, amount) in wanted {
            self.residual[2 * d + 1] += amount;
        }
        true
    }

    /// Lets up to `amount` more pass from a cluster's vertex, path by path; returns what does not.
    fn serve_from(&mut self, start: usize, amount: f64) -> f64 {
        let mut lack = amount;
        while lack > self.tiny && self.find_path(start) {
            let arcs = self.found_path(start);
            let passes = arcs.iter().map(|&arc| self.residual[arc as usize]).fold(lack, f64::min);
            for arc in arcs {
                self.residual[arc as usize] -= passes;
                self.residual[arc as usize ^ 1] += passes;
                self.journal.push((arc, passes));
            }
            lack -= passes;
        }
        lack
    }

    fn found_path(&self, start: usize) -> Vec<u32> {
        let mut vertex = self.sink();
        let mut arcs = Vec::with_capacity(4);
        while vertex != start {
            let arc = self.found_by[vertex];
            arcs.push(arc);
            vertex = self.head[arc as usize ^ 1] as usize;
        }
        arcs
    }

    /// Breadth-first from `start` to the sink, never over the source; leaves what was reached in `queue`. A node that has
    /// something left ends the search when it is seen, not when its turn comes.
    fn find_path(&mut self, start: usize) -> bool {
        let sink = self.sink();
        self.search += 1;
        self.queue.clear();
        self.queue.push(start as u32);
        self.seen_in[0] = self.search;
        self.seen_in[start] = self.search;
        let mut at = 0;
        while let Some(&vertex) = self.queue.get(at) {
            at += 1;
            for position in self.arcs_of(vertex as usize) {
                let arc = self.leaving[position];
                let to = self.head[arc as usize] as usize;
                if self.seen_in[to] == self.search || self.residual[arc as usize] <= self.tiny {
                    continue;
                }
                self.seen_in[to] = self.search;
                self.found_by[to] = arc;
                if to > self.clusters && self.residual[self.to_sink(to)] > self.tiny {
                    self.found_by[sink] = self.to_sink(to) as u32;
                    return true;
                }
                self.queue.push(to as u32);
            }
        }
        false
    }

    /// Breadth-first levels from the source; true when the sink is among them.
    fn levels(&mut self) -> bool {
        self.level.fill(UNSEEN);
        self.level[0] = 0;
        let mut queue = VecDeque::from([0usize]);
        while let Some(vertex) = queue.pop_front() {
            for position in self.arcs_of(vertex) {
                let arc = self.leaving[position] as usize;
                let to = self.head[arc] as usize;
                if self.residual[arc] > self.tiny && self.level[to] == UNSEEN {
                    self.level[to] = self.level[vertex] + 1;
                    queue.push_back(to);
                }
            }
        }
        self.level[self.sink()] != UNSEEN
    }

    /// Pushes up to `most` from `vertex` along one level at a time (the graph is at most a few levels deep per detour, so
    /// the recursion is bounded by the number of vertices on a shortest path).
    fn push(&mut self, vertex: usize, most: f64) -> f64 {
        if vertex == self.sink() {
            return most;
        }
        let mut pushed = 0.0;
        let arcs = self.arcs_of(vertex);
        while arcs.start + (self.cursor[vertex] as usize) < arcs.end {
            let arc = self.leaving[arcs.start + self.cursor[vertex] as usize] as usize;
            let to = self.head[arc] as usize;
            if self.residual[arc] > self.tiny && self.level[to] == self.level[vertex] + 1 {
                let got = self.push(to, (most - pushed).min(self.residual[arc]));
                self.residual[arc] -= got;
                self.residual[arc ^ 1] += got;
                pushed += got;
                if pushed >= most - self.tiny {
                    return pushed;
                }
            }
            self.cursor[vertex] += 1;
        }
        pushed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_node_is_left_to_whom_needs_it() {
        let any = f64::INFINITY;
        let mut graph = MaxFlow::new(&[vec![(0, any), (1, any)], vec![(1, any), (2, any)]], &[10.0, 10.0, 10.0]);
        graph.demand(0, 18.0);
        graph.demand(1, 12.0);
        assert!(graph.serve() < 1e-9);
        assert!((graph.load(0, 0) + graph.load(0, 1) - 18.0).abs() < 1e-9);
        graph.demand(0, 1.0);
        assert!((graph.serve() - 1.0).abs() < 1e-9);
        assert_eq!(graph.short(), (vec![true, true], vec![true, true, true]));
    }

    #[test]
    fn a_host_takes_no_more_than_its_instances_can_use() {
        let mut graph = MaxFlow::new(&[vec![(0, 2.0)]], &[10.0]);
        graph.demand(0, 3.0);
        assert!((graph.serve() - 1.0).abs() < 1e-12);
        assert_eq!(graph.short(), (vec![true], vec![false]));
        assert!(!graph.try_more(&[(0, 0.5)]));
    }
}
