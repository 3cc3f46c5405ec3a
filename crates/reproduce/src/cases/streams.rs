//! C7, C8: streams of jobs on 25 nodes (Carrera 5.6.2.2, 5.6.2.3).

use weal_control::jobs::{ChangeKind, Costs, FirstComeFirstServed, Scheduler, Site, WealScheduler};
use weal_model::{Bytes, Cpu, Work};

use crate::batch::{Applications, Batch, BatchResult, Until, run};
use crate::{Figure, Record, Reproduction, Setting, at_least, mean, near, said};
use weal_scenario::workload::{JobKind, JobMix};

/// Seconds of the thesis' control cycle.
const CYCLE_S: f64 = 600.0;
/// Between two points of a figure over time.
const SAMPLE_S: f64 = 1800.0;

/// Carrera Table 5.3: 25 nodes of 4 x 3,900 MHz and 16,000 MB.
pub(super) fn nodes() -> Vec<Site> {
    vec![Site { cpu: 4.0 * 3900.0, memory: Bytes::mib(16_000).0 }; 25]
}

/// A job of Table 5.3's memory that takes `best_s` at `speed`.
pub(super) fn kind(best_s: f64, speed: f64) -> JobKind {
    JobKind { work: Work(best_s * speed), max_speed: Cpu(speed), min_speed: Cpu(0.0), memory: Bytes::mib(4320), tasks: 1 }
}

/// Experiment Two's stream with these goal factors.
pub(super) fn baseline_mix(factors: &[(f64, f64)]) -> JobMix {
    JobMix { kinds: vec![(1.0, kind(17_600.0, 3900.0))], factors: factors.to_vec(), mean_gap_s: 260.0 }
}

/// The thesis' pool with nothing but jobs; the first seed is sampled for figures over time.
pub(super) fn simulate(mix: &JobMix, seed: u64, scheduler: &dyn Scheduler, costs: Costs, until: Until) -> BatchResult {
    let sample_every_s = if seed == 1 { SAMPLE_S } else { f64::INFINITY };
    let nodes = nodes();
    let batch = Batch { costs, sample_every_s, ..Batch::new(&nodes, Applications::Steady(&[]), scheduler, CYCLE_S) };
    run(&batch, mix.stream(seed, "jobs"), until)
}

pub(super) fn of_each(outcomes: &[BatchResult], value: impl Fn(&BatchResult) -> f64) -> Vec<f64> {
    outcomes.iter().map(value).collect()
}

pub(super) fn broken(outcomes: &[BatchResult]) -> usize {
    outcomes.iter().map(|outcome| outcome.violations.len()).sum()
}

pub(super) fn experiment_two(setting: &Setting) -> Reproduction {
    let seeds = setting.pick(20, 2);
    let mut record = Record::new(
        "C7",
        "Carrera 5.6.2.2, Figures 5.15-5.16; recalculated over 20 seeds, planning on events",
        "identical jobs are never suspended or migrated, and their utility stays close to the best possible",
        &format!("800 jobs of Table 5.3, one per 260 s on average, costs of Table 5.1; {seeds} seeds from 1"),
    );
    record.assume(
        "arrivals are a Poisson process; plans are made on arrivals and completions too, not at the edges of cycles alone",
    );
    record.assume("a job counts as at 0.63 when its utility rounds to that: 0.625 or more");
    let mix = baseline_mix(&[(1.0, 2.7)]);
    let outcomes = setting.seeds(seeds, |seed| simulate(&mix, seed, &WealScheduler, Costs::THESIS, Until::Submitted(800)));
    record.mean("mean utility at completion", &of_each(&outcomes, BatchResult::mean_utility)).recalculated(near(0.623, 0.01));
    record.mean("lowest utility at completion", &of_each(&outcomes, BatchResult::lowest_utility)).recalculated(near(0.57, 0.01));
    let share = |least: f64| {
        of_each(&outcomes, |outcome| {
            let best = outcome.completions.iter().filter(|job| job.utility >= least).count();
            best as f64 / outcome.completions.len() as f64
        })
    };
    record.mean("share of jobs at 0.63", &share(0.625)).recalculated(near(0.78, 0.01));
    record.mean("share of jobs that never waited", &share(1.0 - (17_600.0 + Costs::THESIS.start_s) / 47_520.0 - 1e-6));
    let changes: usize = outcomes.iter().map(BatchResult::placement_changes).sum();
    record.number("suspensions and migrations", changes as f64).paper(near(0.0, 0.0)).recalculated(near(0.0, 0.0));
    let most = outcomes.iter().map(|outcome| outcome.most_running).max().unwrap_or(0);
    record.number("most jobs at once", most as f64).paper(near(75.0, 0.0)).recalculated(near(75.0, 0.0));
    record.number("decisions that broke a rule", broken(&outcomes) as f64).recalculated(near(0.0, 0.0));
    record.figure(jobs_over_time("figure-5.15", &outcomes[0]));
    record.figure(utility_over_time("figure-5.16", &outcomes[0], &[2.7]));
    record.done()
}

pub(super) fn experiment_three(setting: &Setting) -> Reproduction {
    let seeds = setting.pick(20, 1);
    let mut record = Record::new(
        "C8",
        "Carrera 5.6.2.3, Figures 5.18-5.20",
        "with mixed goals, suspending and migrating jobs is worth it, and jobs end near their best utilities",
        &format!("Experiment Two with goal factors 1.9, 2.5 and 10; {seeds} seeds from 1"),
    );
    record.assume("the factors' probabilities, which sum to 110% in the text, are 30%, 40% and 30%");
    record.assume("close to the best: within 0.1, as far as Figure 5.19 can be read");
    let bests = [(1.9, 0.474), (2.5, 0.600), (10.0, 0.900)];
    let mix = baseline_mix(&[(0.3, 1.9), (0.4, 2.5), (0.3, 10.0)]);
    let by = |scheduler: &(dyn Scheduler + Sync)| {
        setting.seeds(seeds, |seed| simulate(&mix, seed, scheduler, Costs::THESIS, Until::Submitted(800)))
    };
    let (outcomes, fcfs) = (by(&WealScheduler), by(&FirstComeFirstServed));
    for (factor, best) in bests {
        record.number(&format!("best utility at factor {factor}"), 1.0 - 1.0 / factor).recalculated(near(best, 5e-4));
    }
    let count = |kinds: &[ChangeKind]| of_each(&outcomes, |one| kinds.iter().map(|&kind| one.count(kind)).sum::<usize>() as f64);
    let suspended = count(&[ChangeKind::Suspend]);
    let moved = count(&[ChangeKind::Migrate, ChangeKind::MoveAndResume]);
    record.claim("jobs are suspended with every seed", suspended.iter().all(|&count| count > 0.0));
    record.claim("jobs are migrated, running or when resumed, with every seed", moved.iter().all(|&count| count > 0.0));
    record.mean("jobs suspended", &suspended);
    record.mean("jobs migrated, running or when resumed", &moved);
    for (factor, best) in bests {
        let utilities = of_each(&outcomes, |outcome| mean(&utilities_at(outcome, factor)));
        let row = record.mean(&format!("mean utility at factor {factor}"), &utilities);
        row.paper(said("close to its best", near(best, 0.1))).recalculated(near(best, 0.1));
    }
    let lowest = |outcomes: &[BatchResult]| of_each(outcomes, BatchResult::lowest_utility);
    record.mean("lowest utility", &lowest(&outcomes)).recalculated(at_least("FCFS", &lowest(&fcfs), 0.0));
    let broken = broken(&outcomes) + broken(&fcfs);
    record.number("decisions that broke a rule", broken as f64).recalculated(near(0.0, 0.0));
    record.figure(jobs_over_time("figure-5.18", &outcomes[0]));
    record.figure(utility_over_time("figure-5.19", &outcomes[0], &[1.9, 2.5, 10.0]));
    record.figure(changes_over_time("figure-5.20", &outcomes[0]));
    record.done()
}

/// Utilities at completion of the jobs with this goal factor.
fn utilities_at(outcome: &BatchResult, factor: f64) -> Vec<f64> {
    let of_factor = outcome.completions.iter().filter(|job| (job.goal_factor() - factor).abs() < 1e-6);
    of_factor.map(|job| job.utility).collect()
}

fn jobs_over_time(name: &str, outcome: &BatchResult) -> Figure {
    let mut figure =
        Figure::new(name, "jobs in the system and jobs placed (seed 1)", ["time, s", "jobs"], &["in the system", "placed"]);
    for sample in &outcome.samples {
        figure.row(sample.time_s, &[sample.in_system as f64, sample.running as f64]);
    }
    figure
}

/// Hypothetical utility, and the mean utility at completion of the jobs done since the last sample, by goal factor.
fn utility_over_time(name: &str, outcome: &BatchResult, factors: &[f64]) -> Figure {
    let title = "mean hypothetical utility, and utility at completion by goal factor (seed 1)";
    let curves: Vec<String> = factors.iter().map(|factor| format!("done, factor {factor}")).collect();
    let curves: Vec<&str> = std::iter::once("hypothetical").chain(curves.iter().map(String::as_str)).collect();
    let mut figure = Figure::new(name, title, ["time, s", "utility"], &curves);
    for pair in outcome.samples.windows(2) {
        let span = pair[0].time_s..pair[1].time_s;
        let mut values = vec![pair[1].hypothetical.unwrap_or(f64::NAN)];
        for factor in factors {
            let done = outcome.completions.iter().filter(|job| span.contains(&job.finish_s));
            let of_factor = done.filter(|job| (job.goal_factor() - factor).abs() < 1e-6);
            let utilities: Vec<f64> = of_factor.map(|job| job.utility).collect();
            values.push(if utilities.is_empty() { f64::NAN } else { mean(&utilities) });
        }
        figure.row(pair[1].time_s, &values);
    }
    figure
}

fn changes_over_time(name: &str, outcome: &BatchResult) -> Figure {
    let kinds = [ChangeKind::Start, ChangeKind::Suspend, ChangeKind::Resume, ChangeKind::MoveAndResume, ChangeKind::Migrate];
    let curves = ["start", "suspend", "resume", "move and resume", "migrate"];
    let mut figure = Figure::new(name, "virtualization operations so far (seed 1)", ["time, s", "operations"], &curves);
    for sample in &outcome.samples {
        let so_far = |kind| outcome.log.iter().filter(|change| change.kind == kind && change.time_s <= sample.time_s).count();
        figure.row(sample.time_s, &kinds.map(|kind| so_far(kind) as f64));
    }
    figure
}
