//! C1, C2, C4, C5, C6: hypothetical utility by hand-sized examples (Carrera 5.4.2.4, 5.6.2.1, 5.6.2.2).

use weal_control::jobs::{Costs, Job, Samples, Scheduler, Site, Situation, Took, WealScheduler, equalize, evaluate};
use weal_model::{Bytes, Cpu, JobState, Stage, Work};
use weal_scenario::workload::{JobArrival, JobKind};

use crate::batch::{Applications, Batch, Until, run};
use crate::{Record, Reproduction, Setting, exactly, near};

fn job(start_s: f64, relative_goal_s: f64, work: f64, max_speed: f64, memory_mib: u64) -> Job {
    let stage = Stage { work: Work(work), max_speed: Cpu(max_speed), min_speed: Cpu(0.0), memory: Bytes::mib(memory_mib) };
    Job {
        start_s,
        deadline_s: start_s + relative_goal_s,
        goal_s: (start_s + relative_goal_s) - start_s,
        weight: 1.0,
        priority: 0,
        tasks: 1,
        stages: vec![stage],
        done: 0.0,
        state: JobState::Pending,
        nodes: Vec::new(),
        saves: false,
        took: Took::default(),
    }
}

/// A utility as the thesis prints it, with half a unit of its last digit, and as its inputs give it.
type Printed = ((f64, f64), f64);

pub(super) fn experiment_one_scenario_1(_: &Setting) -> Reproduction {
    let sharing = [((0.7, 0.05), 0.6958), ((0.7, 0.05), 0.6958)];
    let waiting = [((0.7, 0.05), 0.7), ((0.7, 0.05), 0.6875)];
    experiment_one("C1", 4.0, sharing, waiting, "P2: no change")
}

pub(super) fn experiment_one_scenario_2(_: &Setting) -> Reproduction {
    let sharing = [((0.65, 0.005), 0.6581), ((0.65, 0.005), 0.6581)];
    let waiting = [((0.7, 0.05), 0.7), ((0.6, 0.05), 0.5833)];
    experiment_one("C2", 3.0, sharing, waiting, "P1: start J2")
}

fn experiment_one(case: &str, factor: f64, sharing: [Printed; 2], waiting: [Printed; 2], chosen: &str) -> Reproduction {
    let mut record = Record::new(
        case,
        "Carrera 5.6.2.1, Figure 5.14, cycle 2",
        "the hypothetical utilities of the two placements considered, and which one is chosen",
        &format!("Table 5.2, relative goal factor of J2 {factor}; J1 did 1,000 Mcycles in cycle 1; T = 1 s, 1,000 MHz, 2,000 MB"),
    );
    let mut j1 = job(0.0, 20.0, 4000.0, 1000.0, 750);
    (j1.done, j1.state, j1.nodes) = (1000.0, JobState::Running, vec![0]);
    let jobs = [j1, job(1.0, 4.0 * factor, 2000.0, 500.0, 750)];
    for (name, speeds, expected) in [("P1", [500.0, 500.0], sharing), ("P2", [1000.0, 0.0], waiting)] {
        let got = evaluate(&jobs, &speeds, &[0.0; 2], 1.0, 1.0);
        for (job, (((printed, digit), recalculated), got)) in expected.into_iter().zip(got).enumerate() {
            let row = record.number(&format!("{name}: hypothetical utility of J{}", job + 1), got);
            row.paper(near(printed, digit)).recalculated(near(recalculated, 1e-3));
        }
    }
    let nodes = [Site { cpu: 1000.0, memory: Bytes::mib(2000).0 }];
    let situation = Situation { now_s: 1.0, cycle_s: 1.0, nodes: &nodes, jobs: &jobs, apps: &[], costs: Costs::FREE };
    let assignment = WealScheduler.schedule(&situation);
    let choice = if assignment.runs[1].is_some() { "P1: start J2" } else { "P2: no change" };
    record.word("chosen by weal's scheduler", choice).paper(exactly(chosen));
    run_whole(&mut record, factor);
    record.done()
}

/// The thesis' cycles: 1 s. Times are taken a hundred times as long, so that shorter and longer cycles can be tried.
const CYCLES_S: [f64; 4] = [1.0, 15.0, 100.0, 600.0];

/// Experiment One to its end, changes for nothing: when each job is done does not depend on the cycle.
fn run_whole(record: &mut Record, factor: f64) {
    let arrival = |at_s: f64, work: f64, speed: f64, relative_goal_s: f64| JobArrival {
        at_s,
        kind: JobKind { work: Work(work), max_speed: Cpu(speed), min_speed: Cpu(0.0), memory: Bytes::mib(750), tasks: 1 },
        relative_goal_s,
    };
    let arrivals = [
        arrival(0.0, 400_000.0, 1000.0, 2000.0),
        arrival(100.0, 200_000.0, 500.0, 400.0 * factor),
        arrival(200.0, 400_000.0, 500.0, 800.0),
    ];
    let nodes = [Site { cpu: 1000.0, memory: Bytes::mib(2000).0 }];
    record.assume("the times at which jobs are done are read off Figure 5.14, to half of its second; the text has none");
    let printed = [1000.0, if factor > 3.5 { 700.0 } else { 500.0 }, 1000.0];
    for cycle_s in CYCLES_S {
        let batch = Batch { costs: Costs::FREE, ..Batch::new(&nodes, Applications::Steady(&[]), &WealScheduler, cycle_s) };
        let result = run(&batch, arrivals, Until::Submitted(arrivals.len()));
        for (number, printed) in printed.into_iter().enumerate() {
            let done =
                result.completions.iter().find(|completion| completion.number == number).map_or(f64::NAN, |done| done.finish_s);
            let row = record.number(&format!("times x 100, cycle {cycle_s} s: J{} is done at, s", number + 1), done);
            row.paper(near(printed, 50.0));
        }
    }
}

/// The functions that the thesis draws: x^3 and x^2.
fn cube_and_square(m: usize, utility: f64) -> f64 {
    if m == 0 { utility.max(0.0).powi(3) } else { utility.max(0.0).powi(2) }
}

pub(super) fn first_example(_: &Setting) -> Reproduction {
    let mut record = Record::new(
        "C4",
        "Carrera 5.4.2.4, Figure 5.5",
        "interpolating between samples at 2 and 8 gives 131 and 18; solving exactly is better",
        "demands x^3 and x^2, group allocation 150",
    );
    let got = Samples::new(vec![2.0, 8.0], cube_and_square, &[100.0, 100.0]).interpolate(150.0);
    record.number("interpolated, job 1", got.by_app[0]).paper(near(131.0, 0.5)).recalculated(near(131.32, 0.1));
    record.number("interpolated, job 2", got.by_app[1]).paper(near(18.0, 0.5)).recalculated(near(18.68, 0.1));
    let exact = equalize(cube_and_square, &[100.0, 100.0], 150.0);
    record.number("exact, job 1", exact.speeds[0]).recalculated(near(125.0, 0.1));
    record.number("exact, job 2", exact.speeds[1]).recalculated(near(25.0, 0.1));
    record.number("exact, common utility", exact.level).recalculated(near(5.0, 0.01));
    record.done()
}

pub(super) fn second_example(_: &Setting) -> Reproduction {
    let mut record = Record::new(
        "C5",
        "Carrera 5.4.2.4, Figure 5.6 (5.20 read as relative differences)",
        "with a member at its maximum, the application ratio brings the interpolation near the exact division",
        "demands min(1000, x^3) and x^2, samples at 5 and 30, group allocation 1180",
    );
    let got = Samples::new(vec![5.0, 30.0], cube_and_square, &[10.0, 100.0]).interpolate(1180.0);
    let ways = [
        ("group ratio", &got.by_group, [640.0, 540.0], [640.0, 540.0]),
        ("app ratio", &got.by_app, [974.0, 195.0], [983.3, 196.7]),
    ];
    for (how, values, printed, recalculated) in ways {
        for job in 0..2 {
            let row = record.number(&format!("{how}, job {}", job + 1), values[job]);
            row.paper(near(printed[job], 0.5)).recalculated(near(recalculated[job], 0.5));
        }
    }
    let exact = equalize(cube_and_square, &[10.0, 100.0], 1180.0);
    record.number("exact, job 1", exact.speeds[0]).recalculated(near(1000.0, 0.5));
    record.number("exact, job 2", exact.speeds[1]).recalculated(near(180.0, 0.5));
    record.done()
}

pub(super) fn baseline_bounds(_: &Setting) -> Reproduction {
    let mut record = Record::new(
        "C6",
        "Carrera 5.6.2.2, Table 5.3",
        "17,600 s at full speed, best utility 0.63, at most 75 jobs at once",
        "25 nodes of 4 x 3,900 MHz and 16,000 MB; 68,640,000 Mcycles at up to 3,900 MHz, 4,320 MB, goal factor 2.7, one per 260 s",
    );
    let job = job(0.0, 47_520.0, 68_640_000.0, 3900.0, 4320);
    record.number("seconds at full speed", job.best_s()).paper(near(17_600.0, 0.0)).recalculated(near(17_600.0, 0.0));
    record.number("best utility", job.max_utility(0.0)).paper(near(0.63, 0.005)).recalculated(near(0.6296, 5e-5));
    let needs = job.needs(600.0);
    let (by_memory, by_cpu) = (Bytes::mib(16_000).0 / needs.memory, (4.0 * 3900.0 / needs.max_speed) as u64);
    let slots = 25 * by_memory.min(by_cpu);
    record.number("jobs at once", slots as f64).paper(near(75.0, 0.0)).recalculated(near(75.0, 0.0));
    record.number("load", job.best_s() / 260.0 / slots as f64).recalculated(near(0.903, 5e-4));
    record.done()
}
