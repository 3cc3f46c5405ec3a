//! `cargo xtask bench fidelity`: the scenarios of `scenarios/fidelity/` with real processes and simulated, and how far the two are apart.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
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
                std::fs::write(file, weal(&program, "rehearse", case, &pages)?)?;
            }
        }
        let simulated = read(case, &weal(&program, "simulate", case, &pages)?)?;
        let warm_up_s = warm_up_s(case)?;
        let real = kept.iter().map(|file| read(case, &std::fs::read(file)?)).collect::<Result<Vec<Run>>>()?;
        let besides: Vec<_> = real.iter().map(|real| BesideSimulation::of(real, &simulated, warm_up_s)).collect();
        std::fs::write(pages.join(format!("{case}.html")), besides[0].to_html(&real[0], &simulated))?;
        compare(case, &besides, &mut table);
    }
    ensure!(!table.rows.is_empty(), "there is no such case: the cases are {}", CASES.join(", "));
    table.notes.extend([
        "a job's time runs from when it was handed in until it was done".to_owned(),
        format!("each real figure is the middle one of {runs} run(s); \"from - to\" are all of them"),
        "the target for response times and for times of jobs is 10%".to_owned(),
        "the target for throughput is 3%".to_owned(),
        "the fullest node's use is its CPU time over its capacity".to_owned(),
    ]);
    Ok(table)
}

/// A row for each flow and each job of `case`, of which `besides` has each real run beside the same simulation.
fn compare(case: &str, besides: &[BesideSimulation], table: &mut Table) {
    for (at, flow) in besides[0].flows.iter().enumerate() {
        let of = |figure: &dyn Fn(&BesideSimulation) -> f64| besides.iter().map(figure).collect::<Vec<_>>();
        let mean_ms = of(&|beside| beside.flows[at].mean_ms.0);
        let throughput = (median(&of(&|beside| beside.flows[at].throughput_per_s.0)), flow.throughput_per_s.1);
        let more = difference(throughput);
        let rates = [format!("{:.2}", throughput.0), format!("{:.2}", throughput.1), format!("{:+.1}%", 100.0 * more)];
        let (row, is_near) = row(case, besides, (&flow.name, 1), (mean_ms, flow.mean_ms.1), rates);
        table.row(row, Some(is_near && more.abs() <= THROUGHPUT));
    }
    for job in &besides[0].jobs {
        let took_ms = |beside: &BesideSimulation| {
            beside.jobs.iter().find(|other| other.name == job.name).map_or(f64::NAN, |job| 1e3 * job.took_s.0)
        };
        let took_ms = (besides.iter().map(took_ms).collect(), 1e3 * job.took_s.1);
        let rates = ["-"; 3].map(str::to_owned);
        let (row, is_near) = row(case, besides, (&format!("job {}", job.name), 0), took_ms, rates);
        table.row(row, Some(is_near));
    }
}

/// The cells of what took `(all_ms, simulated_ms)`, with so many decimals, and whether the two are as near as they should be.
fn row(
    case: &str,
    besides: &[BesideSimulation],
    (name, decimals): (&str, usize),
    (mut all_ms, simulated_ms): (Vec<f64>, f64),
    rates: [String; 3],
) -> ([String; 11], bool) {
    let percent = |share: f64| format!("{:.0}%", 100.0 * share);
    let fullest: Vec<f64> = besides.iter().map(|beside| beside.fullest.0).collect();
    let real_ms = median(&all_ms);
    let slower = difference((real_ms, simulated_ms));
    all_ms.sort_by(f64::total_cmp);
    let [throughput, throughput_simulated, more] = rates;
    let cells = [
        case.to_owned(),
        percent(median(&fullest)),
        percent(besides[0].fullest.1),
        name.to_owned(),
        format!("{real_ms:.decimals$}"),
        format!("{:.decimals$} - {:.decimals$}", all_ms[0], all_ms[all_ms.len() - 1]),
        format!("{simulated_ms:.decimals$}"),
        format!("{:+.1}%", 100.0 * slower),
        throughput,
        throughput_simulated,
        more,
    ];
    (cells, slower.abs() <= RESPONSE)
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

/// What `weal rehearse` or `weal simulate` says of a case.
fn weal(program: &Path, command: &str, case: &str, pages: &Path) -> Result<Vec<u8>> {
    let output = Command::new(program)
        .args([command, "-o", "json", "--report"])
        .arg(pages.join(format!("{case}.{command}.html")))
        .arg(scenario(case))
        .current_dir(crate::programs::root())
        .output()?;
    ensure!(output.status.success(), "{case}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(output.stdout)
}

fn scenario(case: &str) -> String {
    format!("scenarios/fidelity/{case}.toml")
}

fn warm_up_s(case: &str) -> Result<f64> {
    let text = std::fs::read_to_string(crate::programs::root().join(scenario(case)))?;
    let parsed = Scenario::parse(&text, weal_scenario::no_files);
    Ok(parsed.with_context(|| scenario(case))?.warm_up_s)
}
