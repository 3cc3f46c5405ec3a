//! Pools too large to be searched as a whole are divided into parts that are searched one by one (POP: Narayanan et al., SOSP 2021,
//! "Solving large-scale granular resource allocation problems efficiently with POP").
//!
//! A part is a block of neighbouring nodes with the applications at home there: those that run mostly in it, and of the rest as many
//! as its CPU and memory are a fair share for. With hundreds of applications in each part the shares are even to a thousandth, which
//! is what the division costs. What runs away from home stays where it is and is in its part as something that cannot be moved.
//!
//! Blocks follow the order of nodes, and homes follow what runs, so that the same pool is divided the same way in the next cycle.

use super::distribute::distribute;
use super::max_flow::FlowNetwork;
use super::search::solve_whole;
use super::solution::Solution;
use crate::placement::problem::bound::Bound;
use crate::placement::problem::layout::Layout;
use crate::placement::problem::mandatory;
use crate::placement::problem::{App, Problem};

/// Pools of more nodes are divided. One of 10,000 nodes is planned in a few tenths of a second as a whole.
pub const WHOLE: usize = 12_000;

/// Nodes of a part. Smaller parts are planned faster, and have fewer applications to even out with.
const SIZE: usize = 5_000;

/// No application may want more than this share of a part, or parts would differ too much.
const LARGEST_SHARE: f64 = 0.1;

/// A placement for a large `problem`.
pub fn solve_in_parts(problem: &Problem, budget: u32) -> Solution {
    let bound = Bound::of(problem);
    let Some(homes) = Homes::of(problem, &bound) else { return solve_whole(problem, budget) };
    let mut flow = FlowNetwork::new(problem);
    let mut now = Layout::current(problem);
    distribute(problem, &mut now, &mut flow);
    let mut layout = Layout::empty(problem);
    for part in 0..homes.parts {
        let part = Part::of(problem, &homes, &now, part);
        let solution = solve_whole(&part.problem, budget);
        part.put_into(problem, &mut layout, &solution);
    }
    let missing = mandatory::enforce(problem, &mut layout);
    let utilities = distribute(problem, &mut layout, &mut flow);
    let changes = layout.changes(problem);
    Solution { layout, utilities, bound, changes, missing }
}

/// Which part each application is at home in.
struct Homes {
    parts: usize,
    nodes: usize,
    of: Vec<usize>,
}

impl Homes {
    /// `None` when the applications are too large for any division.
    fn of(problem: &Problem, bound: &Bound) -> Option<Self> {
        let groups = groups(problem);
        let want = |group: &[u32]| group.iter().map(|&m| bound.cpu[m as usize]).sum::<f64>();
        let largest = groups.iter().map(|group| want(group)).fold(0.0, f64::max);
        let fair = LARGEST_SHARE * problem.cpu() / largest.max(1e-12);
        let parts = problem.nodes.len().div_ceil(SIZE).min(fair.min(1e6) as usize);
        if parts < 2 {
            return None;
        }
        let mut homes = Self { parts, nodes: problem.nodes.len(), of: vec![0; problem.apps.len()] };
        homes.settle(problem, groups, want, bound);
        Some(homes)
    }

    fn first_node(&self, part: usize) -> usize {
        part * self.nodes / self.parts
    }

    fn part_of(&self, n: u32) -> usize {
        let guess = n as usize * self.parts / self.nodes;
        if n as usize >= self.first_node(guess + 1) { guess + 1 } else { guess }
    }

    // First those that run somewhere or may only be in some places, then the others, the largest first, where most is left.
    fn settle(&mut self, problem: &Problem, groups: Vec<Vec<u32>>, want: impl Fn(&[u32]) -> f64, bound: &Bound) {
        let mut left: Vec<(f64, f64)> = (0..self.parts)
            .map(|part| {
                let block = &problem.nodes[self.first_node(part)..self.first_node(part + 1)];
                (block.iter().map(|node| node.cpu).sum(), block.iter().map(|node| node.memory as f64).sum())
            })
            .collect();
        let size = left.clone();
        let (bound_to_a_place, mut free): (Vec<_>, Vec<_>) =
            groups.into_iter().map(|group| (self.place_of(problem, &group), group)).partition(|(place, _)| place.is_some());
        free.sort_by(|a, b| want(&b.1).total_cmp(&want(&a.1)).then(a.1.cmp(&b.1)));
        for (place, group) in bound_to_a_place.into_iter().chain(free) {
            let share = |part: &usize| {
                let ((cpu, memory), (all_cpu, all_memory)) = (left[*part], size[*part]);
                (cpu / all_cpu.max(1e-9)).min(memory / all_memory.max(1.0))
            };
            let roomiest = || (0..self.parts).max_by(|a, b| share(a).total_cmp(&share(b)).then(b.cmp(a)));
            let part = place.or_else(roomiest).unwrap_or(0);
            for &m in &group {
                self.of[m as usize] = part;
                left[part].0 -= bound.cpu[m as usize];
                left[part].1 -= memory_for(problem, m, bound.cpu[m as usize]);
            }
        }
    }

    // Where most of a group runs; or, if it runs nowhere and only some nodes are allowed, where most of those are.
    fn place_of(&self, problem: &Problem, group: &[u32]) -> Option<usize> {
        let most = |nodes: &mut dyn Iterator<Item = (u32, u32)>| {
            let mut count = vec![0u64; self.parts];
            nodes.for_each(|(n, weight)| count[self.part_of(n)] += u64::from(weight));
            (0..self.parts).filter(|&part| count[part] > 0).max_by_key(|&part| (count[part], std::cmp::Reverse(part)))
        };
        let apps = || group.iter().map(|&m| &problem.apps[m as usize]);
        most(&mut apps().flat_map(|app| app.current.iter().copied()))
            .or_else(|| most(&mut apps().flat_map(|app| app.allowed.iter().flatten().map(|&n| (n, 1)))))
            .or_else(|| most(&mut apps().flat_map(|app| app.standby.iter().copied())))
    }
}

// Memory that an application takes with as few instances as it needs for so much CPU.
fn memory_for(problem: &Problem, m: u32, cpu: f64) -> f64 {
    let app = &problem.apps[m as usize];
    let node = problem.nodes.first().map_or(1.0, |node| node.cpu).min(app.instance_cpu).max(1e-9);
    (cpu / node).ceil().max(f64::from(app.instances.0)) * app.memory as f64
}

/// Applications that must be together, directly or not.
fn groups(problem: &Problem) -> Vec<Vec<u32>> {
    let mut leader: Vec<u32> = (0..problem.apps.len() as u32).collect();
    fn find(leader: &mut [u32], m: u32) -> u32 {
        let mut root = m;
        while leader[root as usize] != root {
            root = leader[root as usize];
        }
        leader[m as usize] = root;
        root
    }
    for (m, app) in (0u32..).zip(&problem.apps) {
        for &other in &app.together {
            let (a, b) = (find(&mut leader, m), find(&mut leader, other));
            leader[a.max(b) as usize] = a.min(b);
        }
    }
    let mut groups = vec![Vec::new(); problem.apps.len()];
    for m in 0..problem.apps.len() as u32 {
        groups[find(&mut leader, m) as usize].push(m);
    }
    groups.retain(|group| !group.is_empty());
    groups
}

/// One part as a problem of its own.
struct Part {
    problem: Problem,
    /// The pool's index of each of its applications.
    apps: Vec<u32>,
    first_node: u32,
}

impl Part {
    fn of(problem: &Problem, homes: &Homes, now: &Layout, part: usize) -> Self {
        let (first, end) = (homes.first_node(part) as u32, homes.first_node(part + 1) as u32);
        let at_home: Vec<u32> = (0..problem.apps.len() as u32).filter(|&m| homes.of[m as usize] == part).collect();
        let mut visitors: Vec<u32> = (first..end)
            .flat_map(|n| now.on_node(n))
            .map(|&edge| now.edge(edge).app)
            .filter(|&m| homes.of[m as usize] != part)
            .collect();
        visitors.sort_unstable();
        visitors.dedup();
        let mut local = vec![None; problem.apps.len()];
        for (i, &m) in (0u32..).zip(at_home.iter().chain(&visitors)) {
            local[m as usize] = Some(i);
        }
        let block = Block { first, end, local };
        let mut apps: Vec<App> = at_home.iter().map(|&m| block.resident(problem, now, m)).collect();
        apps.extend(visitors.iter().map(|&m| block.visitor(problem, now, m)));
        let nodes = problem.nodes[first as usize..end as usize].to_vec();
        let problem = Problem { nodes, apps, tolerance: problem.tolerance };
        Self { problem, apps: at_home.into_iter().chain(visitors).collect(), first_node: first }
    }

    fn put_into(&self, problem: &Problem, layout: &mut Layout, solution: &Solution) {
        for (i, n, count, cpu) in solution.entries() {
            let (m, n) = (self.apps[i as usize], n + self.first_node);
            for _ in 0..count {
                layout.add(problem, m, n);
            }
            let edge = layout.find(m, n).expect("it was just added");
            layout.shift(edge, cpu);
        }
    }
}

/// The pool's indices as those of a part.
struct Block {
    first: u32,
    end: u32,
    local: Vec<Option<u32>>,
}

impl Block {
    fn places(&self, places: &[(u32, u32)]) -> Vec<(u32, u32)> {
        let here = places.iter().filter(|place| (self.first..self.end).contains(&place.0));
        here.map(|&(n, count)| (n - self.first, count)).collect()
    }

    fn known(&self, apps: &[u32]) -> Vec<u32> {
        apps.iter().filter_map(|&other| self.local[other as usize]).collect()
    }

    // What it has elsewhere counts as given.
    fn resident(&self, problem: &Problem, now: &Layout, m: u32) -> App {
        let app = &problem.apps[m as usize];
        let away =
            || now.of_app(m).iter().map(|&edge| now.edge(edge)).filter(|edge| !(self.first..self.end).contains(&edge.node));
        let (instances, nodes) = away().fold((0, 0), |(instances, nodes), edge| (instances + edge.count, nodes + 1));
        let given: f64 = away().map(|edge| edge.load).sum();
        let less = |range: (u32, u32), by: u32| {
            let most = if range.1 == u32::MAX { u32::MAX } else { range.1.saturating_sub(by) };
            (range.0.saturating_sub(by), most)
        };
        let allowed = app.allowed.as_ref().map(|nodes| {
            let here = nodes.iter().filter(|n| (self.first..self.end).contains(n));
            here.map(|n| n - self.first).collect()
        });
        App {
            instances: less(app.instances, instances),
            nodes: less(app.nodes, nodes),
            curve: if given > 0.0 { app.curve.after(given) } else { app.curve.clone() },
            allowed,
            together: self.known(&app.together),
            apart: self.known(&app.apart),
            current: self.places(&app.current),
            standby: self.places(&app.standby),
            ..app.clone()
        }
    }

    // Stays as it is, with the CPU that it has.
    fn visitor(&self, problem: &Problem, now: &Layout, m: u32) -> App {
        let app = &problem.apps[m as usize];
        let current = self.places(&app.current);
        let here = now.of_app(m).iter().map(|&edge| now.edge(edge)).filter(|edge| (self.first..self.end).contains(&edge.node));
        let (cpu, count) = here.fold((0.0, 0), |(cpu, count), edge| (cpu + edge.load, count + edge.count));
        App {
            instance_cpu: app.instance_cpu,
            instance_min_cpu: app.instance_min_cpu,
            manual: true,
            apart: self.known(&app.apart),
            current,
            curve: app.curve.after(now.given(m) - cpu),
            instances: (0, count),
            ..App::new(app.memory, app.curve.clone())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::dense;
    use crate::placement::problem::generate::{Shape, pool};

    #[test]
    fn a_divided_pool_is_near_the_bound_feasible_and_stable() {
        for seed in 0..3 {
            let mut problem = pool(Shape::of_size(12_100), seed);
            let first = solve_in_parts(&problem, 10_000_000);
            assert_eq!(dense::check(&problem, &first.entries(), |_| false), [""; 0], "seed {seed}");
            assert!(first.gap() < 0.005, "seed {seed}: {} below {}", first.lowest().unwrap(), first.bound.utility);
            first.adopt(&mut problem);
            assert_eq!(solve_in_parts(&problem, 10_000_000).changes.count(), 0, "seed {seed}");
        }
    }

    #[test]
    fn what_runs_away_from_home_stays_and_counts() {
        let mut problem = pool(Shape::of_size(12_100), 9);
        // One application has most of its instances in the first block and two in the last.
        problem.apps[0].current = vec![(0, 1), (1, 1), (2, 1), (12_000, 1), (12_001, 1)];
        problem.apps[1].current = vec![(12_000, 1)];
        let solution = solve_in_parts(&problem, 10_000_000);
        assert_eq!(dense::check(&problem, &solution.entries(), |_| false), [""; 0]);
        assert!(solution.layout.count(0, 12_000) == 1 && solution.layout.count(0, 12_001) == 1);
        assert!(solution.gap() < 0.005, "{} below {}", solution.lowest().unwrap(), solution.bound.utility);
    }

    #[test]
    fn every_node_is_in_exactly_one_part() {
        let homes = Homes { parts: 7, nodes: 12_100, of: Vec::new() };
        for n in 0..12_100u32 {
            let part = homes.part_of(n);
            assert!((homes.first_node(part)..homes.first_node(part + 1)).contains(&(n as usize)), "{n}");
        }
    }
}
