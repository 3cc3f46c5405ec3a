//! How far a replacement is, for people: what is waited for, or why it goes no further.

use weal_model::{AppSpec, InstanceState, RolloutPhase, RolloutStatus};
use weal_protocol::engine::InstanceSeen;

use super::room::{Room, roomiest};
use super::view::{Seen, View};
use crate::cycle::gateway::RESTARTS_IN_VAIN;
use crate::cycle::tasks::{TaskState, undone, waits_for};

/// `target` is how many new ones there are to be.
pub(super) fn status(view: &View<'_>, app: &AppSpec, seen: &[Seen<'_>], target: usize) -> Option<RolloutStatus> {
    let old = seen.iter().filter(|seen| seen.stale.is_some()).count();
    if old == 0 {
        return None;
    }
    let new = seen.iter().filter(|seen| seen.stale.is_none() && seen.is_ready()).count();
    let (phase, detail) = phase(view, app, seen, new >= target);
    Some(RolloutStatus { phase, old: old as u32, new: new as u32, serving: still_serving(seen).count() as u32, detail })
}

fn phase(view: &View<'_>, app: &AppSpec, seen: &[Seen<'_>], all_new: bool) -> (RolloutPhase, String) {
    let serving = serving(seen);
    if let Some(why) = failure(view, app, seen) {
        return (RolloutPhase::Stuck, format!("the new version does not get ready: {why}. {serving}"));
    }
    if let Some(waits) = waits_for(app, view.instances, view.revisions) {
        return (RolloutPhase::Waiting, format!("{} {waits}. {serving}", app.name));
    }
    if let Some(coming) = seen.iter().find(|seen| seen.stale.is_none() && !seen.is_ready()) {
        return (RolloutPhase::Starting, format!("{} is not ready yet. {serving}", coming.instance.id));
    }
    let old: Vec<&Seen<'_>> = seen.iter().filter(|seen| seen.stale.is_some()).collect();
    if all_new && old.iter().all(|seen| seen.busy) {
        let names: Vec<&str> = old.iter().map(|seen| seen.instance.id.as_str()).collect();
        let drain_s = app.drain_timeout_s.unwrap_or(app.request_timeout_s);
        let text = format!("{} finishes its requests, for {drain_s} s at most", names.join(" and "));
        return (RolloutPhase::Draining, text);
    }
    let Some(first) = old.iter().find(|seen| !seen.busy) else { return (RolloutPhase::Starting, serving) };
    match Room::of(view, app, &first.instance.node, !app.singleton) {
        Room::Soon => (RolloutPhase::Waiting, format!("{}. {serving}", no_room(view, app))),
        _ => (RolloutPhase::Starting, serving),
    }
}

/// What the pool lacks for one more instance, in numbers.
fn no_room(view: &View<'_>, app: &AppSpec) -> String {
    match roomiest(view, app) {
        Some((node, free)) => format!("a new instance needs {}, and no node has more than {free} free ({node})", app.memory),
        None => "no node may run it".to_owned(),
    }
}

/// Why the new version does not get ready; `None` while it still may.
fn failure(view: &View<'_>, app: &AppSpec, seen: &[Seen<'_>]) -> Option<String> {
    let new = || seen.iter().filter(|seen| seen.stale.is_none()).map(|seen| seen.instance);
    let tell = |seen: &InstanceSeen| format!("{}: {}", seen.id, seen.detail);
    if new().any(|seen| seen.state == InstanceState::Ready) && new().all(|seen| !has_failed(seen)) {
        return None;
    }
    if let Some((task, TaskState::Failed(how))) = undone(app, view.instances, view.revisions) {
        return Some(format!("the task {task} failed: {how}"));
    }
    let failed = new().find(|seen| has_failed(seen)).map(tell);
    failed.or_else(|| view.failures.get(&app.name).cloned())
}

fn has_failed(seen: &InstanceSeen) -> bool {
    match seen.state {
        InstanceState::Failed => true,
        InstanceState::Backoff => seen.start_took_s.is_some() || seen.restarts >= RESTARTS_IN_VAIN,
        InstanceState::Starting => seen.start_took_s.is_none() && seen.restarts > RESTARTS_IN_VAIN,
        _ => false,
    }
}

/// Old instances that answer meanwhile.
fn still_serving<'a, 's>(seen: &'a [Seen<'s>]) -> impl Iterator<Item = &'a Seen<'s>> {
    seen.iter().filter(|seen| seen.stale.is_some() && seen.is_ready())
}

/// The same in a sentence.
fn serving(seen: &[Seen<'_>]) -> String {
    let names: Vec<&str> = still_serving(seen).map(|seen| seen.instance.id.as_str()).collect();
    match names.as_slice() {
        [] => "No instance of the version before serves".to_owned(),
        [one] => format!("{one} of the version before still serves"),
        many => format!("{} of the version before still serve", many.join(" and ")),
    }
}
