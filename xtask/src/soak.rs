//! `cargo xtask soak`: a real pool under steady load, and whether anything of it grows.
//!
//! What may grow is sampled: the memory and the open files of each process, the store, the logs. Once the bounds of history are reached, which
//! takes [`FILLED_S`], a line is fitted to each by least squares. Its slope is told in percent of the mean per hour.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use weal_host::Proc;

use crate::chaos::load::Load;
use crate::chaos::pool::{Pool, ROLES};
use crate::table::Table;
use crate::{chaos, programs, report};

/// What it takes.
#[derive(clap::Args)]
pub struct Arguments {
    /// How long, in hours
    #[arg(long, default_value_t = 2.0)]
    hours: f64,
    /// Requests that are under way at a time: four leave two cores about half idle
    #[arg(long, default_value_t = 4)]
    clients: usize,
    /// Fail when something grows by more than this many percent an hour
    #[arg(long, num_args = 0..=1, default_missing_value = "1")]
    check: Option<f64>,
    /// Write what it prints to docs/reports/soak.md, below the page's mark
    #[arg(long)]
    write: bool,
}

/// Samples of each thing: seconds since the start, and how much.
type Series = BTreeMap<String, Vec<(f64, f64)>>;

/// Until the store holds each cycle of an hour, as it always does from then on; a little more, for it is tidied now and then. A run that is
/// shorter than twice that is judged by its second half, and shows such things as grow in general.
const FILLED_S: f64 = 3600.0 + 240.0;
/// Samples in all.
const SAMPLES: f64 = 360.0;

/// Runs it. False when something grows that is to be checked, or a request was lost.
pub fn run(arguments: &Arguments) -> Result<bool> {
    let seconds = arguments.hours * 3600.0;
    ensure!(seconds.is_finite() && seconds >= 10.0, "a soak of {seconds} s shows nothing: take --hours 0.01 at least");
    let folder = tempfile::Builder::new().prefix("weal-soak-").tempdir()?;
    let mut pool = Pool::start(&chaos::build()?, folder.path())?;
    let load = Load::start(pool.listen(), arguments.clients);
    let (began, pause) = (Instant::now(), Duration::from_secs_f64((seconds / SAMPLES).max(0.5)));
    let mut series = Series::new();
    while began.elapsed().as_secs_f64() < seconds {
        sample(&pool, began.elapsed().as_secs_f64(), &mut series);
        std::thread::sleep(pause);
    }
    let total = load.finish();
    let left = pool.end()?;
    let mut table = table(&series, arguments);
    table.notes.push(format!("{} requests: {} answered, {} lost.", total.all, total.answered, total.unexplained.len()));
    table.notes.extend(left.iter().chain(&total.unexplained).map(|line| format!("Does not hold: {line}")));
    print!("{}", table.to_markdown());
    if arguments.write {
        report::replace(&programs::root().join("docs/reports/soak.md"), &table.to_markdown())?;
    }
    Ok(left.is_empty() && total.unexplained.is_empty() && table.all_met())
}

fn sample(pool: &Pool, at_s: f64, series: &mut Series) {
    let proc = Proc::system();
    let mut add = |name: String, value: f64| series.entry(name).or_default().push((at_s, value));
    let processes = ROLES.into_iter().flat_map(|role| pool.roles(role).into_iter().map(move |pid| (role, pid)));
    for (name, pid) in processes.chain([("supervisor", pool.supervisor())]) {
        add(format!("{name}: memory, KiB"), proc.resident(pid).map_or(0.0, |bytes| bytes as f64 / 1024.0));
        add(
            format!("{name}: open files"),
            std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0.0, |entries| entries.count() as f64),
        );
    }
    for (name, folder) in [("store and audit log, KiB", "controller"), ("logs, KiB", "logs"), ("gateway's files, KiB", "gateway")]
    {
        add(name.to_owned(), size_kib(&pool.state().join(folder)));
    }
}

fn size_kib(folder: &Path) -> f64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.metadata().ok()).filter(|meta| meta.is_file()).map(|meta| meta.len() as f64 / 1024.0).sum()
}

/// Each slope; with `--check`, whether it is met.
fn table(series: &Series, arguments: &Arguments) -> Table {
    let title = format!("Soak: {:.2} h, {} clients, {}", arguments.hours, arguments.clients, report::circumstances());
    let mut table = Table::new(title, &["what", "at first", "at the end", "percent an hour"]);
    for (name, samples) in series {
        let from_s = FILLED_S.min(arguments.hours * 3600.0 / 2.0);
        let later: Vec<(f64, f64)> = samples.iter().copied().filter(|(at_s, _)| *at_s >= from_s).collect();
        let [(_, first), .., (_, last)] = later[..] else { continue };
        let percent = percent_an_hour(&later);
        let met = arguments.check.map(|most| percent <= most);
        table.row([name.clone(), format!("{first:.0}"), format!("{last:.0}"), format!("{percent:+.2}")], met);
    }
    table
}

/// The slope of the line through the samples, by least squares, in percent of their mean per hour.
fn percent_an_hour(samples: &[(f64, f64)]) -> f64 {
    let count = samples.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| samples.iter().map(of).sum::<f64>() / count;
    let (mean_s, mean_value) = (mean(|sample| sample.0), mean(|sample| sample.1));
    let covariance: f64 = samples.iter().map(|(at_s, value)| (at_s - mean_s) * (value - mean_value)).sum();
    let variance: f64 = samples.iter().map(|(at_s, _)| (at_s - mean_s).powi(2)).sum();
    if variance > 0.0 && mean_value > 0.0 { covariance / variance * 3600.0 / mean_value * 100.0 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slope_is_told_in_percent_an_hour() {
        let flat: Vec<(f64, f64)> = (0..100).map(|at| (f64::from(at), 50.0)).collect();
        assert_eq!(percent_an_hour(&flat), 0.0);
        let growing: Vec<(f64, f64)> = (0..=7200).map(|at| (f64::from(at), 95.0 + f64::from(at) / 720.0)).collect();
        assert!((percent_an_hour(&growing) - 5.0).abs() < 0.01);
    }
}
