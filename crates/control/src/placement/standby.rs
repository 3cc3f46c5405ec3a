//! Which instances stand by, and how much memory is kept free, so that the next flash crowd is one resume away.
//!
//! Al-Qudah section 3: a suspended instance uses no CPU and, paged out, almost no memory, and resumes 20 times faster than a
//! start; enough memory for an average instance is kept free by paging suspended ones out in bulk, ahead of need.
//!
//! When does an idle instance stop paying for its place? It occupies its share of a node (memory or CPU, whichever is
//! larger), and taking it away costs a suspend now and a resume later. Renting until the rent equals that price is at most
//! twice as dear as knowing the future (the ski-rental argument); so the break-even is `(remove + resume) / share` seconds.

use weal_model::Algorithm;

use super::actions::Steps;
use super::plan::Policy;
use super::translate::Translation;

/// An instance is never taken for idle sooner, however large it is: two requests of one visitor lie further apart.
const SHORTEST_IDLE_S: f64 = 15.0;

/// Fewest and most instances that may run now. An application that is idle for longer than its break-even has no more than
/// its fewest; one that is asked for, or that another needs, has at least one.
pub(super) fn instance_range(translation: &Translation, policy: &Policy, m: u32, needed: bool) -> (u32, u32) {
    let spec = translation.apps[m as usize];
    let (min, max) = (spec.instances.min, spec.instances.max);
    if !policy.algorithm.knows_goals() {
        return without_goals(translation, policy, m, needed);
    }
    let Some(demand) = policy.demands.get(&spec.name) else { return (min.max(u32::from(needed)).min(max), max) };
    let idle = demand.idle_s.is_finite() && demand.idle_s > break_even_s(translation, policy, m);
    let least = if needed || !idle { min.max(1) } else { min };
    if idle && !needed { (least.min(max), least.min(max)) } else { (least.min(max), max) }
}

// Those who know no goals never let anything sleep. An autoscaler says how many there are; without its word, all that run.
fn without_goals(translation: &Translation, policy: &Policy, m: u32, needed: bool) -> (u32, u32) {
    let spec = translation.apps[m as usize];
    let (min, max) = (spec.instances.min.max(u32::from(needed || !spec.routes.is_empty())), spec.instances.max);
    if policy.algorithm == Algorithm::Static {
        return (min.min(max), max);
    }
    let running = translation.active.range((m, 0)..=(m, u32::MAX)).map(|(_, list)| list.len() as u32).sum();
    let asked = policy.replicas.get(&spec.name).copied().unwrap_or(running).max(min).min(max);
    (asked, asked)
}

// The share of a node that an instance takes, and how long that may be idle.
fn break_even_s(translation: &Translation, policy: &Policy, m: u32) -> f64 {
    let spec = translation.apps[m as usize];
    let largest = translation.problem.nodes.iter().map(|node| node.memory).max().unwrap_or(0).max(1);
    let used =
        translation.active.range((m, 0)..=(m, u32::MAX)).flat_map(|(_, list)| list).filter_map(|instance| instance.cpu_used);
    let cpu = used.map(|cpu| cpu.0).filter(|cpu| cpu.is_finite()).fold(0.0, f64::max);
    let core_share = cpu / translation.problem.nodes.iter().map(|node| node.cpu).fold(1e-3, f64::max);
    let share = (spec.memory.0 as f64 / largest as f64).max(core_share).clamp(1e-3, 1.0);
    let costs = policy.costs.get(&spec.name).copied().unwrap_or_default();
    ((costs.remove_s + costs.resume_s) / share).max(SHORTEST_IDLE_S)
}

/// Whether an instance that is taken off should stand by instead of ending.
pub(super) fn worth_keeping(translation: &Translation, policy: &Policy, m: u32, n: u32, standing_by: u32) -> bool {
    let (app, spec) = (&translation.problem.apps[m as usize], translation.apps[m as usize]);
    let held = policy.held.contains(&spec.name);
    !held && policy.algorithm.knows_goals() && spec.instances.max > 0 && app.allows(n) && standing_by < app.per_node
}

/// Keeps memory free on every node for an average instance of those that may still grow, by paging out what is suspended.
pub(super) fn tidy(steps: &mut Steps, translation: &Translation, policy: &Policy) {
    if !policy.can_park {
        return;
    }
    for n in 0..translation.nodes.len() as u32 {
        let may_grow = (0u32..).zip(&translation.problem.apps).filter(|(_, app)| {
            let running: u32 = app.current.iter().map(|entry| entry.1).sum();
            !app.manual && app.allows(n) && running < app.instances.1 && app.demand() > 0.0
        });
        let (count, bytes) =
            may_grow.fold((0u64, 0u64), |(count, bytes), (_, app)| (count + 1, bytes.saturating_add(app.memory)));
        if let Some(average) = bytes.checked_div(count) {
            steps.make_memory(translation, policy, n, average, None);
        }
    }
}
