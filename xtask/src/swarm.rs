//! `cargo xtask swarm`: random pools under random faults in the simulator, thousands of seeds on every core.

use std::process::{Command, Stdio};

use anyhow::Result;
use clap::Args;

use crate::programs::release;

/// What it takes.
#[derive(Args)]
pub struct Arguments {
    /// How many seeds
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Only this one, again
    #[arg(long, conflicts_with_all = ["seeds", "from"])]
    seed: Option<u64>,
    /// Do not look for the smallest scenario that fails like a failing seed
    #[arg(long)]
    whole: bool,
}

/// Runs it; false when a seed fails. A failing seed is printed with the smallest scenario that fails like it.
pub fn run(arguments: &Arguments) -> Result<bool> {
    let program = release(&["--package", "weal-sim", "--example", "swarm"])?.join("examples/swarm");
    let (from, to) = arguments.seed.map_or((arguments.from, arguments.from + arguments.seeds), |seed| (seed, seed + 1));
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let part = |part: u64| {
        let numbers = [from, to, part, cores].map(|number| number.to_string());
        Command::new(&program).args(arguments.whole.then_some("--whole")).args(numbers).stdout(Stdio::piped()).spawn()
    };
    let parts = (0..cores).map(part).collect::<Result<Vec<_>, _>>()?;
    let (mut all_well, mut failed) = (true, 0);
    for part in parts {
        let output = part.wait_with_output()?;
        all_well &= output.status.success();
        let text = String::from_utf8_lossy(&output.stdout);
        // A line of its own heads each failing seed; the scenarios below have lines that begin alike.
        failed += text.lines().filter(|line| line.starts_with("seed ") && line.ends_with(':')).count();
        text.lines().filter(|line| !line.starts_with('{')).for_each(|line| println!("{line}"));
    }
    println!("swarm: {} seeds, {failed} failed", to - from);
    Ok(all_well)
}
