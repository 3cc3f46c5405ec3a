//! The CPU of given runs: every run is raised level by level until a node is full; a run that is held back by it stays there,
//! the others go on. The result is lexicographic max-min over jobs and applications together.
//!
//! A job's need at level `u` is its average speed for `u` (5.13). Jobs that wait press on those that run: the running ones
//! ask for the waiting ones' needs too, in proportion, because the sooner they are done the sooner the others start.

use std::collections::VecDeque;

use weal_model::Utility;

use super::hypothetical::{Member, root};
use super::job::Needs;
use super::{AppCurve, Situation};

/// How exactly a level is found. What is told apart is far larger, but decisions between equals turn on it: with 1e-10 the case C10 gives
/// other numbers in the third digit.
const PRECISION: f64 = 1e-13;
/// Levels are looked for between these; a job that is further from its goal than its goal is long a thousand times is lost.
const LOWEST: f64 = -1000.0;
const BEST: f64 = Utility::BEST.0;
/// What counts as full, relative to a node's CPU.
const ROUNDING: f64 = 1e-9;

/// Who gets how much.
#[derive(Debug, Clone, PartialEq)]
pub struct Division {
    /// CPU per task of each job; 0 for one that does not run.
    pub speeds: Vec<f64>,
    /// CPU of each application.
    pub apps: Vec<f64>,
}

/// Divides the nodes' CPU among `runs` (the nodes of each job's tasks; empty: does not run) and the applications.
///
/// Every running job gets at least its minimum speed; where even that does not fit, the caller must not place it.
pub fn divide(situation: &Situation, runs: &[Vec<usize>]) -> Division {
    let needs: Vec<Needs> = situation.jobs.iter().map(|job| job.needs(situation.cycle_s)).collect();
    divide_needs(situation, &needs, runs)
}

/// The same for who knows what each job needs in the cycle.
pub(super) fn divide_needs(situation: &Situation, needs: &[Needs], runs: &[Vec<usize>]) -> Division {
    if let Some(division) = at_full_speed(situation, needs, runs) {
        return division;
    }
    Filling::new(situation, needs, runs).fill()
}

/// Everyone at full speed, where that fits and no application wants what is left.
fn at_full_speed(situation: &Situation, needs: &[Needs], runs: &[Vec<usize>]) -> Option<Division> {
    if !situation.apps.is_empty() {
        return None;
    }
    let mut free: Vec<f64> = situation.nodes.iter().map(|node| node.cpu * (1.0 + ROUNDING)).collect();
    let mut speeds = vec![0.0; runs.len()];
    for (m, nodes) in runs.iter().enumerate().filter(|(_, nodes)| !nodes.is_empty()) {
        speeds[m] = needs[m].max_speed;
        nodes.iter().for_each(|&node| free[node] -= speeds[m]);
    }
    free.iter().all(|&free| free >= 0.0).then(|| Division { speeds, apps: Vec::new() })
}

/// What asks for CPU: a running job or an application.
enum Entry<'a> {
    Job { index: usize, member: Member, nodes: &'a [usize], min: f64, max: f64 },
    App { index: usize },
}

/// CPU by node that jobs leave, and what applications want of it.
#[derive(Clone)]
struct Usage {
    free: Vec<f64>,
    wanted: Vec<f64>,
    /// CPU that jobs leave on the nodes of an application that is the only one.
    room: f64,
}

struct Filling<'a> {
    situation: &'a Situation<'a>,
    runs: usize,
    entries: Vec<Entry<'a>>,
    waiting: Vec<Member>,
    /// The nodes of an application that is the only one.
    beside: Vec<bool>,
}

impl<'a> Filling<'a> {
    fn new(situation: &'a Situation<'a>, needs: &[Needs], runs: &'a [Vec<usize>]) -> Self {
        let (mut entries, mut waiting) = (Vec::new(), Vec::new());
        for (index, (job, nodes)) in situation.jobs.iter().zip(runs).enumerate() {
            let member = Member::new(job, job.done, situation.now_s);
            if nodes.is_empty() {
                waiting.push(member);
                continue;
            }
            entries.push(Entry::Job { index, member, nodes, min: needs[index].min_speed, max: needs[index].max_speed });
        }
        entries.extend((0..situation.apps.len()).map(|index| Entry::App { index }));
        let mut beside = vec![false; situation.nodes.len()];
        if let [app] = situation.apps {
            app.nodes.iter().for_each(|&node| beside[node] = true);
        }
        Self { situation, runs: runs.len(), entries, waiting, beside }
    }

    /// CPU of an entry (per task for a job) at `level`; `pressure` multiplies a job's need.
    fn need(&self, entry: &Entry, level: f64, pressure: f64) -> f64 {
        match entry {
            Entry::Job { member, nodes, min, max, .. } => {
                if level >= member.max_utility {
                    return *max;
                }
                let speed = member.demand(level) / nodes.len() as f64;
                (speed * pressure).clamp(*min, *max)
            }
            Entry::App { index } => {
                let curve = &self.situation.apps[*index].curve;
                curve.cpu_for(Utility(level)).unwrap_or_else(|| curve.demand()).0
            }
        }
    }

    /// How much more the running jobs ask for because others wait, at `level`.
    fn pressure(&self, level: f64) -> f64 {
        if self.waiting.is_empty() || !level.is_finite() {
            return 1.0;
        }
        let speed = |member: &Member| member.demand(level);
        let waiting: f64 = self.waiting.iter().map(speed).sum();
        let running: f64 =
            self.entries.iter().map(|entry| if let Entry::Job { member, .. } = entry { speed(member) } else { 0.0 }).sum();
        if running > 0.0 { 1.0 + waiting / running } else { 1.0 }
    }

    /// What is left beside `settled`, who has what it gets, when the `active` entries are at `level`.
    fn usage(&self, settled: &Usage, active: &[usize], level: f64) -> Usage {
        let mut usage = settled.clone();
        let pressure = self.pressure(level);
        for &i in active {
            self.settle(&mut usage, i, self.need(&self.entries[i], level, pressure));
        }
        let beside = usage.free.iter().zip(&self.beside).filter(|(_, beside)| **beside);
        usage.room = beside.map(|(free, _)| free.max(0.0)).sum();
        usage
    }

    /// Entry `i` has `cpu`.
    fn settle(&self, usage: &mut Usage, i: usize, cpu: f64) {
        match &self.entries[i] {
            Entry::Job { nodes, .. } => nodes.iter().for_each(|&node| usage.free[node] -= cpu),
            Entry::App { index } => usage.wanted[*index] = cpu,
        }
    }

    /// By how much jobs alone ask for too much where they do most; not above zero where everything fits.
    fn overfull(&self, usage: &Usage) -> f64 {
        let nodes = usage.free.iter().zip(self.situation.nodes);
        nodes.map(|(free, node)| -free - ROUNDING * node.cpu.max(1.0)).fold(f64::NEG_INFINITY, f64::max)
    }

    /// The same for jobs and applications.
    fn excess(&self, usage: &Usage) -> f64 {
        let overfull = self.overfull(usage);
        if overfull > 0.0 { overfull } else { overfull.max(self.missing(usage)) }
    }

    /// True when entry `i` alone can go from `level` to `raised` beside that usage.
    fn rises(&self, usage: &mut Usage, i: usize, level: f64, raised: f64, pressures: [f64; 2]) -> bool {
        let entry = &self.entries[i];
        let more = self.need(entry, raised, pressures[1]) - self.need(entry, level, pressures[0]);
        match entry {
            Entry::Job { nodes, .. } => {
                let room = usage.room;
                for &node in *nodes {
                    let before = usage.free[node];
                    usage.free[node] -= more;
                    if self.beside[node] {
                        usage.room += usage.free[node].max(0.0) - before.max(0.0);
                    }
                }
                let held = nodes.iter().all(|&node| usage.free[node] >= -ROUNDING * self.situation.nodes[node].cpu.max(1.0));
                let rises = held && self.missing(usage) <= 0.0;
                nodes.iter().for_each(|&node| usage.free[node] += more);
                usage.room = room;
                rises
            }
            Entry::App { index } => {
                usage.wanted[*index] += more;
                let rises = self.missing(usage) <= 0.0;
                usage.wanted[*index] -= more;
                rises
            }
        }
    }

    /// CPU that the applications lack when their wishes are spread over their nodes' free CPU (a bipartite flow); not above zero where all
    /// fit.
    fn missing(&self, usage: &Usage) -> f64 {
        let (apps, Usage { free, wanted, room }) = (self.situation.apps, usage);
        let total: f64 = wanted.iter().sum();
        let slack = ROUNDING * total.max(1.0);
        if apps.len() < 2 {
            return total - room - slack;
        }
        let mut flow = AppFlow { apps, given: vec![vec![0.0; free.len()]; apps.len()], free: free.to_vec() };
        for (a, &want) in wanted.iter().enumerate() {
            let mut missing = want;
            while missing > slack {
                let pushed = flow.push(a, missing);
                if pushed <= 0.0 {
                    return missing;
                }
                missing -= pushed;
            }
        }
        -flow.free.iter().map(|free| free.max(0.0)).sum::<f64>()
    }

    /// Raises the common level; settles whoever cannot be raised alone; goes on with the rest.
    fn fill(&self) -> Division {
        let mut settled = Usage {
            free: self.situation.nodes.iter().map(|node| node.cpu).collect(),
            wanted: vec![0.0; self.situation.apps.len()],
            room: 0.0,
        };
        let mut division = Division { speeds: vec![0.0; self.runs], apps: vec![0.0; self.situation.apps.len()] };
        let mut active: Vec<usize> = (0..self.entries.len()).collect();
        let mut level = LOWEST;
        while !active.is_empty() {
            let excess = |level: f64| self.excess(&self.usage(&settled, &active, level));
            level = highest(level, excess);
            let raised = (level + 1e-6).max(level + 1e-6 * level.abs());
            let pressures = [self.pressure(level), self.pressure(raised)];
            let mut usage = self.usage(&settled, &active, level);
            let stuck = level >= BEST || self.overfull(&usage) > 0.0;
            let mut rises = |i: usize| {
                !stuck && self.rises(&mut usage, i, level, raised, pressures) && !self.satisfied(i, level, pressures[0])
            };
            let (mut rising, mut held): (Vec<usize>, Vec<usize>) = active.iter().partition(|i| rises(**i));
            // Where all could rise alone, but not together, all stay.
            if held.is_empty() {
                std::mem::swap(&mut rising, &mut held);
            }
            for i in held {
                let cpu = self.need(&self.entries[i], level, pressures[0]);
                self.settle(&mut settled, i, cpu);
                match &self.entries[i] {
                    Entry::Job { index, .. } => division.speeds[*index] = cpu,
                    Entry::App { index } => division.apps[*index] = cpu,
                }
            }
            active = rising;
        }
        division
    }

    /// True when a higher level asks for nothing more.
    fn satisfied(&self, i: usize, level: f64, pressure: f64) -> bool {
        match &self.entries[i] {
            Entry::Job { max, .. } => self.need(&self.entries[i], level, pressure) >= *max,
            Entry::App { index } => level >= self.situation.apps[*index].curve.best().0,
        }
    }
}

/// The highest level from `current` on, which is taken to hold, at which nothing is exceeded.
fn highest(current: f64, excess: impl Fn(f64) -> f64) -> f64 {
    let beyond = |level: f64| (level, excess(level));
    let mut high = beyond(BEST);
    if high.1 <= 0.0 {
        return BEST;
    }
    // Most levels are found between one missed goal's length and the best; those further down take longer.
    for level in [0.0, -1.0, -10.0].into_iter().filter(|level| *level > current) {
        let looked = beyond(level);
        if looked.1 <= 0.0 {
            return root(looked, high, PRECISION, excess);
        }
        high = looked;
    }
    root(beyond(current), high, PRECISION, excess)
}

/// Applications' CPU by node, found by shortest augmenting paths (Edmonds and Karp): each path uses one piece of CPU up, so that their number
/// depends on how many applications and nodes there are, and not on how small the pieces are. Any path at all would do with whole numbers;
/// with fractions it may move ever smaller pieces to and fro and never end.
struct AppFlow<'a> {
    apps: &'a [AppCurve],
    /// By application and node.
    given: Vec<Vec<f64>>,
    free: Vec<f64>,
}

/// Who moves aside for whom: by application, the one that takes over and the node where it does.
type Steps = Vec<Option<(usize, usize)>>;

impl AppFlow<'_> {
    /// Gives application `a` up to `amount` more, moving others aside where needed; returns how much it got.
    fn push(&mut self, a: usize, amount: f64) -> f64 {
        let Some((mut last, free_node, steps)) = self.shortest(a) else { return 0.0 };
        let (mut got, mut other) = (amount.min(self.free[free_node]), last);
        while let Some((next, node)) = steps[other] {
            got = got.min(self.given[other][node]);
            other = next;
        }
        self.free[free_node] -= got;
        self.given[last][free_node] += got;
        while let Some((next, node)) = steps[last] {
            self.given[last][node] -= got;
            self.given[next][node] += got;
            last = next;
        }
        got
    }

    /// The fewest applications that must move aside so that `a` gets more: the last of them, the node where it finds free CPU, and the steps
    /// back to `a`.
    fn shortest(&self, a: usize) -> Option<(usize, usize, Steps)> {
        let (mut steps, mut queue): (Steps, _) = (vec![None; self.apps.len()], VecDeque::from([a]));
        while let Some(reached) = queue.pop_front() {
            let nodes = &self.apps[reached].nodes;
            if let Some(&node) = nodes.iter().find(|&&node| self.free[node] > 0.0) {
                return Some((reached, node, steps));
            }
            for (&node, other) in nodes.iter().flat_map(|node| (0..self.apps.len()).map(move |other| (node, other))) {
                if other != a && steps[other].is_none() && self.given[other][node] > 0.0 {
                    steps[other] = Some((reached, node));
                    queue.push_back(other);
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use weal_model::{Cpu, Utility};

    use super::super::job::tests::job;
    use super::super::{Costs, Job, Site};
    use super::*;
    use crate::utility::Curve;

    fn situation<'a>(nodes: &'a [Site], jobs: &'a [Job], apps: &'a [AppCurve]) -> Situation<'a> {
        Situation { now_s: 0.0, cycle_s: 1.0, nodes, jobs, apps, costs: Costs::FREE }
    }

    fn line(best_at: f64) -> Curve {
        Curve::through([(Cpu(0.0), Utility(-1.0)), (Cpu(best_at), Utility(1.0))])
    }

    #[test]
    fn jobs_on_one_node_end_up_at_one_level() {
        let nodes = [Site { cpu: 1.0, memory: 1 << 40 }];
        let jobs = [job(0.0, 10.0, 4.0, 1.0, 1), job(0.0, 10.0, 4.0, 1.0, 1)];
        let division = divide(&situation(&nodes, &jobs, &[]), &[vec![0], vec![0]]);
        assert!((division.speeds[0] - 0.5).abs() < 1e-6 && (division.speeds[1] - 0.5).abs() < 1e-6);
    }

    #[test]
    fn who_is_held_back_elsewhere_leaves_the_rest_to_others() {
        // A gang spans both nodes; the second node is crowded, so the first node's own job gets what the gang cannot use.
        let nodes = [Site { cpu: 1.0, memory: 1 << 40 }, Site { cpu: 0.5, memory: 1 << 40 }];
        let mut gang = job(0.0, 10.0, 4.0, 1.0, 1);
        gang.tasks = 2;
        let jobs = [gang, job(0.0, 10.0, 9.0, 1.0, 1)];
        let division = divide(&situation(&nodes, &jobs, &[]), &[vec![0, 1], vec![0]]);
        assert!((division.speeds[0] + division.speeds[1] - 1.0).abs() < 1e-6, "{division:?}");
        assert!(division.speeds[0] <= 0.5 + 1e-9);
    }

    #[test]
    fn applications_and_jobs_share_one_level_and_flows_find_their_way() {
        let nodes = [Site { cpu: 2.0, memory: 1 << 40 }, Site { cpu: 2.0, memory: 1 << 40 }];
        let apps = [AppCurve { curve: line(4.0), nodes: vec![0, 1] }, AppCurve { curve: line(2.0), nodes: vec![0] }];
        let division = divide(&situation(&nodes, &[], &apps), &[]);
        // 4x + 2x = 4 with x = (u + 1) / 2.
        assert!((division.apps[0] - 8.0 / 3.0).abs() < 1e-3 && (division.apps[1] - 4.0 / 3.0).abs() < 1e-3, "{division:?}");
        let jobs = [job(0.0, 10.0, 4.0, 2.0, 1)];
        let with_job = divide(&situation(&nodes, &jobs, &apps), &[vec![0]]);
        let used = with_job.speeds[0] + with_job.apps[0] + with_job.apps[1];
        assert!((used - 4.0).abs() < 1e-3, "{with_job:?}");
        assert!(with_job.apps[0] < division.apps[0]);
    }

    #[test]
    fn waiting_jobs_press_on_running_ones() {
        let nodes = [Site { cpu: 4.0, memory: 1 << 40 }];
        let apps = [AppCurve { curve: line(4.0), nodes: vec![0] }];
        let jobs = [job(0.0, 10.0, 4.0, 4.0, 1), job(0.0, 10.0, 8.0, 4.0, 1)];
        let alone = divide(&situation(&nodes, &jobs[..1], &apps), &[vec![0]]);
        let pressed = divide(&situation(&nodes, &jobs, &apps), &[vec![0], vec![]]);
        assert!(pressed.speeds[0] > alone.speeds[0] + 0.1, "{alone:?} {pressed:?}");
    }

    /// What the applications lack is what the worst set of them wants beyond all CPU of its nodes (Hall's theorem).
    #[test]
    fn the_flow_lacks_what_the_worst_set_of_applications_lacks() {
        let mut rng = rand_pcg::Pcg64::seed_from_u64(7);
        for round in 0..300 {
            let (many_nodes, many_apps) = (rng.random_range(1..5), rng.random_range(2..7));
            // A third, a tenth and the like are no sums of powers of two, and leave pieces of the last bit's size.
            let piece = |rng: &mut rand_pcg::Pcg64, most: f64| most * f64::from(rng.random_range(0..30_u32)) / 7.0;
            let free: Vec<f64> = (0..many_nodes).map(|_| piece(&mut rng, 0.3)).collect();
            let wanted: Vec<f64> = (0..many_apps).map(|_| piece(&mut rng, 0.1)).collect();
            let on = |rng: &mut rand_pcg::Pcg64| (0..many_nodes).filter(|_| rng.random_bool(0.5)).collect();
            let apps: Vec<_> = (0..many_apps).map(|_| AppCurve { curve: line(1.0), nodes: on(&mut rng) }).collect();
            let (mut worst, total) = (0.0_f64, wanted.iter().sum::<f64>());
            for set in 1_u32..1 << many_apps {
                let within: Vec<usize> = (0..many_apps).filter(|a| set & (1 << a) != 0).collect();
                let theirs = (0..many_nodes).filter(|node| within.iter().any(|&a| apps[a].nodes.contains(node)));
                let room: f64 = theirs.map(|node| free[node]).sum();
                worst = worst.max(within.iter().map(|&a| wanted[a]).sum::<f64>() - room);
            }
            let mut flow = AppFlow { apps: &apps, given: vec![vec![0.0; many_nodes]; many_apps], free };
            let (mut lacking, mut paths) = (0.0, 0);
            for (a, want) in wanted.into_iter().enumerate() {
                let mut missing = want;
                while missing > 0.0 {
                    let got = flow.push(a, missing);
                    paths += 1;
                    if got <= 0.0 {
                        break;
                    }
                    missing -= got;
                }
                lacking += missing;
            }
            assert!((lacking - worst).abs() < 1e-9 * total.max(1.0), "round {round}: {lacking} and not {worst}");
            assert!(paths <= many_apps * (1 + many_apps * many_nodes), "round {round}: {paths} paths");
        }
    }
}
