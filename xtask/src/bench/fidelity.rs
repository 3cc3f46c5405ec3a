//! `cargo xtask bench fidelity`: the scenarios of `scenarios/fidelity/` with real processes and simulated, and how far the two are apart.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use toml_edit::{DocumentMut, Item, value};
use weal_scenario::Scenario;
use weal_scenario::report::{BesideSimulation, Run, difference};

use super::Arguments;
use super::real::median;
use crate::programs::{release, target};
use crate::table::Table;

/// In the order in which they get harder to imitate.
const CASES: [&str; 8] =
    ["single-tier", "multi-tier", "shared-node", "jobs", "multi-tier-full", "overload", "flash-crowd", "node-loss"];
/// How far the simulated mean response time, or time until a job is done, and the throughput may be from the real ones.
const RESPONSE: f64 = 0.10;
const THROUGHPUT: f64 = 0.03;

/// One run is itself worth 10 to 20% of a mean response time: so many are made, and the middle one of each figure counts.
const RUNS: usize = 3;
/// So are simulated ones, whose machine does some things by chance as well: so many are made under the same load. They cost no time.
const SIMULATED: usize = 11;

/// Runs all, or the one that `--case` names; each takes some four minutes, and a third of that with `--quick`, which runs it once. The real runs
/// are kept, each case with a page that has one of them and the simulation in the same charts: `--kept` simulates beside them without measuring
/// again, and `--write` has the others from there when only one is measured.
pub fn run(arguments: &Arguments) -> Result<Table> {
    let pages = target().join("fidelity");
    let program = release(&["--package", "weal"])?.join("weal");
    std::fs::create_dir_all(&pages)?;
    let mut table = Table::new(
        "mean response time and throughput with real processes and simulated, after the warm-up",
        &[
            "scenario",
            "fullest node",
            "simulated",
            "flow",
            "real, ms",
            "from - to",
            "simulated",
            "from - to",
            "apart",
            "real, 1/s",
            "simulated",
            "apart",
        ],
    );
    let runs = if arguments.quick { 1 } else { RUNS };
    for case in CASES {
        let kept: Vec<PathBuf> = (1..=runs).map(|number| kept_run(&pages, case, number)).collect();
        let are_kept = kept.iter().all(|file| file.exists());
        let is_asked = arguments.case.as_deref().is_none_or(|only| only == case);
        if !(is_asked || arguments.write && are_kept) {
            continue;
        }
        if is_asked && !(arguments.kept && are_kept) {
            build_applications()?;
            // Those of an earlier state of the program would be taken for this one's.
            for stale in (1..=RUNS).map(|number| kept_run(&pages, case, number)).filter(|file| file.exists()) {
                std::fs::remove_file(stale)?;
            }
            for file in &kept {
                std::fs::write(file, weal(&program, "rehearse", case, &pages, Path::new(&scenario(case)))?)?;
            }
        }
        let simulated = simulated(&program, case, &pages)?;
        let warm_up_s = warm_up_s(case)?;
        let real = kept.iter().map(|file| read(case, &std::fs::read(file)?)).collect::<Result<Vec<Run>>>()?;
        let reals: Vec<_> = real.iter().map(|real| BesideSimulation::of(real, &simulated[0], warm_up_s)).collect();
        let others: Vec<_> = simulated.iter().map(|simulated| BesideSimulation::of(&real[0], simulated, warm_up_s)).collect();
        std::fs::write(pages.join(format!("{case}.html")), reals[0].to_html(&real[0], &simulated[0]))?;
        compare(case, &reals, &others, &mut table);
    }
    ensure!(!table.rows.is_empty(), "there is no such case: the cases are {}", CASES.join(", "));
    table.notes.extend([
        "a job's time runs from when it was submitted until it was done".to_owned(),
        format!("each real figure is the middle one of {runs} run(s), each simulated one of {SIMULATED}; \"from - to\" are all of them"),
        "the target for response times and for times of jobs is 10%".to_owned(),
        "the target for throughput is 3%".to_owned(),
        "the fullest node's use is its CPU time over its capacity".to_owned(),
    ]);
    Ok(table)
}

/// A row for each flow and each job of `case`. `reals` has each real run beside the first simulated one, and `simulated` the first real run beside
/// each simulated one.
fn compare(case: &str, reals: &[BesideSimulation], simulated: &[BesideSimulation], table: &mut Table) {
    let both = |figure: &dyn Fn(&BesideSimulation) -> (f64, f64)| Both {
        real: reals.iter().map(|beside| figure(beside).0).collect(),
        simulated: simulated.iter().map(|beside| figure(beside).1).collect(),
    };
    let fullest = both(&|beside| beside.fullest);
    for (at, flow) in reals[0].flows.iter().enumerate() {
        let throughput = both(&|beside| beside.flows[at].throughput_per_s).middle();
        let more = difference(throughput);
        let rates = [format!("{:.2}", throughput.0), format!("{:.2}", throughput.1), format!("{:+.1}%", 100.0 * more)];
        let (row, is_near) = row(case, &fullest, (&flow.name, 1), both(&|beside| beside.flows[at].mean_ms), rates);
        table.row(row, Some(is_near && more.abs() <= THROUGHPUT));
    }
    for job in &reals[0].jobs {
        let took_ms = |beside: &BesideSimulation| {
            let took_s = beside.jobs.iter().find(|other| other.name == job.name).map_or((f64::NAN, f64::NAN), |job| job.took_s);
            (1e3 * took_s.0, 1e3 * took_s.1)
        };
        let rates = ["-"; 3].map(str::to_owned);
        let (row, is_near) = row(case, &fullest, (&format!("job {}", job.name), 0), both(&took_ms), rates);
        table.row(row, Some(is_near));
    }
}

/// A figure of all real runs and of all simulated ones.
struct Both {
    real: Vec<f64>,
    simulated: Vec<f64>,
}

impl Both {
    /// The middle one of each.
    fn middle(&self) -> (f64, f64) {
        (median(&self.real), median(&self.simulated))
    }
}

/// The cells of what took so many milliseconds, with so many decimals, and whether the two are as near as they should be.
fn row(
    case: &str,
    fullest: &Both,
    (name, decimals): (&str, usize),
    took_ms: Both,
    [throughput, throughput_simulated, more]: [String; 3],
) -> ([String; 12], bool) {
    let percent = |share: f64| format!("{:.0}%", 100.0 * share);
    let (real_ms, simulated_ms) = took_ms.middle();
    let slower = difference((real_ms, simulated_ms));
    let cells = [
        case.to_owned(),
        percent(fullest.middle().0),
        percent(fullest.middle().1),
        name.to_owned(),
        format!("{real_ms:.decimals$}"),
        span(&took_ms.real, decimals),
        format!("{simulated_ms:.decimals$}"),
        span(&took_ms.simulated, decimals),
        format!("{:+.1}%", 100.0 * slower),
        throughput,
        throughput_simulated,
        more,
    ];
    (cells, slower.abs() <= RESPONSE)
}

/// From the least to the most.
fn span(figures: &[f64], decimals: usize) -> String {
    let (least, most) =
        figures.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), &figure| (least.min(figure), most.max(figure)));
    format!("{least:.decimals$} - {most:.decimals$}")
}

/// All simulated runs of a case: the load of the real ones, each time on a machine with another chance.
fn simulated(program: &Path, case: &str, pages: &Path) -> Result<Vec<Run>> {
    let text = text_of(case)?;
    let run = |chance: usize| {
        let file = pages.join(format!("{case}.chance.toml"));
        std::fs::write(&file, with_chance(&text, chance)?)?;
        read(case, &weal(program, "simulate", case, pages, &file)?)
    };
    (0..SIMULATED).map(run).collect()
}

/// A scenario that may be read from anywhere, on a machine with another chance.
fn with_chance(text: &str, chance: usize) -> Result<String> {
    let mut document: DocumentMut = text.parse().context("the scenario is not TOML")?;
    let config = document.get("config").and_then(Item::as_str).context("the scenario names no config")?;
    document["config"] = value(crate::programs::root().join("scenarios/fidelity").join(config).display().to_string());
    document["simulation"]["chance"] = value(i64::try_from(chance)?);
    Ok(document.to_string())
}

fn kept_run(pages: &Path, case: &str, number: usize) -> PathBuf {
    pages.join(format!("{case}.real-{number}.json"))
}

fn read(case: &str, json: &[u8]) -> Result<Run> {
    serde_json::from_slice(json).with_context(|| format!("{case}: no JSON"))
}

/// Those of `target/debug`, which the configs name; weal itself is as users have it.
fn build_applications() -> Result<()> {
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--package", "weal-demo", "--package", "weal-trade"]).current_dir(crate::programs::root());
    ensure!(build.status()?.success(), "cannot build the applications");
    Ok(())
}

/// What `weal rehearse` or `weal simulate` says of a case, whose scenario is in `file`.
fn weal(program: &Path, command: &str, case: &str, pages: &Path, file: &Path) -> Result<Vec<u8>> {
    let output = Command::new(program)
        .args([command, "-o", "json", "--report"])
        .arg(pages.join(format!("{case}.{command}.html")))
        .arg(file)
        .current_dir(crate::programs::root())
        .output()?;
    ensure!(output.status.success(), "{case}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(output.stdout)
}

fn scenario(case: &str) -> String {
    format!("scenarios/fidelity/{case}.toml")
}

fn text_of(case: &str) -> Result<String> {
    Ok(std::fs::read_to_string(crate::programs::root().join(scenario(case)))?)
}

fn warm_up_s(case: &str) -> Result<f64> {
    let parsed = Scenario::parse(&text_of(case)?, weal_scenario::no_files);
    Ok(parsed.with_context(|| scenario(case))?.warm_up_s)
}

#[cfg(test)]
mod tests {
    use weal_scenario::report::BesideFlow;

    use super::*;

    #[test]
    fn each_case_is_simulated_on_machines_with_other_chances() {
        for case in CASES {
            let scenario = Scenario::parse(&with_chance(&text_of(case).unwrap(), 3).unwrap(), weal_scenario::no_files).unwrap();
            assert_eq!(scenario.surroundings.chance, 3, "{case}");
            let config = scenario.config.map(PathBuf::from).unwrap();
            assert!(config.is_absolute() && config.exists(), "{case}: {}", config.display());
        }
    }

    #[test]
    fn the_middle_run_of_each_side_is_compared() {
        let beside = |mean_ms: (f64, f64)| BesideSimulation {
            flows: vec![BesideFlow { name: "web/gold".into(), mean_ms, throughput_per_s: (20.0, 20.0), ..BesideFlow::default() }],
            ..BesideSimulation::default()
        };
        let mut table = Table::new("a test", &[""; 12]);
        let reals = [28.0, 41.0, 34.0].map(|real| beside((real, 47.0)));
        let simulated = [150.0, 36.0, 31.0].map(|simulated| beside((28.0, simulated)));
        compare("jobs", &reals, &simulated, &mut table);
        assert_eq!(table.rows[0].cells[4..9], ["34.0", "28.0 - 41.0", "36.0", "31.0 - 150.0", "+5.9%"]);
    }
}
