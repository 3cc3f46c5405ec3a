//! Jobs beside applications: which run, where, how fast, and what applications have left then.
//!
//! Running jobs take part in the placement of applications as something that cannot be moved but shares its nodes' CPU, with its utility
//! as a curve like any other (`problem::jobs`). Then the scheduler decides about jobs with the applications' instances where they will be:
//! everyone's predicted utility, jobs' and applications' alike, the worst off first. Applications' instances therefore come first
//! where memory is short, and CPU is divided by one objective.

use std::collections::BTreeMap;

use weal_model::{Action, Cpu, JobExplanation, JobName, JobSpec, NodeName, Snapshot, Utility};

use super::actions::Steps;
use crate::jobs::{
    AppCurve, Assignment, ChangeKind, JobChange, Run, Scheduler, Site, Situation, WealScheduler, divide, evaluate,
};
use crate::placement::policy::Policy;
use crate::placement::problem::jobs::runs;
use crate::placement::problem::layout::Layout;
use crate::placement::problem::translate::Translation;
use crate::placement::solve::Solution;
use crate::placement::solve::distribute::distribute;
use crate::placement::solve::max_flow::FlowNetwork;
use waits::Waits;

/// A speed that changes by less than this share of a job's full speed is left as it is: each change is a step somebody has to carry out.
const RIPPLE: f64 = 0.05;

/// What was decided about jobs.
#[derive(Debug, Default)]
pub(in crate::placement) struct Decided {
    /// The utility that the worst off is headed for; `None` without jobs.
    pub lowest: Option<Utility>,
    /// What to expect of each job, and why it waits if it does.
    pub jobs: BTreeMap<JobName, JobExplanation>,
    /// See [`Assignment::look_again_s`].
    pub look_again_s: Option<f64>,
}

/// Decides about the jobs, adds the steps, and gives applications what jobs leave.
pub(in crate::placement) fn decide(
    steps: &mut Steps,
    translation: &Translation,
    snapshot: &Snapshot,
    policy: &Policy,
    solution: &mut Solution,
) -> Decided {
    let jobs = &translation.jobs.jobs;
    if jobs.is_empty() {
        return Decided::default();
    }
    let cycle_s = policy.pool.timing.placement_cycle_s.max(1.0);
    let (now_s, costs) = (snapshot.time.as_secs_f64(), policy.job_costs);
    let sites = sites(steps, translation, cycle_s);
    let apps = app_curves(translation, solution);
    let situation = Situation { now_s, cycle_s, nodes: &sites, jobs, apps: &apps, costs };
    let mut assignment = WealScheduler.schedule(&situation);
    let changes = assignment.changes(jobs);
    let mut batch = Batch { steps, translation, policy, situation: &situation };
    let put_off = batch.carry_out(&mut assignment, changes);
    let speeds = batch.speeds(&mut assignment);
    give_the_rest(translation, solution, &assignment, &speeds);
    outlook(&Waits::new(translation, &situation, &assignment, put_off), &speeds)
}

// A node's memory for jobs: what applications leave, with what suspended instances would give back.
fn sites(steps: &Steps, translation: &Translation, cycle_s: f64) -> Vec<Site> {
    let mut sites: Vec<Site> =
        (0u32..).zip(&translation.problem.nodes).map(|(n, node)| Site { cpu: node.cpu, memory: steps.available(n) }).collect();
    for job in translation.jobs.jobs.iter().filter(|job| runs(job)) {
        for &n in &job.nodes {
            sites[n].memory = sites[n].memory.saturating_add(job.needs(cycle_s).memory);
        }
    }
    sites
}

fn app_curves(translation: &Translation, solution: &Solution) -> Vec<AppCurve> {
    let layout = &solution.layout;
    (0..translation.apps.len() as u32)
        .filter(|&m| layout.instances(m) > 0 && translation.problem.apps[m as usize].demand() > 0.0)
        .map(|m| AppCurve {
            curve: translation.problem.apps[m as usize].curve.clone(),
            nodes: layout.of_app(m).iter().map(|&edge| layout.edge(edge).node as usize).collect(),
        })
        .collect()
}

struct Batch<'a, 'b> {
    steps: &'a mut Steps,
    translation: &'a Translation<'b>,
    policy: &'a Policy,
    situation: &'a Situation<'a>,
}

impl Batch<'_, '_> {
    // What frees memory goes first; then whatever fits, in rounds, since a job that moves away makes room for another. A change
    // that fits in no order waits for the next cycle: those jobs are returned.
    fn carry_out(&mut self, assignment: &mut Assignment, changes: Vec<JobChange>) -> Vec<usize> {
        let (suspensions, mut open): (Vec<JobChange>, Vec<JobChange>) =
            changes.into_iter().partition(|change| change.kind == ChangeKind::Suspend);
        for change in suspensions {
            self.suspend(change.job);
        }
        loop {
            let before = open.len();
            open.retain(|change| !self.bring(*change, assignment));
            if open.len() == before {
                break;
            }
        }
        for change in &open {
            let job = &self.situation.jobs[change.job];
            let keeps = (change.kind == ChangeKind::Migrate).then(|| Run { nodes: job.nodes.clone(), speed: 0.0 });
            assignment.runs[change.job] = keeps;
        }
        open.into_iter().map(|change| change.job).collect()
    }

    fn memory(&self, m: usize) -> u64 {
        self.situation.jobs[m].needs(self.situation.cycle_s).memory
    }

    fn name(&self, m: usize) -> JobName {
        self.translation.jobs.observed[m].spec.name.clone()
    }

    /// The best that a job can still reach, as people are told.
    fn best(&self, m: usize) -> f64 {
        self.translation.jobs.told(m, self.situation.jobs[m].max_utility(self.situation.now_s))
    }

    fn suspend(&mut self, m: usize) {
        let job = &self.situation.jobs[m];
        let best = self.best(m);
        let why =
            format!("`{}` can still reach a utility of {best:+.2}; others that can reach less need its place", self.name(m));
        self.steps.job_step(Action::SuspendJob { job: self.name(m) }, why);
        let memory = self.memory(m);
        job.nodes.iter().for_each(|&n| self.steps.free_memory(n as u32, memory));
    }

    // Starts, resumes or moves a job if its memory is there now.
    fn bring(&mut self, change: JobChange, assignment: &mut Assignment) -> bool {
        let Some(run) = assignment.runs[change.job].clone() else { return true };
        let memory = self.memory(change.job);
        let mut needed: BTreeMap<u32, u64> = BTreeMap::new();
        for &n in &run.nodes {
            *needed.entry(n as u32).or_default() += memory;
        }
        if needed.iter().any(|(&n, &bytes)| self.steps.available(n) < bytes) {
            return false;
        }
        for (&n, &bytes) in &needed {
            self.steps.make_memory(self.translation, self.policy, n, bytes, None);
            self.steps.take_memory(n, bytes);
        }
        let nodes: Vec<NodeName> = run.nodes.iter().map(|&n| self.translation.nodes[n].clone()).collect();
        let (job, old) = (self.name(change.job), &self.situation.jobs[change.job]);
        if change.kind == ChangeKind::Migrate {
            old.nodes.iter().for_each(|&n| self.steps.free_memory(n as u32, memory));
        }
        let best = self.best(change.job);
        let where_to = nodes.iter().map(NodeName::as_str).collect::<Vec<_>>().join("`, `");
        let mut why =
            format!("`{job}` can reach a utility of {best:+.2} at most and gets {:.2} CPU a task on `{where_to}`", run.speed);
        let action = match change.kind {
            ChangeKind::Start => Action::StartJob { job, nodes },
            ChangeKind::Resume | ChangeKind::MoveAndResume => Action::ResumeJob { job, nodes },
            // The next plan begins it where there is room for it then.
            ChangeKind::Migrate if old.saves && !self.situation.costs.moves() => {
                why += "; it saves its state, and goes on from that";
                assignment.runs[change.job] = None;
                Action::SuspendJob { job }
            }
            ChangeKind::Migrate => Action::MigrateJob { job, nodes },
            ChangeKind::Suspend => Action::SuspendJob { job },
        };
        self.steps.job_step(action, why);
        true
    }

    // The speed of each job in force after the plan, and the steps that set it. The runs may be others than those the scheduler
    // divided CPU among.
    fn speeds(&mut self, assignment: &mut Assignment) -> Vec<f64> {
        let places: Vec<Vec<usize>> =
            assignment.runs.iter().map(|run| run.as_ref().map_or_else(Vec::new, |run| run.nodes.clone())).collect();
        let division = divide(self.situation, &places);
        let mut speeds = division.speeds.clone();
        let now = |m: usize| {
            let cpu = self.translation.jobs.observed[m].cpu.filter(|_| runs(&self.situation.jobs[m])).map(|cpu| cpu.0);
            cpu.filter(|cpu| cpu.is_finite() && *cpu >= 0.0)
        };
        for (m, speed) in speeds.iter_mut().enumerate().filter(|(m, _)| !places[*m].is_empty()) {
            let full = self.situation.jobs[m].needs(self.situation.cycle_s).max_speed;
            if let Some(now) = now(m).filter(|now| (now - *speed).abs() <= RIPPLE * full && *now <= full) {
                *speed = now;
            }
        }
        let mut used = vec![0.0; self.situation.nodes.len()];
        for (speed, nodes) in speeds.iter().zip(&places) {
            nodes.iter().for_each(|&n| used[n] += speed);
        }
        for m in (0..speeds.len()).filter(|&m| !places[m].is_empty()) {
            if places[m].iter().any(|&n| used[n] > self.situation.nodes[n].cpu) {
                speeds[m] = division.speeds[m];
            }
            if now(m) != Some(speeds[m]) {
                let job = self.name(m);
                let why = format!("each task of `{job}` gets {:.2} of the {:.2} CPU that it can use", speeds[m], self.full(m));
                self.steps.job_step(Action::SetJobCpu { job, cpu: Cpu(speeds[m]) }, why);
            }
            if let Some(run) = &mut assignment.runs[m] {
                run.speed = speeds[m];
            }
        }
        speeds
    }

    fn full(&self, m: usize) -> f64 {
        self.situation.jobs[m].needs(self.situation.cycle_s).max_speed
    }
}

// Distributes the CPU that jobs leave among the applications.
fn give_the_rest(translation: &Translation, solution: &mut Solution, assignment: &Assignment, speeds: &[f64]) {
    let mut problem = translation.problem.clone();
    for (run, speed) in assignment.runs.iter().zip(speeds) {
        for &n in run.iter().flat_map(|run| &run.nodes) {
            problem.nodes[n].cpu = (problem.nodes[n].cpu - speed).max(0.0);
        }
    }
    let mut layout = Layout::empty(&problem);
    for (m, n, count, _) in solution.entries().into_iter().filter(|entry| (entry.0 as usize) < translation.apps.len()) {
        for _ in 0..count {
            layout.add(&problem, m, n);
        }
    }
    solution.utilities = distribute(&problem, &mut layout, &mut FlowNetwork::new(&problem));
    solution.layout = layout;
}

fn outlook(waits: &Waits<'_, '_>, speeds: &[f64]) -> Decided {
    let situation = waits.situation;
    let all: Vec<f64> = speeds.iter().zip(situation.jobs).map(|(speed, job)| speed * f64::from(job.tasks)).collect();
    let decided = evaluate(situation.jobs, &all, &vec![0.0; all.len()], situation.now_s, situation.cycle_s);
    let utilities: Vec<f64> = decided.iter().enumerate().map(|(m, &utility)| waits.translation.jobs.told(m, utility)).collect();
    let explain = |(spec, (m, &utility)): (&JobSpec, (usize, &f64))| {
        (spec.name.clone(), JobExplanation { utility: Utility(utility), text: waits.why(m, utility) })
    };
    let specs = waits.translation.jobs.observed.iter().map(|job| &job.spec);
    let jobs = specs.zip(utilities.iter().enumerate()).map(explain).collect();
    let lowest = utilities.iter().copied().min_by(f64::total_cmp).map(Utility);
    Decided { lowest, jobs, look_again_s: waits.assignment.look_again_s }
}

mod waits;

#[cfg(test)]
mod joint_tests;
#[cfg(test)]
mod tests;
