//! Instances that must be replaced: started from a spec that is not in force any more.
//!
//! One at a time per application: start a new one, wait until it is ready, drain and stop an old one; an application that
//! may have only one instance (a database must not run twice on the same data), or whose nodes have no room for a second,
//! is stopped first, and its requests wait in their queue meanwhile. A new one that does not get ready ends the
//! replacement there: the old ones stay.

use std::collections::{BTreeMap, BTreeSet};

use weal_model::{Action, AppName, AppSpec, Bytes, InstanceId, InstanceState, NodeName, PoolSpec};
use weal_protocol::engine::{InstanceSeen, Revision};

/// An instance as the replacement sees it.
struct Seen<'a> {
    instance: &'a InstanceSeen,
    /// Why it must be replaced.
    stale: Option<String>,
    busy: bool,
}

/// What to do next, and which applications are in the middle of it (placement leaves those alone).
#[derive(Debug, Default)]
pub(super) struct RolloutStep {
    pub actions: Vec<(Action, String)>,
    pub replacing: BTreeSet<AppName>,
}

/// Remembers how many instances an application had when its replacement began.
#[derive(Debug, Default)]
pub(super) struct Rollout {
    targets: BTreeMap<AppName, usize>,
}

impl Rollout {
    /// The next steps. `revisions` are what instances would be started from, `busy` whether an
    /// instance has an operation, `name` an unused id for a new instance.
    pub fn step(
        &mut self,
        pool: &PoolSpec,
        instances: &[InstanceSeen],
        revisions: &BTreeMap<AppName, Revision>,
        busy: impl Fn(&InstanceId) -> bool,
        mut name: impl FnMut(&AppName) -> InstanceId,
    ) -> RolloutStep {
        let mut step = RolloutStep::default();
        for instance in instances.iter().filter(|i| !pool.apps.contains_key(&i.app) && !busy(&i.id)) {
            let reason = format!("{} is not in the config any more", instance.app);
            step.actions.push((Action::Stop { instance: instance.id.clone(), app: instance.app.clone() }, reason));
        }
        for app in pool.apps.values() {
            let Some(wanted) = revisions.get(&app.name) else { continue };
            let seen: Vec<Seen<'_>> = instances
                .iter()
                .filter(|instance| instance.app == app.name)
                .map(|instance| Seen { instance, stale: stale(pool, app, wanted, instance, instances), busy: busy(&instance.id) })
                .collect();
            if !seen.iter().any(|seen| seen.stale.is_some()) {
                self.targets.remove(&app.name);
                continue;
            }
            step.replacing.insert(app.name.clone());
            let active = seen.iter().filter(|seen| !seen.busy && seen.instance.state.is_active()).count();
            let target = *self.targets.entry(app.name.clone()).or_insert(active.max(1));
            step.actions.extend(next(pool, app, &seen, active, target, instances, &mut name));
        }
        step
    }
}

/// Why `instance` must be replaced, if it must.
fn stale(pool: &PoolSpec, app: &AppSpec, wanted: &Revision, instance: &InstanceSeen, all: &[InstanceSeen]) -> Option<String> {
    if instance.revision.start != wanted.start {
        return Some(format!("the config of {} changed", app.name));
    }
    if !pool.nodes.iter().any(|node| node.name == instance.node) {
        return Some(format!("node {} is not in the config any more", instance.node));
    }
    let moved = |needed: &&AppName| {
        let Some(address) = instance.needs.get(*needed) else { return false };
        if let Some(inner) = pool.apps.get(*needed).and_then(|app| app.inner) {
            return inner != *address;
        }
        let mut providers = all.iter().filter(|i| i.app == **needed && i.state.is_active()).peekable();
        // While the needed one is away nobody knows where it will be.
        providers.peek().is_some() && !providers.any(|i| i.address == *address)
    };
    app.needs.iter().find(moved).map(|needed| format!("{needed} has moved to another address"))
}

fn next(
    pool: &PoolSpec,
    app: &AppSpec,
    seen: &[Seen<'_>],
    active: usize,
    target: usize,
    all: &[InstanceSeen],
    name: &mut impl FnMut(&AppName) -> InstanceId,
) -> Vec<(Action, String)> {
    let stale: Vec<(&Seen<'_>, &String)> = seen.iter().filter_map(|s| Some((s, s.stale.as_ref()?))).collect();
    let stop = |(seen, why): (&Seen<'_>, &String)| {
        (Action::Stop { instance: seen.instance.id.clone(), app: app.name.clone() }, format!("replaced, because {why}"))
    };
    let useless = |seen: &Seen<'_>| seen.instance.state != InstanceState::Ready;
    let mut actions: Vec<_> = stale.iter().filter(|(s, _)| !s.busy && useless(s)).map(|&old| stop(old)).collect();
    let settled = |s: &Seen<'_>| !s.busy && (s.stale.is_some() || s.instance.state == InstanceState::Ready);
    let usable: Vec<_> = stale.iter().copied().filter(|(s, _)| !s.busy && !useless(s)).collect();
    if !actions.is_empty() || !seen.iter().all(settled) {
        return actions;
    }
    let Some(&(old, why)) = usable.first() else { return actions };
    let place = (app.instances.max > 1 || active < target).then(|| room(pool, app, &old.instance.node, all)).flatten();
    if active <= target
        && let Some(node) = place
    {
        let instance = name(&app.name);
        let text = format!("takes the place of {}, because {why}", old.instance.id);
        actions.push((Action::Start { instance, app: app.name.clone(), node }, text));
    } else {
        actions.push(stop((old, why)));
    }
    actions
}

/// A node with room for one more instance of `app`: `preferred` if it is one, else that with the most free memory.
fn room(pool: &PoolSpec, app: &AppSpec, preferred: &NodeName, all: &[InstanceSeen]) -> Option<NodeName> {
    let held = |node: &NodeName| -> Bytes {
        let here = all.iter().filter(|i| i.node == *node && i.state.holds_memory());
        here.map(|i| pool.apps.get(&i.app).map_or(i.memory_limit, |app| app.memory.max(i.memory_limit))).sum()
    };
    let count = |node: &NodeName| all.iter().filter(|i| i.node == *node && i.app == app.name).count();
    let conflict = |node: &NodeName| {
        let mut here = all.iter().filter(|i| i.node == *node).map(|i| &i.app);
        here.any(|other| app.apart.contains(other) || pool.apps.get(other).is_some_and(|o| o.apart.contains(&app.name)))
    };
    let allowed = |node: &NodeName| app.nodes.as_ref().is_none_or(|nodes| nodes.contains(node));
    let fits = pool.nodes.iter().filter(|node| {
        let name = &node.name;
        allowed(name) && !conflict(name) && count(name) < app.per_node as usize && (node.memory - held(name)) >= app.memory
    });
    fits.max_by_key(|node| (node.name == *preferred, node.memory - held(&node.name))).map(|node| node.name.clone())
}
