//! Placements of instances and jobs, and what they lead to.

use weal_model::Cpu;

use crate::jobs::{
    AppCurve, Assignment, Costs, Job, Needs, Outcome, Scheduler, Site, Situation, WealScheduler, best_at, equalize, present,
};
use crate::placement::policy::Policy;
use crate::placement::problem::Problem;
use crate::placement::problem::jobs::runs;
use crate::placement::problem::layout::Layout;
use crate::placement::problem::translate::Translation;
use crate::placement::solve::Worth;

/// The utility of an application that has not its fewest instances: it comes before all that can be missed.
const WITHOUT_ITS_FEWEST: f64 = -2e6;

/// What there is to place, and where.
pub(super) struct Pool<'a> {
    /// The applications, without the jobs that run.
    pub problem: Problem,
    pub jobs: &'a [Job],
    pub needs: Vec<Needs>,
    /// By application: whether its demand is known. Who was never measured keeps what it has.
    pub measured: Vec<bool>,
    pub costs: Costs,
    pub now_s: f64,
    cycle_s: f64,
    /// Bytes that jobs hold of each node that holds more than it has; 0 elsewhere.
    held: Vec<u64>,
}

/// Where everything is.
#[derive(Clone)]
pub(super) struct Placing {
    /// Instances, without loads.
    pub layout: Layout,
    /// The nodes of each job's tasks; empty: it does not run.
    pub runs: Vec<Vec<usize>>,
}

/// What jobs find around them.
pub(super) struct Around {
    sites: Vec<Site>,
    /// Applications that ask for CPU and have an instance.
    named: Vec<u32>,
    apps: Vec<AppCurve>,
}

impl Around {
    /// It as the job scheduler sees it.
    pub fn situation<'b>(&'b self, pool: &'b Pool) -> Situation<'b> {
        let Pool { now_s, cycle_s, jobs, costs, .. } = *pool;
        Situation { now_s, cycle_s, nodes: &self.sites, jobs, apps: &self.apps, costs }
    }
}

/// A placement with what it leads to.
#[derive(Clone)]
pub(super) struct Judged {
    pub placing: Placing,
    /// Of the jobs, then of the applications.
    pub utilities: Vec<f64>,
    doubts: Vec<f64>,
    cost: f64,
    outcome: Outcome,
}

impl Judged {
    /// Whether it is worth having instead of `other`.
    pub fn beats(&self, other: &Self, pool: &Pool) -> bool {
        self.worth().beats(&other.worth(), pool.problem.tolerance)
    }

    /// Whether its utilities, rounded to the tolerance, are better, the worst first. What beats something that beats a third need not beat the
    /// third. This is an order, so plans that follow both come to rest.
    pub fn is_above(&self, other: &Self, pool: &Pool) -> bool {
        let rounded = |one: &Self| {
            let mut steps: Vec<f64> = one.utilities.iter().map(|utility| (utility / pool.problem.tolerance).round()).collect();
            steps.sort_unstable_by(f64::total_cmp);
            steps
        };
        rounded(self) > rounded(other)
    }

    /// Whether some job that could run does not.
    pub fn leaves_out(&self, pool: &Pool) -> bool {
        let waits = |(job, nodes): (&Job, &Vec<usize>)| nodes.is_empty() && pool.may_run(job);
        pool.jobs.iter().zip(&self.placing.runs).any(waits)
    }

    fn worth(&self) -> Worth<'_> {
        Worth { utilities: &self.utilities, doubts: &self.doubts, cost: self.cost }
    }
}

impl<'a> Pool<'a> {
    pub fn of(translation: &'a Translation, policy: &Policy) -> Self {
        let mut problem = translation.problem.clone();
        problem.apps.truncate(translation.apps.len());
        let (jobs, cycle_s) = (translation.jobs.jobs.as_slice(), policy.pool.timing.placement_cycle_s.max(1.0));
        let needs: Vec<Needs> = jobs.iter().map(|job| job.needs(cycle_s)).collect();
        let running = needs.iter().zip(jobs).filter(|(_, job)| runs(job)).map(|(needs, job)| (needs, job.nodes.as_slice()));
        let mut held = held(problem.nodes.len(), running);
        let now = Layout::current(&problem);
        let has_room = |n: u32, held: u64| held <= now.free_memory(n);
        (0u32..).zip(&mut held).filter(|(n, held)| has_room(*n, **held)).for_each(|(_, held)| *held = 0);
        let measured = translation.apps.iter().map(|spec| policy.demands.contains_key(&spec.name)).collect();
        let now_s = translation.now.as_secs_f64();
        Self { problem, jobs, needs, measured, costs: policy.job_costs, now_s, cycle_s, held }
    }

    /// Counts the memory of instances that are on their way out as free; false when there are none. What is to come there waits for it, and
    /// nobody else makes room meanwhile.
    pub fn count_what_leaves(&mut self, translation: &Translation) -> bool {
        for (node, leaving) in self.problem.nodes.iter_mut().zip(&translation.leaving_memory) {
            node.memory = node.memory.saturating_add(*leaving);
        }
        translation.leaving_memory.iter().any(|leaving| *leaving > 0)
    }

    /// The instances of a layout that also has jobs.
    pub fn only_apps(&self, layout: &Layout) -> Layout {
        let mut own = Layout::empty(&self.problem);
        for (m, n, count) in places(layout).into_iter().filter(|place| (place.0 as usize) < self.problem.apps.len()) {
            (0..count).for_each(|_| _ = own.add(&self.problem, m, n));
        }
        own
    }

    /// What jobs find around them when the instances are where `layout` has them. A node that holds too much keeps the jobs that it has.
    pub fn around(&self, layout: &Layout) -> Around {
        self.around_holding(layout, &self.held)
    }

    /// The same; of each node, jobs may have `held` bytes whatever is left.
    fn around_holding(&self, layout: &Layout, held: &[u64]) -> Around {
        let nodes = (0u32..).zip(&self.problem.nodes).zip(held);
        let sites = nodes.map(|((n, node), &held)| Site { cpu: node.cpu, memory: layout.free_memory(n).max(held) }).collect();
        let (named, apps) = app_curves(&self.problem, layout).into_iter().unzip();
        Around { sites, named, apps }
    }

    /// Instances with the jobs that the scheduler runs beside them.
    pub fn scheduled(&self, layout: Layout) -> Judged {
        let around = self.around(&layout);
        let runs = WealScheduler.schedule(&around.situation(self)).runs;
        let runs = runs.into_iter().map(|run| run.map_or_else(Vec::new, |run| run.nodes)).collect();
        self.judge(Placing { layout, runs })
    }

    /// Instances with the jobs that run now beside them. Those begin too that have room which nobody has to give, unless all are better off without them.
    pub fn present(&self, layout: Layout) -> Judged {
        let around = self.around(&layout);
        let (runs, with_newcomers) = present(&around.situation(self));
        let is_full = runs == with_newcomers;
        let alone = self.judge(Placing { layout: layout.clone(), runs });
        if is_full {
            return alone;
        }
        let together = self.judge(Placing { layout, runs: with_newcomers });
        if alone.beats(&together, self) { alone } else { together }
    }

    /// What a placement leads to. Only what its changes cost depends on what there is now: a plan would take a placement that seems better
    /// than it is, and the next one leave it again.
    pub fn judge(&self, placing: Placing) -> Judged {
        let around = self.beside(&placing);
        let outcome = Outcome::of(&around.situation(self), placing.runs.clone());
        let (mut utilities, jobs, layout) = (outcome.jobs().to_vec(), self.jobs.len(), &placing.layout);
        let mut doubts = vec![0.0; jobs + self.problem.apps.len()];
        utilities.extend(self.problem.apps.iter().map(|app| app.utility(0.0)));
        for ((&m, curve), &cpu) in around.named.iter().zip(&around.apps).zip(outcome.apps()) {
            let at = jobs + m as usize;
            utilities[at] = curve.curve.utility_at(Cpu(cpu)).0;
            doubts[at] = self.problem.apps[m as usize].doubt_at(cpu);
        }
        for (m, app) in (0u32..).zip(&self.problem.apps).filter(|(m, app)| layout.instances(*m) < app.instances.0) {
            utilities[jobs + m as usize] = WITHOUT_ITS_FEWEST.min(app.worst());
        }
        let cost = layout.changes(&self.problem).cost;
        Judged { placing, utilities, doubts, cost, outcome }
    }

    /// What the jobs of a placement find around them: at least the memory that they have in it.
    fn beside(&self, placing: &Placing) -> Around {
        self.around_holding(&placing.layout, &self.held_in(placing))
    }

    /// The decision about jobs that a placement is.
    pub fn assignment(&self, judged: Judged) -> Assignment {
        let around = self.beside(&judged.placing);
        judged.outcome.assignment(&around.situation(self))
    }

    /// Whether somebody could be better off if all nodes were one that has memory for everything.
    pub fn may_improve(&self, judged: &Judged) -> bool {
        let jobs = self.jobs.len();
        let own = self.jobs.iter().map(|job| job.max_utility(self.now_s));
        let best: Vec<f64> = own.chain(self.problem.apps.iter().map(|app| app.best())).collect();
        let demand = |at: usize, utility: f64| match self.jobs.get(at) {
            Some(job) => job.remaining() / (job.finish_for(utility) - self.now_s.max(job.start_s)).max(1e-9),
            None => self.problem.apps[at - jobs].cpu_for(utility),
        };
        let level = equalize(demand, &best, self.problem.cpu()).level;
        let reach = |(at, &best): (usize, &f64)| if at < jobs { best_at(level, best) } else { level.min(best) };
        let mut most: Vec<f64> = best.iter().enumerate().map(reach).collect();
        let mut have = judged.utilities.clone();
        most.sort_unstable_by(f64::total_cmp);
        have.sort_unstable_by(f64::total_cmp);
        most.iter().zip(&have).any(|(most, have)| *most > have + self.problem.tolerance)
    }

    /// Whether a job has been submitted, and something is left to do of it.
    pub fn may_run(&self, job: &Job) -> bool {
        job.start_s <= self.now_s && !job.is_done()
    }

    /// Bytes that are free on each node; less than nothing where there is too much.
    pub fn free(&self, placing: &Placing) -> Vec<i128> {
        let used = |n: u32, held: u64| i128::from(placing.layout.memory_used(&self.problem, n)) + i128::from(held);
        let nodes = (0u32..).zip(&self.problem.nodes).zip(self.held_in(placing));
        nodes.map(|((n, node), held)| i128::from(node.memory) - used(n, held)).collect()
    }

    /// Bytes that the jobs of a placement hold on each node.
    fn held_in(&self, placing: &Placing) -> Vec<u64> {
        held(self.problem.nodes.len(), self.needs.iter().zip(placing.runs.iter().map(Vec::as_slice)))
    }
}

/// Bytes that jobs hold on each of so many nodes, by what a task of each needs and where its tasks are.
fn held<'n>(nodes: usize, jobs: impl Iterator<Item = (&'n Needs, &'n [usize])>) -> Vec<u64> {
    let mut held = vec![0u64; nodes];
    for (needs, at) in jobs {
        at.iter().for_each(|&n| held[n] = held[n].saturating_add(needs.memory));
    }
    held
}

/// What the applications of `problem` want that ask for CPU and have an instance, each with its index.
pub(in crate::placement) fn app_curves(problem: &Problem, layout: &Layout) -> Vec<(u32, AppCurve)> {
    let apps = (0u32..).zip(&problem.apps).filter(|(m, app)| layout.instances(*m) > 0 && app.demand() > 0.0);
    apps.map(|(m, app)| {
        let curve = app.curve.up_to(f64::from(layout.instances(m)) * app.instance_cpu);
        let nodes = layout.of_app(m).iter().map(|&edge| layout.edge(edge).node as usize).collect();
        (m, AppCurve { curve, nodes })
    })
    .collect()
}

/// (application, node, instances) of a layout, sorted.
pub(super) fn places(layout: &Layout) -> Vec<(u32, u32, u32)> {
    let edges = layout.all().map(|edge| (edge.app, edge.node, edge.count));
    let mut places: Vec<(u32, u32, u32)> = edges.collect();
    places.sort_unstable();
    places
}
