//! What a placement must satisfy whatever it gains: nothing where it must not be, and the fewest instances of everything.

use super::dense::Problem;
use super::layout::{Layout, Obstacle};

/// What could not be satisfied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missing {
    /// The application.
    pub app: u32,
    /// How many instances it lacks.
    pub instances: u32,
    /// Why, on the node that comes nearest.
    pub obstacle: Obstacle,
}

/// Takes off what must not be there, then brings up fewest instances and nodes; returns what stays missing. Of those that an application has
/// too many of, the ones on the fullest nodes go.
pub fn enforce(problem: &Problem, layout: &mut Layout) -> Vec<Missing> {
    enforce_by(problem, layout, &mut fullest)
}

/// As [`enforce`]; `spared` says which node of an application that has too many instances gives one up.
pub fn enforce_by(problem: &Problem, layout: &mut Layout, spared: &mut dyn FnMut(&Layout, u32) -> Option<u32>) -> Vec<Missing> {
    for m in 0..problem.apps.len() as u32 {
        remove_forbidden(problem, layout, m, spared);
    }
    for n in 0..problem.nodes.len() as u32 {
        relieve(problem, layout, n);
    }
    let mut order: Vec<u32> = (0..problem.apps.len() as u32).collect();
    // The most constrained first: those with few nodes to choose from, then the largest.
    order.sort_by_key(|&m| {
        let app = &problem.apps[m as usize];
        (app.allowed.as_ref().map_or(usize::MAX, Vec::len), std::cmp::Reverse(app.memory), m)
    });
    let mut start = 0;
    order.into_iter().filter_map(|m| bring_up(problem, layout, m, &mut start)).collect()
}

/// So many nodes that could take an instance are compared. More hardly differ, and a large pool has thousands of them.
const COMPARED: usize = 256;

/// The node of an application that has least memory left: there it helps most.
pub fn fullest(layout: &Layout, m: u32) -> Option<u32> {
    layout.of_app(m).iter().map(|&edge| layout.edge(edge).node).min_by_key(|&n| (layout.free_memory(n), n))
}

fn remove_forbidden(problem: &Problem, layout: &mut Layout, m: u32, spared: &mut dyn FnMut(&Layout, u32) -> Option<u32>) {
    let app = &problem.apps[m as usize];
    if app.manual || app.pinned {
        return;
    }
    let nodes: Vec<u32> = layout.of_app(m).iter().map(|&edge| layout.edge(edge).node).collect();
    for &n in &nodes {
        let clash = app.apart.iter().any(|&other| other < m && layout.count(other, n) > 0);
        let lonely = app.together.iter().any(|&other| layout.count(other, n) == 0 && layout.may_add(problem, other, n).is_err());
        let keep = if !app.allows(n) || clash || lonely { 0 } else { app.per_node };
        while layout.count(m, n) > keep {
            layout.remove(problem, m, n);
        }
    }
    while layout.instances(m) > app.instances.1 || layout.of_app(m).len() > app.nodes.1 as usize {
        let Some(n) = spared(layout, m) else { return };
        layout.remove(problem, m, n);
    }
}

// A node that holds more memory than it has gives up instances, those that are easiest to spare first.
fn relieve(problem: &Problem, layout: &mut Layout, n: u32) {
    while layout.memory_used(problem, n) > problem.nodes[n as usize].memory {
        let on_node: Vec<u32> = layout.on_node(n).iter().map(|&edge| layout.edge(edge).app).collect();
        // One at its fewest stays where it is too much rather than nowhere at all.
        let has_another_place = |m: u32| {
            let mut without = layout.clone();
            without.remove(problem, m, n);
            best_node(problem, &without, m, false).is_ok()
        };
        let removable = on_node.iter().copied().filter(|&m| {
            let may = |moving| layout.may_remove(problem, m, n, moving).is_ok();
            may(false) || (may(true) && has_another_place(m))
        });
        let spared = |m: &u32| (layout.may_remove(problem, *m, n, false).is_err(), problem.apps[*m as usize].memory, *m);
        let Some(m) = removable.min_by_key(spared) else { return };
        layout.remove(problem, m, n);
    }
}

// In a large pool each search goes on behind the node that the one before has found (`start`).
fn bring_up(problem: &Problem, layout: &mut Layout, m: u32, start: &mut u32) -> Option<Missing> {
    let app = &problem.apps[m as usize];
    let mut obstacle = None;
    while layout.instances(m) < app.instances.0 || (layout.of_app(m).len() as u32) < app.nodes.0 {
        let new_node = layout.instances(m) >= app.instances.0;
        match best_node_from(problem, layout, m, new_node, *start) {
            Ok(n) => {
                layout.add_with_companions(problem, m, n);
                *start = if problem.nodes.len() > COMPARED { n + 1 } else { 0 };
            }
            Err(_) if make_room(problem, layout, m) => {}
            Err(_) if put_back(problem, layout, m) => {}
            Err(why) => {
                obstacle = Some(why);
                break;
            }
        }
    }
    let lacking =
        app.instances.0.saturating_sub(layout.instances(m)).max(app.nodes.0.saturating_sub(layout.of_app(m).len() as u32));
    obstacle.map(|obstacle| Missing { app: m, instances: lacking, obstacle })
}

// One that has no better place stays where it should not be, rather than nowhere at all; unless something new is there already that must
// not meet it or takes its memory. True when it did.
fn put_back(problem: &Problem, layout: &mut Layout, m: u32) -> bool {
    let app = &problem.apps[m as usize];
    if layout.instances(m) >= app.instances.0 {
        return false;
    }
    let is_new = |other: u32, n: u32| layout.count(other, n) > problem.apps[other as usize].current_on(n);
    let may_stay = |n: u32| {
        let used = layout.memory_used(problem, n).saturating_add(app.memory);
        let anything_new = layout.on_node(n).iter().any(|&edge| is_new(layout.edge(edge).app, n));
        let meets = app.apart.iter().any(|&other| is_new(other, n));
        let beside = used <= problem.nodes[n as usize].memory && layout.count(m, n) < app.per_node;
        let fits = layout.count(m, n) > 0 || (layout.of_app(m).len() as u32) < app.nodes.1;
        layout.count(m, n) < app.current_on(n) && fits && !meets && (!anything_new || beside)
    };
    let Some(&(n, _)) = app.current.iter().find(|&&(n, _)| may_stay(n)) else { return false };
    layout.add(problem, m, n);
    true
}

/// Where one more instance of `m` does best: where one stands by, then where it is not yet, then where CPU is least spoken
/// for, then where memory is left.
pub fn best_node(problem: &Problem, layout: &Layout, m: u32, only_new: bool) -> Result<u32, Obstacle> {
    best_node_from(problem, layout, m, only_new, 0)
}

fn best_node_from(problem: &Problem, layout: &Layout, m: u32, only_new: bool, start: u32) -> Result<u32, Obstacle> {
    let app = &problem.apps[m as usize];
    let mut nearest = Obstacle::Fixed;
    let mut best: Option<(u32, (bool, u32, f64, u64))> = None;
    let count = problem.nodes.len() as u32;
    let mut compared = 0;
    let mut consider = |n: u32| {
        if compared >= COMPARED || only_new && layout.count(m, n) > 0 {
            return;
        }
        if let Err(obstacle) = layout.may_add_with_companions(problem, m, n) {
            nearest = nearest.min(obstacle);
            return;
        }
        compared += 1;
        let standby = layout.count(m, n) < app.current_on(n) + app.standby_on(n);
        let claim: f64 = layout.on_node(n).len() as f64 / problem.nodes[n as usize].cpu.max(1e-9);
        let key = (standby, u32::MAX - layout.count(m, n), -claim, layout.free_memory(n));
        if best.is_none_or(|(_, other)| key.partial_cmp(&other) == Some(std::cmp::Ordering::Greater)) {
            best = Some((n, key));
        }
    };
    match &app.allowed {
        Some(nodes) => nodes.iter().copied().filter(|&n| n < count).for_each(&mut consider),
        None => {
            let known = app.current.iter().chain(&app.standby).map(|place| place.0);
            let others = (0..count).map(|i| (start + i) % count);
            known.chain(others).for_each(&mut consider);
        }
    }
    best.map(|(n, _)| n).ok_or(nearest)
}

// An application that is below its fewest goes before instances that others can spare. True when something was taken off.
fn make_room(problem: &Problem, layout: &mut Layout, m: u32) -> bool {
    let app = &problem.apps[m as usize];
    for n in 0..problem.nodes.len() as u32 {
        if !app.allows(n) || layout.count(m, n) >= app.per_node {
            continue;
        }
        let spare: Vec<u32> = layout
            .on_node(n)
            .iter()
            .map(|&edge| layout.edge(edge).app)
            .filter(|&other| other != m && layout.may_remove(problem, other, n, false).is_ok())
            .collect();
        let freed: u64 = spare.iter().map(|&other| problem.apps[other as usize].memory).sum();
        if layout.free_memory(n).saturating_add(freed) < app.memory {
            continue;
        }
        let before = layout.clone();
        for other in spare {
            layout.remove(problem, other, n);
            if layout.may_add_with_companions(problem, m, n).is_ok() {
                return true;
            }
        }
        *layout = before;
    }
    false
}
