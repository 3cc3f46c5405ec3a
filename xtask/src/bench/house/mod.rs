//! `cargo xtask bench house [--base DIR]`: what the API takes while the node agent is stopped ([`stuck`]), and this tree beside a former one,
//! whose release programs are built in DIR.
//!
//! Planning in milliseconds and in instructions, the simulator's engine in CPU time for each event, the gateway in instructions for each
//! request. Both versions run by turns in short rounds, so that whatever else the machine does hits both; the median of the rounds' ratios
//! is what counts. Instructions are counted by callgrind and hardly vary.

mod stuck;

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::Arguments;
use super::instructions::counting::{Request, instructions};
use super::instructions::version::{Version, callgrind, counted};
use super::real::median;
use crate::programs::fully_optimized;
use crate::table::Table;

/// How many times as much as before is a loss.
const LIMIT: f64 = 1.03;

/// What is built, here and there.
const SELECTION: [&str; 12] = [
    "--package",
    "weal-control",
    "--package",
    "weal-sim",
    "--package",
    "weal-gateway",
    "--example",
    "plan-bench",
    "--example",
    "sim-bench",
    "--example",
    "gateway-bench",
];

/// Something that is measured: what, in which unit, and how many rounds it takes to be sure.
struct Measure {
    names: &'static [&'static str],
    unit: &'static str,
    rounds: usize,
    /// One round: a number for each name; less is better.
    run: fn(&Version, quick: bool) -> Result<Vec<f64>>,
}

const MEASURES: [Measure; 5] = [
    Measure {
        names: &[
            "plan 1,000 nodes from nothing",
            "plan 1,000 nodes, nothing changed",
            "plan 1,000 nodes, one application changed",
        ],
        unit: "ms",
        rounds: 15,
        run: |version, quick| plan(version, "1000", ["cold", "stable", "cycle"].map(|part| format!("/{part}/ms")), quick),
    },
    Measure {
        names: &["seats of 1,000 flows", "seats of 1,000 flows, whole"],
        unit: "ms",
        rounds: 15,
        run: |version, quick| plan(version, "seats", ["/solve_ms", "/whole_ms"].map(str::to_owned), quick),
    },
    Measure { names: &["plan 1,000 nodes from nothing"], unit: "million instructions", rounds: 1, run: plan_instructions },
    Measure {
        names: &["simulator, 1 station", "simulator, 1,000 stations"],
        unit: "ns/event",
        rounds: 15,
        run: |version, quick| Ok(vec![event_ns(version, 1, quick)?, event_ns(version, 1000, quick)?]),
    },
    Measure {
        names: &["gateway"],
        unit: "instructions/request",
        rounds: 3,
        run: |version, quick| Ok(vec![instructions(version, &Request::SMALL, quick)?]),
    },
];

/// Runs the benchmark; without a former version only what needs none.
pub fn run(arguments: &Arguments) -> Result<Vec<Table>> {
    let mut tables = vec![stuck::run(arguments)?];
    if let Some(base) = &arguments.base {
        tables.push(beside(arguments, base)?);
    }
    Ok(tables)
}

fn beside(arguments: &Arguments, base: &Path) -> Result<Table> {
    let scratch = std::env::temp_dir().join(format!("weal-bench-{}", std::process::id()));
    std::fs::create_dir_all(&scratch)?;
    let result = compare(arguments, base, &scratch);
    std::fs::remove_dir_all(&scratch)?;
    result
}

fn compare(arguments: &Arguments, base: &Path, scratch: &Path) -> Result<Table> {
    let examples = base.join("target/release/examples");
    for program in ["plan-bench", "sim-bench", "gateway-bench"] {
        let built = examples.join(program).exists();
        ensure!(
            built,
            "there is no {program} in {}: cd {} && cargo build --release {}",
            examples.display(),
            base.display(),
            SELECTION.join(" ")
        );
    }
    let before = Version { examples, scratch: scratch.to_owned() };
    let now = Version { examples: fully_optimized(&SELECTION)?.join("examples"), scratch: scratch.to_owned() };
    let mut table = Table::new(
        "this tree beside a former one: medians of interleaved rounds, less is better".to_owned(),
        &["what", "unit", "before", "now", "ratio", "rounds"],
    );
    for measure in &MEASURES {
        let rounds = measure.rounds_of(&before, &now, arguments.quick)?;
        for (at, name) in measure.names.iter().enumerate() {
            let of = |rounds: &[Vec<f64>]| rounds.iter().map(|round| round[at]).collect::<Vec<f64>>();
            let (before, now) = (of(&rounds.before), of(&rounds.now));
            let ratios: Vec<f64> = before.iter().zip(&now).map(|(before, now)| now / before).collect();
            let ratio = median(&ratios);
            let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
            let most = ratios.iter().copied().fold(0.0, f64::max);
            let cells = [
                (*name).to_owned(),
                measure.unit.to_owned(),
                format!("{:.2}", median(&before)),
                format!("{:.2}", median(&now)),
                format!("{ratio:.3}"),
                format!("{least:.3} to {most:.3}"),
            ];
            table.row(cells, Some(ratio <= LIMIT));
        }
    }
    table.notes.push(format!("target: {LIMIT} times as much as before at most"));
    Ok(table)
}

/// What each round gave: a number for each name.
#[derive(Debug, Default, PartialEq)]
struct Rounds {
    before: Vec<Vec<f64>>,
    now: Vec<Vec<f64>>,
}

impl Measure {
    /// Measures both versions in every round; they begin by turns.
    fn rounds_of(&self, before: &Version, now: &Version, quick: bool) -> Result<Rounds> {
        let measure = |version| (self.run)(version, quick).with_context(|| format!("cannot measure {}", self.names.join(", ")));
        let mut rounds = Rounds::default();
        for round in 0..if quick { 1 } else { self.rounds } {
            if round % 2 == 0 {
                rounds.before.push(measure(before)?);
                rounds.now.push(measure(now)?);
            } else {
                rounds.now.push(measure(now)?);
                rounds.before.push(measure(before)?);
            }
        }
        Ok(rounds)
    }
}

/// Numbers of plan-bench's answer, by their places in it.
fn plan<const N: usize>(version: &Version, case: &str, places: [String; N], quick: bool) -> Result<Vec<f64>> {
    let rounds = if quick { "1" } else { "15" };
    let answer = json(Command::new(version.examples.join("plan-bench")).args([case, "--rounds", rounds]))?;
    places.iter().map(|place| number(&answer, place)).collect()
}

fn plan_instructions(version: &Version, _quick: bool) -> Result<Vec<f64>> {
    let file = version.scratch.join("callgrind.plan");
    let status = callgrind(&file)
        .arg("--toggle-collect=*measured*")
        .arg(version.examples.join("plan-bench"))
        .args(["1000", "--once"])
        .status()?;
    ensure!(status.success(), "plan-bench failed under valgrind");
    Ok(vec![counted(&file)? / 1e6])
}

fn event_ns(version: &Version, stations: u32, quick: bool) -> Result<f64> {
    let events = if quick { 200_000 } else { 5_000_000 };
    let mut program = Command::new(version.examples.join("sim-bench"));
    let answer = json(program.args(["agenda", &stations.to_string(), &events.to_string()]))?;
    Ok(number(&answer, "/seconds")? / number(&answer, "/events")? * 1e9)
}

fn json(program: &mut Command) -> Result<Value> {
    let output = program.output().with_context(|| format!("cannot start {}", program.get_program().display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{} failed: {}", program.get_program().display(), said.trim());
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn number(answer: &Value, place: &str) -> Result<f64> {
    answer.pointer(place).and_then(Value::as_f64).with_context(|| format!("there is no number at {place} in {answer}"))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn both_versions_are_measured_in_every_round() {
        let version = |name: &str| Version { examples: PathBuf::from(name), scratch: PathBuf::new() };
        let run = |version: &Version, _| Ok(vec![if version.examples == Path::new("before") { 2.0 } else { 3.0 }]);
        let measure = Measure { names: &["it"], unit: "ms", rounds: 3, run };
        let rounds = measure.rounds_of(&version("before"), &version("now"), false).unwrap();
        assert_eq!(rounds, Rounds { before: vec![vec![2.0]; 3], now: vec![vec![3.0]; 3] });
    }
}
