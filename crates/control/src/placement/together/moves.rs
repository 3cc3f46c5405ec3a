//! Who may go where, and what a placement becomes by it.

use weal_model::JobState;

use super::pool::{Placing, Pool};
use crate::jobs::{Job, bars_the_way};
use crate::placement::problem::layout::Layout;

/// Whose place changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Party {
    Job(usize),
    /// An instance of it.
    App(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Waiting, suspended or asleep.
    Nowhere,
    Node(usize),
    /// The nodes of a gang, whichever they are.
    Gang,
}

/// One instance or job changes its place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Move {
    pub who: Party,
    pub from: Place,
    pub to: Place,
}

impl Pool<'_> {
    /// What a placement becomes by some moves; `None` where a rule or the memory does not allow it.
    pub fn moved(&self, placing: &Placing, moves: &[Move]) -> Option<Placing> {
        let mut next = placing.clone();
        moves.iter().try_for_each(|one| self.leave(&mut next, one))?;
        moves.iter().try_for_each(|one| self.arrive(&mut next, one))?;
        let keeps_fewest = |one: &Move| match one.who {
            Party::App(m) => {
                let (app, before) = (&self.problem.apps[m as usize], &placing.layout);
                let nodes = |layout: &Layout| layout.of_app(m).len() as u32;
                next.layout.instances(m) >= app.instances.0.min(before.instances(m))
                    && nodes(&next.layout) >= app.nodes.0.min(nodes(before))
            }
            Party::Job(_) => true,
        };
        (moves.iter().all(keeps_fewest) && self.is_sound(&next, moves)).then_some(next)
    }

    fn leave(&self, next: &mut Placing, one: &Move) -> Option<()> {
        match (one.who, one.from) {
            (_, Place::Nowhere) => {}
            (Party::Job(m), _) => next.runs[m].clear(),
            (Party::App(m), Place::Node(n)) if self.measured[m as usize] => {
                next.layout.may_remove(&self.problem, m, n as u32, true).ok()?;
                next.layout.remove(&self.problem, m, n as u32);
            }
            (Party::App(_), _) => return None,
        }
        Some(())
    }

    fn arrive(&self, next: &mut Placing, one: &Move) -> Option<()> {
        match (one.who, one.to) {
            (_, Place::Nowhere) => {}
            (Party::Job(m), Place::Node(n)) => next.runs[m] = vec![n],
            (Party::Job(m), Place::Gang) => next.runs[m] = self.nodes_for_gang(next, m)?,
            (Party::App(m), Place::Node(n)) => {
                next.layout.may_add_with_companions(&self.problem, m, n as u32).ok()?;
                next.layout.add_with_companions(&self.problem, m, n as u32);
            }
            (Party::App(_), Place::Gang) => return None,
        }
        Some(())
    }

    /// Whether everything that came somewhere has its memory there, jobs at least the CPU without which they do not run, and no job begins in
    /// memory that a more urgent one would have sooner without it.
    fn is_sound(&self, next: &Placing, moves: &[Move]) -> bool {
        let free = self.free(next);
        let mut least = vec![0.0; self.problem.nodes.len()];
        for (needs, nodes) in self.needs.iter().zip(&next.runs) {
            nodes.iter().for_each(|&n| least[n] += needs.min_speed);
        }
        let has_cpu = |n: usize| self.problem.nodes[n].cpu > 0.0 && least[n] <= self.problem.nodes[n].cpu + 1e-9;
        moves.iter().all(|one| match (one.who, one.to) {
            (_, Place::Nowhere) => true,
            // Its companions come to the same node.
            (Party::App(_), Place::Node(n)) => free[n] >= 0,
            (Party::App(_), Place::Gang) => false,
            (Party::Job(m), _) => {
                next.runs[m].iter().all(|&n| free[n] >= 0 && has_cpu(n)) && (self.can_pause(m) || !self.bars_the_way(next, m))
            }
        })
    }

    fn bars_the_way(&self, next: &Placing, m: usize) -> bool {
        let mut runs = next.runs.clone();
        let nodes = std::mem::take(&mut runs[m]);
        bars_the_way(&self.around(&next.layout).situation(self), &mut runs, m, &nodes)
    }

    /// A node for each task, one after the other on the node that has most CPU left.
    fn nodes_for_gang(&self, placing: &Placing, m: usize) -> Option<Vec<usize>> {
        let mut memory = self.free(placing);
        let mut cpu: Vec<f64> = self.problem.nodes.iter().map(|node| node.cpu).collect();
        for (needs, nodes) in self.needs.iter().zip(&placing.runs) {
            nodes.iter().for_each(|&n| cpu[n] -= needs.max_speed);
        }
        let needs = &self.needs[m];
        let mut nodes = Vec::new();
        for _ in 0..self.jobs[m].tasks {
            let fits = |n: &usize| memory[*n] >= i128::from(needs.memory) && self.problem.nodes[*n].cpu > 0.0;
            let n = (0..cpu.len()).filter(fits).max_by(|&a, &b| cpu[a].total_cmp(&cpu[b]).then(b.cmp(&a)))?;
            (memory[n], cpu[n]) = (memory[n] - i128::from(needs.memory), cpu[n] - needs.max_speed);
            nodes.push(n);
        }
        nodes.sort_unstable();
        Some(nodes)
    }

    /// Whether there can be memory for some moves: a look before the placement is built.
    pub fn may_fit(&self, placing: &Placing, free: &[i128], moves: &[Move]) -> bool {
        let leaves = |one: &Move, n: usize| match (one.who, one.from) {
            (Party::Job(m), _) => placing.runs[m].iter().filter(|&&at| at == n).count() as i128,
            (Party::App(_), from) => i128::from(from == Place::Node(n)),
        };
        moves.iter().all(|one| {
            let Place::Node(n) = one.to else { return true };
            let change = moves.iter().map(|other| {
                let comes = i128::from(other.to == Place::Node(n));
                i128::from(self.memory(other.who)) * (leaves(other, n) - comes)
            });
            free[n] + change.sum::<i128>() >= 0
        })
    }

    /// Bytes of a task or an instance.
    fn memory(&self, who: Party) -> u64 {
        match who {
            Party::Job(m) => self.needs[m].memory,
            Party::App(m) => self.problem.apps[m as usize].memory,
        }
    }

    /// The moves that give `who` a place or another one, `None` for staying where it is, each with the node where others may be in its way; `None` for anywhere.
    pub fn openings(&self, placing: &Placing, free: &[i128], who: Party) -> Vec<(Option<Move>, Option<usize>)> {
        match who {
            Party::Job(m) if self.jobs[m].tasks > 1 => match placing.runs[m].first() {
                Some(_) => placing.runs[m].iter().map(|&n| (None, Some(n))).collect(),
                None => vec![(Some(Move { who, from: Place::Nowhere, to: Place::Gang }), None)],
            },
            Party::Job(m) => {
                let from = self.place_of_job(placing, m);
                let go = roomiest(free).into_iter().filter(|&n| Place::Node(n) != from && self.may_go(m, from, n));
                let go = go.map(|n| (Some(Move { who, from, to: Place::Node(n) }), Some(n)));
                placing.runs[m].iter().map(|&n| (None, Some(n))).chain(go).collect()
            }
            Party::App(m) => {
                let own: Vec<usize> = self.nodes_of_app(placing, m);
                let targets = roomiest(free).into_iter().filter(|&n| self.problem.apps[m as usize].allows(n as u32));
                let to = |n: usize| {
                    let from = own.iter().filter(move |&&from| from != n).map(|&from| Place::Node(from));
                    let froms = std::iter::once(Place::Nowhere).chain(from);
                    froms.map(move |from| (Some(Move { who, from, to: Place::Node(n) }), Some(n)))
                };
                own.iter().map(|&n| (None, Some(n))).chain(targets.flat_map(to)).collect()
            }
        }
    }

    /// The moves of those on node `at`, or anywhere, other than `except`: to one of at most `targets` other nodes, or nowhere.
    pub fn departures(&self, placing: &Placing, free: &[i128], at: Option<usize>, except: Party, targets: usize) -> Vec<Move> {
        let is_here = |n: usize| at.is_none_or(|at| at == n);
        let elsewhere = |from: usize| roomiest(free).into_iter().filter(move |&n| n != from);
        let mut moves = Vec::new();
        for m in (0..self.jobs.len()).filter(|&m| Party::Job(m) != except && placing.runs[m].iter().any(|&n| is_here(n))) {
            let (who, from) = (Party::Job(m), self.place_of_job(placing, m));
            if let Place::Node(node) = from {
                let go = elsewhere(node).filter(|&n| self.may_go(m, from, n)).take(targets);
                moves.extend(go.map(|n| Move { who, from, to: Place::Node(n) }));
            }
            if self.may_leave(m, except) {
                moves.push(Move { who, from, to: Place::Nowhere });
            }
        }
        for m in (0..self.problem.apps.len() as u32).filter(|&m| Party::App(m) != except && self.measured[m as usize]) {
            for node in self.nodes_of_app(placing, m).into_iter().filter(|&n| is_here(n)) {
                let (who, from) = (Party::App(m), Place::Node(node));
                let go = elsewhere(node).filter(|&n| self.problem.apps[m as usize].allows(n as u32)).take(targets);
                moves.extend(go.map(|n| Move { who, from, to: Place::Node(n) }));
                moves.push(Move { who, from, to: Place::Nowhere });
            }
        }
        moves
    }

    fn nodes_of_app(&self, placing: &Placing, m: u32) -> Vec<usize> {
        placing.layout.of_app(m).iter().map(|&edge| placing.layout.edge(edge).node as usize).collect()
    }

    fn place_of_job(&self, placing: &Placing, m: usize) -> Place {
        match placing.runs[m].as_slice() {
            [] => Place::Nowhere,
            &[n] => Place::Node(n),
            _ => Place::Gang,
        }
    }

    /// Whether job `m` can be somewhere else than where it runs or is suspended.
    fn may_go(&self, m: usize, from: Place, to: usize) -> bool {
        let job = &self.jobs[m];
        let moves = job.saves || self.costs.moves();
        match job.state {
            JobState::Running => moves || from == Place::Nowhere,
            JobState::Suspended => moves || job.nodes.contains(&to),
            _ => true,
        }
    }

    /// Whether the image of job `m` can leave memory.
    fn can_pause(&self, m: usize) -> bool {
        self.jobs[m].saves || self.costs.leaves_memory()
    }

    /// Whether job `m` may stop running, or not begin, for another's sake: not where its image cannot leave memory, and not for a job alike of lower priority.
    fn may_leave(&self, m: usize, whose: Party) -> bool {
        let job: &Job = &self.jobs[m];
        let goes_before = |other: &Job| job.weight == other.weight && job.priority > other.priority;
        let is_outranked = matches!(whose, Party::Job(other) if goes_before(&self.jobs[other]));
        !is_outranked && (job.state != JobState::Running || self.can_pause(m))
    }
}

/// All nodes, those with most free memory first.
fn roomiest(free: &[i128]) -> Vec<usize> {
    let mut nodes: Vec<usize> = (0..free.len()).collect();
    nodes.sort_by(|&a, &b| free[b].cmp(&free[a]).then(a.cmp(&b)));
    nodes
}
