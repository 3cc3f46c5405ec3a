//! `weal simulate`: a scenario in virtual time.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use indicatif::{ProgressBar, ProgressStyle};
use weal_scenario::Scenario;
use weal_scenario::report::Run;
use weal_sim::world::{Simulated, simulate};

use crate::args::Simulate;
use crate::commands::load;
use crate::config_file;
use crate::failure::{Exit, Failure};
use crate::output::{self, Stream, Table, Tone, cell, milliseconds, toned};
use crate::values::Switch;

/// Runs it.
///
/// # Errors
/// A mistake in the scenario or its config (exit code 3); something that must always hold did not; with `--check`, an expectation
/// was missed (1).
pub fn run(order: &Simulate, json: bool) -> anyhow::Result<()> {
    let (mut scenario, text) = read(&order.scenario)?;
    scenario.seed = order.seed.unwrap_or(scenario.seed);
    scenario.pool.control &= order.control == Switch::On;
    scenario.pool.placement = order.placement.unwrap_or(scenario.pool.placement);
    let mut simulated = simulate_shown(&scenario)?;
    simulated.run.title = order.scenario.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    simulated.run.scenario = text;
    let run = &simulated.run;
    if let Some(report) = &order.report {
        std::fs::write(report, run.to_html()).with_context(|| format!("cannot write the report {}", report.display()))?;
    }
    if let Some(file) = &order.csv {
        std::fs::write(file, run.to_csv()).with_context(|| format!("cannot write {}", file.display()))?;
    }
    if json {
        output::json(run, false)?;
    } else {
        show_flows(run);
        show_jobs(run);
        show_checks(run);
    }
    sound(&simulated)?;
    if order.check { met(run) } else { Ok(()) }
}

/// Reads a scenario, with the pool of its `config` if it has one.
///
/// # Errors
/// The first mistake of the scenario or every mistake of the config, with their places.
pub fn read(file: &Path) -> anyhow::Result<(Scenario, String)> {
    let (scenario, text) = load::read_scenario(file)?;
    let Some(config) = &scenario.config else { return Ok((scenario, text)) };
    let config = config_file::load(&config_of(file, config.as_ref())?)?;
    let scenario = scenario
        .with_pool(config.spec)
        .map_err(|what| Failure::new(Exit::ConfigInvalid, format!("{}: {what}", file.display())))?;
    Ok((scenario, text))
}

/// Where the config is that a scenario names.
///
/// # Errors
/// It is not there.
pub fn config_of(scenario: &Path, config: &Path) -> Result<PathBuf, Failure> {
    let path = scenario.parent().unwrap_or(Path::new(".")).join(config);
    let missing = || format!("{}: there is no {}, which it names as its `config`", scenario.display(), path.display());
    if path.exists() { Ok(path) } else { Err(Failure::new(Exit::ConfigInvalid, missing())) }
}

/// Simulates, with a progress bar on standard error if a person looks.
///
/// # Errors
/// The scenario has no pool.
pub fn simulate_shown(scenario: &Scenario) -> anyhow::Result<Simulated> {
    let seconds = scenario.duration_s.ceil() as u64;
    let bar = if output::is_terminal(Stream::Err) { ProgressBar::new(seconds) } else { ProgressBar::hidden() };
    bar.set_style(
        ProgressStyle::with_template("{bar:30} {pos} of {len} virtual seconds").unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    let simulated = simulate(scenario, &mut |now_s| bar.set_position(now_s as u64));
    bar.finish_and_clear();
    Ok(simulated?)
}

/// # Errors
/// What must hold in any run and did not: a mistake in weal, not in the scenario.
pub fn sound(simulated: &Simulated) -> anyhow::Result<()> {
    if !simulated.findings.is_empty() {
        bail!("what must always hold did not; please report this with the scenario:\n  {}", simulated.findings.join("\n  "));
    }
    Ok(())
}

/// # Errors
/// When an expectation was missed.
fn met(run: &Run) -> anyhow::Result<()> {
    let missed = run.checks.iter().filter(|check| !check.met).count();
    if missed > 0 {
        bail!("{missed} expectations were missed");
    }
    Ok(())
}

/// Prints what was expected, what came out, and what a reader must know.
pub fn show_checks(run: &Run) {
    let mut table = Table::new(&["WHAT", "EXPECTED", "MEASURED", ""]);
    for check in &run.checks {
        let got = check.got.map_or("nothing".into(), |got| format!("{got:.3}"));
        let verdict = if check.met { toned("met", Tone::Good) } else { toned("MISSED", Tone::Bad) };
        table.row(vec![cell(&check.what), cell(&check.expected), cell(got), verdict]);
    }
    if !run.checks.is_empty() {
        output::print(&table.render());
    }
    for note in &run.notes {
        output::line(&format!("note: {note}"));
    }
}

fn show_jobs(run: &Run) {
    let Some(jobs) = &run.jobs else { return };
    let (all, due) = (jobs.summary(0.0, f64::INFINITY), jobs.summary(0.0, run.duration_s));
    let utility = |utility: Option<f64>| cell(utility.map_or("-".into(), |utility| format!("{utility:+.2}")));
    let late = due.due - due.on_time;
    let mut table = Table::new(&["JOBS", "DONE", "DUE", "ON TIME", "LATE", "MEAN UTILITY", "LOWEST"]);
    table.row(vec![
        cell(all.came.to_string()),
        cell(all.done.to_string()),
        cell(due.due.to_string()),
        cell(due.on_time.to_string()),
        if late > 0 { toned(late.to_string(), Tone::Bad) } else { cell("0") },
        utility(all.mean_utility),
        utility(all.lowest_utility),
    ]);
    output::print(&table.render());
}

fn show_flows(run: &Run) {
    let mut table = Table::new(&["FLOW", "GOAL", "SENT", "ANSWERED", "REJECTED", "FAILED", "MEAN", "P95", "WITHIN GOAL"]);
    for flow in &run.flows {
        let summary = &flow.summary;
        let bad = |count: u64| if count > 0 { toned(count.to_string(), Tone::Bad) } else { cell("0") };
        table.row(vec![
            cell(&flow.name),
            cell(&flow.goal),
            cell(summary.sent.to_string()),
            cell(summary.answered.to_string()),
            bad(summary.rejected),
            bad(summary.failed),
            cell(milliseconds(summary.mean_ms)),
            cell(milliseconds(summary.p95_ms)),
            cell(summary.within_goal.map_or("-".into(), |share| format!("{:.1}%", share * 100.0))),
        ]);
    }
    output::print(&table.render());
}
