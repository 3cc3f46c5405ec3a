//! `cargo xtask bench jobs-policies`: 200 short jobs with mixed goals, policy by policy: goals met, changes, distance to the goal.
//!
//! The jobs are like those of Carrera's Experiment Four (5.6.2.4) in kind, and short: half of them take two seconds at full speed, four of ten
//! take ten seconds, and one of ten takes five seconds of a whole slice. Their goals are the service classes of 5.7. They come at random, at
//! three rates: the slower two leave the slices some time, and at the third more is asked than there is. All is in virtual time, under the
//! schedulers of `weal_control::jobs`; changes take as long as those of processes do.

use weal_control::jobs::{EarliestDeadlineFirst, FirstComeFirstServed, Scheduler, Site, WealScheduler};
use weal_model::{Bytes, Cpu, Work};
use weal_reproduce::batch::{Applications, Batch, Until, run as run_batch};
use weal_scenario::workload::{JobArrival, JobKind, JobMix};

use super::Arguments;
use crate::table::Table;

/// Jobs that are submitted.
const JOBS: usize = 200;
/// The slices, and what each has.
const SLICES: usize = 2;
const SLICE_CPU: f64 = 0.8;
const SLICE_MEMORY: Bytes = Bytes::mib(400);
/// CPU that is asked for, over what there is.
const LOADS: [f64; 3] = [0.7, 0.9, 1.1];
/// Platinum, gold and silver (Carrera 5.7.3), with their shares.
const GOAL_FACTORS: [(f64, f64); 3] = [(0.1, 1.5), (0.3, 3.0), (0.6, 10.0)];
/// Seconds from one plan to the next at the latest, as in a running pool.
const CYCLE_S: f64 = 15.0;
/// By how many points weal may meet fewer goals than EDF. The thesis says "as many".
const POINTS: f64 = 5.0;

/// What a policy made of the jobs.
struct Outcome {
    policy: &'static str,
    load: f64,
    /// Of each run: the share of goals met, suspensions and moves, and of each job its distance to the goal over the goal's length.
    runs: Vec<OneRun>,
}

struct OneRun {
    met: f64,
    changes: usize,
    distances: Vec<f64>,
    /// When the last job was done.
    end_s: f64,
}

/// Runs the benchmark.
pub fn run(arguments: &Arguments) -> Table {
    let seeds = if arguments.quick { 2 } else { 20 };
    let mut table = shown(&simulated(seeds));
    table
        .notes
        .push(format!("Each row is the mean of {seeds} seeds; the worst is the worst of all. Nothing ran on real processes."));
    table
}

fn shown(outcomes: &[Outcome]) -> Table {
    let columns =
        ["load", "policy", "goals met", "changes", "distance to the goal: the worst", "5%", "median", "last job done, s"];
    let mut table = Table::new(format!("{JOBS} short jobs with mixed goals on {SLICES} slices, simulated"), &columns);
    for outcome in outcomes {
        let rival = outcomes.iter().find(|other| other.load == outcome.load && other.policy == "EDF");
        table.row(outcome.cells(), rival.filter(|_| outcome.policy == "weal").map(|edf| outcome.is_no_worse_than(edf)));
    }
    table.notes.push(
        "Load: CPU asked for over what there is. Distance: seconds from the end to the goal over the goal's length, so below 0 is late. A change suspends a job, or lets it go on elsewhere.".to_owned(),
    );
    table.notes.push(format!("Target: weal meets as many goals as EDF, within {POINTS} points, with no more changes."));
    table
}

impl Outcome {
    fn mean(&self, value: impl Fn(&OneRun) -> f64) -> f64 {
        self.runs.iter().map(value).sum::<f64>() / self.runs.len().max(1) as f64
    }

    fn met(&self) -> f64 {
        100.0 * self.mean(|run| run.met)
    }

    fn changes(&self) -> f64 {
        self.mean(|run| run.changes as f64)
    }

    /// The claim of Carrera 5.6.2.4.
    fn is_no_worse_than(&self, other: &Self) -> bool {
        self.met() >= other.met() - POINTS && self.changes() <= other.changes()
    }

    fn cells(&self) -> [String; 8] {
        let worst = self.runs.iter().flat_map(|run| run.distances.first()).copied().fold(f64::INFINITY, f64::min);
        [
            format!("{:.0}%", 100.0 * self.load),
            self.policy.to_owned(),
            format!("{:.1}%", self.met()),
            format!("{:.1}", self.changes()),
            format!("{worst:.2}"),
            format!("{:.2}", self.mean(|run| run.at(0.05))),
            format!("{:.2}", self.mean(|run| run.at(0.5))),
            format!("{:.0}", self.mean(|run| run.end_s)),
        ]
    }
}

impl OneRun {
    /// From the distance of each job.
    fn new(mut distances: Vec<f64>, changes: usize, end_s: f64) -> Self {
        distances.sort_by(f64::total_cmp);
        let met = distances.iter().filter(|distance| **distance >= -1e-9).count() as f64 / distances.len().max(1) as f64;
        Self { met, changes, distances, end_s }
    }

    /// The distance that this part of the jobs falls short of.
    fn at(&self, part: f64) -> f64 {
        let at = (part * self.distances.len() as f64) as usize;
        self.distances.get(at).or(self.distances.last()).copied().unwrap_or(f64::NAN)
    }
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
    let distance =
        |arrival: &JobArrival, finish_s: f64| (arrival.at_s + arrival.relative_goal_s - finish_s) / arrival.relative_goal_s;
    let distances = result.completions.iter().map(|done| distance(&done.arrival, done.finish_s)).collect();
    OneRun::new(distances, result.placement_changes(), result.end_s)
}

/// The jobs that come in at this load.
fn mix(load: f64) -> JobMix {
    let kind = |seconds: f64, cpu: f64| JobKind {
        work: Work(seconds * cpu),
        max_speed: Cpu(cpu),
        min_speed: Cpu(0.0),
        memory: Bytes::mib(120),
        tasks: 1,
    };
    let kinds = vec![(0.1, kind(5.0, SLICE_CPU)), (0.4, kind(10.0, 0.5 * SLICE_CPU)), (0.5, kind(2.0, 0.5 * SLICE_CPU))];
    let mean_work: f64 = kinds.iter().map(|(share, kind)| share * kind.work.0).sum();
    JobMix { kinds, factors: GOAL_FACTORS.to_vec(), mean_gap_s: mean_work / (load * SLICES as f64 * SLICE_CPU) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_tells_goals_met_and_how_far_jobs_are_from_them() {
        let run = OneRun::new(vec![0.5, -0.1, 0.9, 0.0], 3, 10.0);
        assert_eq!((run.met, run.at(0.0), run.at(0.5), run.at(1.0)), (0.75, -0.1, 0.5, 0.9));
    }

    #[test]
    fn as_much_work_comes_in_as_the_load_says() {
        let jobs: Vec<_> = mix(0.5).stream(1, "jobs").take(20_000).collect();
        let asked: f64 = jobs.iter().map(|job| job.kind.work.0).sum::<f64>() / jobs.last().unwrap().at_s;
        assert!((asked / (SLICES as f64 * SLICE_CPU) - 0.5).abs() < 0.02, "{asked}");
    }
}
