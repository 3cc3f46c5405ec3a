//! C10: jobs and an application on the same nodes (Carrera 5.6.3).

use weal_control::jobs::{AppCurve, Costs, FirstComeFirstServed, Scheduler, StaticPartition, WealScheduler};
use weal_control::utility::Curve;
use weal_model::{Cpu, Utility};

use super::streams::{kind, nodes};
use super::{Effort, Record, Reproduction};
use crate::batch::{Batch, Outcome, Sample, Until, run};
use crate::workload::JobMix;

/// MHz with which the application reaches its best utility (Figure 5.24).
const APP_DEMAND: f64 = 130_000.0;
/// That best utility.
const APP_BEST: f64 = 0.66;

/// Figure 5.24 is only given by its end point; between, eq. 5.6 with zero think time: CPU grows as 1 / (1 - u).
fn app_curve() -> Curve {
    let cpu = |utility: Utility| Cpu(APP_DEMAND * (1.0 - APP_BEST) / (1.0 - utility.0));
    Curve::from_inverse(Utility(-4.0), Utility(APP_BEST), cpu)
}

pub(super) fn heterogeneous(effort: Effort) -> Reproduction {
    let jobs = if effort == Effort::Full { 800 } else { 200 };
    let mut record = Record::new(
        "C10",
        "Carrera 5.6.3, Figures 5.24-5.27",
        "with sharing, jobs and application have the same utility whenever there is contention; no static partition does better for the worse off",
        &format!(
            "Experiment Two ({jobs} jobs, seed 1) with one application on all 25 nodes: best utility 0.66 at 130,000 MHz, 1/(1-u) below; partitions of 9+16 and 6+19 nodes"
        ),
    );
    let total: f64 = nodes().iter().map(|node| node.cpu).sum();
    record.near("MHz of 75 jobs at full speed", 292_500.0, 75.0 * 3900.0, 0.0);
    record.near("MHz left beside 75 jobs", 97_500.0, total - 75.0 * 3900.0, 0.0);
    record.near("jobs at which contention begins", 66.7, (total - app_curve().demand().0) / 3900.0, 0.05);
    let shared = simulate(&WealScheduler, jobs);
    let nine = simulate(&StaticPartition { app_nodes: 9, jobs: FirstComeFirstServed }, jobs);
    let six = simulate(&StaticPartition { app_nodes: 6, jobs: FirstComeFirstServed }, jobs);
    // Contention for CPU: jobs run below full speed. (When all that fit in memory run at full speed, CPU is not what the
    // waiting ones lack, and the application rightly keeps the rest.) A job that waited too long for memory cannot reach the
    // common level any more; the others and the application share it.
    let slowed = |sample: &&Sample| !sample.all_at_best && sample.job_cpu < 3900.0 * sample.running as f64 - 1.0;
    let contended: Vec<&Sample> = shared.samples.iter().filter(slowed).collect();
    record.within("decisions under contention", 1.0..=f64::INFINITY, contended.len() as f64);
    let apart = contended.iter().filter_map(|sample| Some((sample.level? - sample.apps[0].1).abs()));
    record.near("largest difference between the jobs' level and the application's utility", 0.0, apart.fold(0.0, f64::max), 0.02);
    let above = contended.iter().filter_map(|sample| Some(sample.apps[0].1 - sample.hypothetical?));
    record.tell("furthest that the application is above the jobs' mean", above.fold(0.0, f64::max));
    for (name, partition) in [("9+16", &nine), ("6+19", &six)] {
        record.within(
            &format!("worse-off workload, mean over time: shared, above {name}"),
            worse_off(partition)..=1.0,
            worse_off(&shared),
        );
    }
    record.near("9 nodes: utility of the application", 0.66, nine.samples[0].apps[0].1, 1e-3);
    record.tell("6 nodes: utility of the application", six.samples[0].apps[0].1);
    record.same("decisions that broke a rule", 0, shared.violations.len() + nine.violations.len() + six.violations.len());
    record.done()
}

fn simulate(scheduler: &dyn Scheduler, jobs: usize) -> Outcome {
    let mix = JobMix { kinds: vec![(1.0, kind(17_600.0, 3900.0))], factors: vec![(1.0, 2.7)], mean_gap_s: 260.0 };
    let nodes = nodes();
    let apps = [AppCurve { curve: app_curve(), nodes: (0..nodes.len()).collect() }];
    let batch = Batch { nodes: &nodes, apps: &apps, costs: Costs::THESIS, cycle_s: 600.0, scheduler, sample_every_s: 0.0 };
    run(&batch, mix.stream(1, "jobs"), Until::Submitted(jobs))
}

/// The mean over time of the lower of both workloads' utilities.
fn worse_off(outcome: &Outcome) -> f64 {
    let (mut sum, mut span) = (0.0, 0.0);
    for pair in outcome.samples.windows(2) {
        let lower = pair[0].hypothetical.map_or(pair[0].apps[0].1, |jobs| jobs.min(pair[0].apps[0].1));
        let seconds = pair[1].time_s - pair[0].time_s;
        (sum, span) = (sum + lower * seconds, span + seconds);
    }
    sum / span
}
