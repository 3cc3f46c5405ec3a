//! `cargo xtask bench jobs-policies`: 200 short jobs with mixed goals, policy by policy: goals met, changes, distance to the goal.
//!
//! The jobs are like those of Carrera's Experiment Four (5.6.2.4) in kind, and short: half of them take two seconds at full speed, four of ten
//! take ten seconds, and one of ten takes five seconds of a whole slice. Their goals are the service classes of 5.7. They come at random, at
//! three rates: the slower two leave the slices some time, and at the third more is asked than there is.
//!
//! The case `simulated` is in virtual time, under the schedulers of `weal_control::jobs`; changes take as long as those of processes do. The
//! case `real` runs the jobs of one rate as processes under weal and, where it is installed, under Slurm.

mod mix;
mod outcome;
mod play;
mod real;
mod slurm;
mod under_weal;

use anyhow::{Result, bail};
use weal_control::jobs::{EarliestDeadlineFirst, FirstComeFirstServed, Scheduler, Site, WealScheduler};
use weal_reproduce::batch::{Applications, Batch, Until, run as run_batch};
use weal_scenario::workload::JobArrival;

use self::mix::{JOBS, LOADS, SLICE_CPU, SLICE_MEMORY, SLICES, mix};
use self::outcome::{OneRun, Outcome, POINTS, distance};
use super::Arguments;
use crate::table::Table;

/// Seconds from one plan to the next at the latest, as in a running pool.
const CYCLE_S: f64 = 15.0;

/// Runs the benchmark.
pub fn run(arguments: &Arguments) -> Result<Vec<Table>> {
    let is_asked_for = |case: &str| arguments.case.as_deref().is_none_or(|asked| asked == case);
    if let Some(case) = arguments.case.as_deref().filter(|case| !["simulated", "real"].contains(case)) {
        bail!("there is no case {case}: there are `simulated` and `real`");
    }
    let mut tables = Vec::new();
    if is_asked_for("simulated") {
        let seeds = if arguments.quick { 2 } else { 20 };
        let mut table = shown("simulated", &simulated(seeds), Some("EDF"));
        table.notes.push(format!("Simulated: each row is the mean of {seeds} seeds; the worst is the worst of all."));
        tables.push(table);
    }
    if is_asked_for("real") {
        let (outcomes, notes) = real::outcomes(arguments.quick)?;
        let mut table = shown("on real processes", &outcomes, None);
        table.notes.extend(notes);
        tables.push(table);
    }
    Ok(tables)
}

/// `rival`: the policy that weal's target is about.
fn shown(how: &str, outcomes: &[Outcome], rival: Option<&str>) -> Table {
    let columns =
        ["load", "policy", "goals met", "changes", "distance to the goal: the worst", "5%", "median", "last job done, s"];
    let mut table = Table::new(format!("{JOBS} short jobs with mixed goals on {SLICES} slices, {how}"), &columns);
    for outcome in outcomes {
        let rival = outcomes.iter().find(|other| other.load == outcome.load && Some(other.policy) == rival);
        table.row(outcome.cells(), rival.filter(|_| outcome.policy == "weal").map(|rival| outcome.is_no_worse_than(rival)));
    }
    table.notes.push(
        "Load: CPU asked for over what there is. Distance: seconds from the end to the goal over the goal's length, so below 0 is late. A change suspends a job, or lets it go on elsewhere.".to_owned(),
    );
    if let Some(rival) = rival {
        table.notes.push(format!("Target: weal meets as many goals as {rival}, within {POINTS} points, with no more changes."));
    }
    table
}

/// Every policy at every load, with seeds from 1.
fn simulated(seeds: u64) -> Vec<Outcome> {
    let policies: [(&str, &dyn Scheduler); 3] =
        [("FCFS", &FirstComeFirstServed), ("EDF", &EarliestDeadlineFirst), ("weal", &WealScheduler)];
    let of = |load: f64, (policy, scheduler): (&'static str, &dyn Scheduler)| Outcome {
        policy,
        load,
        runs: (1..=seeds).map(|seed| one(load, seed, scheduler)).collect(),
    };
    LOADS.into_iter().flat_map(|load| policies.map(|policy| of(load, policy))).collect()
}

fn one(load: f64, seed: u64, scheduler: &dyn Scheduler) -> OneRun {
    let nodes = [Site { cpu: SLICE_CPU, memory: SLICE_MEMORY.0 }; SLICES];
    let costs = weal_scenario::JOBS_AS_PROCESSES;
    let batch =
        Batch { costs, sample_every_s: f64::INFINITY, ..Batch::new(&nodes, Applications::Steady(&[]), scheduler, CYCLE_S) };
    let jobs: Vec<JobArrival> = mix(load).stream(seed, "jobs").take(JOBS).collect();
    let result = run_batch(&batch, jobs, Until::Submitted(JOBS));
    let distances = result.completions.iter().map(|done| distance(&done.arrival, done.arrival.at_s, done.finish_s)).collect();
    OneRun::new(distances, result.placement_changes(), result.end_s)
}
