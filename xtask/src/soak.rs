//! `cargo xtask soak`: a real pool under steady load, and whether anything of it grows.
//!
//! What may grow is sampled: the memory and the open files of each process, the store, the logs. Some of it goes up and down: connections come and
//! go, a journal is worked off. A leak is what never goes down again. So the least value of each eighth of the time counts, and a line is fitted to
//! these by least squares, once caches are full ([`WARM_S`]). Its slope is told in percent of the mean per hour, with its margin of error. The
//! store has its whole [`past`] from the start.

mod past;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use weal_host::Proc;

use crate::chaos::load::{Load, PAUSE};
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

/// Until caches, kept connections and the free memory of allocators have their sizes. A run that is shorter than twice that is judged by its
/// second half, and shows such things as grow in general.
const WARM_S: f64 = 1200.0;
/// The end of the names of what is counted, not measured.
const OPEN_FILES: &str = ": open files";
/// Samples in all.
const SAMPLES: f64 = 360.0;
/// Into so many parts the time is split.
const BLOCKS: usize = 8;
/// Student's t for a confidence of 95% on both sides, with two degrees of freedom less than there are blocks.
const STUDENT: f64 = 2.447;

/// Runs it. False when something grows that is to be checked, or a request was lost.
pub fn run(arguments: &Arguments) -> Result<bool> {
    let seconds = arguments.hours * 3600.0;
    ensure!(seconds.is_finite() && seconds >= 10.0, "a soak of {seconds} s shows nothing: take --hours 0.01 at least");
    let folder = tempfile::Builder::new().prefix("weal-soak-").tempdir()?;
    let mut pool = Pool::start(&chaos::build()?, folder.path())?;
    let past = past::give(&mut pool, arguments.clients)?;
    let load = Load::start(pool.listen(), arguments.clients, PAUSE);
    let (began, pause) = (Instant::now(), Duration::from_secs_f64((seconds / SAMPLES).max(0.5)));
    let mut series = Series::new();
    while began.elapsed().as_secs_f64() < seconds {
        sample(&pool, began.elapsed().as_secs_f64(), &mut series);
        std::thread::sleep(pause);
    }
    let total = load.finish();
    let left = pool.end()?;
    let mut table = table(&series, arguments);
    table.notes.push(past);
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
            format!("{name}{OPEN_FILES}"),
            std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0.0, |entries| entries.count() as f64),
        );
    }
    let shims = pool.shims();
    let resident = shims.iter().filter_map(|pid| proc.resident(*pid)).sum::<u64>();
    add("shims: memory, KiB".to_owned(), resident as f64 / 1024.0);
    let files = shims.iter().map(|pid| std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)).sum::<usize>();
    add(format!("shims{OPEN_FILES}"), files as f64);
    for (name, folder) in [
        ("store and audit log, KiB", "controller"),
        ("logs, KiB", "logs"),
        ("gateway's files, KiB", "gateway"),
        ("instances' logs and records, KiB", "node"),
    ] {
        add(name.to_owned(), size_kib(&pool.state().join(folder)));
    }
}

/// Of the files in a folder and below it.
fn size_kib(folder: &Path) -> f64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let size = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => size_kib(&entry.path()),
        Ok(meta) if meta.is_file() => meta.len() as f64 / 1024.0,
        _ => 0.0,
    };
    entries.map(size).sum()
}

/// Each slope; with `--check`, whether it is met.
fn table(series: &Series, arguments: &Arguments) -> Table {
    let title = format!("Soak: {:.2} h, {} clients, {}", arguments.hours, arguments.clients, report::circumstances());
    let mut table = Table::new(title, &["what", "at first", "at the end", "percent an hour", "margin of error"]);
    for (name, samples) in series {
        let from_s = WARM_S.min(arguments.hours * 3600.0 / 2.0);
        let later: Vec<(f64, f64)> = samples.iter().copied().filter(|(at_s, _)| *at_s >= from_s).collect();
        let [(_, first), .., (_, last)] = later[..] else { continue };
        let Growth { percent, margin } = Growth::of(&later);
        let met = arguments.check.map(|most| percent <= most || is_less_than_one(name, percent, &later));
        let figures = [format!("{first:.0}"), format!("{last:.0}"), format!("{percent:+.2}"), format!("{margin:.2}")];
        let [first, last, percent, margin] = figures;
        table.row([name.clone(), first, last, percent, margin], met);
    }
    table
}

/// How fast something grows, in percent of its mean per hour.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Growth {
    /// The slope of the line through the least samples of all blocks.
    percent: f64,
    /// So far off it may be by chance, with a confidence of 95%.
    margin: f64,
}

impl Growth {
    fn of(samples: &[(f64, f64)]) -> Self {
        let mean = mean(samples).1;
        if mean <= 0.0 {
            return Self { percent: 0.0, margin: 0.0 };
        }
        let in_percent = |per_second: f64| per_second * 3600.0 / mean * 100.0;
        let least = |block: &[(f64, f64)]| block.iter().copied().min_by(|one, other| one.1.total_cmp(&other.1));
        let floors: Vec<(f64, f64)> = samples.chunks(samples.len().div_ceil(BLOCKS)).filter_map(least).collect();
        Self { percent: in_percent(slope(&floors)), margin: in_percent(STUDENT * error_of_slope(&floors)) }
    }
}

/// Whether what grew is less than one whole file: open files are a count, which a line through it splits.
fn is_less_than_one(name: &str, percent: f64, samples: &[(f64, f64)]) -> bool {
    let hours = samples.last().zip(samples.first()).map_or(0.0, |(last, first)| (last.0 - first.0) / 3600.0);
    name.ends_with(OPEN_FILES) && percent / 100.0 * mean(samples).1 * hours < 1.0
}

fn mean(samples: &[(f64, f64)]) -> (f64, f64) {
    let sum = samples.iter().fold((0.0, 0.0), |sum, sample| (sum.0 + sample.0, sum.1 + sample.1));
    (sum.0 / samples.len() as f64, sum.1 / samples.len() as f64)
}

/// The slope of the line through the samples, by least squares.
fn slope(samples: &[(f64, f64)]) -> f64 {
    let (mean_x, mean_y) = mean(samples);
    let covariance: f64 = samples.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let spread = spread(samples);
    if spread > 0.0 { covariance / spread } else { 0.0 }
}

fn spread(samples: &[(f64, f64)]) -> f64 {
    let mean = mean(samples).0;
    samples.iter().map(|(x, _)| (x - mean).powi(2)).sum()
}

/// The standard error of that slope, from how far the samples are off the line.
fn error_of_slope(samples: &[(f64, f64)]) -> f64 {
    let (slope, (mean_x, mean_y)) = (slope(samples), mean(samples));
    let off: f64 = samples.iter().map(|(x, y)| (y - mean_y - slope * (x - mean_x)).powi(2)).sum();
    let (free, spread) = (samples.len().saturating_sub(2) as f64, spread(samples));
    if free > 0.0 && spread > 0.0 { (off / free / spread).sqrt() } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_told_in_percent_an_hour() {
        let flat: Vec<(f64, f64)> = (0..100).map(|at| (f64::from(at), 50.0)).collect();
        assert_eq!(Growth::of(&flat), Growth { percent: 0.0, margin: 0.0 });
        let growing: Vec<(f64, f64)> = (0..=7200).map(|at| (f64::from(at), 95.0 + f64::from(at) / 720.0)).collect();
        let growth = Growth::of(&growing);
        assert!((growth.percent - 5.0).abs() < 0.01 && growth.margin < 0.01, "{growth:?}");
    }

    #[test]
    fn a_count_grows_by_whole_files_and_memory_by_less() {
        let some: Vec<(f64, f64)> = (0..3600).map(|at| (f64::from(at), 35.0 + f64::from(at / 2000))).collect();
        let percent = Growth::of(&some).percent;
        assert!(percent > 1.0, "{percent}");
        assert!(is_less_than_one("gateway: open files", 1.3, &some), "as 35 files, of which one comes and goes, may show");
        assert!(!is_less_than_one("gateway: open files", 10.0, &some));
        assert!(!is_less_than_one("gateway: memory, KiB", 1.3, &some));
    }

    #[test]
    fn what_goes_up_and_down_is_flat_and_a_leak_in_it_is_seen() {
        // A saw of 5 minutes, as of a journal that is worked off now and then, for an hour.
        let saw = |at: i32| f64::from(at % 300) / 300.0 * 20.0 + 90.0;
        let steady: Vec<(f64, f64)> = (0..3500).map(|at| (f64::from(at), saw(at))).collect();
        assert_eq!(Growth::of(&steady).percent, 0.0);
        let leak: Vec<(f64, f64)> = (0..3500).map(|at| (f64::from(at), saw(at) + f64::from(at) / 720.0)).collect();
        let leaking = Growth::of(&leak);
        assert!(leaking.percent - leaking.margin > 4.0, "{leaking:?}");
    }
}
