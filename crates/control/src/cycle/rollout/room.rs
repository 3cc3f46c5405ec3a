//! Where a new instance has room beside the old one that it will replace.

use weal_model::{AppName, AppSpec, Bytes, InstanceState, NodeName, PoolSpec};
use weal_protocol::engine::InstanceSeen;

use super::view::View;

/// Where there is room for one more instance.
pub(super) enum Room {
    /// Here.
    At(NodeName),
    /// Nowhere yet, but something is on its way that may leave some.
    Soon,
    /// Nowhere.
    None,
}

impl Room {
    /// Room for one more of `app`: on the node `preferred` if there is any, else where most memory is free. Without `beside`, none may run
    /// beside those that do.
    pub fn of(view: &View<'_>, app: &AppSpec, preferred: &NodeName, beside: bool) -> Self {
        if !beside {
            return Self::None;
        }
        let fits = view.pool.nodes.iter().map(|node| &node.name).filter(|node| fits(view, app, node, *node == preferred));
        match fits.max_by_key(|node| (*node == preferred, (view.free)(node))) {
            Some(node) => Self::At(node.clone()),
            None if any_on_its_way(view) => Self::Soon,
            None => Self::None,
        }
    }
}

/// `stays` says that the old one is on this node: it may hold one more than `per-node` until that has gone.
fn fits(view: &View<'_>, app: &AppSpec, node: &NodeName, stays: bool) -> bool {
    // One that drains has made its place free.
    let leaves = |i: &InstanceSeen| i.state == InstanceState::Ready && (view.busy)(&i.id);
    let mine = view.instances.iter().filter(|i| i.node == *node && i.app == app.name && !leaves(i)).count();
    let is_allowed = app.nodes.as_ref().is_none_or(|nodes| nodes.contains(node));
    let is_few = mine < app.per_node as usize + usize::from(stays);
    is_allowed && is_few && !has_enemy(view, app, node) && (view.free)(node) >= app.memory
}

/// Whether something is on `node` that must be apart from `app`.
fn has_enemy(view: &View<'_>, app: &AppSpec, node: &NodeName) -> bool {
    let are_apart = |pool: &PoolSpec, other: &AppName| {
        app.apart.contains(other) || pool.apps.get(other).is_some_and(|other| other.apart.contains(&app.name))
    };
    view.instances.iter().filter(|i| i.node == *node).any(|i| are_apart(view.pool, &i.app))
}

/// Whether something is being started or ended: memory may be free after it.
fn any_on_its_way(view: &View<'_>) -> bool {
    let moves = |state| matches!(state, InstanceState::Starting | InstanceState::Stopping | InstanceState::Draining);
    view.instances.iter().any(|seen| (view.busy)(&seen.id) || moves(seen.state))
}

/// The most memory that is free on a node where `app` may run, and that node; `None` where it may run nowhere.
pub(super) fn roomiest(view: &View<'_>, app: &AppSpec) -> Option<(NodeName, Bytes)> {
    let allowed = |node: &&NodeName| app.nodes.as_ref().is_none_or(|nodes| nodes.contains(*node));
    let nodes = view.pool.nodes.iter().map(|node| &node.name).filter(allowed);
    nodes.map(|node| (node.clone(), (view.free)(node))).max_by_key(|(_, free)| *free)
}
