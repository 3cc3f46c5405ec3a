//! `cargo xtask chaos`: a real pool under real load, while one thing after the other goes wrong.
//!
//! The seed gives the order of the faults, so a run can be repeated. After each fault the pool has a minute and a quarter to be whole again: an
//! instance that ended often pauses for a minute. Then all that must hold is checked: each request was answered or may have been cut by that
//! fault, no process is one too many, and what is shown is what runs. When all is over, no kind of fault may have left files open each time.

mod check;
mod clock;
mod fault;
mod held;
pub mod load;
mod machine;
pub mod pool;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;

use crate::table::Table;
use crate::{programs, report};
use fault::{Fault, Selection};
use held::{Held, OpenFiles};
use load::{Load, Total, Window};
use pool::Pool;

/// Requests that are under way at a time.
const CLIENTS: usize = 4;
/// Between two requests of a client where other tests run.
const LONG_PAUSE: Duration = Duration::from_millis(50);
/// How long the pool is left alone between two faults.
const QUIET: Duration = Duration::from_secs(1);

/// What it takes.
#[derive(Args)]
pub struct Arguments {
    /// How long, in hours
    #[arg(long, default_value_t = 0.025)]
    hours: f64,
    /// What the order of the faults is drawn from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only this fault, again and again
    #[arg(long, value_enum)]
    only: Option<Fault>,
    /// Other tests run on this machine: ask it for less, and leave alone what belongs to all of them
    #[arg(long, conflicts_with = "only")]
    beside_others: bool,
    /// Write what it prints to docs/reports/chaos.md, below the page's mark
    #[arg(long)]
    write: bool,
}

/// What became of one kind of fault.
#[derive(Default)]
struct Tally {
    times: u32,
    /// How often this machine did not let it happen.
    impossible: u32,
    longest: Duration,
    cut: usize,
    is_whole: bool,
    held: Held,
}

impl Arguments {
    fn selection(&self) -> Selection {
        match self.only {
            Some(fault) => Selection::Only(fault),
            None if self.beside_others => Selection::OfThePool,
            None => Selection::All,
        }
    }
}

/// Runs it until its time is over or a SIGTERM comes; false when something did not hold. Says the seed, and the fault that came last.
pub fn run(arguments: &Arguments) -> Result<bool> {
    let folder = tempfile::Builder::new().prefix("weal-chaos-").tempdir()?;
    let mut pool = Pool::start(&build()?, folder.path())?;
    let load = Load::start(pool.listen(), CLIENTS, if arguments.beside_others { LONG_PAUSE } else { load::PAUSE });
    let is_told_to_end = Arc::<AtomicBool>::default();
    signal_hook::flag::register(signal_hook::consts::SIGTERM, Arc::clone(&is_told_to_end))?;
    let end = Instant::now() + Duration::from_secs_f64(arguments.hours * 3600.0);
    let (mut order, mut tallies) = (fault::order(arguments.seed, arguments.selection()), BTreeMap::<&str, Tally>::new());
    let (mut broken, mut files, mut last) = (Vec::new(), OpenFiles::new(), None);
    while Instant::now() < end && broken.is_empty() && !is_told_to_end.load(Ordering::Relaxed) {
        let fault = order.next().context("the order of the faults has no end")?;
        std::thread::sleep(QUIET);
        let now = pool.open_files();
        if let Some(tally) = last.and_then(|name| tallies.get_mut(name)) {
            tally.held.add(&files, &now);
        }
        (files, last) = (now, Some(fault.name()));
        broken = strike(&mut pool, &load, fault, tallies.entry(fault.name()).or_default())?;
    }
    let total = load.finish();
    broken.extend(
        tallies
            .iter()
            .flat_map(|(fault, tally)| tally.held.leaks().into_iter().map(move |leak| format!("{leak} (after {fault})"))),
    );
    if broken.is_empty() {
        broken = pool.end()?;
    }
    let text = report(&tallies, arguments, &total, &broken);
    print!("{text}");
    if arguments.write {
        report::replace(&programs::root().join("docs/reports/chaos.md"), &text)?;
    }
    Ok(broken.is_empty() && total.unexplained.is_empty())
}

/// Lets `fault` happen and waits until all is as before. Returns what does not hold.
fn strike(pool: &mut Pool, load: &Load, fault: Fault, tally: &mut Tally) -> Result<Vec<String>> {
    let began = Instant::now();
    let possible = fault.strike(pool)?;
    let struck = Instant::now();
    let broken = check::until_whole(pool);
    let window = Window { fault: fault.name(), began, struck, ended: Instant::now(), cuts: fault.cuts() };
    let cut = load.explain(window);
    (tally.times, tally.cut) = (tally.times + 1, tally.cut + cut);
    (tally.is_whole, tally.impossible) = (broken.is_empty(), tally.impossible + u32::from(!possible));
    tally.longest = tally.longest.max(began.elapsed());
    let note = if possible { "" } else { " (not possible here)" };
    println!("{:<24} whole after {:>6.2} s, {cut} requests cut{note}", fault.name(), began.elapsed().as_secs_f64());
    Ok(broken.into_iter().map(|line| format!("{line} (after {})", fault.name())).collect())
}

/// What stands in docs/reports as it is printed.
fn report(tallies: &BTreeMap<&str, Tally>, arguments: &Arguments, total: &Total, broken: &[String]) -> String {
    let (hours, seed) = (arguments.hours, arguments.seed);
    let title = format!("Chaos: {hours:.2} h with seed {seed}, {CLIENTS} clients, {}", report::circumstances());
    let mut table = Table::new(title, &["fault", "times", "whole after at most", "requests cut"]);
    for (name, tally) in tallies {
        let longest = format!("{:.2} s", tally.longest.as_secs_f64());
        let times = if tally.impossible == 0 { tally.times.to_string() } else { "not possible here".to_owned() };
        table.row([(*name).to_owned(), times, longest, tally.cut.to_string()], Some(tally.is_whole));
    }
    let faults: u32 = tallies.values().map(|tally| tally.times - tally.impossible).sum();
    table.notes.push(format!(
        "{faults} faults of {} kinds. {} requests: {} answered, {} cut where a fault may cut them, {} lost without a reason.",
        tallies.len(),
        total.all,
        total.answered,
        total.cut,
        total.unexplained.len()
    ));
    table.notes.extend(broken.iter().chain(&total.unexplained).map(|line| format!("Does not hold: {line}")));
    table.to_markdown()
}

/// Builds weal as the tests do, so that `make test` compiles nothing twice.
pub fn build() -> Result<std::path::PathBuf> {
    if let Some(built) = std::env::var_os("WEAL_PROGRAMS") {
        return Ok(built.into());
    }
    let mut cargo = std::process::Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--workspace", "--profile", "test", "--bin", "weal", "--example", "echo"]);
    anyhow::ensure!(cargo.current_dir(programs::root()).status()?.success(), "cannot build weal");
    Ok(programs::target().join("debug"))
}
