//! Why a job does not run, in a sentence: what it lacks, which jobs have that, and which come before it.

use weal_model::{Bytes, JobState, Utility};

use crate::jobs::{Assignment, NEVER, Situation, in_line};
use crate::placement::problem::translate::Translation;

/// So many others are named, the others counted.
const NAMED: usize = 3;

/// What a plan has decided about jobs, to ask why one of them waits. What serves all of them is found once: a queue may be long.
pub(super) struct Waits<'a, 'b> {
    pub translation: &'a Translation<'b>,
    pub situation: &'a Situation<'a>,
    pub assignment: &'a Assignment,
    /// Those whose place is not free before others have left it.
    put_off: Vec<usize>,
    /// Memory of each node: all of it, what applications leave, and what no run of this plan takes of that.
    nodes: Vec<u64>,
    sites: Vec<u64>,
    free: Vec<u64>,
    /// Those that run, in words.
    holders: Option<String>,
    /// Those that wait, as they stand in line.
    line: Vec<usize>,
}

impl<'a, 'b> Waits<'a, 'b> {
    pub fn new(
        translation: &'a Translation<'b>,
        situation: &'a Situation<'a>,
        assignment: &'a Assignment,
        put_off: Vec<usize>,
    ) -> Self {
        let nodes = translation.problem.nodes.iter().map(|node| node.memory).collect();
        let sites: Vec<u64> = situation.nodes.iter().map(|site| site.memory).collect();
        let mut waits = Self {
            translation,
            situation,
            assignment,
            put_off,
            nodes,
            free: sites.clone(),
            sites,
            holders: None,
            line: Vec::new(),
        };
        waits.find_holders();
        waits.find_line();
        waits
    }

    fn find_holders(&mut self) {
        let mut running: Vec<(u64, usize)> = Vec::new();
        for (m, run) in self.assignment.runs.iter().enumerate().filter_map(|(m, run)| Some((m, run.as_ref()?))) {
            let memory = self.memory(m);
            run.nodes.iter().for_each(|&n| self.free[n] = self.free[n].saturating_sub(memory));
            running.push((memory.saturating_mul(run.nodes.len() as u64), m));
        }
        running.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
        self.holders = (!running.is_empty()).then(|| self.listed(running.iter().map(|(_, m)| *m)));
    }

    fn find_line(&mut self) {
        let (jobs, now_s) = (self.situation.jobs, self.situation.now_s);
        let waits = |m: &usize| self.assignment.runs[*m].is_none() && jobs[*m].start_s <= now_s && !jobs[*m].is_done();
        let mut urgent: Vec<(f64, usize)> = (0..jobs.len()).filter(waits).map(|m| (jobs[m].max_utility(now_s), m)).collect();
        urgent.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        self.line = in_line(jobs, urgent.into_iter().map(|(_, m)| m).collect());
    }

    /// Why `m` does not run, which is headed for `utility`; empty when it runs.
    pub fn why(&self, m: usize, utility: f64) -> String {
        if self.assignment.runs[m].is_some() {
            return String::new();
        }
        let how = if self.situation.jobs[m].state == JobState::Suspended { "stays suspended" } else { "waits" };
        let expects = if Utility(utility) > NEVER {
            format!("the plan expects a utility of {utility:+.2} for it")
        } else {
            "the plan does not expect it to be done".to_owned()
        };
        format!("job `{}` {how}: {}; {expects}", self.name(m), self.reason(m))
    }

    fn reason(&self, m: usize) -> String {
        let (job, situation) = (&self.situation.jobs[m], self.situation);
        if job.start_s > situation.now_s {
            return "it was submitted after this plan's measurements; the next plan decides".to_owned();
        }
        if job.is_done() {
            return "it has done all the work that was stated for it".to_owned();
        }
        if self.put_off.contains(&m) {
            return "whatever makes room for it has not freed its memory yet".to_owned();
        }
        self.lacks_memory(m).unwrap_or_else(|| self.stands_back(m))
    }

    /// The first of these in which there is no room for all of its tasks at once: all nodes, what applications leave of them, and what the
    /// runs of other jobs leave of that.
    fn lacks_memory(&self, m: usize) -> Option<String> {
        let beside = self.holders.as_ref().map_or_else(|| "there is".to_owned(), |holders| format!("beside {holders} there is"));
        self.lacks(m, &self.nodes, "the nodes have")
            .or_else(|| self.lacks(m, &self.sites, "applications leave"))
            .or_else(|| self.lacks(m, &self.free, &beside))
    }

    fn lacks(&self, m: usize, free: &[u64], who: &str) -> Option<String> {
        let (memory, tasks) = (self.memory(m), u64::from(self.situation.jobs[m].tasks));
        let room: u64 = free.iter().map(|free| free.checked_div(memory).unwrap_or(tasks)).fold(0, u64::saturating_add);
        if room >= tasks {
            return None;
        }
        let (memory, most) = (Bytes(memory), Bytes(free.iter().copied().max().unwrap_or(0)));
        Some(if tasks == 1 {
            format!("it needs {memory} of memory on one node, and {who} at most {most}")
        } else {
            format!("it needs {memory} of memory for each of {tasks} tasks at once, and {who} room for {room} of them")
        })
    }

    /// There is memory for it, and others are worth more.
    fn stands_back(&self, m: usize) -> String {
        let beside = self.holders.as_ref().map_or_else(String::new, |holders| format!(" beside {holders}"));
        let first = self.line.split(|&other| other == m).next().unwrap_or_default();
        let behind = match first.len() {
            0 => String::new(),
            1 => format!(", and {} waits too, which goes before it", self.listed(first.iter().copied())),
            _ => format!(", and {} wait too, which go before it", self.listed(first.iter().copied())),
        };
        format!("others would lose more utility than it would gain by running now{beside}{behind}")
    }

    fn listed(&self, jobs: impl ExactSizeIterator<Item = usize>) -> String {
        let more = jobs.len().saturating_sub(NAMED);
        let names = jobs.take(NAMED).map(|m| format!("`{}`", self.name(m))).collect::<Vec<_>>().join(", ");
        if more == 0 { names } else { format!("{names} and {more} more") }
    }

    fn name(&self, m: usize) -> &str {
        self.translation.jobs.observed[m].spec.name.as_str()
    }

    /// Bytes a task.
    fn memory(&self, m: usize) -> u64 {
        self.situation.jobs[m].needs(self.situation.cycle_s).memory
    }
}
