//! Random placement problems from a seed: for property tests and benchmarks.
//!
//! Curves are those of closed flows without think time (Carrera eq. 5.6; figure 5.10 shows the shape):
//! `cpu(u) = (1 - best) * demand / (1 - u)`, from a utility of -10 up to `best`.

use weal_model::{Cpu, Utility};

use super::bound::highest_between;
use super::dense::{App, ChangeCost, Node, Problem};
use crate::seeded::Seeded;
use crate::utility::Curve;

/// A curve that reaches `best` with `demand` cores.
pub fn curve(best: f64, demand: f64) -> Curve {
    let cpu = |u: Utility| Cpu((1.0 - best) * demand / (1.0 - u.0));
    let sampled = Curve::from_inverse(Utility(-10.0), Utility(best), cpu);
    Curve::through(std::iter::once((Cpu(0.0), Utility(-10.0))).chain(sampled.points().skip(1)))
}

/// How demand is spread over the applications of a [`pool`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DemandMix {
    /// Uniform in 0.5..1.5 of its mean.
    Even,
    /// Three in five applications are large (1.2..1.45), the others small (0.2..0.6): with two places a node, large ones have to
    /// share nodes with each other while small ones leave CPU unused, and water-filling cannot see that.
    Skewed,
}

/// The pools of the benchmark (Carrera 5.6.1): equal nodes of 4 cores, applications of equal memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shape {
    /// How many nodes.
    pub nodes: u32,
    /// How many applications.
    pub apps: u32,
    /// How many instances fit into a node's memory.
    pub per_node: u32,
    /// Demand of all applications over the CPU of all nodes.
    pub load: f64,
    /// How demand is spread.
    pub spread: DemandMix,
}

impl Shape {
    /// The hard case of Carrera 5.6.1.3: as many places as applications, and pairs that do not match.
    pub const HARD: Self = Self { nodes: 100, apps: 200, per_node: 2, load: 1.1, spread: DemandMix::Skewed };
    /// The pool of 5.6.1.2 with the largest applications: a node each.
    pub const WHOLE_NODES: Self = Self { nodes: 100, apps: 20, per_node: 1, load: 1.1, spread: DemandMix::Even };

    /// A pool of this many nodes, with an application for ten of them and three places a node.
    pub const fn of_size(nodes: u32) -> Self {
        Self { nodes, apps: nodes.div_ceil(10), per_node: 3, load: 1.1, spread: DemandMix::Even }
    }
}

/// A problem of this shape. Nothing runs yet. The best that applications can reach is uniform in 0.52..0.58 (figure 5.10a has 0.52),
/// which is more than there is CPU for, so that no application is at its best and all compete.
pub fn pool(shape: Shape, seed: u64) -> Problem {
    let mut random = Seeded::new(seed);
    let mut weight = || match shape.spread {
        DemandMix::Even => random.between(0.5, 1.5),
        DemandMix::Skewed if random.chance(0.6) => random.between(1.2, 1.45),
        DemandMix::Skewed => random.between(0.2, 0.6),
    };
    let weights: Vec<f64> = (0..shape.apps).map(|_| weight()).collect();
    let scale = shape.load * 4.0 * f64::from(shape.nodes) / weights.iter().sum::<f64>();
    let memory = 1 << 30;
    let node = Node { cpu: 4.0, memory: memory * u64::from(shape.per_node) };
    let mut app = |weight: f64| {
        let mut app = App::new(memory, curve(random.between(0.52, 0.58), weight * scale));
        app.cost = ChangeCost { start: 1e-4, resume: 1e-5, remove: 1e-5 };
        app
    };
    Problem { nodes: vec![node; shape.nodes as usize], apps: weights.into_iter().map(&mut app).collect(), tolerance: 5e-4 }
}

/// The best that the worst off of a [`pool`] with two places a node, and as many applications as places, can have: sort and fold.
///
/// At a utility `u`, pair the smallest demand with the largest, the second smallest with the second largest and so on. If any
/// pairing fits, this one does: where it does not, its larger half and all that are larger find too few partners as small.
pub fn exact_by_folding(problem: &Problem) -> f64 {
    let best = problem.apps.iter().map(App::best).fold(f64::INFINITY, f64::min);
    let node = problem.nodes.first().map_or(0.0, |node| node.cpu);
    highest_between(-10.0, best, |u| {
        let mut want: Vec<f64> = problem.apps.iter().map(|app| app.cpu_for(u)).collect();
        want.sort_by(f64::total_cmp);
        want.iter().zip(want.iter().rev()).take(want.len() / 2).all(|(small, large)| small + large <= node * (1.0 + 1e-12))
    })
}

/// The thesis' mixed pool (Carrera Table 5.3 and 5.6.3): 25 nodes of four processors of 3.9 GHz and 16 GB, 20 applications and
/// 75 jobs of one processor and a third of a node's memory, all asking for about as much as there is.
pub fn thesis_mix(seed: u64) -> Problem {
    let mut random = Seeded::new(seed);
    let gb = 1_000_000_000;
    let mut apps: Vec<App> = (0..20)
        .map(|_| App { instances: (1, u32::MAX), ..App::new(gb / 4, curve(random.between(0.4, 0.8), random.between(2.0, 8.0))) })
        .collect();
    apps.extend((0..75).map(|_| App {
        instances: (0, 1),
        instance_cpu: 1.0,
        ..App::new(4_320_000_000, curve(random.between(0.4, 0.7), 1.0))
    }));
    for app in &mut apps {
        app.cost = ChangeCost { start: 1e-3, resume: 1e-4, remove: 1e-4 };
    }
    Problem { nodes: vec![Node { cpu: 4.0, memory: 16 * gb }; 25], apps, tolerance: 1e-2 }
}

/// A small problem with every kind of constraint: for property tests.
pub fn constrained(random: &mut Seeded) -> Problem {
    let nodes: Vec<Node> = (0..=random.below(7))
        .map(|_| Node {
            cpu: if random.chance(0.05) { 0.0 } else { random.between(0.5, 8.0) },
            memory: 100 * (1 + random.below(10)),
        })
        .collect();
    let count = 1 + random.below(8) as u32;
    let mut apps: Vec<App> = (0..count).map(|_| constrained_app(random, nodes.len() as u64)).collect();
    pair_up(random, &mut apps);
    Problem { nodes, apps, tolerance: 1e-3 }
}

fn constrained_app(random: &mut Seeded, nodes: u64) -> App {
    let demand = if random.chance(0.1) { 0.0 } else { random.between(0.1, 8.0) };
    let mut app = App::new(50 + random.below(500), curve(random.between(0.2, 0.9), demand));
    let least = random.below(3) as u32;
    app.instances = (least, least + random.below(6) as u32);
    if random.chance(0.3) {
        app.instance_cpu = random.between(0.2, 3.0);
        app.per_node = 1 + random.below(3) as u32;
    }
    if random.chance(0.2) {
        app.nodes = (random.below(3) as u32, 1 + random.below(4) as u32);
        app.nodes.0 = app.nodes.0.min(app.nodes.1).min(app.instances.1);
    }
    if random.chance(0.25) {
        app.allowed = Some((0..nodes as u32).filter(|_| random.chance(0.6)).collect());
    }
    let mut current: Vec<(u32, u32)> = Vec::new();
    for n in 0..nodes as u32 {
        if random.chance(0.25) {
            current.push((n, 1 + random.below(u64::from(app.per_node)) as u32));
        } else if random.chance(0.1) {
            app.standby.push((n, 1));
        }
    }
    app.current = current;
    app.pinned = random.chance(0.08);
    app.manual = random.chance(0.08);
    app.cost = ChangeCost { start: random.between(0.0, 0.05), resume: 0.001, remove: 0.001 };
    app
}

fn pair_up(random: &mut Seeded, apps: &mut [App]) {
    let count = apps.len() as u64;
    if count < 2 || !random.chance(0.4) {
        return;
    }
    let (a, b) = (random.below(count) as u32, random.below(count) as u32);
    if a != b && random.chance(0.6) {
        apps[a as usize].apart.push(b);
        apps[b as usize].apart.push(a);
    } else if a != b {
        apps[a as usize].together.push(b);
    }
}
