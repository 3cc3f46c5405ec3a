//! Starting instances ahead of need, so that the next flash crowd or the first request is a wake away instead of a start.
//!
//! Al-Qudah section 3 lets every application stand by on every machine, as far as memory allows. What nothing is there of comes first:
//! an application that may be asleep is asleep, not gone. `run-everywhere` leaves what it started awake, the others put it to sleep.
//! Each start takes CPU and, until it sleeps, all of its memory: so there is one at a time, where both are to spare.

use weal_model::{Action, InstanceState};

use super::actions::Steps;
use super::names::Names;
use crate::placement::policy::Policy;
use crate::placement::problem::translate::Translation;
use crate::placement::solve::Solution;
use crate::placement::standby::{self, Ladder, Place, SPARE_CPU};

/// Starts the next one.
pub(super) fn start_ahead(steps: &mut Steps, translation: &Translation, policy: &Policy, solution: &Solution, names: &mut Names) {
    let starting = |state: InstanceState| matches!(state, InstanceState::Starting | InstanceState::Backoff);
    let busy = translation.all().any(|instance| starting(instance.state));
    let begun = steps.reasons.iter().any(|reason| matches!(reason.action, Action::Start { .. }));
    if busy || begun || !policy.pool.control || !policy.algorithm.knows_goals() || !policy.pool.enactment.starts_ahead() {
        return;
    }
    let best = (0..translation.apps.len() as u32)
        .filter_map(|m| Some((wanted(steps, translation, m)?, m)))
        .flat_map(|(urgency, m)| (0..translation.nodes.len() as u32).map(move |n| (urgency, m, n)))
        .filter(|&(_, m, n)| has_place(steps, translation, solution, m, n))
        .max_by(|a, b| {
            a.0.total_cmp(&b.0)
                .then_with(|| steps.free[a.2 as usize].cmp(&steps.free[b.2 as usize]))
                .then((b.1, b.2).cmp(&(a.1, a.2)))
        });
    let Some((urgency, m, n)) = best else { return };
    let (name, node) = (&translation.apps[m as usize].name, &translation.nodes[n as usize]);
    let why = if urgency.is_infinite() {
        format!("no instance of `{name}` runs or stands by, and `{node}` has room for one")
    } else {
        format!(
            "one more instance of `{name}` that stands by shortens the wait of the next crowd; `{node}` has memory and CPU to spare"
        )
    };
    steps.start_ahead(translation, policy, names, m, n, why);
}

/// Puts to sleep what was started ahead and is ready.
pub(super) fn lay_down(steps: &mut Steps, translation: &Translation, policy: &Policy) {
    for (&(m, n), rising) in &translation.rising {
        for instance in rising.iter().filter(|instance| instance.state == InstanceState::Ready) {
            if !steps.is_ahead(&instance.id) {
                continue;
            }
            let place = Ladder::of(translation, policy, m, n).asleep_at(0.0);
            if let Some(Place::Asleep(rung)) = place {
                let why = format!("`{}` needs no further instance now, so this one stands by", translation.apps[m as usize].name);
                steps.put_to_sleep(translation, m, n, &instance.id, rung, why);
            }
        }
    }
}

/// How much an application wants an instance that stands by; `None` when it wants none.
fn wanted(steps: &Steps, translation: &Translation, m: u32) -> Option<f64> {
    let (app, spec) = (&translation.problem.apps[m as usize], translation.apps[m as usize]);
    let (running, standing_by) = steps.instances_of(m);
    let has_needs = spec.needs.iter().all(|needed| translation.app_index(needed).is_some_and(|m| steps.instances_of(m).0 > 0));
    if translation.leaving.contains(&m) {
        return None;
    }
    if app.manual || spec.manual || !has_needs || running + standing_by >= spec.instances.max || translation.ended[m as usize] > 0
    {
        return None;
    }
    if running + standing_by == 0 {
        return Some(f64::INFINITY);
    }
    (app.demand() > 0.0).then(|| app.demand())
}

fn has_place(steps: &Steps, translation: &Translation, solution: &Solution, m: u32, n: u32) -> bool {
    let app = &translation.problem.apps[m as usize];
    let node = &translation.problem.nodes[n as usize];
    app.allows(n)
        && app.together.is_empty()
        && !app.apart.iter().any(|&other| steps.on(other, n) > 0)
        && steps.on(m, n) < app.per_node
        && steps.free[n as usize] >= app.memory.saturating_add(standby::reserve(translation, n))
        && solution.layout.spare(n) >= SPARE_CPU * node.cpu
}
