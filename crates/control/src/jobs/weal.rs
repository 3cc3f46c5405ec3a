//! The scheduler of `weal up`: the predicted utilities of all jobs and applications decide, the worst off first, and a
//! change has to be worth what it costs.
//!
//! The thesis predicts one control cycle ahead (Carrera 5.4.2.4): a job that waits loses one cycle. That makes decisions depend
//! on how often they are made. With a short cycle, one more cycle of waiting always costs less than [`TOLERANCE`], so nothing
//! is done until it is too late. Here a job that does not run is booked with the whole time until its place would become free
//! anyway ([`super::places`]): "now" is compared with "when the next foreseeable completions leave room". A running job needs no
//! such look ahead: from now on the group shares the CPU that it has. So the length of a cycle appears in no comparison.
//!
//! It starts from the present runs. Jobs that do not run are considered in order of their maximum achievable utility, the
//! lowest first (Carrera 5.4.2.3), those of one importance by their priorities; among equals, in the order in which the situation has them. One that fits without slowing anyone down is placed. For another, alternatives are
//! compared: run beside others, move one away, suspend one. What wins must beat leaving things as they are by
//! [`TOLERANCE`], after the hold-ups that the changes cause have been counted: hysteresis comes from the costs.
//!
//! Where no image can leave memory, no job gives back what it has before it is done. There, a job is not placed freely in memory that a
//! more urgent one would have sooner without it (the reservation of EASY backfilling: Lifka, "The ANL/IBM SP scheduling system", 1995).

mod foresee;
mod hopeless;
mod judge;
mod line;

use std::cell::OnceCell;

#[cfg(test)]
pub(crate) use judge::predicted;
pub(crate) use judge::{Outcome, bars_the_way, best_at, present};
pub(crate) use line::in_line;
use weal_model::JobState;

use super::divide::{Division, divide_needs};
use super::hypothetical::{Ahead, Forecast, level};
use super::job::{Job, Needs};
use super::situation::{change_of, most_of};
use super::{Assignment, ChangeKind, Run, Scheduler, Situation};

/// Utilities closer than this count as equal. The thesis' example needs it ("no change" at 0.6875 against 0.6958); smaller
/// follows noise in profiles, larger leaves jobs behind.
pub const TOLERANCE: f64 = 0.01;
/// How far above the group's level a job's own best is still told apart. The level takes CPU to move freely between nodes; a job whose best
/// is just above it seems to lose nothing by waiting, and would be started when it is too late.
const MARGIN: f64 = 0.1;

/// How much is tried in one decision.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// How many waiting jobs may ask for a change to others. Those further back wait for the next event; more costs time in long queues, where
    /// hardly anything is gained.
    asking: usize,
    /// How many jobs are considered for suspension, those with the most slack first.
    victims: usize,
    /// How many of these alternatives are evaluated. The first one gives up least; a second one may stand on a better node.
    yielding: usize,
}

const LIMITS: Limits = Limits { asking: 8, victims: 4, yielding: 2 };

/// See the module.
#[derive(Debug, Default, Clone, Copy)]
pub struct WealScheduler;

impl Scheduler for WealScheduler {
    fn name(&self) -> &'static str {
        "weal"
    }

    fn schedule(&self, situation: &Situation) -> Assignment {
        let search = Search::new(situation);
        let (layout, waiting, scored) = search.place_freely(search.present());
        if waiting.is_empty() && situation.apps.is_empty() && search.all_fit_at_full_speed(&layout) {
            let speeds = (0..layout.len()).map(|m| if layout[m].is_empty() { 0.0 } else { search.needs[m].max_speed }).collect();
            return assignment(layout, Division { speeds, apps: Vec::new() });
        }
        let placed = search.score(layout, scored.map(|scored| scored.forecast.level));
        let best = search.improve(placed, waiting);
        let look_again_s = search.look_again_s(&best.layout);
        Assignment { look_again_s, ..assignment(best.layout, best.division) }
    }
}

impl WealScheduler {
    /// The runs of now with their CPU divided anew, for when nothing has happened since they were decided: time alone changes them no sooner than it was said
    /// ([`Assignment::look_again_s`]). `None` where a decision is needed: they do not fit any more, or a job may have come to another phase.
    pub(crate) fn stand(&self, situation: &Situation) -> Option<Assignment> {
        let search = Search::new(situation);
        let layout = search.present();
        let stands = |(nodes, job): (&Vec<usize>, &Job)| {
            job.stages.len() == 1 && (*nodes == job.nodes || nodes.is_empty() && job.state != JobState::Running)
        };
        layout.iter().zip(situation.jobs).all(stands).then(|| {
            let division = divide_needs(situation, &search.needs, &layout);
            assignment(layout, division)
        })
    }
}

/// The nodes of each job's tasks; empty: does not run.
type Layout = Vec<Vec<usize>>;

/// What an alternative changes in a layout: jobs with their new nodes.
type Changes = Vec<(usize, Vec<usize>)>;

/// A layout with what it leads to.
#[derive(Clone)]
struct Scored {
    layout: Layout,
    /// CPU and memory left on each node at full speed.
    free: Vec<(f64, u64)>,
    division: Division,
    /// Seconds that changes hold up each job.
    held_s: Vec<f64>,
    /// Seconds until each job that does not run is foreseen to get a place.
    wait_s: Vec<f64>,
    forecast: Forecast,
    /// All predicted utilities, jobs' and applications', ascending.
    sorted: Vec<f64>,
}

impl Scored {
    /// Lexicographic max-min with a tolerance.
    fn better_than(&self, other: &Self) -> bool {
        let pairs = self.sorted.iter().zip(&other.sorted);
        pairs.map(|(mine, theirs)| mine - theirs).find(|gain| gain.abs() > TOLERANCE).is_some_and(|gain| gain > 0.0)
    }

    /// The layout with some changes.
    fn with(&self, changes: Changes) -> Layout {
        let mut layout = self.layout.clone();
        changes.into_iter().for_each(|(m, nodes)| layout[m] = nodes);
        layout
    }
}

struct Search<'a> {
    situation: &'a Situation<'a>,
    limits: Limits,
    needs: Vec<Needs>,
    /// The best that each job can still reach.
    best: Vec<f64>,
    /// See [`Search::by_patience`]; most decisions do not ask.
    patient: OnceCell<Vec<(f64, usize)>>,
}

impl<'a> Search<'a> {
    fn new(situation: &'a Situation<'a>) -> Self {
        let needs = situation.jobs.iter().map(|job| job.needs(situation.cycle_s)).collect();
        let best = situation.jobs.iter().map(|job| job.max_utility(situation.now_s)).collect();
        Self { situation, limits: LIMITS, needs, best, patient: OnceCell::new() }
    }

    /// A layout with those of `waiting` that others make room for.
    fn improve(&self, mut best: Scored, mut waiting: Vec<usize>) -> Scored {
        self.keep_who_can_gain(&best, &mut waiting);
        for m in waiting.into_iter().take(self.limits.asking) {
            best = self.place_somehow(best, m);
        }
        self.spread_out(best)
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

    /// Jobs that do not run and may, the lowest maximum achievable utility first, and by their priorities.
    fn waiting(&self, layout: &Layout) -> Vec<usize> {
        let (jobs, now_s) = (self.situation.jobs, self.situation.now_s);
        let mut waiting: Vec<(f64, usize)> = (0..jobs.len())
            .filter(|&m| layout[m].is_empty() && jobs[m].start_s <= now_s && !jobs[m].is_done())
            .map(|m| (self.best[m], m))
            .collect();
        waiting.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        in_line(jobs, waiting.into_iter().map(|(_, m)| m).collect())
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
        let fits = |&(cpu, left): &(f64, u64)| cpu > 1e-9 && cpu >= speed - 1e-9 && left >= memory;
        let fitting = (0..free.len()).filter(|&node| fits(&free[node]));
        let first = |a: &usize, b: &usize| {
            let home = |node: &usize| job.nodes.contains(node);
            home(b).cmp(&home(a)).then(free[*b].0.total_cmp(&free[*a].0)).then(a.cmp(b))
        };
        if job.tasks == 1 {
            return fitting.min_by(first).map(|node| vec![node]);
        }
        let mut order: Vec<usize> = fitting.collect();
        order.sort_unstable_by(first);
        let tasks = job.tasks as usize;
        let mut nodes = Vec::with_capacity(tasks);
        for node in order {
            let mut left = free[node];
            while nodes.len() < tasks && fits(&left) {
                left = (left.0 - speed, left.1 - memory);
                nodes.push(node);
            }
        }
        nodes.sort_unstable();
        (nodes.len() == tasks).then_some(nodes)
    }

    /// Places who waits where that slows no other job down; returns who is left over, and what that leads to where it had to be known. Applications beside a newcomer lose CPU
    /// to it, so with them it must not make things worse; without them there is nothing to compare.
    fn place_freely(&self, mut layout: Layout) -> (Layout, Vec<usize>, Option<Scored>) {
        let mut waiting = self.waiting(&layout);
        let mut free = self.free(&layout, |needs| needs.max_speed);
        let mut scored = (!self.situation.apps.is_empty() && !waiting.is_empty()).then(|| self.score(layout.clone(), None));
        let mut most = most_of(&free);
        waiting.retain(|&m| {
            // In a long queue most ask for what no node has.
            if self.needs[m].max_speed - 1e-9 > most.0 || self.needs[m].memory > most.1 {
                return true;
            }
            let Some(nodes) = self.find(&free, m, self.needs[m].max_speed) else { return true };
            if self.bars_the_way(&mut layout, m, &nodes) {
                return true;
            }
            layout[m].clone_from(&nodes);
            if let Some(before) = &scored {
                let with_it = self.score_beside(before, &vec![(m, nodes.clone())], before.forecast.level);
                if before.better_than(&with_it) {
                    layout[m].clear();
                    return true;
                }
                scored = Some(with_it);
            }
            self.take(&mut free, &nodes, m);
            most = most_of(&free);
            false
        });
        (layout, waiting, scored)
    }

    /// Takes full speed and memory for the tasks of `m` out of `free`.
    fn take(&self, free: &mut [(f64, u64)], nodes: &[usize], m: usize) {
        let needs = &self.needs[m];
        for &node in nodes {
            free[node] = (free[node].0 - needs.max_speed, free[node].1.saturating_sub(needs.memory));
        }
    }

    /// Gives back what [`Search::take`] took.
    fn give_back(&self, free: &mut [(f64, u64)], nodes: &[usize], m: usize) {
        let needs = &self.needs[m];
        nodes.iter().for_each(|&node| free[node] = (free[node].0 + needs.max_speed, free[node].1 + needs.memory));
    }

    /// Leaves those to whom a start now, rather than when a place is foreseen, can make a difference that counts. Nobody gets more than
    /// its own best, nor more than the level that the group would reach had it all that `m` can use on top. Beside
    /// applications the group's CPU is not given, and only its own best bounds a job.
    fn keep_who_can_gain(&self, best: &Scored, waiting: &mut Vec<usize>) {
        if waiting.is_empty() {
            return;
        }
        let speeds = best.division.speeds.iter().zip(self.situation.jobs).map(|(speed, job)| speed * f64::from(job.tasks));
        let cpu = speeds.sum::<f64>() + waiting.iter().map(|&m| self.whole_speed(m)).fold(0.0, f64::max);
        let reachable = match self.situation.apps {
            [] => level(self.situation.jobs, &best.wait_s, self.situation.now_s, cpu, best.forecast.level),
            _ => f64::INFINITY,
        };
        waiting.retain(|&m| self.best[m].min(reachable + MARGIN) > best.forecast.utilities[m] + TOLERANCE);
    }

    fn whole_speed(&self, m: usize) -> f64 {
        self.needs[m].max_speed * f64::from(self.situation.jobs[m].tasks)
    }

    /// The best of: leaving `m` out, running it beside others, moving one away for it, suspending some for it.
    fn place_somehow(&self, base: Scored, m: usize) -> Scored {
        let mut alternatives: Vec<Changes> = match self.find(&base.free, m, self.needs[m].max_speed) {
            // Nobody has to move for it, and a move holds somebody up.
            Some(nodes) => vec![vec![(m, nodes)]],
            None => {
                let squeezed_in = self.find_beside(&base, m).map(|nodes| vec![(m, nodes)]);
                squeezed_in.into_iter().chain(self.with_one_moved(&base, m)).collect()
            }
        };
        alternatives.extend(self.with_some_suspended(&base, m));
        let mut better: Option<Scored> = None;
        for changes in alternatives {
            if better.is_none() && self.cannot_beat(&base, &changes) {
                continue;
            }
            let best = better.as_ref().unwrap_or(&base);
            let scored = self.score_beside(&base, &changes, best.forecast.level);
            if scored.better_than(best) {
                better = Some(scored);
            }
        }
        // Those that were left out are foreseen anew: what looked better must still be.
        let better = better.map(|better| self.score(better.layout, Some(better.forecast.level)));
        better.filter(|better| better.better_than(&base)).unwrap_or(base)
    }

    /// Nodes for `m` at least at minimum speeds.
    fn find_beside(&self, base: &Scored, m: usize) -> Option<Vec<usize>> {
        if most_of(&base.free).1 < self.needs[m].memory {
            return None;
        }
        // Among the nodes that allow it, the one with the most CPU per head at full speed is the least crowded.
        let tight = self.free(&base.layout, |needs| needs.min_speed);
        let room = tight.iter().zip(&base.free).map(|(tight, full)| (tight.0.min(full.0.max(tight.0 * 1e-3)), tight.1));
        let nodes = self.find(&room.collect::<Vec<_>>(), m, self.needs[m].min_speed.min(1e-6))?;
        self.take_least(&mut tight.clone(), &nodes, m).then_some(nodes)
    }

    /// Changes in which one running sequential job moves to another node, at full speed there, and `m` gets full speed.
    fn with_one_moved(&self, base: &Scored, m: usize) -> Vec<Changes> {
        let most = most_of(&base.free);
        let mut moves: Vec<(u64, Changes)> = Vec::new();
        for r in self.running_sequential(&base.layout) {
            let (from, needs) = (base.layout[r][0], &self.needs[r]);
            if needs.memory > most.1 || needs.max_speed - 1e-9 > most.0 {
                continue;
            }
            let mut elsewhere = base.free.clone();
            elsewhere[from] = (0.0, 0);
            let Some(target) = roomiest(&elsewhere, needs.max_speed, needs.memory) else { continue };
            elsewhere[from] = base.free[from];
            self.give_back(&mut elsewhere, &[from], r);
            self.take(&mut elsewhere, &[target], r);
            if let Some(nodes) = self.find(&elsewhere, m, self.needs[m].max_speed) {
                moves.push((needs.memory, vec![(r, vec![target]), (m, nodes)]));
            }
        }
        // The cheapest moves first: of equal outcomes the first wins.
        moves.sort_by_key(|(memory, _)| *memory);
        moves.into_iter().map(|(_, changes)| changes).collect()
    }

    fn running_sequential(&self, layout: &Layout) -> Vec<usize> {
        let running = |r: &usize| layout[*r].len() == 1 && self.situation.jobs[*r].state == JobState::Running;
        (0..layout.len()).filter(running).collect()
    }

    /// Changes in which jobs are suspended for `m`, as many as it takes: those that can still reach the most when they go on
    /// later, and more than `m` is headed for if nothing changes.
    fn with_some_suspended(&self, base: &Scored, m: usize) -> Vec<Changes> {
        // By the best that each can still reach: hypothetical utility puts everyone on one level and tells nothing about slack.
        let patient = self.patient.get_or_init(|| self.by_patience()).iter();
        let tasks = self.situation.jobs[m].tasks as usize;
        let jobs = self.situation.jobs;
        let goes_before = |r: usize| jobs[r].weight == jobs[m].weight && jobs[r].priority > jobs[m].priority;
        let victims: Vec<usize> = patient
            .take_while(|(after, _)| *after > base.forecast.utilities[m] + TOLERANCE)
            .map(|(_, r)| *r)
            .filter(|&r| r != m && !base.layout[r].is_empty() && self.can_leave_memory(r) && !goes_before(r))
            .take((self.limits.victims - 1).saturating_add(tasks))
            .collect();
        let suspended = |first: usize| {
            let (mut free, mut changes) = (base.free.clone(), Changes::new());
            for &r in victims[first..].iter().take(tasks) {
                self.give_back(&mut free, &base.layout[r], r);
                changes.push((r, Vec::new()));
                if let Some(nodes) = self.find(&free, m, self.needs[m].max_speed) {
                    changes.push((m, nodes));
                    return Some(changes);
                }
            }
            None
        };
        (0..victims.len().min(self.limits.victims)).filter_map(suspended).take(self.limits.yielding).collect()
    }

    /// Each job with the best that it can reach if it is suspended now and resumed at once, the most first.
    fn by_patience(&self) -> Vec<(f64, usize)> {
        let situation = self.situation;
        let after = |(r, job): (usize, &Job)| {
            let resume_s = self.cost_s(r, ChangeKind::Resume);
            (job.utility(situation.now_s + resume_s + job.best_s()), r)
        };
        let mut patient: Vec<(f64, usize)> = situation.jobs.iter().enumerate().map(after).collect();
        patient.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        patient
    }

    /// Moves jobs that are slowed down to nodes with room, where that is worth it.
    fn spread_out(&self, mut best: Scored) -> Scored {
        let mut to_give = self.to_give(&best);
        for r in self.running_sequential(&best.layout) {
            let slowed = best.division.speeds[r] < self.needs[r].max_speed * (1.0 - 1e-6);
            if !slowed || !self.has_more_for(&best, to_give, r) {
                continue;
            }
            let mut free = best.free.clone();
            self.give_back(&mut free, &best.layout[r], r);
            if let Some(target) =
                roomiest(&free, best.division.speeds[r] * 1.01, self.needs[r].memory).filter(|&n| n != best.layout[r][0])
            {
                let scored = self.score_beside(&best, &vec![(r, vec![target])], best.forecast.level);
                if scored.better_than(&best) {
                    best = scored;
                    to_give = self.to_give(&best);
                }
            }
        }
        best
    }

    /// CPU that nobody uses, and the highest utility of an application.
    fn to_give(&self, best: &Scored) -> (f64, f64) {
        let tasks = best.division.speeds.iter().zip(self.situation.jobs).map(|(speed, job)| speed * f64::from(job.tasks));
        let used = tasks.sum::<f64>() + best.division.apps.iter().sum::<f64>();
        let idle = self.situation.nodes.iter().map(|node| node.cpu).sum::<f64>() - used;
        let apps = self.situation.apps.iter().zip(&best.division.apps);
        let utilities = apps.map(|(app, &cpu)| app.curve.utility_at(weal_model::Cpu(cpu)).0);
        (idle, utilities.fold(f64::NEG_INFINITY, f64::max))
    }

    /// False when all CPU is used and no application is better off than `r`: no other node can do more for it. (Jobs are at one
    /// level, or below it for good.)
    fn has_more_for(&self, best: &Scored, (idle, utility): (f64, f64), r: usize) -> bool {
        idle >= 0.01 * self.needs[r].max_speed || utility > best.forecast.utilities[r] + TOLERANCE
    }

    fn ahead(&self) -> Ahead {
        Ahead { now_s: self.situation.now_s, cycle_s: 0.0, margin: MARGIN }
    }

    /// What a layout leads to; a `level` near its own makes that quick to find.
    fn score(&self, layout: Layout, level: Option<f64>) -> Scored {
        let division = divide_needs(self.situation, &self.needs, &layout);
        let (mut wait_s, held_s) = (vec![0.0; layout.len()], self.held_s(&layout));
        self.foreseen(&layout, &division.speeds, &held_s).into_iter().for_each(|(m, seconds)| wait_s[m] = seconds);
        self.scored(layout, division, held_s, wait_s, level)
    }

    /// What a base leads to with some changes. Whoever they leave out waits as long as in the base, and whoever begins to run not at all.
    fn score_beside(&self, base: &Scored, changes: &Changes, level: f64) -> Scored {
        let layout = base.with(changes.clone());
        let division = divide_needs(self.situation, &self.needs, &layout);
        let (mut wait_s, held_s) = (base.wait_s.clone(), self.held_s(&layout));
        changes.iter().for_each(|(m, _)| wait_s[*m] = 0.0);
        let suspended = self.waits_of_suspended(changes, &layout, &division.speeds, &held_s);
        suspended.into_iter().for_each(|(m, seconds)| wait_s[m] = seconds);
        self.scored(layout, division, held_s, wait_s, Some(level))
    }

    fn scored(&self, layout: Layout, division: Division, held_s: Vec<f64>, mut wait_s: Vec<f64>, level: Option<f64>) -> Scored {
        let situation = self.situation;
        let speeds: Vec<f64> =
            division.speeds.iter().zip(situation.jobs).map(|(speed, job)| speed * f64::from(job.tasks)).collect();
        self.book_the_slowed(&mut wait_s, &layout, &division.speeds, &held_s);
        let forecast = self.ahead().forecast(situation.jobs, &speeds, &held_s, &wait_s, level);
        let apps = situation.apps.iter().zip(&division.apps).map(|(app, &cpu)| app.curve.utility_at(weal_model::Cpu(cpu)).0);
        let mut sorted: Vec<f64> = forecast.utilities.iter().copied().chain(apps).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        Scored { free: self.free(&layout, |needs| needs.max_speed), layout, division, held_s, wait_s, forecast, sorted }
    }

    /// Seconds in which one of those that wait loses half of what counts.
    fn look_again_s(&self, layout: &Layout) -> Option<f64> {
        let jobs = self.situation.jobs;
        let costs = |&m: &usize| 0.5 * TOLERANCE * jobs[m].goal_s / jobs[m].weight.max(1.0);
        self.waiting(layout).iter().map(costs).reduce(f64::min)
    }

    /// Seconds that its own change holds up `m` on these nodes.
    fn held_alone_s(&self, m: usize, nodes: &[usize]) -> f64 {
        let kind = change_of(&self.situation.jobs[m], (!nodes.is_empty()).then_some(nodes));
        // Who is suspended has to be resumed some day.
        let kind = if kind == Some(ChangeKind::Suspend) { Some(ChangeKind::Resume) } else { kind };
        kind.map_or(0.0, |kind| self.cost_s(m, kind))
    }

    /// Seconds that a change holds up `m`.
    fn cost_s(&self, m: usize, kind: ChangeKind) -> f64 {
        self.situation.costs.of_job(&self.situation.jobs[m], kind, self.needs[m].memory)
    }

    /// Whether `m` can be suspended at all.
    fn can_leave_memory(&self, m: usize) -> bool {
        self.situation.jobs[m].saves || self.situation.costs.leaves_memory()
    }

    /// Seconds that the changes hold up each job. Who follows a suspended one on a node waits until its memory is free.
    fn held_s(&self, layout: &Layout) -> Vec<f64> {
        let jobs = self.situation.jobs;
        let mut clearing_s = vec![0.0f64; self.situation.nodes.len()];
        for (m, job) in jobs.iter().enumerate().filter(|(m, job)| job.state == JobState::Running && layout[*m].is_empty()) {
            let seconds = self.cost_s(m, ChangeKind::Suspend);
            job.nodes.iter().for_each(|&node| clearing_s[node] = clearing_s[node].max(seconds));
        }
        let held = |(m, nodes): (usize, &Vec<usize>)| {
            let changes = change_of(&jobs[m], (!nodes.is_empty()).then_some(nodes)).is_some();
            let wait_s = if changes { nodes.iter().map(|&node| clearing_s[node]).fold(0.0, f64::max) } else { 0.0 };
            wait_s + self.held_alone_s(m, nodes)
        };
        layout.iter().enumerate().map(held).collect()
    }
}

fn assignment(layout: Layout, division: Division) -> Assignment {
    let run = |(nodes, speed): (Vec<usize>, f64)| (!nodes.is_empty()).then_some(Run { nodes, speed });
    let runs = layout.into_iter().zip(division.speeds).map(run).collect();
    Assignment { runs, apps: division.apps, look_again_s: None }
}

/// The node with the most CPU left of those that have `cpu` and `memory`.
fn roomiest(free: &[(f64, u64)], cpu: f64, memory: u64) -> Option<usize> {
    let fits = |node: &usize| free[*node].0 > 0.0 && free[*node].0 >= cpu - 1e-9 && free[*node].1 >= memory;
    (0..free.len()).filter(fits).max_by(|&a, &b| free[a].0.total_cmp(&free[b].0).then(b.cmp(&a)))
}

#[cfg(test)]
mod tests;
