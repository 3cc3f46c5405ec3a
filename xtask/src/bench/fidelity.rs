//! `cargo xtask bench fidelity`: the scenarios of `scenarios/fidelity/` with real processes and simulated, and how far the two are apart.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::Arguments;
use crate::programs::{release, target};
use crate::table::Table;

/// In the order in which they get harder to imitate.
const CASES: [&str; 7] = ["single-tier", "multi-tier", "shared-node", "multi-tier-full", "overload", "flash-crowd", "node-loss"];
/// How far the simulated mean response time and throughput may be from the real ones.
const RESPONSE: f64 = 0.10;
const THROUGHPUT: f64 = 0.03;

/// What `weal rehearse --beside-simulation -o json` prints: pairs of real and simulated.
#[derive(Debug, Deserialize)]
struct Beside {
    flows: Vec<Flow>,
    fullest: (f64, f64),
}

#[derive(Debug, Deserialize)]
struct Flow {
    name: String,
    mean_ms: (f64, f64),
    throughput_per_s: (f64, f64),
}

/// Runs all, or the one that `--case` names; each takes a bit more than a minute. What comes out is kept, with a page that has both in the
/// same charts: `--kept` shows it without measuring again, and `--write` has the others from there when only one is measured.
pub fn run(arguments: &Arguments) -> Result<Table> {
    let pages = target().join("fidelity");
    std::fs::create_dir_all(&pages)?;
    let mut table = Table::new(
        "mean response time and throughput with real processes and simulated, after the warm-up",
        &["scenario", "fullest node", "simulated", "flow", "real, ms", "simulated", "apart", "real, 1/s", "simulated", "apart"],
    );
    for case in CASES {
        let kept = pages.join(format!("{case}.json"));
        let is_asked = arguments.case.as_deref().is_none_or(|only| only == case);
        if !is_asked && !(arguments.write && kept.exists()) {
            continue;
        }
        if is_asked && !(arguments.kept && kept.exists()) {
            std::fs::write(&kept, measure(case, &pages.join(format!("{case}.html")))?)?;
        }
        let beside: Beside = serde_json::from_slice(&std::fs::read(&kept)?).with_context(|| format!("{case}: no JSON"))?;
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

/// The applications are those of `target/debug`, which the configs name; weal itself is as users have it.
fn measure(case: &str, page: &std::path::Path) -> Result<Vec<u8>> {
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--package", "weal-demo", "--package", "weal-trade"]).current_dir(crate::root());
    ensure!(build.status()?.success(), "cannot build the applications");
    let output = Command::new(release(&["--package", "weal"])?.join("weal"))
        .args(["rehearse", "-o", "json", "--beside-simulation", "--report"])
        .arg(page)
        .arg(format!("scenarios/fidelity/{case}.toml"))
        .current_dir(crate::root())
        .output()?;
    ensure!(output.status.success(), "{case}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(output.stdout)
}
