//! How far small random pools end up from the best of all placements of instances and jobs.

use std::collections::BTreeSet;

use weal_model::{AppName, InstanceId, InstanceState, JobState, NodeName, Snapshot, Work};

use crate::jobs::{AppCurve, Costs, Job, Site, Situation, predicted};
use crate::placement::Policy;
use crate::placement::fixtures::{app, carried_out, free_policy, job, judged, pool, running, with_jobs};
use crate::placement::problem::generate::curve;
use crate::placement::problem::jobs::Jobs;
use crate::seeded::Seeded;
use crate::utility::Curve;

const NODES: usize = 2;
const NODE_CPU: f64 = 2.0;
const NODE_MIB: u64 = 1000;
const MIB: u64 = 1 << 20;

/// An instance moves in two plans, and may do so only after another has: more than this, and a pool does not come to rest.
const PLANS: usize = 6;

/// A pool with what runs in it.
struct Case {
    snapshot: Snapshot,
    policy: Policy,
    /// Name, MiB of an instance, and curve of each application.
    apps: Vec<(AppName, u64, Curve)>,
}

/// Where everything is: the nodes of each application's instances, and of each job, if it runs.
type Placed = (Vec<Vec<usize>>, Vec<Vec<usize>>);

fn case(seed: u64) -> Case {
    let mut random = Seeded::new(seed);
    let mut free = [NODE_MIB; NODES];
    let (mut specs, mut apps, mut instances) = (Vec::new(), Vec::new(), Vec::new());
    for i in 0..1 + random.below(2) {
        let (name, memory, node) = (format!("a{i}"), 200 + 100 * random.below(4), random.below(NODES as u64) as usize);
        if free[node] < memory {
            continue;
        }
        free[node] -= memory;
        specs.push(app(&name, memory, 1, NODES as u32));
        apps.push((AppName::from(name.as_str()), memory, curve(random.between(0.4, 0.8), random.between(0.3, 2.5))));
        instances.push((format!("{name}-1"), node));
    }
    let mut jobs = Vec::new();
    for i in 0..1 + random.below(3) {
        let (memory, work) = (200 + 100 * random.below(5), random.between(20.0, 300.0));
        let speed = [0.5, 1.0, 2.0][random.below(3) as usize];
        let mut one = job(&format!("j{i}"), work, speed, memory, random.between(1.2, 6.0) * work / speed);
        let node = random.below(NODES as u64) as usize;
        if random.chance(0.4) && free[node] >= memory {
            free[node] -= memory;
            one.done = Work(random.between(0.0, 0.8) * work);
            one = running(one, &[node], 0.5 * speed);
        }
        jobs.push(one);
    }
    let pool = pool(NODES, specs);
    let instances: Vec<_> = instances.iter().map(|(id, node)| (id.as_str(), *node, InstanceState::Ready)).collect();
    let snapshot = with_jobs(&pool, &instances, jobs);
    let mut policy = free_policy(&pool);
    policy.demands = apps.iter().map(|(name, _, curve)| (name.clone(), curve.clone())).collect();
    Case { snapshot, policy, apps }
}

fn index(node: &NodeName) -> usize {
    node.as_str()[1..].parse().unwrap()
}

impl Case {
    fn jobs(&self) -> Vec<Job> {
        Jobs::of(&self.snapshot, &self.policy, NODE_CPU, |node| Some(index(node) as u32)).jobs
    }

    /// All utilities that a placement leads to, ascending.
    fn utilities(&self, jobs: &[Job], (instances, runs): &Placed) -> Vec<f64> {
        let free = self.free(instances);
        let nodes: Vec<Site> = free.iter().map(|memory| Site { cpu: NODE_CPU, memory: memory * MIB }).collect();
        let curve_of = |((_, _, curve), nodes): (&(AppName, u64, Curve), &Vec<usize>)| AppCurve {
            curve: curve.clone(),
            nodes: nodes.clone(),
        };
        let apps: Vec<AppCurve> = self.apps.iter().zip(instances).map(curve_of).collect();
        let cycle_s = self.policy.pool.timing.placement_cycle_s;
        let situation = Situation { now_s: 0.0, cycle_s, nodes: &nodes, jobs, apps: &apps, costs: Costs::FREE };
        predicted(&situation, runs.clone())
    }

    /// MiB that instances leave on each node.
    fn free(&self, instances: &[Vec<usize>]) -> Vec<u64> {
        let mut free = vec![NODE_MIB; NODES];
        for ((_, memory, _), nodes) in self.apps.iter().zip(instances) {
            nodes.iter().for_each(|&node| free[node] = free[node].saturating_sub(*memory));
        }
        free
    }

    /// Whether everything has the memory that it needs.
    fn fits(&self, jobs: &[Job], (instances, runs): &Placed) -> bool {
        let mut used = [0; NODES];
        for ((_, memory, _), nodes) in self.apps.iter().zip(instances) {
            nodes.iter().for_each(|&node| used[node] += memory * MIB);
        }
        for (job, nodes) in jobs.iter().zip(runs) {
            nodes.iter().for_each(|&node| used[node] += job.stages[0].memory.0);
        }
        used.iter().all(|used| *used <= NODE_MIB * MIB)
    }

    /// What the first plan makes of it, what it is in the end, and whether it comes to rest.
    fn planned(&self) -> (Placed, Placed, bool) {
        let (mut snapshot, mut policy) = (self.snapshot.clone(), self.policy.clone());
        let mut placed = vec![self.placed(&snapshot, &policy.ahead)];
        for _ in 0..PLANS {
            let (plan, _) = judged(&snapshot, &policy);
            snapshot = carried_out(&snapshot, &plan);
            policy.ahead = plan.ahead.into_iter().collect();
            let next = self.placed(&snapshot, &policy.ahead);
            if placed.last() == Some(&next) {
                placed.push(next);
                break;
            }
            placed.push(next);
        }
        let rests = placed[placed.len() - 2] == placed[placed.len() - 1];
        (placed[1].clone(), placed[placed.len() - 1].clone(), rests)
    }

    /// Where everything is in a snapshot; what stands by or is started `ahead` counts for nothing.
    fn placed(&self, snapshot: &Snapshot, ahead: &BTreeSet<InstanceId>) -> Placed {
        let of_app = |(name, _, _): &(AppName, u64, Curve)| {
            let awake = snapshot.instances.iter().filter(|seen| seen.state.is_active() && !ahead.contains(&seen.id));
            let mut nodes: Vec<usize> = awake.filter(|seen| seen.app == *name).map(|seen| index(&seen.node)).collect();
            nodes.sort_unstable();
            nodes
        };
        let runs = snapshot.jobs.iter().map(|job| match job.state {
            JobState::Running => job.nodes.iter().map(index).collect(),
            _ => Vec::new(),
        });
        (self.apps.iter().map(of_app).collect(), runs.collect())
    }

    /// The utility of the worst off in the best of all placements.
    fn best(&self, jobs: &[Job]) -> f64 {
        let mut best = f64::NEG_INFINITY;
        for instances in choices(self.apps.len(), &[vec![0], vec![1], vec![0, 1]]) {
            for runs in choices(jobs.len(), &[vec![], vec![0], vec![1]]) {
                let placed = (instances.clone(), runs);
                if self.fits(jobs, &placed) {
                    best = best.max(self.utilities(jobs, &placed)[0]);
                }
            }
        }
        best
    }
}

/// All ways to give each of `count` one of some options.
fn choices(count: usize, options: &[Vec<usize>]) -> Vec<Vec<Vec<usize>>> {
    (0..count).fold(vec![Vec::new()], |before, _| {
        before
            .iter()
            .flat_map(|chosen| options.iter().map(|option| [chosen.as_slice(), std::slice::from_ref(option)].concat()))
            .collect()
    })
}

/// What the worst off loses after the first plan and in the end, against the best of all placements.
struct Outcome {
    seed: u64,
    first: f64,
    loss: f64,
    rests: bool,
}

/// Memory is short in most of these pools, so that instances and jobs are in each other's way.
#[test]
fn the_worst_off_is_nearly_as_well_off_as_in_the_best_of_all_placements() {
    let outcome = |seed: u64| {
        let case = case(seed);
        let jobs = case.jobs();
        let (first, last, rests) = case.planned();
        assert!(case.fits(&jobs, &first) && case.fits(&jobs, &last), "seed {seed}: {first:?} {last:?}");
        let best = case.best(&jobs);
        let loss = |placed: &Placed| best - case.utilities(&jobs, placed)[0];
        Outcome { seed, first: loss(&first), loss: loss(&last), rests }
    };
    let outcomes: Vec<Outcome> = (0..1000).map(outcome).collect();
    let seeds =
        |what: &dyn Fn(&Outcome) -> bool| -> Vec<u64> { outcomes.iter().filter(|one| what(one)).map(|one| one.seed).collect() };
    assert_eq!(seeds(&|one| !one.rests), [0; 0], "no plan finds anything to change in the end");
    assert_eq!(seeds(&|one| one.loss < -1e-6), [0; 0], "nothing is better than the best");
    assert_eq!(seeds(&|one| one.loss > 0.05), [0; 0]);
    // The search ends where no single step of it is better.
    let lose = seeds(&|one| one.loss > 0.02);
    assert!(lose.len() <= 4, "{lose:?}");
    // What moves is started at its new place first, so that others wait for its former one.
    let soon = outcomes.iter().filter(|one| one.first <= 0.02).count();
    assert!(soon >= 940, "{soon} are there after the first plan");
}
