//! `cargo xtask bench logs`: logs of the Parallel Workloads Archive run as jobs with goals, beside the World Cup's web load, on 100 and on
//! 1,000 nodes: goals met and distance of utilities for weal, FCFS, EDF, a static partition and an autoscaler. Simulated, in fluid mode.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::Arguments;
use crate::programs::{release, target};
use crate::table::Table;

/// A log on a pool.
struct Case {
    name: &'static str,
    log: &'static str,
    /// The first day of the log that is played, and of the trace.
    from_day: u32,
    trace_from: &'static str,
    days: u32,
    nodes: u32,
    cpus: u32,
}

const CASES: [Case; 2] = [
    Case {
        name: "nasa",
        log: "nasa-ipsc-1993.swf.gz",
        from_day: 14,
        trace_from: "1998-06-15 00:00:00",
        days: 14,
        nodes: 100,
        cpus: 2,
    },
    Case { name: "lcg", log: "lcg-grid.swf.gz", from_day: 4, trace_from: "1998-06-30 00:00:00", days: 1, nodes: 1000, cpus: 4 },
];
/// What the web load uses of the pool in its busy minutes; 1% are busier.
const WEB_SHARE: f64 = 0.5;
const TRACE: &str = "worldcup98-requests-per-minute.csv";

#[derive(Debug, Deserialize)]
struct Played {
    jobs: usize,
    of: usize,
    load: f64,
}

#[derive(Debug, Deserialize)]
struct Course {
    policy: String,
    jobs_met: f64,
    job_utility: f64,
    job_deviation: f64,
    web_met: f64,
    web_utility: f64,
    worse_off: f64,
    spread: f64,
    changes: usize,
    violations: usize,
}

/// Runs both, or the one that `--case` names. Without the logs there is nothing to run, which is said.
pub fn run(arguments: &Arguments) -> Result<Vec<Table>> {
    let data = crate::programs::root().join("../shared/data");
    let folder = target().join("bench-logs");
    std::fs::create_dir_all(&folder)?;
    let program = release(&["--package", "weal-reproduce", "--example", "logs"])?.join("examples/logs");
    let mut tables = Vec::new();
    for case in CASES.iter().filter(|case| arguments.case.as_deref().is_none_or(|only| only == case.name)) {
        let (log, trace) = (data.join(case.log), data.join(TRACE));
        if !log.exists() || !trace.exists() {
            bail!("{} or {} is not there: this benchmark needs both recordings", log.display(), trace.display());
        }
        tables.push(table(case, &program, &unpacked(&log, &folder)?, &trace)?);
    }
    ensure!(!tables.is_empty(), "there is no such case: the cases are {}", CASES.map(|case| case.name).join(", "));
    Ok(tables)
}

fn table(case: &Case, program: &Path, log: &Path, trace: &Path) -> Result<Table> {
    let output = Command::new(program)
        .args([log, trace])
        .args([&case.from_day.to_string(), case.trace_from])
        .args([case.days, case.nodes, case.cpus].map(|number| number.to_string()))
        .arg(WEB_SHARE.to_string())
        .output()?;
    ensure!(output.status.success(), "{}: {}", case.name, String::from_utf8_lossy(&output.stderr).trim());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (first, rest) = text.split_once('\n').context("the simulation printed nothing")?;
    let played: Played = serde_json::from_str(first)?;
    let courses: Vec<Course> = rest.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let mut table = Table::new(
        format!(
            "{}: {} of {} jobs of {} days beside the World Cup's requests from {} on, {} nodes of {} CPUs, load {:.2}",
            case.log.trim_end_matches(".swf.gz"),
            played.jobs,
            played.of,
            case.days,
            case.trace_from.split(' ').next().unwrap_or_default(),
            case.nodes,
            case.cpus,
            played.load
        ),
        &[
            "policy",
            "jobs' goals met",
            "jobs' utility",
            "deviation",
            "web within goal",
            "web utility",
            "worse off",
            "distance",
            "changes",
        ],
    );
    let best_of = |others: fn(&Course) -> f64| courses[1..].iter().map(others).fold(f64::NEG_INFINITY, f64::max);
    let best = best_of(|course| course.worse_off);
    for (number, course) in courses.iter().enumerate() {
        let cells = [
            course.policy.clone(),
            format!("{:.2}%", 100.0 * course.jobs_met),
            format!("{:.3}", course.job_utility),
            format!("{:.3}", course.job_deviation),
            format!("{:.2}%", 100.0 * course.web_met),
            format!("{:.3}", course.web_utility),
            format!("{:.3}", course.worse_off),
            format!("{:.3}", course.spread),
            course.changes.to_string(),
        ];
        ensure!(course.violations == 0, "{}: {} decisions broke a rule", course.policy, course.violations);
        table.row(cells, (number == 0).then_some(course.worse_off >= best - 0.005));
    }
    Ok(table)
}

/// Recordings are kept packed; `gzip` unpacks them.
fn unpacked(packed: &Path, folder: &Path) -> Result<PathBuf> {
    let name = packed.file_stem().context("a log has a name")?;
    let file = folder.join(name);
    if !file.exists() {
        let output = Command::new("gzip").args(["--decompress", "--stdout"]).arg(packed).output()?;
        ensure!(output.status.success(), "cannot unpack {}", packed.display());
        std::fs::write(&file, output.stdout)?;
    }
    Ok(file)
}
