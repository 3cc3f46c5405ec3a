//! What is foreseen for those that do not run, or run slowed down.

use super::{Changes, Layout, Search};
use crate::jobs::places::{End, Foresight, Free};

/// For how many waiting jobs a place is foreseen, the most urgent first. Those further back count as if they found one at once.
const FORESEEN: usize = 64;

impl Search<'_> {
    /// Each job that `changes` suspend, with the seconds until its place in the queue is reached. Only the most urgent are told.
    pub(super) fn waits_of_suspended(
        &self,
        changes: &Changes,
        layout: &Layout,
        speeds: &[f64],
        held_s: &[f64],
    ) -> Vec<(usize, f64)> {
        let is_suspended = |m: usize| changes.iter().any(|(changed, nodes)| *changed == m && nodes.is_empty());
        if !changes.iter().any(|(_, nodes)| nodes.is_empty()) {
            return Vec::new();
        }
        self.foreseen(layout, speeds, held_s).into_iter().filter(|(m, _)| is_suspended(*m)).collect()
    }

    /// The most urgent of those that wait, each with the seconds until it gets a place, when the jobs of a layout run at `speeds`
    /// per task.
    pub(super) fn foreseen(&self, layout: &Layout, speeds: &[f64], held_s: &[f64]) -> Vec<(usize, f64)> {
        let (jobs, needs) = (self.situation.jobs, self.needs.as_slice());
        let mut queue = self.waiting(layout);
        queue.truncate(FORESEEN);
        if queue.is_empty() {
            return Vec::new();
        }
        let ends = layout.iter().enumerate().filter(|(m, nodes)| !nodes.is_empty() && speeds[*m] > 0.0);
        let ends = ends.map(|(m, nodes)| End { in_s: held_s[m] + jobs[m].duration_at(speeds[m]), job: m, nodes: nodes.clone() });
        let foresight = Foresight { jobs, needs, free: self.free(layout, |needs| needs.max_speed), ends: ends.collect() };
        let fastest = self.situation.nodes.iter().map(|node| node.cpu).fold(0.0, f64::max);
        foresight.waits(&queue, |free, m| self.find(free, m, needs[m].max_speed.min(fastest)))
    }

    /// True when `m` on `nodes` keeps memory that a more urgent job, for which there is none now, would have sooner without it, and nobody
    /// can be suspended for that one.
    pub(super) fn bars_the_way(&self, layout: &mut Layout, m: usize, nodes: &[usize]) -> bool {
        if self.can_leave_memory(m) {
            return false;
        }
        let free = self.memory(layout);
        let lacks_memory = |&first: &usize| self.find(&free, first, 0.0).is_none();
        let mut queue: Vec<usize> =
            self.waiting(layout).into_iter().take_while(|&first| first != m).filter(lacks_memory).collect();
        queue.truncate(FORESEEN);
        if queue.is_empty() {
            return false;
        }
        let without = self.waits_for_memory(layout, &queue);
        layout[m] = nodes.to_vec();
        let with = self.waits_for_memory(layout, &queue);
        layout[m].clear();
        without.iter().any(|(first, in_s)| with.iter().any(|(other, later_s)| other == first && later_s > in_s))
    }

    /// What is left of each node's memory; CPU is shared, so that there is always some.
    fn memory(&self, layout: &Layout) -> Vec<Free> {
        self.free(layout, |_| 0.0).into_iter().map(|(_, memory)| (f64::INFINITY, memory)).collect()
    }

    /// Each of `queue` with the seconds until there is memory for it, when everyone of a layout runs at full speed.
    fn waits_for_memory(&self, layout: &Layout, queue: &[usize]) -> Vec<(usize, f64)> {
        let (jobs, needs) = (self.situation.jobs, self.needs.as_slice());
        let running = layout.iter().enumerate().filter(|(_, nodes)| !nodes.is_empty());
        let ends = running.map(|(m, nodes)| End { in_s: jobs[m].best_s(), job: m, nodes: nodes.clone() }).collect();
        let foresight = Foresight { jobs, needs, free: self.memory(layout), ends };
        foresight.waits(queue, |free, m| self.find(free, m, 0.0))
    }

    /// Books what running beside others costs those that run slower than they could: the time lost until somebody leaves one of
    /// their nodes, or until they are done at that speed. The group's level does not know that CPU cannot leave its node.
    pub(super) fn book_the_slowed(&self, wait_s: &mut [f64], layout: &Layout, speeds: &[f64], held_s: &[f64]) {
        let jobs = self.situation.jobs;
        let slow = |m: usize| !layout[m].is_empty() && speeds[m] < self.needs[m].max_speed * (1.0 - 1e-6);
        if !(0..jobs.len()).any(slow) {
            return;
        }
        let ends_in_s = |m: usize| if speeds[m] > 0.0 { held_s[m] + jobs[m].duration_at(speeds[m]) } else { f64::INFINITY };
        let mut leaves = vec![(f64::INFINITY, f64::INFINITY, usize::MAX); self.situation.nodes.len()];
        for (m, nodes) in layout.iter().enumerate() {
            let in_s = ends_in_s(m);
            for &node in nodes {
                let (first, second, who) = leaves[node];
                leaves[node] = match in_s < first {
                    true => (in_s, if who == m { second } else { first }, m),
                    false if who == m => leaves[node],
                    false => (first, second.min(in_s), who),
                };
            }
        }
        for m in (0..jobs.len()).filter(|&m| slow(m)) {
            let others = layout[m].iter().map(|&node| if leaves[node].2 == m { leaves[node].1 } else { leaves[node].0 });
            let lost_until = others.fold(f64::INFINITY, f64::min) * (1.0 - speeds[m] / self.needs[m].max_speed);
            wait_s[m] = lost_until.min(ends_in_s(m) - held_s[m] - jobs[m].best_s()).max(0.0);
        }
    }
}
