//! `cargo xtask chaos`: a real pool under real load, while one thing after the other goes wrong.
//!
//! The seed gives the order of the faults, so a run can be repeated. After each fault the pool has a minute to be whole again. Then all that must
//! hold is checked: each request was answered or may have been cut by that fault, no process is one too many, and what is shown is what runs.

mod check;
mod fault;
pub mod load;
pub mod pool;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;

use crate::programs;
use crate::table::Table;
use fault::Fault;
use load::{Load, Window};
use pool::Pool;

/// Requests that are under way at a time.
const CLIENTS: usize = 4;
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
}

/// What became of one kind of fault.
#[derive(Default)]
struct Tally {
    times: u32,
    longest: Duration,
    cut: usize,
}

/// Runs it; false when something did not hold. Says the seed, and the fault that came last.
pub fn run(arguments: &Arguments) -> Result<bool> {
    let folder = tempfile::Builder::new().prefix("weal-chaos-").tempdir()?;
    let mut pool = Pool::start(&build()?, folder.path())?;
    let load = Load::start(pool.listen(), CLIENTS);
    let end = Instant::now() + Duration::from_secs_f64(arguments.hours * 3600.0);
    let (mut order, mut tallies) = (fault::order(arguments.seed, arguments.only), BTreeMap::<&str, Tally>::new());
    let mut broken = Vec::new();
    while Instant::now() < end && broken.is_empty() {
        let fault = order.next().context("the order of the faults has no end")?;
        broken = strike(&mut pool, &load, fault, tallies.entry(fault.name()).or_default())?;
    }
    let total = load.finish();
    if broken.is_empty() {
        broken = pool.end()?;
    }
    print(&tallies);
    println!(
        "{} requests with seed {}: {} answered, {} cut where a fault may cut them",
        total.all, arguments.seed, total.answered, total.cut
    );
    broken.extend(total.unexplained);
    for line in &broken {
        println!("does not hold: {line}");
    }
    Ok(broken.is_empty())
}

/// Lets `fault` happen and waits until all is as before. Returns what does not hold.
fn strike(pool: &mut Pool, load: &Load, fault: Fault, tally: &mut Tally) -> Result<Vec<String>> {
    std::thread::sleep(QUIET);
    let began = Instant::now();
    let possible = fault.strike(pool)?;
    let broken = check::until_whole(pool);
    let window = Window { began, ended: Instant::now(), cuts: fault.cuts() };
    let cut = load.explain(window);
    (tally.times, tally.cut) = (tally.times + 1, tally.cut + cut);
    tally.longest = tally.longest.max(began.elapsed());
    let note = if possible { "" } else { " (not possible here)" };
    println!("{:<24} whole after {:>6.2} s, {cut} requests cut{note}", fault.name(), began.elapsed().as_secs_f64());
    Ok(broken.into_iter().map(|line| format!("{line} (after {})", fault.name())).collect())
}

fn print(tallies: &BTreeMap<&str, Tally>) {
    let mut table = Table::new("chaos", &["fault", "times", "whole after at most", "requests cut"]);
    for (name, tally) in tallies {
        let longest = format!("{:.2} s", tally.longest.as_secs_f64());
        table.row([(*name).to_owned(), tally.times.to_string(), longest, tally.cut.to_string()], None);
    }
    table.print(false);
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
