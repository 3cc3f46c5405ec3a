//! F1: jobs and a web load on hundreds of nodes for weeks, in fluid mode, under each policy. Not in a paper: Carrera's question
//! of 5.6.3 at the size that weal is for.

use weal_control::jobs::{
    AppCurve, EarliestDeadlineFirst, FirstComeFirstServed, Scheduler, Site, StaticPartition, WealScheduler,
};
use weal_model::Bytes;

use crate::batch::{Applications, Batch, BatchResult, Until, run};
use crate::fluid::log::{jobs_of, made_log, web_app};
use crate::{Figure, Record, Reproduction, Setting, at_least, mean, near};

const NODE_CPU: f64 = 4.0;
/// The web load's demand over the pool's CPU, averaged over the day.
const WEB: f64 = 0.25;

struct Size {
    nodes: usize,
    days: u32,
    jobs_per_day: u32,
}

pub(super) fn weeks(setting: &Setting) -> Reproduction {
    let size = setting.pick(Size { nodes: 200, days: 7, jobs_per_day: 1500 }, Size { nodes: 40, days: 1, jobs_per_day: 300 });
    let mut record = Record::new(
        "F1",
        "none: Carrera 5.6.3 at size",
        "shared by weal, the pool meets more goals than under FCFS or with a static partition, and the worse-off workload fares better",
        &format!(
            "{} nodes of 4 CPUs, {} days, {} jobs a day of up to 32 tasks, a web load of 17-33% of the CPU by the hour; seed 1; costs of Table 5.1",
            size.nodes, size.days, size.jobs_per_day
        ),
    );
    record.assume("a made log: run times log-uniform from 10 s to 10 h, goals of 1.5, 3 and 10 times the run time plus a minute");
    record.chose_late("jobs a day and the web load");
    let web_nodes = (WEB * 4.0 / 3.0 * size.nodes as f64).ceil() as usize;
    let partition = StaticPartition { app_nodes: web_nodes, jobs: FirstComeFirstServed };
    let policies: [(&str, &(dyn Scheduler + Sync)); 4] = [
        ("weal", &WealScheduler),
        ("FCFS", &FirstComeFirstServed),
        ("EDF", &EarliestDeadlineFirst),
        ("static partition", &partition),
    ];
    let outcomes = setting.map(policies.len(), |i| simulate(&size, policies[i].1));
    let met = |outcome: &BatchResult| 100.0 * outcome.met();
    for (policy, outcome) in policies.iter().zip(&outcomes) {
        record.number(&format!("{}: goals met, %", policy.0), met(outcome));
        record.number(&format!("{}: lower utility of both workloads, mean over time", policy.0), mean(&worse_off(outcome)));
        record.number(&format!("{}: placement changes", policy.0), outcome.placement_changes() as f64);
    }
    for other in [1, 3] {
        let (name, theirs) = (policies[other].0, &outcomes[other]);
        let row = record.number(&format!("goals met by weal, beside {name}, %"), met(&outcomes[0]));
        row.recalculated(at_least(name, &[met(theirs)], 0.0));
        let row = record.number(&format!("worse-off workload under weal, beside {name}"), mean(&worse_off(&outcomes[0])));
        row.recalculated(at_least(name, &[mean(&worse_off(theirs))], 0.0));
    }
    let broken: usize = outcomes.iter().map(|outcome| outcome.violations.len()).sum();
    record.number("decisions that broke a rule", broken as f64).recalculated(near(0.0, 0.0));
    let names = policies.map(|policy| policy.0);
    let mut figure = Figure::new("worse-off", "lower utility of both workloads", ["time, s", "utility"], &names);
    let length = outcomes.iter().map(|outcome| outcome.samples.len()).min().unwrap_or(0);
    for i in (0..length).step_by(2) {
        let values: Vec<f64> = outcomes.iter().map(|outcome| worse_off(outcome)[i]).collect();
        figure.row(outcomes[0].samples[i].time_s, &values);
    }
    record.figure(figure);
    record.done()
}

fn simulate(size: &Size, scheduler: &dyn Scheduler) -> BatchResult {
    let nodes = vec![Site { cpu: NODE_CPU, memory: Bytes::gib(16).0 }; size.nodes];
    let log = made_log(size.days, size.jobs_per_day, 32, 1);
    let jobs = jobs_of(&log, 32, Bytes::gib(4).0, 1);
    let mean_cpu = WEB * NODE_CPU * size.nodes as f64;
    let web = |now_s: f64| -> Vec<AppCurve> { vec![web_app(mean_cpu, size.nodes, now_s)] };
    let batch = Batch { sample_every_s: 3600.0, ..Batch::new(&nodes, Applications::Changing(&web), scheduler, 600.0) };
    let count = jobs.len();
    run(&batch, jobs, Until::Submitted(count))
}

fn worse_off(outcome: &BatchResult) -> Vec<f64> {
    outcome.samples.iter().map(|sample| sample.hypothetical.map_or(sample.apps[0].1, |jobs| jobs.min(sample.apps[0].1))).collect()
}
