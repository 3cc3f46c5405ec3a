//! When a job that does not run is foreseen to get a place: as soon as the runs that end before leave one.
//!
//! This is what waiting costs, and it does not depend on how often decisions are made. Between two completions nothing new
//! can be decided about a full node, so each decision there compares the same thing.

use super::Job;
use super::job::Needs;

/// CPU and memory left on a node.
pub(super) type Free = (f64, u64);

/// The end of a run.
#[derive(Debug, Clone)]
pub(super) struct End {
    /// Seconds from now.
    pub in_s: f64,
    /// Which job.
    pub job: usize,
    /// The nodes that it leaves.
    pub nodes: Vec<usize>,
}

/// What is foreseen of the nodes.
pub(super) struct Foresight<'a> {
    pub jobs: &'a [Job],
    pub needs: &'a [Needs],
    /// What is left on each node now.
    pub free: Vec<Free>,
    /// The runs of now, in any order.
    pub ends: Vec<End>,
}

impl Foresight<'_> {
    /// Each of `queue` with the seconds until it has a place, which those before it are offered first; infinite where nothing
    /// that is foreseen makes room. `find` gives the nodes on which a job would run beside what is left there.
    pub fn waits(mut self, queue: &[usize], find: impl Fn(&[Free], usize) -> Option<Vec<usize>>) -> Vec<(usize, f64)> {
        // The next end is the last.
        self.ends.sort_by(|a, b| b.in_s.total_cmp(&a.in_s).then(b.job.cmp(&a.job)));
        let mut open = queue.to_vec();
        let mut waits = Vec::with_capacity(queue.len());
        while !open.is_empty()
            && let Some(end) = self.ends.pop()
        {
            self.leave(&end);
            open.retain(|&m| {
                let Some(nodes) = find(&self.free, m) else { return true };
                waits.push((m, end.in_s));
                self.begin(m, end.in_s, nodes);
                false
            });
        }
        waits.extend(open.into_iter().map(|m| (m, f64::INFINITY)));
        waits
    }

    fn leave(&mut self, end: &End) {
        let needs = &self.needs[end.job];
        for &node in &end.nodes {
            self.free[node] = (self.free[node].0 + needs.max_speed, self.free[node].1 + needs.memory);
        }
    }

    /// `m` begins `in_s` seconds from now on `nodes`, at full speed.
    fn begin(&mut self, m: usize, in_s: f64, nodes: Vec<usize>) {
        let needs = &self.needs[m];
        for &node in &nodes {
            self.free[node] = (self.free[node].0 - needs.max_speed, self.free[node].1.saturating_sub(needs.memory));
        }
        let end = End { in_s: in_s + self.jobs[m].best_s(), job: m, nodes };
        let at = self.ends.partition_point(|other| other.in_s > end.in_s);
        self.ends.insert(at, end);
    }
}
