//! Benchmarks: weal beside a peer in the same run, quoted as ratios. They are never timed assertions in tests.
//!
//! Each benchmark is a module with `run(&Arguments) -> Result<Table>`; it says what it needs and installs it.

mod control;
mod fidelity;
mod flash_crowd;
mod gateway;
mod profiles;
mod sim;
mod sleep;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueEnum};

use crate::table::Table;

/// What every benchmark takes.
#[derive(Args)]
pub struct Arguments {
    /// Which one
    pub name: Name,
    /// Print `table` or `json`
    #[arg(short, long, default_value = "table")]
    pub output: Output,
    /// Exit with 1 when a target is missed
    #[arg(long)]
    pub check: bool,
    /// Fewer and shorter rounds: shows that it runs, not what is true
    #[arg(long)]
    pub quick: bool,
    /// Only one case of a benchmark that has several
    #[arg(long, value_name = "CASE")]
    pub case: Option<String>,
    /// What `sleep` measures
    #[command(flatten)]
    pub sleep: sleep::Choice,
    /// Seconds that a solver or an older algorithm may take for one problem (control)
    #[arg(long, default_value_t = 60)]
    pub oracle_seconds: u32,
    /// Write the picture of cost against size to this file (control)
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
}

/// How results are printed.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Table,
    /// For programs.
    Json,
}

/// The benchmarks.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// The planner on generated problems, the thesis' algorithm, CP-SAT and HiGHS: time and optimality
    Control,
    /// This gateway, HAProxy and nginx: requests per CPU-second
    Gateway,
    /// The simulator's engine, a bare binary heap, NeXosim and SimPy: events per second
    Sim,
    /// Crowds under an autoscaler and under weal, simulated: seconds of missed goals
    FlashCrowd,
    /// Scenarios with real processes and simulated: how far the two are apart
    Fidelity,
    /// A server that is put to sleep and woken: milliseconds, CPU-seconds and memory of each rung
    Sleep,
    /// Work factors as learnt online, beside the kernel's count
    Profiles,
}

/// Runs one; false when `--check` was given and a target is missed.
pub fn run(arguments: &Arguments) -> Result<bool> {
    let tables: Vec<Table> = match arguments.name {
        Name::Control => control::run(arguments)?,
        Name::Gateway => vec![gateway::run(arguments)?],
        Name::Sim => vec![sim::run(arguments)?],
        Name::Fidelity => vec![fidelity::run(arguments)?],
        Name::FlashCrowd => vec![flash_crowd::run()?],
        Name::Sleep => sleep::run(arguments)?,
        Name::Profiles => vec![profiles::run(arguments)?],
    };
    for table in &tables {
        table.print(arguments.output == Output::Json);
    }
    Ok(!arguments.check || tables.iter().all(Table::all_met))
}
