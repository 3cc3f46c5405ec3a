//! `cargo xtask bench control`: the planner on generated problems, beside the thesis' algorithm and general solvers.
//!
//! Problems come from `weal_control::placement::problem::generate` with a fixed seed. Each is planned in a process of its own, whose peak memory is
//! read at its end: from nothing (cold), again from the answer (which must change nothing), and after a change: of one application's
//! demand, or, at the thesis' size, of everybody's, as in its control cycles. Times are medians over some rounds.
//!
//! CP-SAT and HiGHS get the same problem without its costs of change, two threads and a time limit, which does not count the making of the
//! model. They live in a Python environment under `target/`, which this makes. Whatever needs a quiet machine is measured first, in about a
//! minute; the solvers come last, since most of them use up their time anyway. `--case` takes one problem (`thesis`, `hard`, `whole-nodes`,
//! `10000`, `100000`, `seats`), `instructions` or `growth`. The measuring program is built first; `PLAN_BENCH` names one that is built
//! already, for machines on which nothing may be compiled beside a measurement.

mod oracles;
mod plot;

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, anyhow, ensure};
use serde::Deserialize;

use super::Arguments;
use crate::programs::release;
use crate::table::Table;
use oracles::Oracles;

/// Utilities within this of the exact value count as exact.
const EXACT: f64 = 1e-3;

/// How far the worst off of a large pool may be below the bound.
const GAP: f64 = 0.005;

/// One answer of the planner.
#[derive(Deserialize)]
struct Answer {
    ms: f64,
    lowest: f64,
    bound: f64,
    changes: u32,
}

/// What the measuring process prints about a placement problem.
#[derive(Deserialize)]
struct Planned {
    exact: Option<f64>,
    cold: Answer,
    stable: Answer,
    cycle: Answer,
    peak_mib: f64,
}

/// What it prints about the seat problem.
#[derive(Deserialize)]
struct Seated {
    solve_ms: f64,
    whole_ms: f64,
    lowest: f64,
    peak_mib: f64,
}

/// A placement problem and what is asked of the planner there.
struct Case {
    name: &'static str,
    title: &'static str,
    cycle: &'static str,
    rounds: u32,
    /// Most milliseconds from an empty pool, and in a cycle.
    cold_ms: Option<f64>,
    cycle_ms: Option<f64>,
    /// Most that the worst off may be below the exact value, or below the bound where that is not known.
    gap: Option<f64>,
    most_mib: f64,
    thesis: bool,
    solvers: bool,
}

const CASES: [Case; 5] = [
    Case {
        name: "thesis",
        title: "25 nodes x 20 applications, 75 jobs",
        cycle: "every demand changed",
        rounds: 31,
        cold_ms: None,
        cycle_ms: Some(1.0),
        gap: None,
        most_mib: f64::INFINITY,
        thesis: true,
        solvers: true,
    },
    Case {
        name: "hard",
        title: "100 x 200, two a node, load 1.1",
        cycle: "one demand changed",
        rounds: 21,
        cold_ms: Some(10.0),
        cycle_ms: None,
        gap: Some(EXACT),
        most_mib: f64::INFINITY,
        thesis: true,
        solvers: true,
    },
    Case {
        name: "whole-nodes",
        title: "100 x 20, one a node",
        cycle: "one demand changed",
        rounds: 31,
        cold_ms: Some(10.0),
        cycle_ms: None,
        gap: Some(1e-6),
        most_mib: f64::INFINITY,
        thesis: true,
        solvers: true,
    },
    Case {
        name: "10000",
        title: "10,000 x 1,000, three a node",
        cycle: "one demand changed",
        rounds: 5,
        cold_ms: Some(500.0),
        cycle_ms: Some(50.0),
        gap: Some(GAP),
        most_mib: f64::INFINITY,
        thesis: true,
        solvers: false,
    },
    Case {
        name: "100000",
        title: "100,000 x 10,000, three a node",
        cycle: "one demand changed",
        rounds: 1,
        cold_ms: Some(10_000.0),
        cycle_ms: None,
        gap: Some(GAP),
        most_mib: 4096.0,
        thesis: false,
        solvers: false,
    },
];

const COLUMNS: [&str; 8] = ["problem", "by", "ms", "of weal's", "worst off", "exact or bound", "changes", "asked"];

/// Most for the seats of 1,000 flows, in milliseconds.
const SEATS_MS: f64 = 20.0;

/// Runs the benchmark.
pub fn run(arguments: &Arguments) -> Result<Vec<Table>> {
    let bench = Bench { binary: build()?, folder: crate::programs::root().join("target/bench-control"), arguments };
    std::fs::create_dir_all(&bench.folder)?;
    let oracles = if arguments.quick { Err(anyhow!("--quick leaves the solvers out")) } else { Oracles::prepare(&bench.folder) };
    let asked = |name: &str| arguments.case.as_deref().is_none_or(|case| case == name);
    let cases = CASES.iter().filter(|case| asked(case.name) && (!arguments.quick || case.most_mib.is_infinite()));
    let measured = cases.map(|case| bench.measure(case)).collect::<Result<Vec<_>>>()?;
    let seated = asked("seats").then(|| bench.seats()).transpose()?;
    let instructions = asked("instructions").then(|| bench.instructions()).transpose()?;
    let growth = (asked("growth") && !arguments.quick).then(|| bench.growth()).transpose()?;
    eprintln!("the planner is measured; the older algorithm and the solvers take up to {} s each", arguments.oracle_seconds);

    let mut table = Table::new("placement: time to plan, utility of the worst off", &COLUMNS);
    for measured in &measured {
        measured.rows(&mut table);
        bench.compare(measured, oracles.as_ref().ok(), &mut table)?;
    }
    if let Some(seated) = &seated {
        bench.seat_rows(seated, oracles.as_ref().ok(), &mut table)?;
    }
    if let Err(why) = &oracles {
        table.notes.push(format!("CP-SAT and HiGHS are absent: {why:#}"));
    }
    table.notes.push(format!(
        "The thesis reports 1.5 s a cycle for its size (5.6.2). Solvers: {} s, two threads, first level only, no costs of change.",
        arguments.oracle_seconds
    ));
    Ok([Some(table), instructions, growth].into_iter().flatten().collect())
}

struct Bench<'a> {
    binary: PathBuf,
    folder: PathBuf,
    arguments: &'a Arguments,
}

/// What was measured of one problem.
struct Measured {
    case: &'static Case,
    planned: Planned,
    /// By the thesis' algorithm, where that is quick.
    thesis: Option<Planned>,
}

impl Measured {
    /// What nobody can exceed: the exact value, or the bound.
    fn optimum(&self) -> f64 {
        self.planned.exact.unwrap_or(self.planned.cold.bound)
    }

    fn rows(&self, table: &mut Table) {
        let (case, Planned { exact, cold, stable, cycle, peak_mib }) = (self.case, &self.planned);
        let below = match (case.gap, exact) {
            (Some(gap), Some(_)) => format!(", {gap} below the exact value"),
            (Some(gap), None) => format!(", {gap} below the bound"),
            (None, _) => String::new(),
        };
        let memory = if case.most_mib.is_finite() { format!(", {} MiB", case.most_mib) } else { String::new() };
        let near = |answer: &Answer, optimum: f64| case.gap.is_none_or(|gap| optimum - answer.lowest <= gap);
        let cold_met = case.cold_ms.map(|most| cold.ms <= most && near(cold, self.optimum()) && *peak_mib <= case.most_mib);
        let cold_asked = case.cold_ms.map_or_else(String::new, |most| format!("{most} ms{below}{memory}"));
        table.row(row(case.title, &format!("weal, cold, {peak_mib:.0} MiB"), cold, 1.0, self.optimum(), cold_asked), cold_met);
        let no_change = "no change".to_owned();
        table.row(row("  nothing changed", "weal", stable, 1.0, self.optimum(), no_change), Some(stable.changes == 0));
        let cycle_met = case.cycle_ms.map(|most| cycle.ms <= most && near(cycle, cycle.bound));
        let cycle_asked = case.cycle_ms.map_or_else(String::new, |most| format!("{most} ms{below}"));
        table.row(row(&self.cycle(), "weal", cycle, 1.0, cycle.bound, cycle_asked), cycle_met);
    }

    fn cycle(&self) -> String {
        format!("  {}", self.case.cycle)
    }
}

impl Bench<'_> {
    fn problem_file(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.json"))
    }

    fn measure(&self, case: &'static Case) -> Result<Measured> {
        let export = self.problem_file(case.name);
        let rounds = if self.arguments.quick { 1 } else { case.rounds };
        let planned = self.plan(&[case.name, "--rounds", &rounds.to_string(), "--export", &export.to_string_lossy()])?;
        let thesis = if case.solvers { self.thesis(case)? } else { None };
        Ok(Measured { case, planned, thesis })
    }

    /// Within the solvers' time limit; `None` when that is over.
    fn thesis(&self, case: &Case) -> Result<Option<Planned>> {
        let seconds = self.arguments.oracle_seconds.to_string();
        let arguments = [case.name, "--algorithm", "thesis"];
        let output = Command::new("timeout").arg(&seconds).arg(&self.binary).args(arguments).output()?;
        if output.status.code() == Some(124) {
            return Ok(None);
        }
        ensure!(output.status.success(), "plan-bench {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(Some(serde_json::from_slice(&output.stdout)?))
    }

    /// What others make of the same problem.
    fn compare(&self, measured: &Measured, oracles: Option<&Oracles>, table: &mut Table) -> Result<()> {
        let (case, planned) = (measured.case, &measured.planned);
        let late;
        let thesis = match &measured.thesis {
            None if case.thesis => {
                late = self.thesis(case)?;
                &late
            }
            known => known,
        };
        if let Some(thesis) = thesis {
            let times = [thesis.cold.ms / planned.cold.ms, thesis.cycle.ms / planned.cycle.ms];
            let none = String::new;
            table.row(row("  cold", "thesis' algorithm", &thesis.cold, times[0], measured.optimum(), none()), None);
            table.row(row(&measured.cycle(), "thesis' algorithm", &thesis.cycle, times[1], planned.cycle.bound, none()), None);
        } else if case.thesis {
            let mut cells = [const { String::new() }; 8];
            (cells[0], cells[1]) = ("  cold".to_owned(), "thesis' algorithm".to_owned());
            cells[2] = format!("not done in {} s", self.arguments.oracle_seconds);
            table.row(cells, None);
        }
        for solver in [oracles::Solver::CpSat, oracles::Solver::Highs] {
            let Some(oracles) = oracles.filter(|_| case.solvers) else { continue };
            let answer = oracles.solve(solver, &self.problem_file(case.name), self.arguments.oracle_seconds)?;
            table.row(answer.row("  cold", solver, planned.cold.ms, ""), None);
        }
        Ok(())
    }

    fn seats(&self) -> Result<Seated> {
        let rounds = if self.arguments.quick { "1" } else { "15" };
        self.plan(&["seats", "--rounds", rounds, "--export", &self.problem_file("seats").to_string_lossy()])
    }

    fn seat_rows(&self, seated: &Seated, oracles: Option<&Oracles>, table: &mut Table) -> Result<()> {
        let ms = seated.solve_ms + seated.whole_ms;
        let cells = [
            "seats: 1,000 flows x 100 clusters x 1,000 nodes".to_owned(),
            format!("weal, all levels and whole seats, {:.0} MiB", seated.peak_mib),
            format!("{ms:.2}"),
            "1.0".to_owned(),
            format!("{:.4}", seated.lowest),
            String::new(),
            String::new(),
            format!("{SEATS_MS} ms"),
        ];
        table.row(cells, Some(ms <= SEATS_MS));
        if let Some(oracles) = oracles {
            let answer = oracles.solve(oracles::Solver::Lp, &self.problem_file("seats"), self.arguments.oracle_seconds)?;
            let agree = answer.lowest.is_some_and(|lowest| (lowest - seated.lowest).abs() <= EXACT);
            table.row(answer.row("  first level only", oracles::Solver::Lp, ms, "the same worst off"), Some(agree));
        }
        Ok(())
    }

    /// Instructions of one cold plan, which do not depend on what else the machine does.
    fn instructions(&self) -> Result<Table> {
        let mut table = Table::new("instructions of one cold plan, counted by callgrind", &["problem", "millions"]);
        if Command::new("valgrind").arg("--version").output().is_err() {
            table.notes.push("valgrind is not installed: run `apt-get install valgrind`".into());
            return Ok(table);
        }
        for case in CASES.iter().filter(|case| case.solvers) {
            let output = Command::new("valgrind")
                .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=plan_bench::measured*"])
                .arg(&self.binary)
                .args([case.name, "--once"])
                .output()?;
            let text = String::from_utf8_lossy(&output.stderr);
            let count = text
                .lines()
                .find_map(|line| line.split("Collected :").nth(1))
                .with_context(|| format!("no count in:\n{text}"))?;
            let count: f64 = count.trim().parse()?;
            ensure!(count > 0.0, "callgrind saw no plan being made:\n{text}");
            table.row([case.title.to_owned(), format!("{:.2}", count / 1e6)], None);
        }
        Ok(table)
    }

    /// How time and memory grow with the pool, as a table and as a plot.
    fn growth(&self) -> Result<Table> {
        let mut table = Table::new(
            "growth: pools with an application for ten nodes, three places a node",
            &["nodes", "cold ms", "one demand changed ms", "MiB", "gap"],
        );
        let mut points = Vec::new();
        for nodes in ["100", "300", "1000", "3000", "10000", "30000", "100000"] {
            let planned: Planned = self.plan(&[nodes, "--rounds", if nodes.len() < 5 { "5" } else { "1" }])?;
            let point = plot::Point {
                nodes: nodes.parse()?,
                cold_ms: planned.cold.ms,
                cycle_ms: planned.cycle.ms,
                peak_mib: planned.peak_mib,
            };
            let gap = planned.cold.bound - planned.cold.lowest;
            table.row(
                [
                    nodes.to_owned(),
                    format!("{:.2}", point.cold_ms),
                    format!("{:.2}", point.cycle_ms),
                    format!("{:.0}", point.peak_mib),
                    format!("{gap:.5}"),
                ],
                None,
            );
            points.push(point);
        }
        if let Some(file) = &self.arguments.plot {
            std::fs::write(file, plot::svg(&points))?;
        }
        Ok(table)
    }

    fn plan<T: for<'de> Deserialize<'de>>(&self, arguments: &[&str]) -> Result<T> {
        let output = Command::new(&self.binary).args(arguments).output()?;
        ensure!(output.status.success(), "plan-bench {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}

fn row(title: &str, by: &str, answer: &Answer, times: f64, optimum: f64, asked: String) -> [String; 8] {
    [
        title.to_owned(),
        by.to_owned(),
        format!("{:.2}", answer.ms),
        format!("{times:.1}"),
        format!("{:.4}", answer.lowest),
        format!("{optimum:.4}"),
        answer.changes.to_string(),
        asked,
    ]
}

fn build() -> Result<PathBuf> {
    if let Some(program) = std::env::var_os("PLAN_BENCH") {
        return Ok(program.into());
    }
    Ok(release(&["--package", "weal-control", "--example", "plan-bench"])?.join("examples/plan-bench"))
}
