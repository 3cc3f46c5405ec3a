//! The scheduler of `weal up`: the predicted utilities of all jobs and applications one cycle ahead decide, the worst off
//! first, and a change has to be worth what it costs.
//!
//! It starts from the present runs. Jobs that do not run are considered in order of their maximum achievable utility, the
//! lowest first (Carrera 5.4.2.3). One that fits without slowing anyone down is placed. For another, alternatives are
//! compared: run beside others, move one away, suspend one. What wins must beat leaving things as they are by
//! [`TOLERANCE`], after the hold-ups that the changes cause have been counted: hysteresis comes from the costs.

use weal_model::JobState;

use super::divide::{Division, divide};
use super::hypothetical::{evaluate_near, hypothetical};
use super::job::Needs;
use super::situation::change_of;
use super::{Assignment, ChangeKind, Run, Scheduler, Situation};

/// Utilities closer than this count as equal. The thesis' example needs it ("no change" at 0.6875 against 0.6958); smaller
/// follows noise in profiles, larger leaves jobs behind.
pub const TOLERANCE: f64 = 0.01;
/// How many waiting jobs may ask for a change to others in one decision. Those further back wait for the next event; more
/// costs time in long queues, where hardly anything is gained.
const ASKING: usize = 8;
/// How many jobs are considered for suspension, those with the most slack first.
const VICTIMS: usize = 4;
/// How many of these alternatives are evaluated. The first one gives up least; a second one may stand on a better node.
const YIELDING: usize = 2;

/// See the module.
#[derive(Debug, Default, Clone, Copy)]
pub struct WealScheduler;

impl Scheduler for WealScheduler {
    fn name(&self) -> &'static str {
        "weal"
    }

    fn schedule(&self, situation: &Situation) -> Assignment {
        let search = Search::new(situation);
        let (layout, mut waiting) = search.place_freely(search.present());
        if waiting.is_empty() && situation.apps.is_empty() && search.all_fit_at_full_speed(&layout) {
            let speeds = (0..layout.len()).map(|m| if layout[m].is_empty() { 0.0 } else { search.needs[m].max_speed }).collect();
            return assignment(layout, Division { speeds, apps: Vec::new() });
        }
        let mut best = search.score(layout, None);
        search.keep_who_can_gain(&best, &mut waiting);
        for m in waiting.into_iter().take(ASKING) {
            best = search.place_somehow(best, m);
        }
        best = search.spread_out(best);
        assignment(best.layout, best.division)
    }
}

/// The nodes of each job's tasks; empty: does not run.
type Layout = Vec<Vec<usize>>;

/// A layout with what it leads to.
#[derive(Clone)]
struct Scored {
    layout: Layout,
    division: Division,
    /// What each job is headed for, and the group's common level.
    utilities: Vec<f64>,
    level: f64,
    /// All predicted utilities, jobs' and applications', ascending.
    sorted: Vec<f64>,
}

impl Scored {
    /// Lexicographic max-min with a tolerance.
    fn better_than(&self, other: &Self) -> bool {
        let pairs = self.sorted.iter().zip(&other.sorted);
        pairs.map(|(mine, theirs)| mine - theirs).find(|gain| gain.abs() > TOLERANCE).is_some_and(|gain| gain > 0.0)
    }
}

struct Search<'a> {
    situation: &'a Situation<'a>,
    needs: Vec<Needs>,
    /// The best that each job can still reach.
    best: Vec<f64>,
}

impl<'a> Search<'a> {
    fn new(situation: &'a Situation<'a>) -> Self {
        let needs = situation.jobs.iter().map(|job| job.needs(situation.cycle_s)).collect();
        let best = situation.jobs.iter().map(|job| job.max_utility(situation.now_s)).collect();
        Self { situation, needs, best }
    }

    /// The present runs, as far as they still fit: a node may have shrunk, or a stage may need more memory.
    fn present(&self) -> Layout {
        let mut layout: Layout = vec![Vec::new(); self.situation.jobs.len()];
        let mut free = self.free(&layout, |needs| needs.min_speed);
        for (m, job) in self.situation.jobs.iter().enumerate() {
            let runs = job.state == JobState::Running && job.nodes.len() == job.tasks as usize;
            if runs && self.take_least(&mut free, &job.nodes, m) {
                layout[m].clone_from(&job.nodes);
            }
        }
        layout
    }

    /// Jobs that do not run and may, the lowest maximum achievable utility first.
    fn waiting(&self, layout: &Layout) -> Vec<usize> {
        let (jobs, now_s) = (self.situation.jobs, self.situation.now_s);
        let mut waiting: Vec<(f64, usize)> = (0..jobs.len())
            .filter(|&m| layout[m].is_empty() && jobs[m].start_s <= now_s && !jobs[m].is_done())
            .map(|m| (self.best[m], m))
            .collect();
        waiting.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        waiting.into_iter().map(|(_, m)| m).collect()
    }

    /// (CPU, memory) left on each node when everyone runs at the speed that `speed` gives for its needs.
    fn free(&self, layout: &Layout, speed: impl Fn(&Needs) -> f64) -> Vec<(f64, u64)> {
        let mut free: Vec<(f64, u64)> = self.situation.nodes.iter().map(|node| (node.cpu, node.memory)).collect();
        for (needs, nodes) in self.needs.iter().zip(layout) {
            for &node in nodes {
                free[node] = (free[node].0 - speed(needs), free[node].1.saturating_sub(needs.memory));
            }
        }
        free
    }

    /// Takes minimum speed and memory for `m` on `nodes` out of `free`; false, and nothing taken, where that is not free.
    fn take_least(&self, free: &mut [(f64, u64)], nodes: &[usize], m: usize) -> bool {
        let needs = &self.needs[m];
        for (taken, &node) in nodes.iter().enumerate() {
            let fits = free.get(node).is_some_and(|f| f.0 >= needs.min_speed - 1e-9 && f.0 > 0.0 && f.1 >= needs.memory);
            if !fits {
                nodes[..taken]
                    .iter()
                    .for_each(|&node| free[node] = (free[node].0 + needs.min_speed, free[node].1 + needs.memory));
                return false;
            }
            free[node] = (free[node].0 - needs.min_speed, free[node].1 - needs.memory);
        }
        true
    }

    fn all_fit_at_full_speed(&self, layout: &Layout) -> bool {
        self.free(layout, |needs| needs.max_speed).iter().zip(self.situation.nodes).all(|(free, node)| free.0 >= -1e-9 * node.cpu)
    }

    /// Nodes for the tasks of `m` with `speed` for each: where it is suspended if possible, else those with the most CPU.
    fn find(&self, free: &[(f64, u64)], m: usize, speed: f64) -> Option<Vec<usize>> {
        let (job, memory) = (&self.situation.jobs[m], self.needs[m].memory);
        if !free.iter().any(|free| free.0 > 1e-9 && free.0 >= speed - 1e-9 && free.1 >= memory) {
            return None;
        }
        let mut order: Vec<usize> = (0..free.len()).collect();
        order.sort_by(|&a, &b| {
            let home = |node: usize| job.nodes.contains(&node);
            home(b).cmp(&home(a)).then(free[b].0.total_cmp(&free[a].0)).then(a.cmp(&b))
        });
        let tasks = job.tasks as usize;
        let mut nodes = Vec::with_capacity(tasks);
        for node in order {
            let (mut cpu, mut left) = free[node];
            while nodes.len() < tasks && cpu > 1e-9 && cpu >= speed - 1e-9 && left >= memory {
                (cpu, left) = (cpu - speed, left - memory);
                nodes.push(node);
            }
        }
        nodes.sort_unstable();
        (nodes.len() == tasks).then_some(nodes)
    }

    /// Places who waits where that slows no other job down; returns who is left over. Applications beside a newcomer lose CPU
    /// to it, so with them it must not make things worse; without them there is nothing to compare.
    fn place_freely(&self, mut layout: Layout) -> (Layout, Vec<usize>) {
        let mut waiting = self.waiting(&layout);
        let mut free = self.free(&layout, |needs| needs.max_speed);
        let mut scored = (!self.situation.apps.is_empty() && !waiting.is_empty()).then(|| self.score(layout.clone(), None));
        waiting.retain(|&m| {
            let Some(nodes) = self.find(&free, m, self.needs[m].max_speed) else { return true };
            layout[m].clone_from(&nodes);
            if let Some(before) = &scored {
                let with_it = self.score(layout.clone(), Some(before.level));
                if before.better_than(&with_it) {
                    layout[m].clear();
                    return true;
                }
                scored = Some(with_it);
            }
            self.take(&mut free, &nodes, m);
            false
        });
        (layout, waiting)
    }

    /// Takes full speed and memory for the tasks of `m` out of `free`.
    fn take(&self, free: &mut [(f64, u64)], nodes: &[usize], m: usize) {
        let needs = &self.needs[m];
        for &node in nodes {
            free[node] = (free[node].0 - needs.max_speed, free[node].1.saturating_sub(needs.memory));
        }
    }

    /// Leaves those to whom a start now, rather than a cycle later, can make a difference that counts. Nobody gets more than
    /// its own best, nor more than the level that the group would reach had it all that `m` can use on top. Beside
    /// applications the group's CPU is not given, and only its own best bounds a job.
    fn keep_who_can_gain(&self, best: &Scored, waiting: &mut Vec<usize>) {
        if waiting.is_empty() {
            return;
        }
        let speeds = best.division.speeds.iter().zip(self.situation.jobs).map(|(speed, job)| speed * f64::from(job.tasks));
        let cpu = speeds.sum::<f64>() + waiting.iter().map(|&m| self.whole_speed(m)).fold(0.0, f64::max);
        let reachable = match self.situation.apps {
            [] => hypothetical(self.situation.jobs, self.situation.now_s, cpu).level,
            _ => f64::INFINITY,
        };
        waiting.retain(|&m| self.best[m].min(reachable) > best.utilities[m] + TOLERANCE);
    }

    fn whole_speed(&self, m: usize) -> f64 {
        self.needs[m].max_speed * f64::from(self.situation.jobs[m].tasks)
    }

    /// The best of: leaving `m` out, running it beside others, moving one away for it, suspending some for it.
    fn place_somehow(&self, base: Scored, m: usize) -> Scored {
        let mut alternatives = Vec::new();
        if let Some(nodes) = self.find_fastest(&base.layout, m) {
            let mut layout = base.layout.clone();
            layout[m] = nodes;
            alternatives.push(layout);
        }
        alternatives.extend(self.with_one_moved(&base, m));
        alternatives.extend(self.with_some_suspended(&base, m));
        let mut best = base;
        for layout in alternatives {
            let scored = self.score(layout, Some(best.level));
            if scored.better_than(&best) {
                best = scored;
            }
        }
        best
    }

    /// Nodes for `m`: at full speed if that is free somewhere, else at least at minimum speeds.
    fn find_fastest(&self, layout: &Layout, m: usize) -> Option<Vec<usize>> {
        let full = self.free(layout, |needs| needs.max_speed);
        let found = self.find(&full, m, self.needs[m].max_speed);
        found.or_else(|| {
            // Among the nodes that allow it, the one with the most CPU per head at full speed is the least crowded.
            let tight = self.free(layout, |needs| needs.min_speed);
            let room: Vec<(f64, u64)> =
                tight.iter().zip(&full).map(|(tight, full)| (tight.0.min(full.0.max(tight.0 * 1e-3)), tight.1)).collect();
            let nodes = self.find(&room, m, self.needs[m].min_speed.min(1e-6))?;
            self.take_least(&mut tight.clone(), &nodes, m).then_some(nodes)
        })
    }

    /// Layouts in which one running sequential job moves to another node, at full speed there, and `m` gets full speed.
    fn with_one_moved(&self, base: &Scored, m: usize) -> Vec<Layout> {
        let free = self.free(&base.layout, |needs| needs.max_speed);
        let mut layouts: Vec<(u64, Layout)> = Vec::new();
        for r in self.running_sequential(&base.layout) {
            let (from, needs) = (base.layout[r][0], &self.needs[r]);
            let mut elsewhere = free.clone();
            elsewhere[from] = (0.0, 0);
            let Some(target) = roomiest(&elsewhere, needs.max_speed, needs.memory) else { continue };
            elsewhere[from] = (free[from].0 + needs.max_speed, free[from].1 + needs.memory);
            self.take(&mut elsewhere, &[target], r);
            if let Some(nodes) = self.find(&elsewhere, m, self.needs[m].max_speed) {
                let mut layout = base.layout.clone();
                layout[r] = vec![target];
                layout[m] = nodes;
                layouts.push((needs.memory, layout));
            }
        }
        // The cheapest moves first: of equal outcomes the first wins.
        layouts.sort_by_key(|(memory, _)| *memory);
        layouts.into_iter().map(|(_, layout)| layout).collect()
    }

    fn running_sequential(&self, layout: &Layout) -> Vec<usize> {
        let running = |r: &usize| layout[*r].len() == 1 && self.situation.jobs[*r].state == JobState::Running;
        (0..layout.len()).filter(running).collect()
    }

    /// Layouts in which jobs are suspended for `m`, as many as it takes: those that can still reach the most when they go on a
    /// cycle later, and more than `m` is headed for if nothing changes.
    fn with_some_suspended(&self, base: &Scored, m: usize) -> Vec<Layout> {
        // By the best that each can still reach: hypothetical utility puts everyone on one level and tells nothing about slack.
        let after: Vec<f64> = (0..base.layout.len()).map(|r| self.best_after_a_cycle(&base.layout, r)).collect();
        let mut victims: Vec<usize> = (0..after.len()).filter(|&r| r != m && after[r] > base.utilities[m] + TOLERANCE).collect();
        victims.sort_by(|&a, &b| after[b].total_cmp(&after[a]).then(a.cmp(&b)));
        let mut layouts = Vec::new();
        for first in 0..victims.len().min(VICTIMS) {
            let mut layout = base.layout.clone();
            for &r in victims[first..].iter().take(self.situation.jobs[m].tasks as usize) {
                layout[r].clear();
                let free = self.free(&layout, |needs| needs.max_speed);
                if let Some(nodes) = self.find(&free, m, self.needs[m].max_speed) {
                    layout[m] = nodes;
                    layouts.push(layout);
                    break;
                }
            }
            if layouts.len() == YIELDING {
                break;
            }
        }
        layouts
    }

    /// Moves jobs that are slowed down to nodes with room, where that is worth it.
    fn spread_out(&self, mut best: Scored) -> Scored {
        for r in self.running_sequential(&best.layout) {
            let slowed = best.division.speeds[r] < self.needs[r].max_speed * (1.0 - 1e-6);
            if !slowed || self.nobody_has_more_to_give(&best, r) {
                continue;
            }
            let mut layout = best.layout.clone();
            layout[r].clear();
            let free = self.free(&layout, |needs| needs.max_speed);
            if let Some(target) =
                roomiest(&free, best.division.speeds[r] * 1.01, self.needs[r].memory).filter(|&n| n != best.layout[r][0])
            {
                layout[r] = vec![target];
                let scored = self.score(layout, Some(best.level));
                if scored.better_than(&best) {
                    best = scored;
                }
            }
        }
        best
    }

    /// True when all CPU is used and no application is better off than `r`: no other node can do more for it. (Jobs are at one
    /// level, or below it for good.)
    fn nobody_has_more_to_give(&self, best: &Scored, r: usize) -> bool {
        let tasks = best.division.speeds.iter().zip(self.situation.jobs).map(|(speed, job)| speed * f64::from(job.tasks));
        let used = tasks.sum::<f64>() + best.division.apps.iter().sum::<f64>();
        let idle = self.situation.nodes.iter().map(|node| node.cpu).sum::<f64>() - used;
        let mut apps = self.situation.apps.iter().zip(&best.division.apps);
        let better_off = |utility: f64| utility > best.utilities[r] + TOLERANCE;
        idle < 0.01 * self.needs[r].max_speed && !apps.any(|(app, &cpu)| better_off(app.curve.utility_at(weal_model::Cpu(cpu)).0))
    }

    /// The best that a running job can reach if it is suspended now and resumed when the cycle ends.
    fn best_after_a_cycle(&self, layout: &Layout, r: usize) -> f64 {
        if layout[r].is_empty() {
            return f64::NEG_INFINITY;
        }
        let (situation, job) = (self.situation, &self.situation.jobs[r]);
        let resume_s = situation.costs.of(ChangeKind::Resume, self.needs[r].memory);
        job.utility(situation.now_s + situation.cycle_s + resume_s + job.best_s())
    }

    /// What a layout leads to; a `level` near its own makes that quick to find.
    fn score(&self, layout: Layout, level: Option<f64>) -> Scored {
        let situation = self.situation;
        let division = divide(situation, &layout);
        let speeds: Vec<f64> =
            division.speeds.iter().zip(situation.jobs).map(|(speed, job)| speed * f64::from(job.tasks)).collect();
        let held_s = self.held_s(&layout);
        let (utilities, level) = evaluate_near(situation.jobs, &speeds, &held_s, situation.now_s, situation.cycle_s, level);
        let apps = situation.apps.iter().zip(&division.apps).map(|(app, &cpu)| app.curve.utility_at(weal_model::Cpu(cpu)).0);
        let mut sorted: Vec<f64> = utilities.iter().copied().chain(apps).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        Scored { layout, division, utilities, level, sorted }
    }

    /// Seconds that the changes hold up each job. Who follows a suspended one on a node waits until its memory is free; who
    /// is suspended has to be resumed some day.
    fn held_s(&self, layout: &Layout) -> Vec<f64> {
        let (jobs, costs) = (self.situation.jobs, &self.situation.costs);
        let mut clearing_s = vec![0.0f64; self.situation.nodes.len()];
        let kinds: Vec<Option<ChangeKind>> =
            jobs.iter().zip(layout).map(|(job, nodes)| change_of(job, (!nodes.is_empty()).then_some(nodes.as_slice()))).collect();
        for (m, kind) in kinds.iter().enumerate() {
            if *kind == Some(ChangeKind::Suspend) {
                let seconds = costs.of(ChangeKind::Suspend, self.needs[m].memory);
                jobs[m].nodes.iter().for_each(|&node| clearing_s[node] = clearing_s[node].max(seconds));
            }
        }
        let held = |(m, kind): (usize, &Option<ChangeKind>)| match kind {
            None => 0.0,
            Some(ChangeKind::Suspend) => costs.of(ChangeKind::Resume, self.needs[m].memory),
            Some(kind) => {
                let wait_s = layout[m].iter().map(|&node| clearing_s[node]).fold(0.0, f64::max);
                wait_s + costs.of(*kind, self.needs[m].memory)
            }
        };
        kinds.iter().enumerate().map(held).collect()
    }
}

fn assignment(layout: Layout, division: Division) -> Assignment {
    let run = |(nodes, speed): (Vec<usize>, f64)| (!nodes.is_empty()).then_some(Run { nodes, speed });
    Assignment { runs: layout.into_iter().zip(division.speeds).map(run).collect(), apps: division.apps }
}

/// The node with the most CPU left of those that have `cpu` and `memory`.
fn roomiest(free: &[(f64, u64)], cpu: f64, memory: u64) -> Option<usize> {
    let fits = |node: &usize| free[*node].0 > 0.0 && free[*node].0 >= cpu - 1e-9 && free[*node].1 >= memory;
    (0..free.len()).filter(fits).max_by(|&a, &b| free[a].0.total_cmp(&free[b].0).then(b.cmp(&a)))
}
