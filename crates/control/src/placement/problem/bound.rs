//! Water-filling: what no placement can exceed.
//!
//! Carrera 5.3.2.2 caps demands at a perfect placement, one that no memory and no constraint limits. Three bounds are taken
//! together here, each of them valid for every placement:
//!
//! - *CPU*: the sum of the demands at the common utility `u` is at most the CPU of all nodes;
//! - *reach*: no application gets more than the CPU that its allowed nodes, its most instances and their limit give;
//! - *pairs*: when every node is equal, has two places, and there are as many applications as places, each application has one
//!   instance and shares its node with one other; folding (smallest demand with largest) then decides exactly.
//! - *slots*: an application that wants `d` needs at least `ceil(d / largest piece)` instances, and those need memory. When
//!   every node holds at most one instance, this bound is exact.

use super::dense::{App, Problem};

/// The bound.
#[derive(Debug, Clone, PartialEq)]
pub struct Bound {
    /// No placement brings the worst off above this.
    pub utility: f64,
    /// The common level up to which CPU lasts: what each application can hope for that is not limited by itself.
    pub level: f64,
    /// The common level that all can hope for together; at most `level`, above which some can still be lifted alone.
    pub common: f64,
    /// Per application: CPU that it gets at `level` (Carrera's demand cap).
    pub cpu: Vec<f64>,
    /// Per application: the most CPU that any placement can give it.
    pub reach: Vec<f64>,
}

impl Bound {
    /// Water-filling over the whole pool.
    pub fn of(problem: &Problem) -> Self {
        let reach = reaches(problem);
        let level = level_by_cpu(problem, &reach).min(level_by_slots(problem, &reach));
        let cpu: Vec<f64> = problem.apps.iter().zip(&reach).map(|(app, &reach)| app.cpu_for(level).min(reach)).collect();
        let common = level.min(level_by_pairs(problem, &reach));
        let lowest = problem.apps.iter().zip(&reach).map(|(app, &reach)| app.utility(reach).min(common));
        Self { utility: lowest.fold(common, f64::min), level, common, cpu, reach }
    }

    /// No placement brings all to `utility`: so it was found by a search that tried everything.
    pub(in crate::placement) fn tighten(&mut self, utility: f64) {
        self.common = self.common.min(utility);
        self.utility = self.utility.min(utility);
    }
}

/// The highest utility at which `holds` is true, between the worst and the best that any application has.
fn highest(apps: &[App], holds: impl FnMut(f64) -> bool) -> f64 {
    let best = apps.iter().map(|app| app.best()).fold(f64::NEG_INFINITY, f64::max);
    let worst = apps.iter().map(|app| app.worst()).fold(f64::INFINITY, f64::min);
    highest_between(worst, best, holds)
}

/// The highest utility of `low..=high` at which `holds` is true; it must be true below and false above. To 1e-13; `low`
/// when it never holds.
pub fn highest_between(mut low: f64, mut high: f64, mut holds: impl FnMut(f64) -> bool) -> f64 {
    if high <= low || holds(high) {
        return high;
    }
    while high - low > 1e-13 * (1.0 + low.abs()) {
        let middle = 0.5 * (low + high);
        if middle <= low || middle >= high {
            break;
        }
        if holds(middle) { low = middle } else { high = middle }
    }
    low
}

/// The highest utility of `low..=high` whose `need`, which does not decrease, is at most `cpu`; `low` when none is.
///
/// Needs are piecewise linear: false position finds the crossing exactly once it is in the right piece, and every third step halves,
/// so that jumps cannot stall it.
pub fn highest_with(mut low: f64, mut high: f64, cpu: f64, need: impl Fn(f64) -> f64) -> f64 {
    let mut above = need(high) - cpu;
    if high <= low || above <= 0.0 {
        return high;
    }
    let mut below = need(low) - cpu;
    for step in 0..200 {
        if below >= -1e-12 * cpu || high - low <= 1e-13 * (1.0 + low.abs()) {
            break;
        }
        let share = if step % 3 == 2 { 0.5 } else { (below / (below - above)).clamp(1e-6, 1.0 - 1e-6) };
        let middle = low + (high - low) * share;
        let by = need(middle) - cpu;
        if by > 0.0 {
            (high, above) = (middle, by);
            below *= if step % 3 == 0 { 0.5 } else { 1.0 };
        } else {
            (low, below) = (middle, by);
        }
    }
    low
}

fn level_by_cpu(problem: &Problem, reach: &[f64]) -> f64 {
    let apps = || problem.apps.iter().zip(reach);
    let best = problem.apps.iter().map(App::best).fold(f64::NEG_INFINITY, f64::max);
    let worst = problem.apps.iter().map(App::worst).fold(f64::INFINITY, f64::min);
    let cpu = problem.cpu() + problem.epsilon();
    highest_with(worst, best, cpu, |u| apps().map(|(app, &reach)| app.cpu_for(u).min(reach)).sum())
}

fn level_by_slots(problem: &Problem, reach: &[f64]) -> f64 {
    let Some(smallest) = problem.apps.iter().map(|app| app.memory).filter(|&memory| memory > 0).min() else {
        return f64::INFINITY;
    };
    if problem.apps.iter().any(|app| app.memory == 0) {
        return f64::INFINITY;
    }
    // What runs where it does not fit any more (a node lost memory) may have to stay.
    let mut crowded = vec![(0u64, 0u64); problem.nodes.len()];
    for app in &problem.apps {
        for &(n, count) in &app.current {
            let (instances, memory) = &mut crowded[n as usize];
            *instances += u64::from(count);
            *memory = memory.saturating_add(app.memory.saturating_mul(u64::from(count)));
        }
    }
    let room = || problem.nodes.iter().zip(&crowded);
    let slots: u64 = room().map(|(node, now)| (node.memory / smallest).max(now.0)).sum();
    let memory: u128 = room().map(|(node, now)| u128::from(node.memory.max(now.1))).sum();
    let largest = problem.nodes.iter().map(|node| node.cpu).fold(0.0, f64::max);
    let eps = problem.epsilon();
    highest(&problem.apps, |u| {
        let (mut used, mut taken) = (0u64, 0u128);
        problem.apps.iter().zip(reach).all(|(app, &reach)| {
            let want = app.cpu_for(u).min(reach);
            let piece = largest.min(app.instance_cpu);
            let least = if want <= eps { 0.0 } else { ((want - eps) / piece).ceil() };
            used += least as u64;
            taken += u128::from(least as u64) * u128::from(app.memory);
            used <= slots && taken <= memory
        })
    })
}

fn level_by_pairs(problem: &Problem, reach: &[f64]) -> f64 {
    let (Some(node), Some(smallest)) = (problem.nodes.first(), problem.apps.iter().map(|app| app.memory).min()) else {
        return f64::INFINITY;
    };
    let now: u32 = problem.apps.iter().flat_map(|app| &app.current).map(|place| place.1).sum();
    let places = node.memory.checked_div(smallest).unwrap_or(u64::MAX);
    let count = problem.apps.len();
    if places != 2 || count != 2 * problem.nodes.len() || now as usize > count || problem.nodes.iter().any(|other| other != node)
    {
        return f64::INFINITY;
    }
    // Below this some application is content without any instance.
    let content = problem.apps.iter().map(App::worst).fold(f64::NEG_INFINITY, f64::max);
    let mut want = vec![0.0; count];
    highest(&problem.apps, |u| {
        for ((want, app), &reach) in want.iter_mut().zip(&problem.apps).zip(reach) {
            *want = app.cpu_for(u).min(reach);
        }
        want.sort_by(f64::total_cmp);
        let pairs = want.iter().zip(want.iter().rev()).take(count / 2);
        pairs.into_iter().all(|(small, large)| small + large <= node.cpu * (1.0 + 1e-9))
    })
    .max(content)
}

// The most CPU that each application could get if it were alone.
fn reaches(problem: &Problem) -> Vec<f64> {
    let mut cpus: Vec<f64> = problem.nodes.iter().map(|node| node.cpu).collect();
    cpus.sort_by(|a, b| b.total_cmp(a));
    let total: f64 = cpus.iter().sum();
    problem.apps.iter().map(|app| reach(problem, app, &cpus, total)).collect()
}

fn reach(problem: &Problem, app: &App, sorted: &[f64], total: f64) -> f64 {
    let most_nodes = app.nodes.1.min(app.instances.1) as usize;
    let per_node = f64::from(app.per_node.min(app.instances.1)) * app.instance_cpu;
    let on_nodes: f64 = match &app.allowed {
        None if per_node.is_infinite() && most_nodes >= sorted.len() => total,
        None => sorted.iter().take(most_nodes).map(|cpu| cpu.min(per_node)).sum(),
        Some(nodes) => {
            let mut cpus: Vec<f64> = nodes.iter().filter_map(|&n| problem.nodes.get(n as usize)).map(|node| node.cpu).collect();
            cpus.sort_by(|a, b| b.total_cmp(a));
            cpus.iter().take(most_nodes).map(|cpu| cpu.min(per_node)).sum()
        }
    };
    let most = if app.instance_cpu.is_finite() { on_nodes.min(f64::from(app.instances.1) * app.instance_cpu) } else { on_nodes };
    // What runs against its own bounds (pinned, or in manual mode) may stay.
    let now = app.current.iter().map(|&(n, count)| problem.nodes[n as usize].cpu.min(f64::from(count) * app.instance_cpu));
    let astray = app.current.iter().any(|&(n, count)| !app.allows(n) || count > app.per_node);
    if astray { most + now.sum::<f64>() } else { most.max(now.sum()) }
}
