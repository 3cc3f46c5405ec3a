//! `cargo xtask bench fidelity`: the scenarios of `scenarios/fidelity/` with real processes and simulated, and how far the two are apart.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use weal_sim::report::{BesideSimulation, Run};
use weal_sim::scenario::Scenario;

use super::Arguments;
use crate::programs::{release, target};
use crate::table::Table;

/// In the order in which they get harder to imitate.
const CASES: [&str; 7] = ["single-tier", "multi-tier", "shared-node", "multi-tier-full", "overload", "flash-crowd", "node-loss"];
/// How far the simulated mean response time and throughput may be from the real ones.
const RESPONSE: f64 = 0.10;
const THROUGHPUT: f64 = 0.03;

/// Runs all, or the one that `--case` names; each takes a bit more than a minute. The real runs are kept, each with a page that has both in
/// the same charts: `--kept` simulates beside them without measuring again, and `--write` has the others from there when only one is measured.
pub fn run(arguments: &Arguments) -> Result<Table> {
    let pages = target().join("fidelity");
    let program = release(&["--package", "weal"])?.join("weal");
    std::fs::create_dir_all(&pages)?;
    let mut table = Table::new(
        "mean response time and throughput with real processes and simulated, after the warm-up",
        &["scenario", "fullest node", "simulated", "flow", "real, ms", "simulated", "apart", "real, 1/s", "simulated", "apart"],
    );
    for case in CASES {
        let kept = pages.join(format!("{case}.real.json"));
        let is_asked = arguments.case.as_deref().is_none_or(|only| only == case);
        if !(is_asked || arguments.write && kept.exists()) {
            continue;
        }
        if is_asked && !(arguments.kept && kept.exists()) {
            build_applications()?;
            std::fs::write(&kept, weal(&program, "rehearse", case, &pages)?)?;
        }
        let real: Run = serde_json::from_slice(&std::fs::read(&kept)?).with_context(|| format!("{case}: no JSON"))?;
        let simulated: Run =
            serde_json::from_slice(&weal(&program, "simulate", case, &pages)?).with_context(|| format!("{case}: no JSON"))?;
        let beside = BesideSimulation::of(&real, &simulated, warm_up_s(case)?);
        std::fs::write(pages.join(format!("{case}.html")), beside.to_html(&real, &simulated))?;
        let percent = |share: f64| format!("{:.0}%", 100.0 * share);
        for flow in beside.flows {
            let apart = |(real, simulated): (f64, f64)| (simulated - real) / real;
            let (slower, more) = (apart(flow.mean_ms), apart(flow.throughput_per_s));
            let cells = [
                case.to_owned(),
                percent(beside.fullest.0),
                percent(beside.fullest.1),
                flow.name,
                format!("{:.1}", flow.mean_ms.0),
                format!("{:.1}", flow.mean_ms.1),
                format!("{:+.1}%", 100.0 * slower),
                format!("{:.2}", flow.throughput_per_s.0),
                format!("{:.2}", flow.throughput_per_s.1),
                format!("{:+.1}%", 100.0 * more),
            ];
            table.row(cells, Some(slower.abs() <= RESPONSE && more.abs() <= THROUGHPUT));
        }
    }
    ensure!(!table.rows.is_empty(), "there is no such case: the cases are {}", CASES.join(", "));
    table.notes.push(
        "targets: response time within 10%, throughput within 3%; the fullest node's use is its CPU time over its capacity"
            .to_owned(),
    );
    Ok(table)
}

/// Those of `target/debug`, which the configs name; weal itself is as users have it.
fn build_applications() -> Result<()> {
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--package", "weal-demo", "--package", "weal-trade"]).current_dir(crate::root());
    ensure!(build.status()?.success(), "cannot build the applications");
    Ok(())
}

/// What `weal rehearse` or `weal simulate` says of a case.
fn weal(program: &Path, command: &str, case: &str, pages: &Path) -> Result<Vec<u8>> {
    let output = Command::new(program)
        .args([command, "-o", "json", "--report"])
        .arg(pages.join(format!("{case}.{command}.html")))
        .arg(scenario(case))
        .current_dir(crate::root())
        .output()?;
    ensure!(output.status.success(), "{case}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(output.stdout)
}

fn scenario(case: &str) -> String {
    format!("scenarios/fidelity/{case}.toml")
}

fn warm_up_s(case: &str) -> Result<f64> {
    let text = std::fs::read_to_string(crate::root().join(scenario(case)))?;
    let parsed = Scenario::parse(&text, |name| Err(format!("no file `{name}`")));
    Ok(parsed.with_context(|| scenario(case))?.warm_up_s)
}
