//! Which instances stand by, where on the ladder, and how much memory is kept free, so that the next request or flash crowd is one
//! wake away.
//!
//! Al-Qudah section 3: a suspended instance uses no CPU and, paged out, almost no memory, and resumes 20 times faster than a
//! start; enough memory for an average instance is kept free by paging suspended ones out in bulk, ahead of need.
//!
//! | question | answer |
//! | --- | --- |
//! | how long may an instance be idle before it sleeps, and how deep does it sleep then | [`ladder`] |
//! | how many instances may be awake | [`limit_instances`] |
//! | how much memory is kept free for those that may grow | [`kept_free`] |
//!
//! What is done about it are steps of a plan: `steps`.

mod ladder;

use std::collections::BTreeSet;

use weal_model::{Algorithm, AppName, AppSpec, Bytes, Enactment, InstanceObservation, NodeReserve, Rung};

use super::policy::Policy;
use super::problem::translate::Translation;
use ladder::SHORTEST_IDLE_S;
pub(super) use ladder::{Ladder, Place};

/// The part of a node's CPU that must be to spare for a start, or to wake somebody for a crowd: both compete with those who have requests.
pub(crate) const SPARE_CPU: f64 = 0.25;

/// Says how many instances of each application may run.
pub(super) fn limit_instances(translation: &mut Translation, policy: &Policy) {
    let needed = needed(policy);
    for m in 0..translation.apps.len() as u32 {
        let is_needed = needed.contains(&translation.apps[m as usize].name);
        let range = instance_range(translation, policy, m, is_needed);
        translation.limit_instances(m, range);
    }
}

/// Applications that some other needs that runs or must run.
fn needed(policy: &Policy) -> BTreeSet<&AppName> {
    let wanted = |spec: &AppSpec| {
        let demand = policy.demands.get(&spec.name).is_some_and(|demand| demand.demand().0 > 0.0);
        spec.instances.min > 0 || (demand && spec.instances.max > 0)
    };
    let mut open: Vec<&AppSpec> = policy.pool.apps.values().filter(|spec| wanted(spec)).collect();
    let mut needed = BTreeSet::new();
    while let Some(spec) = open.pop() {
        for name in &spec.needs {
            if needed.insert(name) {
                open.extend(policy.pool.apps.get(name));
            }
        }
    }
    needed
}

/// Fewest and most instances that may run now. An application that is idle for longer than it pays has no more than its fewest, one
/// that was told to sleep none; one that is asked for, or that another needs, has at least one.
fn instance_range(translation: &Translation, policy: &Policy, m: u32, needed: bool) -> (u32, u32) {
    if !policy.algorithm.knows_goals() {
        return without_goals(translation, policy, m, needed);
    }
    let spec = translation.apps[m as usize];
    let (min, max) = (spec.instances.min, spec.instances.max);
    if policy.resting.contains_key(&spec.name) && !needed {
        return (0, 0);
    }
    let Some(&idle_s) = policy.idle_s.get(&spec.name) else { return (min.max(u32::from(needed)).min(max), max) };
    let mut nodes = (0..translation.nodes.len() as u32).filter(|&n| translation.active.contains_key(&(m, n)));
    let idle = match nodes.next() {
        Some(n) => Ladder::of(translation, policy, m, n).at(idle_s) != Place::Awake,
        // By price alone it would come back as soon as its own sleep has made memory cheap.
        None => idle_s >= spec.sleep_after_s.unwrap_or(f64::INFINITY).min(SHORTEST_IDLE_S),
    };
    let least = if needed || !idle { min.max(1) } else { min };
    if idle && !needed { (least.min(max), least.min(max)) } else { (least.min(max), max) }
}

/// Those who know no goals never let anything sleep. An autoscaler says how many there are; without its word, all that run.
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

/// Where an instance goes that is taken off: to sleep on some rung, or away.
pub(super) fn place_for(translation: &Translation, policy: &Policy, m: u32, n: u32, standing_by: u32) -> Place {
    let (app, spec) = (&translation.problem.apps[m as usize], translation.apps[m as usize]);
    let held = policy.held.contains(&spec.name);
    if held || !policy.algorithm.knows_goals() || spec.instances.max == 0 || !app.allows(n) || standing_by >= app.per_node {
        return Place::Ended;
    }
    if let Some(rung) = told(policy, m, translation) {
        return Place::Asleep(rung);
    }
    let idle_s = policy.idle_s.get(&spec.name).copied().unwrap_or(0.0);
    Ladder::of(translation, policy, m, n).asleep_at(idle_s).unwrap_or(Place::Ended)
}

/// Where one that stands by goes from here, and why; `None` when it stays.
pub(super) fn lower_place(
    translation: &Translation,
    policy: &Policy,
    ladder: &Ladder,
    m: u32,
    instance: &InstanceObservation,
) -> Option<(Place, String)> {
    let now = instance.state.rung()?;
    if policy.pool.enactment == Enactment::StartStop {
        return Some((Place::Ended, "no instance stands by with `enactment = \"start-stop\"`".to_owned()));
    }
    if let Some(rung) = told(policy, m, translation) {
        let why = format!("`{}` sleeps by an order", translation.apps[m as usize].name);
        return (rung > now).then_some((Place::Asleep(rung), why));
    }
    let (idle_s, why) = idle_of(translation, policy, ladder, m, instance);
    let place = ladder.asleep_at(idle_s).filter(|place| *place > Place::Asleep(now))?;
    Some((place, format!("{why}; its memory is worth more than the time to wake it")))
}

/// How long nobody has asked; infinite when nobody ever did.
fn idle(seconds: f64) -> String {
    if seconds.is_finite() {
        format!("no request has needed it for {seconds:.0} s")
    } else {
        "no request has asked for it yet".to_owned()
    }
}

/// The same for the time until the next plan: what each node's agent is to keep free of what is really used.
pub(super) fn reserves(translation: &Translation, policy: &Policy) -> Vec<NodeReserve> {
    let of = |(n, bytes): (u32, u64)| NodeReserve { node: translation.nodes[n as usize].clone(), memory: Bytes(bytes) };
    kept_free(translation, policy).map(of).collect()
}

/// The nodes on which memory is kept free, and how many bytes.
pub(super) fn kept_free(translation: &Translation, policy: &Policy) -> impl Iterator<Item = (u32, u64)> {
    let nodes = if policy.has(Rung::Parked) { translation.nodes.len() as u32 } else { 0 };
    (0..nodes).map(|n| (n, reserve(translation, n))).filter(|(_, bytes)| *bytes > 0)
}

/// The memory of an average instance of those that may still grow on `n`, in bytes.
pub(super) fn reserve(translation: &Translation, n: u32) -> u64 {
    let may_grow = (0u32..).zip(&translation.problem.apps).filter(|(_, app)| {
        let running: u32 = app.current.iter().map(|entry| entry.1).sum();
        !app.manual && app.allows(n) && running < app.instances.1 && app.demand() > 0.0
    });
    let (count, bytes) = may_grow.fold((0u64, 0u64), |(count, bytes), (_, app)| (count + 1, bytes.saturating_add(app.memory)));
    bytes.checked_div(count).unwrap_or(0)
}

/// The rung that somebody told an application to sleep on, as deep as it goes here.
fn told(policy: &Policy, m: u32, translation: &Translation) -> Option<Rung> {
    let name = &translation.apps[m as usize].name;
    let wanted = (*policy.resting.get(name)?)?;
    policy.rungs(name).filter(|rung| *rung <= wanted).max()
}

/// Seconds for which nobody has needed an instance that stands by, and why it is not needed: those without a request when nothing of its
/// application runs, and otherwise those that it stands by, as if it had come down the ladder to its rung.
fn idle_of(translation: &Translation, policy: &Policy, ladder: &Ladder, m: u32, instance: &InstanceObservation) -> (f64, String) {
    let runs = translation.active.range((m, 0)..=(m, u32::MAX)).next().is_some();
    let asked = policy.idle_s.get(&translation.apps[m as usize].name).copied().unwrap_or(0.0);
    let here_s = translation.now.since(instance.since).as_secs_f64();
    let stood_s = instance.state.rung().map_or(0.0, |rung| ladder.begins(Place::Asleep(rung))) + here_s;
    if runs {
        return (stood_s, "others of its application answer the requests".to_owned());
    }
    let idle_s = asked.max(here_s);
    (idle_s, idle(idle_s))
}
