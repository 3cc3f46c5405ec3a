//! What it loses to place instances first and jobs second: small random pools against the best of all placements of both together.

use std::collections::BTreeSet;

use weal_model::{AppName, InstanceId};

use super::tests::{free_policy, job, judged, running, with_jobs};
use crate::jobs::{AppCurve, Costs, Job, Site, Situation, predicted};
use crate::placement::Policy;
use crate::placement::fixtures::{app, pool};
use crate::placement::problem::generate::curve;
use crate::placement::problem::jobs::Jobs;
use crate::seeded::Seeded;
use crate::utility::Curve;
use weal_model::{Action, InstanceState, JobName, NodeName, Snapshot, Work};

const NODES: usize = 2;
const NODE_CPU: f64 = 2.0;
const NODE_MIB: u64 = 1000;
const MIB: u64 = 1 << 20;

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

    /// What a plan makes of it.
    fn planned(&self) -> Placed {
        let (plan, _) = judged(&self.snapshot, &self.policy);
        let mut instances: Vec<(AppName, InstanceId, usize)> =
            self.snapshot.instances.iter().map(|seen| (seen.app.clone(), seen.id.clone(), index(&seen.node))).collect();
        let mut runs: Vec<(JobName, Vec<usize>)> =
            self.snapshot.jobs.iter().map(|job| (job.spec.name.clone(), Vec::new())).collect();
        for (run, job) in runs.iter_mut().zip(&self.snapshot.jobs) {
            run.1 = job.nodes.iter().map(index).collect();
        }
        let ahead: BTreeSet<&InstanceId> = plan.ahead.iter().collect();
        let mut bring = |job: &JobName, nodes: Vec<usize>| {
            runs.iter_mut().filter(|(name, _)| name == job).for_each(|(_, at)| at.clone_from(&nodes));
        };
        for action in &plan.actions {
            match action {
                Action::Start { instance, app, node } if !ahead.contains(instance) => {
                    instances.push((app.clone(), instance.clone(), index(node)));
                }
                Action::Stop { instance, .. } | Action::Sleep { instance, .. } => instances.retain(|(_, id, _)| id != instance),
                Action::StartJob { job, nodes } | Action::ResumeJob { job, nodes } | Action::MigrateJob { job, nodes } => {
                    bring(job, nodes.iter().map(index).collect());
                }
                Action::SuspendJob { job } => bring(job, Vec::new()),
                _ => {}
            }
        }
        let of_app = |(name, _, _): &(AppName, u64, Curve)| {
            instances.iter().filter(|(app, _, _)| app == name).map(|(_, _, node)| *node).collect()
        };
        (self.apps.iter().map(of_app).collect(), runs.into_iter().map(|(_, nodes)| nodes).collect())
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

/// What became of a pool: what the worst off loses, whether a job is left that no foreseen end makes room for, and whether the plan began an instance.
struct Outcome {
    loss: f64,
    is_shut_out: bool,
    has_begun: bool,
}

/// Memory is short in most of these pools. Where it is, what is measured here is the price of placing instances first
/// (docs/decisions/jobs-beside-applications.md).
#[test]
fn what_two_searches_lose_against_the_best_of_both_together() {
    let outcome = |seed: u64| {
        let case = case(seed);
        let (jobs, planned) = (case.jobs(), case.planned());
        assert!(case.fits(&jobs, &planned), "seed {seed}: {planned:?}");
        let lowest = case.utilities(&jobs, &planned)[0];
        let has_begun = planned.0.iter().map(Vec::len).sum::<usize>() > case.apps.len();
        Outcome { loss: case.best(&jobs) - lowest, is_shut_out: lowest < -100.0, has_begun }
    };
    let outcomes: Vec<Outcome> = (0..1000).map(outcome).collect();
    let count = |what: &dyn Fn(&Outcome) -> bool| outcomes.iter().filter(|outcome| what(outcome)).count();
    let (within, shut_out) = (count(&|one| one.loss <= 0.02), count(&|one| one.is_shut_out && one.loss > 0.02));
    let by_instances = count(&|one| one.is_shut_out && one.loss > 0.02 && one.has_begun);
    let others: Vec<f64> = outcomes.iter().filter(|one| !one.is_shut_out).map(|one| one.loss.max(0.0)).collect();
    let (mean, most) = (others.iter().sum::<f64>() / others.len() as f64, others.iter().copied().fold(0.0, f64::max));
    let told = format!(
        "{within} of 1000 within 0.02; {shut_out} shut a job out, {by_instances} of them by more instances; the others lose {mean} in the mean and {most} at most"
    );
    println!("{told}");
    assert!(outcomes.iter().all(|one| one.loss > -1e-6), "the best is not the best: {told}");
    assert!(within >= 740, "{told}");
}
