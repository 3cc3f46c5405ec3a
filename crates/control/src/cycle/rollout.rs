//! Instances that must be replaced: started from a spec that is not in force any more, or replaced by an order.
//!
//! Start first. One new instance at a time per application is started, and takes requests when it is ready. Then an old one drains and is
//! stopped *beside* it: a stream that never ends holds up neither the new one nor the next old one. A new one that does not get ready ends
//! the replacement there, and the old ones go on serving.
//!
//! Stop first, only where two may not run at a time (`singleton`), or where no node has memory for a second one and nothing that is being
//! stopped will leave any: requests wait in their queue meanwhile.

mod progress;
mod room;
#[cfg(test)]
mod tests;
mod view;

use std::collections::{BTreeMap, BTreeSet};

use weal_model::{Action, AppName, AppSpec, InstanceId, RolloutStatus};
use weal_protocol::engine::{InstanceSeen, Revision};

use super::tasks::still_runs;
use room::Room;
use view::Seen;
pub(super) use view::View;

/// What to do next, and which applications are in the middle of it (placement leaves those alone).
#[derive(Debug, Default)]
pub(super) struct RolloutStep {
    pub actions: Vec<(Action, String)>,
    pub replacing: BTreeSet<AppName>,
}

/// Remembers how many instances an application had when its replacement began, and which instances are replaced by an order.
#[derive(Debug, Default)]
pub(super) struct Rollout {
    targets: BTreeMap<AppName, usize>,
    ordered: BTreeSet<InstanceId>,
}

impl Rollout {
    /// Replaces these instances though nothing of their config has changed.
    pub fn handle_restart(&mut self, instances: impl IntoIterator<Item = InstanceId>) {
        self.ordered.extend(instances);
    }

    /// The next steps. `name` gives an unused id for a new instance.
    pub fn step(&mut self, view: &View<'_>, mut name: impl FnMut(&AppName) -> InstanceId) -> RolloutStep {
        self.ordered.retain(|id| view.instances.iter().any(|seen| seen.id == *id));
        let mut step = RolloutStep { actions: unwanted(view), ..RolloutStep::default() };
        for app in view.pool.apps.values().filter(|app| !app.halted) {
            let seen = self.seen(view, app);
            if !seen.iter().any(|seen| seen.stale.is_some()) {
                self.targets.remove(&app.name);
                continue;
            }
            step.replacing.insert(app.name.clone());
            if view.unseen.contains(&app.name) {
                continue;
            }
            let active = seen.iter().filter(|seen| !seen.busy && seen.instance.state.is_active()).count();
            let target = *self.targets.entry(app.name.clone()).or_insert(active.clamp(1, app.instances.max.max(1) as usize));
            step.actions.extend(next(view, app, &seen, target, &mut name));
        }
        step
    }

    /// How far the replacement of `app` is; `None` when nothing is to be replaced.
    pub fn status(&self, view: &View<'_>, app: &AppSpec) -> Option<RolloutStatus> {
        if app.halted {
            return None;
        }
        progress::status(view, app, &self.seen(view, app), self.targets.get(&app.name).copied().unwrap_or(1))
    }

    fn seen<'a>(&self, view: &View<'a>, app: &AppSpec) -> Vec<Seen<'a>> {
        let Some(wanted) = view.revisions.get(&app.name) else { return Vec::new() };
        let mine = view.instances.iter().filter(|instance| instance.app == app.name);
        mine.map(|instance| {
            let ordered = || self.ordered.contains(&instance.id).then(|| "it is restarted by an order".to_owned());
            let stale = stale(view, app, wanted, instance).or_else(ordered);
            Seen { instance, stale, busy: (view.busy)(&instance.id) }
        })
        .collect()
    }
}

/// Stops of instances that nobody wants at all any more.
fn unwanted(view: &View<'_>) -> Vec<(Action, String)> {
    let reason = |app: &AppName| match view.pool.apps.get(app) {
        None => Some(format!("{app} is not in the config any more")),
        Some(spec) => spec.halted.then(|| format!("{app} is stopped by an order")),
    };
    let idle = view.instances.iter().filter(|instance| !(view.busy)(&instance.id));
    idle.filter_map(|instance| Some((stop(instance), reason(&instance.app)?))).collect()
}

fn stop(instance: &InstanceSeen) -> Action {
    Action::Stop { instance: instance.id.clone(), app: instance.app.clone() }
}

/// Why `instance` must be replaced, if it must.
fn stale(view: &View<'_>, app: &AppSpec, wanted: &Revision, instance: &InstanceSeen) -> Option<String> {
    if instance.revision.start != wanted.start {
        return Some(format!("the config of {} changed", app.name));
    }
    if !view.pool.nodes.iter().any(|node| node.name == instance.node) {
        return Some(format!("node {} is not in the config any more", instance.node));
    }
    let moved = |needed: &&AppName| {
        let Some(address) = instance.needs.get(*needed) else { return false };
        if let Some(inner) = view.pool.apps.get(*needed).and_then(|app| app.inner) {
            return inner != *address;
        }
        let mut providers = view.instances.iter().filter(|i| i.app == **needed && i.state.is_active()).peekable();
        // While the needed one is away nobody knows where it will be.
        providers.peek().is_some() && !providers.any(|i| i.address == *address)
    };
    app.needs.iter().find(moved).map(|needed| format!("{needed} has moved to another address"))
}

/// The next steps of one application, some instance of which is stale.
fn next(
    view: &View<'_>,
    app: &AppSpec,
    seen: &[Seen<'_>],
    target: usize,
    name: &mut impl FnMut(&AppName) -> InstanceId,
) -> Vec<(Action, String)> {
    if seen.iter().any(|seen| seen.stale.is_some() && still_runs(app, seen.instance)) {
        return Vec::new();
    }
    let mut actions: Vec<_> = useless(app, seen).map(replaced).collect();
    let new: Vec<&Seen<'_>> = seen.iter().filter(|seen| seen.stale.is_none()).collect();
    let old: Vec<&Seen<'_>> = seen.iter().filter(|seen| is_old(seen)).filter(|seen| seen.may_serve()).collect();
    let Some(&first) = old.iter().find(|seen| seen.is_ready()).or(old.first()) else { return actions };
    if !actions.is_empty() || new.iter().any(|seen| !seen.is_ready()) {
        return actions;
    }
    let beside = new.len() + old.iter().filter(|seen| seen.instance.state.is_active()).count();
    if beside > target {
        actions.push(replaced(first));
        return actions;
    }
    match Room::of(view, app, &first.instance.node, !app.singleton || beside < target) {
        Room::At(node) => {
            let text = format!("takes the place of {}, because {}", first.instance.id, why(first));
            actions.push((Action::Start { instance: name(&app.name), app: app.name.clone(), node }, text));
        }
        Room::Soon => {}
        Room::None => actions.push(replaced(first)),
    }
    actions
}

/// Stale, and nothing is done to it yet.
fn is_old(seen: &&Seen<'_>) -> bool {
    seen.stale.is_some() && !seen.busy
}

/// Stale instances that nothing is lost with: they do not serve and never did, or others serve.
fn useless<'a, 's>(app: &AppSpec, seen: &'a [Seen<'s>]) -> impl Iterator<Item = &'a Seen<'s>> {
    let is_served = app.singleton || seen.iter().any(Seen::is_ready);
    seen.iter().filter(is_old).filter(move |seen| !seen.may_serve() || (is_served && !seen.is_ready()))
}

fn why<'a>(seen: &'a Seen<'_>) -> &'a str {
    seen.stale.as_deref().unwrap_or_default()
}

fn replaced(seen: &Seen<'_>) -> (Action, String) {
    (stop(seen.instance), format!("replaced, because {}", why(seen)))
}
