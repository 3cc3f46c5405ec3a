//! Batch jobs in virtual time, under any [`Scheduler`] (Carrera 5.6.2).
//!
//! Jobs come in, run at the speeds they are given, are held up by what changes to their runs cost, and complete. The
//! scheduler is asked on each arrival, each completion, when it wanted to be asked again, and each cycle in which the load of applications may
//! have changed: waiting for the edge of a cycle would cost 300 s on average in the thesis' setting and make its shortest jobs miss their goals. After each decision an oracle looks for
//! overfull nodes, torn gangs and speeds out of range.

use std::collections::BTreeMap;

use weal_control::jobs::{AppCurve, Assignment, ChangeKind, Costs, Job, Scheduler, Site, Situation, Took, hypothetical};
use weal_model::{Cpu, JobState};

use weal_scenario::workload::JobArrival;

/// What is simulated.
pub struct Batch<'a> {
    /// The nodes.
    pub nodes: &'a [Site],
    /// Applications beside the jobs.
    pub apps: Applications<'a>,
    /// What changes cost.
    pub costs: Costs,
    /// Seconds of a control cycle.
    pub cycle_s: f64,
    /// Who decides.
    pub scheduler: &'a dyn Scheduler,
    /// Seconds from one [`Sample`] to the next at the earliest; 0 samples after each decision, infinity never.
    pub sample_every_s: f64,
    /// A job that stops running, or goes on elsewhere, keeps what it has done. Without that (nothing is suspended, only stopped) it
    /// begins anew.
    pub keeps_work: bool,
}

/// Applications beside the jobs of a [`Batch`].
#[derive(Clone, Copy)]
pub enum Applications<'a> {
    /// Their load stays as it is.
    Steady(&'a [AppCurve]),
    /// Their load at a time in seconds; decisions see what it is when they are made.
    Changing(&'a dyn Fn(f64) -> Vec<AppCurve>),
}

impl<'a> Batch<'a> {
    /// Nothing is free and no work is lost; there is a sample a cycle.
    pub fn new(nodes: &'a [Site], apps: Applications<'a>, scheduler: &'a dyn Scheduler, cycle_s: f64) -> Self {
        Self { nodes, apps, costs: Costs::THESIS, cycle_s, scheduler, sample_every_s: cycle_s, keeps_work: true }
    }
}

/// When a run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// So many jobs come in; it ends when all are done.
    Submitted(usize),
    /// Jobs go on coming in until so many are done.
    Completed(usize),
    /// It ends at this time in seconds, whatever is done: a policy may never run some jobs.
    Time(u64),
}

/// What became of a job.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Completion {
    /// Its number, in order of arrival from 0.
    pub number: usize,
    /// The job.
    pub arrival: JobArrival,
    /// When it was done.
    pub finish_s: f64,
    /// What that was worth.
    pub utility: f64,
}

impl Completion {
    /// The length of its goal over the time that it takes at full speed (Carrera 5.6.2).
    pub fn goal_factor(&self) -> f64 {
        self.arrival.relative_goal_s / self.arrival.kind.best_s()
    }

    /// True when it met its goal.
    pub fn met(&self) -> bool {
        self.utility >= -1e-9
    }
}

/// A change to a job's run.
#[derive(Debug, Clone, PartialEq)]
pub struct LoggedChange {
    /// When it was decided.
    pub time_s: f64,
    /// The job's number, in order of arrival from 0.
    pub job: usize,
    /// What happened.
    pub kind: ChangeKind,
    /// Where it runs from then on; empty when suspended.
    pub nodes: Vec<usize>,
}

/// The state after a decision.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// When.
    pub time_s: f64,
    /// Jobs submitted and not done.
    pub in_system: usize,
    /// Jobs that run.
    pub running: usize,
    /// Mean hypothetical utility of the jobs in the system; `None` without any.
    pub hypothetical: Option<f64>,
    /// Lowest hypothetical utility of the jobs in the system; `None` without any.
    pub lowest_hypothetical: Option<f64>,
    /// The level to which the group is headed for; `None` without any.
    pub level: Option<f64>,
    /// True when every job is headed for the best that it can still reach.
    pub all_at_best: bool,
    /// CPU of the jobs.
    pub job_cpu: f64,
    /// CPU and utility of each application.
    pub apps: Vec<(f64, f64)>,
}

/// What a run gave.
#[derive(Debug, Clone, Default)]
pub struct BatchResult {
    /// Jobs in order of completion.
    pub completions: Vec<Completion>,
    /// Changes by kind.
    pub changes: BTreeMap<ChangeKind, usize>,
    /// The changes themselves, in order.
    pub log: Vec<LoggedChange>,
    /// After decisions, as often as was asked for.
    pub samples: Vec<Sample>,
    /// Most jobs that ran at once.
    pub most_running: usize,
    /// Goals of jobs that were not done when the run ended: the moments by which they should have been.
    pub missed_or_open: Vec<f64>,
    /// When the run ended.
    pub end_s: f64,
    /// Decisions that broke a rule; empty in a sound run.
    pub violations: Vec<String>,
}

impl BatchResult {
    /// How many changes of this kind there were.
    pub fn count(&self, kind: ChangeKind) -> usize {
        self.changes.get(&kind).copied().unwrap_or(0)
    }

    /// Changes to jobs that had started: migrations, suspensions, and resumptions elsewhere (Carrera Figure 5.22).
    pub fn placement_changes(&self) -> usize {
        [ChangeKind::Migrate, ChangeKind::Suspend, ChangeKind::MoveAndResume].into_iter().map(|kind| self.count(kind)).sum()
    }

    /// The share of jobs that met their goals.
    pub fn met(&self) -> f64 {
        self.completions.iter().filter(|job| job.met()).count() as f64 / self.completions.len().max(1) as f64
    }

    /// The share of jobs that met their goals among all that were due when the run ended, whether they are done or not.
    pub fn met_of_due(&self) -> f64 {
        let late = self.missed_or_open.iter().filter(|&&due_s| due_s < self.end_s).count();
        let met = self.completions.iter().filter(|job| job.met()).count();
        met as f64 / (self.completions.len() + late).max(1) as f64
    }

    /// The mean utility at completion.
    pub fn mean_utility(&self) -> f64 {
        self.completions.iter().map(|job| job.utility).sum::<f64>() / self.completions.len().max(1) as f64
    }

    /// The lowest utility at completion.
    pub fn lowest_utility(&self) -> f64 {
        self.completions.iter().map(|job| job.utility).fold(f64::INFINITY, f64::min)
    }
}

/// Runs `arrivals` through.
pub fn run(batch: &Batch, arrivals: impl IntoIterator<Item = JobArrival>, until: Until) -> BatchResult {
    let mut state = State {
        batch,
        submitted: 0,
        now_s: 0.0,
        look_again_at_s: f64::INFINITY,
        next_sample_s: if batch.sample_every_s.is_finite() { 0.0 } else { f64::INFINITY },
        decided: None,
        jobs: Vec::new(),
        active: Vec::new(),
        outcome: BatchResult::default(),
    };
    let limit = if let Until::Submitted(count) = until { count } else { usize::MAX };
    let mut arrivals = arrivals.into_iter().take(limit).peekable();
    let mut next_cycle_s = batch.cycle_s;
    loop {
        let arrival_s = arrivals.peek().map_or(f64::INFINITY, |arrival| arrival.at_s);
        let next_s = arrival_s.min(next_cycle_s).min(state.next_completion_s()).min(state.look_again_at_s);
        if (state.jobs.is_empty() && arrival_s.is_infinite())
            || matches!(until, Until::Time(end_s) if next_s > end_s as f64)
            || matches!(until, Until::Completed(n) if state.outcome.completions.len() >= n)
        {
            state.outcome.end_s = state.now_s;
            state.outcome.missed_or_open = state.jobs.iter().map(|job| job.deadline_s).collect();
            return state.outcome;
        }
        let happens = [arrival_s, state.next_completion_s(), state.look_again_at_s].iter().any(|at_s| *at_s <= next_s);
        state.advance(next_s);
        while let Some(arrival) = arrivals.next_if(|arrival| arrival.at_s <= next_s) {
            state.submit(arrival);
        }
        while next_cycle_s <= next_s {
            next_cycle_s += batch.cycle_s;
        }
        state.decide(!happens);
    }
}

/// What the simulator knows of a job besides what the scheduler sees.
#[derive(Debug, Clone)]
struct Active {
    number: usize,
    arrival: JobArrival,
    /// CPU per task.
    speed: f64,
    /// It makes no progress before this.
    held_until_s: f64,
}

struct State<'a> {
    batch: &'a Batch<'a>,
    submitted: usize,
    now_s: f64,
    /// When the scheduler asked to be asked again.
    look_again_at_s: f64,
    next_sample_s: f64,
    /// What was decided last.
    decided: Option<Assignment>,
    /// The unfinished jobs as the scheduler sees them; `active` runs parallel to it.
    jobs: Vec<Job>,
    active: Vec<Active>,
    outcome: BatchResult,
}

impl State<'_> {
    fn submit(&mut self, arrival: JobArrival) {
        let kind = arrival.kind;
        let deadline_s = arrival.at_s + arrival.relative_goal_s;
        self.jobs.push(Job {
            start_s: arrival.at_s,
            deadline_s,
            goal_s: deadline_s - arrival.at_s,
            weight: 1.0,
            priority: 0,
            tasks: kind.tasks.max(1),
            stages: vec![weal_model::Stage {
                work: kind.work,
                max_speed: kind.max_speed,
                min_speed: kind.min_speed,
                memory: kind.memory,
            }],
            done: 0.0,
            state: JobState::Pending,
            nodes: Vec::new(),
            saves: false,
            took: Took::default(),
        });
        self.active.push(Active { number: self.submitted, arrival, speed: 0.0, held_until_s: arrival.at_s });
        self.submitted += 1;
    }

    fn next_completion_s(&self) -> f64 {
        let finish = |(job, active): (&Job, &Active)| active.held_until_s.max(self.now_s) + job.duration_at(active.speed);
        let running = self.jobs.iter().zip(&self.active).filter(|(_, active)| active.speed > 0.0);
        running.map(finish).fold(f64::INFINITY, f64::min)
    }

    fn advance(&mut self, to_s: f64) {
        for (job, active) in self.jobs.iter_mut().zip(&self.active) {
            let from_s = active.held_until_s.max(self.now_s);
            job.done += job.progress(active.speed, to_s - from_s);
        }
        self.now_s = to_s;
        let mut index = 0;
        while index < self.jobs.len() {
            // A microsecond at full speed: what summing over events leaves.
            if self.jobs[index].best_s() > 1e-6 {
                index += 1;
                continue;
            }
            let (job, active) = (self.jobs.remove(index), self.active.remove(index));
            let utility = job.utility(to_s);
            self.outcome.completions.push(Completion { number: active.number, arrival: active.arrival, finish_s: to_s, utility });
        }
    }

    /// Nothing has happened when `is_cycle_alone`: what was decided stands then, unless the load of applications may have changed.
    fn decide(&mut self, is_cycle_alone: bool) {
        let batch = self.batch;
        let now;
        let apps = match batch.apps {
            Applications::Steady(apps) => apps,
            Applications::Changing(apps_at) => {
                now = apps_at(self.now_s);
                &now[..]
            }
        };
        let situation = Situation {
            now_s: self.now_s,
            cycle_s: batch.cycle_s,
            nodes: batch.nodes,
            jobs: &self.jobs,
            apps,
            costs: batch.costs,
        };
        let stands = is_cycle_alone && matches!(batch.apps, Applications::Steady(_)) && self.decided.is_some();
        let assignment = self.decided.take().filter(|_| stands).unwrap_or_else(|| {
            let assignment = batch.scheduler.schedule(&situation);
            let violations = violations(&situation, &assignment);
            self.outcome.violations.extend(violations.into_iter().map(|text| format!("at {:.1} s: {text}", self.now_s)));
            self.look_again_at_s = assignment.look_again_s.map_or(f64::INFINITY, |seconds| self.now_s + seconds);
            assignment
        });
        if !stands {
            self.apply(&assignment);
        }
        let running = assignment.runs.iter().flatten().count();
        self.outcome.most_running = self.outcome.most_running.max(running);
        if self.now_s >= self.next_sample_s {
            self.sample(&assignment, apps);
            // On multiples of the span, so that runs of the same length can be compared point by point.
            let every_s = batch.sample_every_s;
            self.next_sample_s = if every_s > 0.0 { ((self.now_s / every_s).floor() + 1.0) * every_s } else { self.now_s };
        }
        self.decided = Some(assignment);
    }

    fn apply(&mut self, assignment: &Assignment) {
        let costs = &self.batch.costs;
        let changes = assignment.changes(&self.jobs);
        let mut clearing_s = vec![0.0f64; self.batch.nodes.len()];
        let memory = |job: &Job| job.needs(self.batch.cycle_s).memory;
        for change in changes.iter().filter(|change| change.kind == ChangeKind::Suspend) {
            let job = &self.jobs[change.job];
            let seconds = costs.of(ChangeKind::Suspend, memory(job));
            job.nodes.iter().for_each(|&node| clearing_s[node] = clearing_s[node].max(seconds));
        }
        for change in &changes {
            *self.outcome.changes.entry(change.kind).or_default() += 1;
            self.outcome.log.push(LoggedChange {
                time_s: self.now_s,
                job: self.active[change.job].number,
                kind: change.kind,
                nodes: assignment.runs[change.job].as_ref().map_or(Vec::new(), |run| run.nodes.clone()),
            });
            if let Some(run) = &assignment.runs[change.job] {
                let wait_s = run.nodes.iter().map(|&node| clearing_s[node]).fold(0.0, f64::max);
                let held_s = wait_s + costs.of(change.kind, memory(&self.jobs[change.job]));
                self.active[change.job].held_until_s = self.now_s + held_s;
            }
            if !self.batch.keeps_work && change.kind != ChangeKind::Start {
                self.jobs[change.job].done = 0.0;
            }
        }
        for ((job, active), run) in self.jobs.iter_mut().zip(&mut self.active).zip(&assignment.runs) {
            match run {
                Some(run) => {
                    job.state = JobState::Running;
                    job.nodes.clone_from(&run.nodes);
                    active.speed = run.speed;
                }
                None => {
                    if job.state == JobState::Running {
                        job.state = if self.batch.keeps_work { JobState::Suspended } else { JobState::Pending };
                    }
                    active.speed = 0.0;
                }
            }
        }
    }

    fn sample(&mut self, assignment: &Assignment, apps: &[AppCurve]) {
        let cpu = |job: &Job, active: &Active| active.speed * f64::from(job.tasks);
        let job_cpu: f64 = self.jobs.iter().zip(&self.active).map(|(job, active)| cpu(job, active)).sum();
        let outlook = hypothetical(&self.jobs, self.now_s, job_cpu);
        let count = self.jobs.len();
        let apps = apps.iter().zip(&assignment.apps);
        self.outcome.samples.push(Sample {
            time_s: self.now_s,
            in_system: count,
            running: assignment.runs.iter().flatten().count(),
            hypothetical: (count > 0).then(|| outlook.utilities.iter().sum::<f64>() / count as f64),
            lowest_hypothetical: (count > 0).then(|| outlook.utilities.iter().copied().fold(f64::INFINITY, f64::min)),
            level: (count > 0).then_some(outlook.level),
            all_at_best: outlook.utilities.iter().zip(&self.jobs).all(|(u, job)| *u >= job.max_utility(self.now_s) - 1e-9),
            job_cpu,
            apps: apps.map(|(app, &cpu)| (cpu, app.curve.utility_at(Cpu(cpu)).0)).collect(),
        });
    }
}

/// What an assignment breaks: an independent look that shares no code with the schedulers.
pub fn violations(situation: &Situation, assignment: &Assignment) -> Vec<String> {
    let mut found = Vec::new();
    let (mut cpu, mut memory) = (vec![0.0; situation.nodes.len()], vec![0u64; situation.nodes.len()]);
    if assignment.runs.len() != situation.jobs.len() || assignment.apps.len() != situation.apps.len() {
        return vec!["the assignment is for other jobs or applications".to_owned()];
    }
    for (m, (job, run)) in situation.jobs.iter().zip(&assignment.runs).enumerate() {
        let Some(run) = run else { continue };
        let needs = job.needs(situation.cycle_s);
        if run.nodes.len() != job.tasks as usize {
            found.push(format!("job {m} runs {} of {} tasks", run.nodes.len(), job.tasks));
        }
        let slack = 1e-6 * needs.max_speed;
        if !(run.speed >= needs.min_speed - slack && run.speed <= needs.max_speed + slack) {
            found.push(format!("job {m} runs at {}, outside {}..={}", run.speed, needs.min_speed, needs.max_speed));
        }
        for &node in &run.nodes {
            if node >= situation.nodes.len() {
                found.push(format!("job {m} runs on node {node}, which is not there"));
                continue;
            }
            cpu[node] += run.speed;
            memory[node] += needs.memory;
        }
    }
    for (node, site) in situation.nodes.iter().enumerate() {
        if cpu[node] > site.cpu * (1.0 + 1e-6) {
            found.push(format!("node {node} has {} of {} CPU", cpu[node], site.cpu));
        }
        if memory[node] > site.memory {
            found.push(format!("node {node} has {} of {} bytes", memory[node], site.memory));
        }
    }
    let (total, used): (f64, f64) = (situation.nodes.iter().map(|node| node.cpu).sum(), cpu.iter().sum());
    if used + assignment.apps.iter().sum::<f64>() > total * (1.0 + 1e-6) {
        found.push(format!("jobs and applications have more than the {total} CPU that there is"));
    }
    found
}

#[cfg(test)]
mod tests {
    use weal_control::jobs::{EarliestDeadlineFirst, FirstComeFirstServed, WealScheduler};
    use weal_model::{Bytes, Work};

    use super::*;
    use weal_scenario::workload::{JobKind, JobMix};

    fn kind(work: f64, memory_mib: u64) -> JobKind {
        JobKind { work: Work(work), max_speed: Cpu(1.0), min_speed: Cpu(0.0), memory: Bytes::mib(memory_mib), tasks: 1 }
    }

    fn run_with(scheduler: &dyn Scheduler, nodes: &[Site], arrivals: Vec<JobArrival>) -> BatchResult {
        let batch = Batch { sample_every_s: 0.0, ..Batch::new(nodes, Applications::Steady(&[]), scheduler, 60.0) };
        let count = arrivals.len();
        run(&batch, arrivals, Until::Submitted(count))
    }

    #[test]
    fn a_job_alone_takes_its_start_and_its_work() {
        let node = Site { cpu: 2.0, memory: Bytes::mib(100).0 };
        let arrival = JobArrival { at_s: 10.0, kind: kind(100.0, 100), relative_goal_s: 200.0 };
        let outcome = run_with(&WealScheduler, &[node], vec![arrival]);
        assert!((outcome.completions[0].finish_s - 113.6).abs() < 1e-6);
        assert!(outcome.completions[0].met() && outcome.violations.is_empty());
    }

    #[test]
    fn an_urgent_job_interrupts_a_patient_one_which_is_resumed() {
        let node = Site { cpu: 1.0, memory: Bytes::mib(100).0 };
        let patient = JobArrival { at_s: 0.0, kind: kind(1000.0, 100), relative_goal_s: 10_000.0 };
        let urgent = JobArrival { at_s: 100.0, kind: kind(100.0, 100), relative_goal_s: 150.0 };
        let outcome = run_with(&WealScheduler, &[node], vec![patient, urgent]);
        assert_eq!((outcome.count(ChangeKind::Suspend), outcome.count(ChangeKind::Resume)), (1, 1));
        assert!(outcome.completions.iter().all(Completion::met), "{:?}", outcome.completions);
        let fcfs = run_with(&FirstComeFirstServed, &[node], vec![patient, urgent]);
        assert_eq!(fcfs.met(), 0.5);
    }

    /// Ascending utilities and the number of changes under a cycle of `cycle_s`.
    fn utilities_with(cycle_s: f64, nodes: &[Site], arrivals: &[JobArrival]) -> (Vec<f64>, usize) {
        let batch =
            Batch { sample_every_s: f64::INFINITY, ..Batch::new(nodes, Applications::Steady(&[]), &WealScheduler, cycle_s) };
        let result = run(&batch, arrivals.to_vec(), Until::Submitted(arrivals.len()));
        let mut utilities: Vec<f64> = result.completions.iter().map(|completion| completion.utility).collect();
        utilities.sort_by(f64::total_cmp);
        (utilities, result.changes.values().sum())
    }

    #[test]
    fn what_becomes_of_jobs_does_not_depend_on_how_often_decisions_are_made() {
        let (mut apart, mut changes) = (Vec::new(), [0; 4]);
        for seed in 0..60 {
            let mix = JobMix {
                kinds: vec![(1.0, kind(300.0, 50)), (1.0, kind(1000.0, 40)), (1.0, kind(100.0, 30))],
                factors: vec![(1.0, 1.2), (1.0, 2.5), (1.0, 6.0)],
                mean_gap_s: 150.0,
            };
            let nodes = [Site { cpu: 1.0, memory: Bytes::mib(100).0 }, Site { cpu: 2.0, memory: Bytes::mib(100).0 }];
            let arrivals: Vec<JobArrival> = mix.stream(seed, "jobs").take(8).collect();
            let runs = [1.0, 15.0, 100.0, 600.0].map(|cycle_s| utilities_with(cycle_s, &nodes, &arrivals));
            changes.iter_mut().zip(&runs).for_each(|(sum, run)| *sum += run.1);
            let differences = runs.iter().flat_map(|run| run.0.iter().zip(&runs[0].0).map(|(a, b)| (a - b).abs()));
            apart.push((differences.fold(0.0, f64::max), seed));
        }
        apart.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert!(apart[59].0 <= 0.02, "{apart:?}");
        let [most, least] = [changes.iter().max(), changes.iter().min()].map(|count| *count.expect("four cycles") as f64);
        assert!(most <= 1.1 * least, "{changes:?}");
    }

    #[test]
    fn every_scheduler_keeps_the_rules_on_random_streams() {
        let mix = JobMix {
            kinds: vec![
                (1.0, kind(300.0, 40)),
                (1.0, JobKind { tasks: 3, ..kind(200.0, 30) }),
                (1.0, JobKind { min_speed: Cpu(0.5), ..kind(900.0, 60) }),
            ],
            factors: vec![(1.0, 1.3), (1.0, 3.0), (1.0, 10.0)],
            mean_gap_s: 70.0,
        };
        let nodes = [
            Site { cpu: 2.0, memory: Bytes::mib(100).0 },
            Site { cpu: 1.0, memory: Bytes::mib(130).0 },
            Site { cpu: 3.0, memory: Bytes::mib(80).0 },
        ];
        for seed in 0..12 {
            let arrivals: Vec<JobArrival> = mix.stream(seed, "jobs").take(60).collect();
            for scheduler in [&WealScheduler as &dyn Scheduler, &EarliestDeadlineFirst, &FirstComeFirstServed] {
                let outcome = run_with(scheduler, &nodes, arrivals.clone());
                assert_eq!(outcome.violations, Vec::<String>::new(), "seed {seed}, {}", scheduler.name());
                assert_eq!(outcome.completions.len(), 60, "seed {seed}, {}", scheduler.name());
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_run() {
        let mix = JobMix { kinds: vec![(1.0, kind(300.0, 40))], factors: vec![(1.0, 2.0)], mean_gap_s: 50.0 };
        let node = Site { cpu: 4.0, memory: Bytes::mib(200).0 };
        let once = || run_with(&WealScheduler, &[node], mix.stream(9, "jobs").take(50).collect()).completions;
        assert_eq!(once(), once());
    }
}
