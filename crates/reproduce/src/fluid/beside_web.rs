//! A job log beside a recorded web load on one pool, under each policy.
//!
//! | policy | jobs | web load |
//! | --- | --- | --- |
//! | weal | by everybody's utility, suspended and moved | shares every node, by utility |
//! | FCFS, EDF | in that order at full speed | shares every node, by utility |
//! | static | FCFS on the other nodes | nodes of its own, enough for 95% of its minutes |
//! | autoscaler | FCFS on the other nodes, stopped when theirs are taken | instances that are started and stopped ([`Autoscaled`]) |
//!
//! Requests are open arrivals: what they use is their rate times `work_s`; how soon they are answered follows from the CPU that the
//! load is given, by [`FlowModel`].

use weal_control::jobs::{
    AppCurve, EarliestDeadlineFirst, FirstComeFirstServed, Scheduler, Site, StaticPartition, WealScheduler,
};
use weal_control::queueing::FlowModel;
use weal_model::{Bytes, Importance, Work};

use super::autoscaled::Autoscaled;
use super::log::jobs_of;
use crate::batch::{Applications, Batch, BatchResult, Until, run};
use weal_scenario::workload::{JobArrival, SwfJob};

/// Seconds of a control cycle, and between two looks at both workloads.
pub const CYCLE_S: f64 = 60.0;
/// The web load's goal on its mean response time, and the time of a request that has a core to itself, in seconds.
const WEB_GOAL_S: f64 = 0.2;
const WEB_FLOOR_S: f64 = 0.05;
/// A client that thinks this long hardly notices how soon it is answered: arrivals are open.
const THINK_S: f64 = 1e4;
/// Memory of a job's task; a node has twice that for each of its cores, so that suspended images leave room.
const TASK_MEMORY: Bytes = Bytes::gib(1);

/// Who decides about jobs and web load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contender {
    /// By everybody's utility.
    Weal,
    /// Jobs in the order in which they come.
    FirstComeFirstServed,
    /// Jobs in the order of their deadlines.
    EarliestDeadlineFirst,
    /// The web load has nodes of its own.
    StaticPartition,
    /// The web load's instances are started and stopped by its CPU.
    Autoscaler,
}

impl Contender {
    /// In the order in which they are shown.
    pub const ALL: [Self; 5] =
        [Self::Weal, Self::FirstComeFirstServed, Self::EarliestDeadlineFirst, Self::StaticPartition, Self::Autoscaler];

    /// As tables call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Weal => "weal",
            Self::FirstComeFirstServed => "FCFS",
            Self::EarliestDeadlineFirst => "EDF",
            Self::StaticPartition => "static partition",
            Self::Autoscaler => "autoscaler",
        }
    }
}

/// A pool and what comes to it.
pub struct Case {
    /// Nodes.
    pub nodes: usize,
    /// Cores of each.
    pub node_cpu: f64,
    /// The jobs with their goals.
    pub jobs: Vec<JobArrival>,
    /// Requests of each minute.
    web: Vec<f64>,
    /// CPU-seconds a request.
    work_s: f64,
    /// Seconds from a start of a web instance until it serves, for the autoscaler.
    start_s: f64,
}

/// What a policy made of it.
#[derive(Debug, Clone, PartialEq)]
pub struct ContenderResult {
    /// The policy.
    pub policy: Contender,
    /// Jobs whose goals were met, of those that were due by the end, of 1.
    pub jobs_met: f64,
    /// Mean utility of jobs at completion, and its standard deviation.
    pub job_utility: (f64, f64),
    /// Time in which the web load met its goal, of 1.
    pub web_met: f64,
    /// Its mean utility over time; at worst -4.
    pub web_utility: f64,
    /// Mean over time of the lower utility of both workloads, and of their distance.
    pub worse_off: f64,
    /// See `worse_off`.
    pub spread: f64,
    /// Changes to jobs that had started.
    pub changes: usize,
    /// Decisions that broke a rule.
    pub violations: usize,
}

impl Case {
    /// Jobs of `log`, and a web load of so many requests a minute that uses the share `web_share` of the pool in its busy minutes: 1% are
    /// busier.
    pub fn new(nodes: usize, node_cpu: f64, log: &[SwfJob], web: &[f64], web_share: f64, start_s: f64) -> Self {
        let jobs = jobs_of(log, (nodes as f64 * node_cpu) as u32, TASK_MEMORY.0, 1);
        let busy_per_s = quantile(web.to_vec(), 0.99) / 60.0;
        let work_s = web_share * nodes as f64 * node_cpu / busy_per_s.max(1e-9);
        Self { nodes, node_cpu, jobs, web: web.to_vec(), work_s, start_s }
    }

    /// CPU that requests use at a second.
    pub fn web_use(&self, now_s: f64) -> f64 {
        let minute = (now_s / 60.0) as usize;
        self.web.get(minute).or(self.web.last()).map_or(0.0, |count| count / 60.0 * self.work_s)
    }

    /// The share of the pool's CPU that jobs and requests use on average, if all of it is done in time.
    pub fn load(&self) -> f64 {
        let jobs: f64 = self.jobs.iter().map(|job| job.kind.work.0 * f64::from(job.kind.tasks)).sum();
        let until_s = self.web.len() as f64 * 60.0;
        let web = self.web.iter().sum::<f64>() * self.work_s;
        (jobs + web) / until_s / (self.nodes as f64 * self.node_cpu)
    }

    /// Nodes that carry the web load within its goal in 95% of its minutes.
    fn web_nodes(&self) -> usize {
        let most = quantile((0..self.web.len()).map(|minute| self.web_use(minute as f64 * 60.0)).collect(), 0.95);
        // Processor sharing: t = S / (1 - use / cpu).
        ((most / (1.0 - WEB_FLOOR_S / WEB_GOAL_S) / self.node_cpu).ceil() as usize).clamp(1, self.nodes - 1)
    }

    fn web_curve(&self, now_s: f64) -> AppCurve {
        let model = FlowModel {
            goal: format!("mean < {}ms", WEB_GOAL_S * 1e3).parse().ok(),
            importance: Importance::NORMAL,
            clients: self.web_use(now_s) / self.work_s * THINK_S,
            think_s: THINK_S,
            floor_s: WEB_FLOOR_S,
            computing_s: WEB_FLOOR_S,
            tail: 1.0,
        };
        AppCurve { curve: model.curve(Work(self.work_s)), nodes: (0..self.nodes).collect() }
    }

    /// Runs it under a policy, until the web load's last minute.
    pub fn play(&self, policy: Contender) -> ContenderResult {
        let until_s = self.web.len() as f64 * 60.0;
        let scheduler: Box<dyn Scheduler> = match policy {
            Contender::Weal => Box::new(WealScheduler),
            Contender::FirstComeFirstServed => Box::new(FirstComeFirstServed),
            Contender::EarliestDeadlineFirst => Box::new(EarliestDeadlineFirst),
            Contender::StaticPartition => Box::new(StaticPartition { app_nodes: self.web_nodes(), jobs: FirstComeFirstServed }),
            Contender::Autoscaler => {
                Box::new(Autoscaled::play(self.nodes, self.node_cpu, self.start_s, until_s, |now_s| self.web_use(now_s)))
            }
        };
        let node = Site { cpu: self.node_cpu, memory: (2.0 * self.node_cpu * TASK_MEMORY.0 as f64) as u64 };
        let nodes = vec![node; self.nodes];
        let web = |now_s: f64| vec![self.web_curve(now_s)];
        let keeps_work = policy != Contender::Autoscaler;
        let batch = Batch { keeps_work, ..Batch::new(&nodes, Applications::Changing(&web), scheduler.as_ref(), CYCLE_S) };
        course(policy, &run(&batch, self.jobs.iter().copied(), Until::Time(until_s as u64)), until_s)
    }
}

/// The value that this share of `values` does not exceed; 0 of none.
fn quantile(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get((values.len() as f64 * share) as usize).or(values.last()).copied().unwrap_or(0.0)
}

fn course(policy: Contender, outcome: &BatchResult, until_s: f64) -> ContenderResult {
    let samples: Vec<(f64, Option<f64>)> = (outcome.samples.iter().filter(|sample| sample.time_s < until_s))
        .map(|sample| (sample.apps[0].1, sample.hypothetical))
        .collect();
    let mean = |values: &mut dyn Iterator<Item = f64>| {
        let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
        sum / f64::max(count, 1.0)
    };
    let job_mean = outcome.mean_utility();
    let variance = mean(&mut outcome.completions.iter().map(|job| (job.utility - job_mean).powi(2)));
    ContenderResult {
        policy,
        jobs_met: outcome.met_of_due(),
        job_utility: (job_mean, variance.sqrt()),
        web_met: mean(&mut samples.iter().map(|(web, _)| f64::from(u8::from(*web >= -1e-9)))),
        web_utility: mean(&mut samples.iter().map(|(web, _)| web.max(-4.0))),
        worse_off: mean(&mut samples.iter().map(|(web, jobs)| web.min(jobs.unwrap_or(*web)).max(-4.0))),
        spread: mean(&mut samples.iter().filter_map(|(web, jobs)| Some((web.max(-4.0) - jobs.as_ref()?.max(-4.0)).abs()))),
        changes: outcome.placement_changes(),
        violations: outcome.violations.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fluid::log::made_log;

    #[test]
    fn a_pool_that_shares_keeps_both_workloads_better_than_one_that_starts_and_stops() {
        let log = made_log(1, 120, 8, 3);
        let web: Vec<f64> = (0..1440).map(|minute| if (600..660).contains(&minute) { 9000.0 } else { 3000.0 }).collect();
        let case = Case::new(12, 2.0, &log, &web, 0.6, 60.0);
        assert!((case.web_use(630.0 * 60.0) - 0.6 * 24.0).abs() < 1e-6, "{}", case.web_use(630.0 * 60.0));
        let [weal, autoscaler] = [Contender::Weal, Contender::Autoscaler].map(|policy| case.play(policy));
        assert_eq!((weal.violations, autoscaler.violations), (0, 0));
        assert!(weal.jobs_met >= autoscaler.jobs_met && weal.worse_off > autoscaler.worse_off, "{weal:?} {autoscaler:?}");
    }
}
