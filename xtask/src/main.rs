//! The project's own chores: `cargo xtask tidy`, `cargo xtask bench NAME`, `cargo xtask swarm`.

mod bench;
mod chaos;
mod dist;
mod elf;
mod fuzz;
mod lossless;
mod machine;
mod pages;
mod programs;
mod report;
mod site;
mod soak;
mod swarm;
mod table;
mod tidy;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "weal's chores for its developers")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Check what the compiler does not: floors, purity, sizes, and that the documents tell the truth
    Tidy,
    /// Measure weal beside its peers in one run and print ratios
    Bench(bench::Arguments),
    /// Build once what several benchmarks measure, run one after the other, and write their pages
    Pages(pages::Arguments),
    /// Simulate random pools under random faults, and shrink what fails
    Swarm(swarm::Arguments),
    /// Let one thing after the other go wrong in a real pool under load, and check what must hold
    Chaos(chaos::Arguments),
    /// Run a real pool under steady load, and print what of it grows
    Soak(soak::Arguments),
    /// Feed every parser of outside bytes with mutations of a small corpus
    Fuzz(fuzz::Arguments),
    /// Change a pool in every way under load of every kind, and count what is lost
    Lossless(lossless::Arguments),
    /// Run end-to-end tests on an emulated machine with control groups of v2 alone
    Machine(machine::Arguments),
    /// Make packages of weal for Debian and RPM, and an OCI image
    Dist(dist::Arguments),
    /// Build the site of all documents
    Site,
    /// A process that takes a core from a measurement, for that share of the time
    #[command(hide = true)]
    Spin { share: f64 },
}

fn main() -> ExitCode {
    let result = match Arguments::parse().chore {
        Chore::Tidy => tidy::run(&programs::root()),
        Chore::Bench(arguments) => bench::run(&arguments),
        Chore::Swarm(arguments) => swarm::run(&arguments),
        Chore::Chaos(arguments) => chaos::run(&arguments),
        Chore::Dist(arguments) => dist::run(&arguments),
        Chore::Fuzz(arguments) => fuzz::run(&arguments),
        Chore::Lossless(arguments) => lossless::run(&arguments),
        Chore::Machine(arguments) => machine::run(&arguments),
        Chore::Pages(arguments) => pages::run(&arguments),
        Chore::Site => site::run(),
        Chore::Soak(arguments) => soak::run(&arguments),
        Chore::Spin { share } => {
            bench::spin(share);
            Ok(true)
        }
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
