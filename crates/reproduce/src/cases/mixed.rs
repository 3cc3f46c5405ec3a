//! C10: jobs and an application on the same nodes (Carrera 5.6.3).

use weal_control::jobs::{AppCurve, FirstComeFirstServed, Scheduler, StaticPartition, WealScheduler};
use weal_control::utility::Curve;
use weal_model::{Cpu, Utility};

use super::streams::{baseline_mix, broken, nodes, of_each};
use crate::batch::{Applications, Batch, BatchResult, Sample, Until, run};
use crate::{Figure, Record, Reproduction, Setting, at_least, mean, near, within};

/// MHz with which the application reaches its best utility (Figure 5.24).
const APP_DEMAND: f64 = 130_000.0;
/// That best utility.
const APP_BEST: f64 = 0.66;
/// Figures give two digits: what is closer than this is equal, and what is further above is better.
const DIGIT: f64 = 0.01;
/// MHz that one job can use.
const JOB_MHZ: f64 = 3900.0;

/// Figure 5.24 is only given by its end point; between, eq. 5.6 with zero think time: CPU grows as 1 / (1 - u).
fn app_curve() -> Curve {
    let cpu = |utility: Utility| Cpu(APP_DEMAND * (1.0 - APP_BEST) / (1.0 - utility.0));
    Curve::from_inverse(Utility(-4.0), Utility(APP_BEST), cpu)
}

pub(super) fn heterogeneous(setting: &Setting) -> Reproduction {
    let (jobs, seeds) = setting.pick((800, 20), (200, 1));
    let mut record = Record::new(
        "C10",
        "Carrera 5.6.3, Figures 5.24-5.27",
        "with sharing, jobs and application have the same utility whenever there is contention; no static partition does better for the worse off",
        &format!(
            "Experiment Two ({jobs} jobs, {seeds} seeds from 1) with one application on all 25 nodes, best utility 0.66 at 130,000 MHz; partitions of 9+16 and 6+19 nodes under FCFS"
        ),
    );
    record.assume("Figure 5.24 between its end points: CPU grows as 1/(1-u), eq. 5.6 without think time");
    record.assume("the jobs' utility is the mean of their hypothetical utilities, as in Figure 5.26; contention is when all jobs at hand and the application would use more than there is");
    record.assume("equal: within 0.01 on average over the contended cycles; better: by more than 0.01");
    let total: f64 = nodes().iter().map(|node| node.cpu).sum();
    record.number("MHz of 75 jobs at full speed", 75.0 * JOB_MHZ).recalculated(near(292_500.0, 0.0));
    record.number("MHz left beside 75 jobs", total - 75.0 * JOB_MHZ).recalculated(near(97_500.0, 0.0));
    let contention = (total - app_curve().demand().0) / JOB_MHZ;
    record.number("jobs at which contention begins", contention).recalculated(near(66.7, 0.05));
    let nine = StaticPartition { app_nodes: 9, jobs: FirstComeFirstServed };
    let six = StaticPartition { app_nodes: 6, jobs: FirstComeFirstServed };
    let policies: [&(dyn Scheduler + Sync); 3] = [&WealScheduler, &nine, &six];
    let mut runs = setting.map(3 * seeds, |i| simulate(policies[i % 3], i as u64 / 3 + 1, jobs)).into_iter();
    let mut outcomes: [Vec<BatchResult>; 3] = Default::default();
    (0..3 * seeds).for_each(|i| outcomes[i % 3].extend(runs.next()));
    let [shared, nine, six] = &outcomes;
    equality(&mut record, shared, total);
    for (name, partition) in [("9+16", nine), ("6+19", six)] {
        let lower = |outcomes: &[BatchResult]| of_each(outcomes, |one| mean(&worse_off(one)));
        let what = format!("worse-off workload, mean over time: shared, beside {name}");
        record.mean(&what, &lower(shared)).paper(at_least(name, &lower(partition), 0.0));
        let beaten = shared.iter().zip(partition).map(|(shared, other)| {
            let pairs: Vec<bool> =
                worse_off(shared).iter().zip(worse_off(other)).map(|(own, other)| other > own + DIGIT).collect();
            100.0 * pairs.iter().filter(|better| **better).count() as f64 / pairs.len().max(1) as f64
        });
        let what = format!("time in which {name} is better for the worse-off workload, %");
        record.mean(&what, &beaten.collect::<Vec<_>>()).paper(near(0.0, 0.0));
    }
    record.number("9 nodes: utility of the application", nine[0].samples[0].apps[0].1).paper(near(0.66, 0.005));
    record.number("6 nodes: utility of the application", six[0].samples[0].apps[0].1);
    let broken: usize = outcomes.iter().map(|outcomes| broken(outcomes)).sum();
    record.number("decisions that broke a rule", broken as f64).recalculated(near(0.0, 0.0));
    record.figure(allocations(&outcomes));
    record.figure(utilities(&outcomes));
    record.done()
}

fn simulate(scheduler: &dyn Scheduler, seed: u64, jobs: usize) -> BatchResult {
    let nodes = nodes();
    let apps = [AppCurve { curve: app_curve(), nodes: (0..nodes.len()).collect() }];
    let batch = Batch::new(&nodes, Applications::Steady(&apps), scheduler, 600.0);
    run(&batch, baseline_mix(&[(1.0, 2.7)]).stream(seed, "jobs"), Until::Submitted(jobs))
}

/// Whether both workloads' utilities are equal under contention, over all seeds.
fn equality(record: &mut Record, shared: &[BatchResult], total: f64) {
    let contended = |sample: &&Sample| sample.in_system as f64 * JOB_MHZ + APP_DEMAND > total;
    let apart = |outcome: &BatchResult| -> Vec<f64> {
        let contended = outcome.samples.iter().filter(contended);
        contended.filter_map(|sample| Some((sample.hypothetical? - sample.apps[0].1).abs())).collect()
    };
    let with: Vec<Vec<f64>> = shared.iter().map(apart).filter(|apart| !apart.is_empty()).collect();
    record.number("seeds with contention", with.len() as f64).recalculated(within(1.0..=f64::INFINITY));
    let means: Vec<f64> = with.iter().map(|apart| mean(apart)).collect();
    record.mean("difference between jobs and application under contention, mean", &means).paper(near(0.0, DIGIT));
    let most: Vec<f64> = with.iter().map(|apart| apart.iter().copied().fold(0.0, f64::max)).collect();
    record.mean("the same, largest of a run", &most);
}

/// The lower of both workloads' utilities, cycle by cycle.
fn worse_off(outcome: &BatchResult) -> Vec<f64> {
    outcome.samples.iter().map(|sample| sample.hypothetical.map_or(sample.apps[0].1, |jobs| jobs.min(sample.apps[0].1))).collect()
}

const CONFIGURATIONS: [&str; 3] = ["shared", "9+16", "6+19"];

fn over_time(outcomes: &[Vec<BatchResult>; 3], mut figure: Figure, values: impl Fn(&Sample) -> [f64; 2]) -> Figure {
    let length = outcomes.iter().map(|seeds| seeds[0].samples.len()).min().unwrap_or(0);
    for i in (0..length).step_by(3) {
        let row: Vec<f64> = outcomes.iter().flat_map(|seeds| values(&seeds[0].samples[i])).collect();
        figure.row(outcomes[0][0].samples[i].time_s, &row);
    }
    figure
}

fn named(what: [&str; 2]) -> Vec<String> {
    CONFIGURATIONS.iter().flat_map(|name| what.map(|what| format!("{name}: {what}"))).collect()
}

fn allocations(outcomes: &[Vec<BatchResult>; 3]) -> Figure {
    let names = named(["jobs", "application"]);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let figure = Figure::new("figure-5.25-5.27", "CPU of each workload (seed 1)", ["time, s", "MHz"], &names);
    over_time(outcomes, figure, |sample| [sample.job_cpu, sample.apps[0].0])
}

fn utilities(outcomes: &[Vec<BatchResult>; 3]) -> Figure {
    let names = named(["jobs, hypothetical", "application"]);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let figure = Figure::new("figure-5.26", "utility of each workload (seed 1)", ["time, s", "utility"], &names);
    over_time(outcomes, figure, |sample| [sample.hypothetical.unwrap_or(f64::NAN), sample.apps[0].1])
}
