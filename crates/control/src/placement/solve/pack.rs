//! Packs demands into nodes from nothing: sort and fold, generalised.
//!
//! A node with `s` places left and `c` CPU takes the application that wants least, as long as that is no more than a fair
//! place `c / s`; its last place goes to the one that fits best and fills it. With two places a node and one instance an
//! application this is the classic fold, smallest with largest, which finds a pairing whenever there is one (an exchange
//! argument: if the smallest can be paired with a larger one, pairing it with the largest that fits loses nothing). With one
//! place a node it hands out nodes by need. Applications that may have several instances are split where a node is full.

use std::collections::{BTreeMap, BTreeSet};

use crate::placement::problem::Problem;
use crate::placement::problem::layout::{Layout, Obstacle};

/// How far into the order a place looks for an application that may be there; only constraints make it look at all.
const LOOK: usize = 24;

/// A non-negative number in an ordered set.
type Key = (u64, u32);

fn key(cpu: f64, m: u32) -> Key {
    (cpu.max(0.0).to_bits(), m)
}

/// Adds instances on `nodes` until each application has what `want` says (indexed by application) or nothing more fits.
/// Only loads of new instances are set.
pub fn pack(problem: &Problem, layout: &mut Layout, want: &[f64], nodes: &[u32]) {
    let eps = layout.epsilon();
    let mut open = Open::of(problem, layout, want, eps);
    let mut order = nodes.to_vec();
    order.sort_by(|&a, &b| layout.spare(b).total_cmp(&layout.spare(a)).then(a.cmp(&b)));
    for n in order {
        fill(problem, layout, &mut open, n, eps);
        if open.by_want.is_empty() {
            return;
        }
    }
}

/// Applications that still want something, ordered by how much.
struct Open {
    by_want: BTreeSet<Key>,
    left: Vec<f64>,
    smallest_memory: u64,
}

impl Open {
    fn of(problem: &Problem, layout: &Layout, want: &[f64], eps: f64) -> Self {
        let mut open = Self { by_want: BTreeSet::new(), left: vec![0.0; problem.apps.len()], smallest_memory: u64::MAX };
        for (m, app) in (0u32..).zip(&problem.apps) {
            let left = want[m as usize] - layout.given(m);
            if !app.manual && (left > eps || layout.instances(m) < app.instances.0) {
                open.left[m as usize] = left.max(0.0);
                open.by_want.insert(key(left, m));
                open.smallest_memory = open.smallest_memory.min(app.memory.max(1));
            }
        }
        open
    }

    fn take(&mut self, problem: &Problem, layout: &Layout, m: u32, cpu: f64, eps: f64) {
        self.by_want.remove(&key(self.left[m as usize], m));
        let left = (self.left[m as usize] - cpu).max(0.0);
        self.left[m as usize] = left;
        let app = &problem.apps[m as usize];
        let more = left > eps && layout.instances(m) < app.instances.1;
        if more || layout.instances(m) < app.instances.0 {
            self.by_want.insert(key(left, m));
        }
    }
}

fn fill(problem: &Problem, layout: &mut Layout, open: &mut Open, n: u32, eps: f64) {
    loop {
        let places = layout.free_memory(n) / open.smallest_memory;
        let cpu = layout.spare(n).max(0.0);
        if places == 0 || open.by_want.is_empty() || (cpu <= eps && places < 1) {
            return;
        }
        let Some((m, piece)) = choose(problem, layout, open, n, places, cpu, eps) else { return };
        let piece = piece.min(problem.apps[m as usize].instance_cpu).min(cpu);
        layout.add_with_companions(problem, m, n);
        let edge = layout.find(m, n).expect("it was just added");
        layout.shift(edge, piece);
        open.take(problem, layout, m, piece, eps);
    }
}

fn choose(problem: &Problem, layout: &Layout, open: &Open, n: u32, places: u64, cpu: f64, eps: f64) -> Option<(u32, f64)> {
    let fits = |m: u32| layout.may_add_with_companions(problem, m, n).is_ok();
    let piece_of = |m: u32| {
        let least = problem.apps[m as usize].instances.0.saturating_sub(layout.instances(m)).max(1);
        open.left[m as usize] / f64::from(least)
    };
    if places > 1 {
        let fair = cpu / places as f64 + eps;
        let small = open.by_want.iter().map(|&(_, m)| m).take(LOOK).find(|&m| piece_of(m) <= fair && fits(m));
        if let Some(m) = small {
            return Some((m, piece_of(m)));
        }
    }
    if cpu <= eps {
        // Nothing to give; only those below their fewest instances still go here.
        let bare = open.by_want.iter().map(|&(_, m)| m).take(LOOK);
        let m = bare.into_iter().find(|&m| layout.instances(m) < problem.apps[m as usize].instances.0 && fits(m))?;
        return Some((m, 0.0));
    }
    // The largest that may be split fills the node; among those that may not, the largest that fits.
    let splittable =
        |m: u32| problem.apps[m as usize].instances.1 - layout.instances(m).min(problem.apps[m as usize].instances.1) > 1;
    let whole = open.by_want.range(..=key(cpu + eps, u32::MAX)).rev().map(|&(_, m)| m).take(LOOK).find(|&m| fits(m));
    let split = open.by_want.iter().rev().map(|&(_, m)| m).take(LOOK).find(|&m| splittable(m) && fits(m));
    let snug = whole.filter(|&m| open.left[m as usize] >= 0.98 * cpu);
    let m = snug.or(split).or(whole).or_else(|| open.by_want.iter().map(|&(_, m)| m).take(LOOK).find(|&m| fits(m)))?;
    Some((m, piece_of(m).min(cpu)))
}

/// Takes all that may be moved off `nodes`; returns what was there, per node.
pub fn clear(problem: &Problem, layout: &mut Layout, nodes: &[u32]) {
    for &n in nodes {
        // Those that others must be together with go last.
        for _ in 0..2 {
            let here: Vec<u32> = layout.on_node(n).iter().map(|&edge| layout.edge(edge).app).collect();
            for m in here {
                while layout.count(m, n) > 0 && layout.may_remove(problem, m, n, true).is_ok() {
                    layout.remove(problem, m, n);
                }
            }
        }
    }
}

/// Renames equal nodes among `nodes` so that as many instances as possible stay where they run now; loads go along.
pub fn keep_places(problem: &Problem, layout: &Layout, nodes: &[u32]) -> Layout {
    let movable: Vec<u32> = nodes.iter().copied().filter(|&n| may_rename(problem, layout, n)).collect();
    let rename = assignment(problem, layout, &movable);
    if rename.iter().all(|(from, to)| from == to) {
        return layout.clone();
    }
    let mut renamed = layout.clone();
    for &n in rename.keys() {
        strip(problem, &mut renamed, n);
    }
    for (&from, &to) in &rename {
        for &edge in layout.on_node(from) {
            let edge = layout.edge(edge);
            for _ in 0..edge.count {
                renamed.add(problem, edge.app, to);
            }
            let new = renamed.find(edge.app, to).expect("it was just added");
            renamed.shift(new, edge.load);
        }
    }
    renamed
}

fn strip(problem: &Problem, layout: &mut Layout, n: u32) {
    while let Some(&edge) = layout.on_node(n).last() {
        let m = layout.edge(edge).app;
        layout.remove(problem, m, n);
    }
}

// A node may change places with an equal one when nothing on it is tied to it.
fn may_rename(problem: &Problem, layout: &Layout, n: u32) -> bool {
    layout.on_node(n).iter().all(|&edge| {
        let app = &problem.apps[layout.edge(edge).app as usize];
        app.allowed.is_none() && !app.pinned && !app.manual
    })
}

// Which content goes to which node, by greatest overlap with what runs there now, then with what stands by there; of equal nodes the one
// where the fewest others stand by, who may want it.
fn assignment(problem: &Problem, layout: &Layout, nodes: &[u32]) -> BTreeMap<u32, u32> {
    let set: BTreeSet<u32> = nodes.iter().copied().collect();
    let equal = |a: u32, b: u32| problem.nodes[a as usize] == problem.nodes[b as usize];
    let mut standing_by = vec![0; problem.nodes.len()];
    problem.apps.iter().flat_map(|app| &app.standby).for_each(|&(n, count)| standing_by[n as usize] += count);
    let mut overlaps: Vec<(u32, u32, u32)> = Vec::new();
    for &from in nodes {
        let mut here: BTreeMap<u32, u32> = BTreeMap::new();
        for &edge in layout.on_node(from) {
            let edge = layout.edge(edge);
            let app = &problem.apps[edge.app as usize];
            let running = app.current.iter().map(|&(to, count)| (to, 2 * count.min(edge.count)));
            let asleep = app.standby.iter().map(|&(to, count)| (to, count.min(edge.count)));
            for (to, overlap) in running.chain(asleep).filter(|&(to, _)| set.contains(&to) && equal(from, to)) {
                *here.entry(to).or_default() += overlap;
            }
        }
        overlaps.extend(here.into_iter().map(|(to, overlap)| (overlap, from, to)));
    }
    // The greatest overlap first; a content that is at its place already wins a tie.
    overlaps.sort_by_key(|&(overlap, from, to)| (std::cmp::Reverse(overlap), standing_by[to as usize], from != to, from, to));
    let (mut rename, mut taken) = (BTreeMap::new(), BTreeSet::new());
    for (_, from, to) in overlaps {
        if !rename.contains_key(&from) && !taken.contains(&to) {
            rename.insert(from, to);
            taken.insert(to);
        }
    }
    let mut left: Vec<u32> = nodes.iter().copied().filter(|n| !taken.contains(n)).collect();
    for &from in nodes {
        if rename.contains_key(&from) {
            continue;
        }
        let at = left.iter().position(|&to| to == from).or_else(|| left.iter().position(|&to| equal(from, to)));
        let to = left.swap_remove(at.expect("equal nodes are renamed among themselves only"));
        rename.insert(from, to);
    }
    rename
}

/// Why nothing of `m` can be added on `n`, for callers that only want to know whether memory is what is missing.
pub fn lacks_only_memory(problem: &Problem, layout: &Layout, m: u32, n: u32) -> bool {
    matches!(layout.may_add_with_companions(problem, m, n), Err(Obstacle::Memory))
}
