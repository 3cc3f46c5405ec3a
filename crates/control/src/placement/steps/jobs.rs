//! Jobs beside applications: the steps to where they are to run, how fast, and what applications have left then.
//!
//! Which jobs run where is decided together with the instances (`placement::together`). What leaves memory goes before the steps of
//! instances, what takes it goes after them. A job whose memory is not there yet waits for the next plan. Then the CPU of the jobs that run
//! is divided, over jobs and applications alike, the worst off first.

use std::collections::BTreeMap;

use weal_model::{Action, Cpu, JobExplanation, JobName, JobSpec, NodeName, Utility};

use super::actions::Steps;
use crate::jobs::{AppCurve, Assignment, ChangeKind, Job, JobChange, Run, Site, Situation, divide, evaluate};
use crate::placement::policy::Policy;
use crate::placement::problem::jobs::runs;
use crate::placement::problem::layout::Layout;
use crate::placement::problem::translate::Translation;
use crate::placement::solve::Solution;
use crate::placement::solve::distribute::distribute;
use crate::placement::solve::max_flow::FlowNetwork;
use crate::placement::together::app_curves;
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

/// The steps of the jobs.
pub(super) struct Batch<'a, 'b> {
    translation: &'a Translation<'b>,
    policy: &'a Policy,
    cycle_s: f64,
    assignment: Assignment,
    /// Changes that are no steps yet.
    open: Vec<JobChange>,
}

impl<'a, 'b> Batch<'a, 'b> {
    /// From the present runs to those of `assignment`.
    pub fn new(translation: &'a Translation<'b>, policy: &'a Policy, assignment: Assignment) -> Self {
        let open = assignment.changes(&translation.jobs.jobs);
        Self { translation, policy, cycle_s: policy.pool.timing.placement_cycle_s.max(1.0), assignment, open }
    }

    /// What leaves memory.
    pub fn suspend(&mut self, steps: &mut Steps) {
        let (suspensions, others): (Vec<JobChange>, Vec<JobChange>) =
            std::mem::take(&mut self.open).into_iter().partition(|change| change.kind == ChangeKind::Suspend);
        self.open = others;
        suspensions.iter().for_each(|change| self.suspend_one(steps, change.job));
    }

    /// What goes to another node, as far as there is room.
    pub fn migrate(&mut self, steps: &mut Steps) {
        self.bring_all(steps, |kind| kind == ChangeKind::Migrate);
    }

    /// All else that there is room for, and the CPU of all.
    pub fn conclude(mut self, steps: &mut Steps, solution: &mut Solution) -> Decided {
        let translation = self.translation;
        if translation.jobs.jobs.is_empty() {
            return Decided::default();
        }
        self.bring_all(steps, |_| true);
        let put_off = self.leave_the_rest();
        let sites = self.sites(steps);
        let apps: Vec<AppCurve> = app_curves(&translation.problem, &solution.layout)
            .into_iter()
            .filter(|(m, _)| (*m as usize) < translation.apps.len())
            .map(|(_, app)| app)
            .collect();
        let (now_s, cycle_s, costs) = (translation.now.as_secs_f64(), self.cycle_s, self.policy.job_costs);
        let situation = Situation { now_s, cycle_s, nodes: &sites, jobs: self.jobs(), apps: &apps, costs };
        let speeds = self.speeds(steps, &situation);
        give_the_rest(translation, solution, &self.assignment, &speeds);
        outlook(&Waits::new(translation, &situation, &self.assignment, put_off), &speeds)
    }

    /// In rounds, since a job that moves away makes room for another.
    fn bring_all(&mut self, steps: &mut Steps, kinds: impl Fn(ChangeKind) -> bool) {
        loop {
            let (before, open) = (self.open.len(), std::mem::take(&mut self.open));
            self.open = open.into_iter().filter(|change| !kinds(change.kind) || !self.bring(steps, *change)).collect();
            if self.open.len() == before {
                return;
            }
        }
    }

    /// A change that fits in no order waits for the next plan: those jobs are returned.
    fn leave_the_rest(&mut self) -> Vec<usize> {
        let open = std::mem::take(&mut self.open);
        for change in &open {
            let job = &self.jobs()[change.job];
            let keeps = (change.kind == ChangeKind::Migrate).then(|| Run { nodes: job.nodes.clone(), speed: 0.0 });
            self.assignment.runs[change.job] = keeps;
        }
        open.into_iter().map(|change| change.job).collect()
    }

    // A node's memory for jobs: what applications leave, with what suspended instances would give back.
    fn sites(&self, steps: &Steps) -> Vec<Site> {
        let nodes = (0u32..).zip(&self.translation.problem.nodes);
        let mut sites: Vec<Site> = nodes.map(|(n, node)| Site { cpu: node.cpu, memory: steps.available(n) }).collect();
        for (m, run) in self.assignment.runs.iter().enumerate().filter_map(|(m, run)| Some((m, run.as_ref()?))) {
            run.nodes.iter().for_each(|&n| sites[n].memory = sites[n].memory.saturating_add(self.memory(m)));
        }
        sites
    }

    fn jobs(&self) -> &'a [Job] {
        &self.translation.jobs.jobs
    }

    fn memory(&self, m: usize) -> u64 {
        self.jobs()[m].needs(self.cycle_s).memory
    }

    fn name(&self, m: usize) -> JobName {
        self.translation.jobs.observed[m].spec.name.clone()
    }

    /// The best that a job can still reach, as people are told.
    fn best(&self, m: usize) -> f64 {
        self.translation.jobs.told(m, self.jobs()[m].max_utility(self.translation.now.as_secs_f64()))
    }

    fn suspend_one(&self, steps: &mut Steps, m: usize) {
        let best = self.best(m);
        let why =
            format!("`{}` can still reach a utility of {best:+.2}; others that can reach less need its place", self.name(m));
        steps.job_step(Action::SuspendJob { job: self.name(m) }, why);
        let memory = self.memory(m);
        self.jobs()[m].nodes.iter().for_each(|&n| steps.free_memory(n as u32, memory));
    }

    // Starts, resumes or moves a job if its memory is there now.
    fn bring(&mut self, steps: &mut Steps, change: JobChange) -> bool {
        let Some(run) = self.assignment.runs[change.job].clone() else { return true };
        let memory = self.memory(change.job);
        let mut needed: BTreeMap<u32, u64> = BTreeMap::new();
        for &n in &run.nodes {
            *needed.entry(n as u32).or_default() += memory;
        }
        if needed.iter().any(|(&n, &bytes)| steps.available(n) < bytes) {
            return false;
        }
        for (&n, &bytes) in &needed {
            steps.make_memory(self.translation, self.policy, n, bytes, None);
            steps.take_memory(n, bytes);
        }
        let nodes: Vec<NodeName> = run.nodes.iter().map(|&n| self.translation.nodes[n].clone()).collect();
        let (job, old) = (self.name(change.job), &self.jobs()[change.job]);
        if change.kind == ChangeKind::Migrate {
            old.nodes.iter().for_each(|&n| steps.free_memory(n as u32, memory));
        }
        let best = self.best(change.job);
        let where_to = nodes.iter().map(NodeName::as_str).collect::<Vec<_>>().join("`, `");
        let mut why =
            format!("`{job}` can reach a utility of {best:+.2} at most and gets {:.2} CPU a task on `{where_to}`", run.speed);
        let action = match change.kind {
            ChangeKind::Start => Action::StartJob { job, nodes },
            ChangeKind::Resume | ChangeKind::MoveAndResume => Action::ResumeJob { job, nodes },
            // The next plan begins it where there is room for it then.
            ChangeKind::Migrate if old.saves && !self.policy.job_costs.moves() => {
                why += "; it saves its state, and goes on from that";
                self.assignment.runs[change.job] = None;
                Action::SuspendJob { job }
            }
            ChangeKind::Migrate => Action::MigrateJob { job, nodes },
            ChangeKind::Suspend => Action::SuspendJob { job },
        };
        steps.job_step(action, why);
        true
    }

    // The speed of each job in force after the plan, and the steps that set it. The runs may be others than those the scheduler
    // divided CPU among.
    fn speeds(&mut self, steps: &mut Steps, situation: &Situation) -> Vec<f64> {
        let runs_of = |run: &Option<Run>| run.as_ref().map_or_else(Vec::new, |run| run.nodes.clone());
        let places: Vec<Vec<usize>> = self.assignment.runs.iter().map(runs_of).collect();
        let division = divide(situation, &places);
        let mut speeds = division.speeds.clone();
        let now = |m: usize| {
            let cpu = self.translation.jobs.observed[m].cpu.filter(|_| runs(&situation.jobs[m])).map(|cpu| cpu.0);
            cpu.filter(|cpu| cpu.is_finite() && *cpu >= 0.0)
        };
        let full = |m: usize| situation.jobs[m].needs(situation.cycle_s).max_speed;
        for (m, speed) in speeds.iter_mut().enumerate().filter(|(m, _)| !places[*m].is_empty()) {
            if let Some(now) = now(m).filter(|now| (now - *speed).abs() <= RIPPLE * full(m) && *now <= full(m)) {
                *speed = now;
            }
        }
        let mut used = vec![0.0; situation.nodes.len()];
        for (speed, nodes) in speeds.iter().zip(&places) {
            nodes.iter().for_each(|&n| used[n] += speed);
        }
        for m in (0..speeds.len()).filter(|&m| !places[m].is_empty()) {
            if places[m].iter().any(|&n| used[n] > situation.nodes[n].cpu) {
                speeds[m] = division.speeds[m];
            }
            if now(m) != Some(speeds[m]) {
                let job = self.name(m);
                let why = format!("each task of `{job}` gets {:.2} of the {:.2} CPU that it can use", speeds[m], full(m));
                steps.job_step(Action::SetJobCpu { job, cpu: Cpu(speeds[m]) }, why);
            }
            if let Some(run) = &mut self.assignment.runs[m] {
                run.speed = speeds[m];
            }
        }
        speeds
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
mod tests;
