//! `cargo xtask bench flash-crowd`: seconds of missed goals when crowds come to one application, to another, and to the first again, under
//! an autoscaler in the manner of Kubernetes', under weal with starts only, and under weal with instances that sleep. Simulated.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::programs::release;
use crate::table::Table;

/// What one run of `crates/sim/examples/flash-crowd.rs` prints.
#[derive(Debug, Clone, Deserialize)]
struct Outcome {
    start_s: f64,
    name: String,
    missed_s: [f64; 3],
    changes: u64,
    rejected: u64,
}

/// Runs it. Where a start takes as long as starts do in life, waking must miss at most half of what the autoscaler misses.
pub fn run() -> Result<Table> {
    let program = release(&["--package", "weal-sim", "--example", "flash-crowd"])?.join("examples/flash-crowd");
    let output = Command::new(program).output()?;
    ensure!(output.status.success(), "the simulation failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    let outcomes: Vec<Outcome> =
        lines.lines().map(serde_json::from_str).collect::<Result<_, _>>().context("the simulation printed no JSON")?;
    let mut table = Table::new(
        "seconds in which the goal was missed, of 420 per crowd (simulated; 5 minutes of crowd, and 2 after)",
        &["start takes", "control", "first crowd (shop)", "second (news)", "third (shop)", "changes", "rejected"],
    );
    let mut autoscaler: BTreeMap<u64, f64> = BTreeMap::new();
    for outcome in &outcomes {
        let missed: f64 = outcome.missed_s.iter().sum();
        let start = outcome.start_s as u64;
        if outcome.name.starts_with("autoscaler") {
            autoscaler.insert(start, missed);
        }
        let met = (outcome.name == "weal, wakes").then(|| missed <= 0.5 * autoscaler.get(&start).copied().unwrap_or(0.0));
        let [first, second, third] = outcome.missed_s.map(|seconds| format!("{seconds:.0} s"));
        let cells = [
            format!("{start} s"),
            outcome.name.clone(),
            first,
            second,
            third,
            outcome.changes.to_string(),
            outcome.rejected.to_string(),
        ];
        table.row(cells, met);
    }
    table.notes.push("target: with sleeping instances at most half of what the autoscaler misses".to_owned());
    Ok(table)
}
