//! `cargo xtask pages [NAME ...]`: several benchmarks one after the other, without anybody there, each of which writes its page.
//!
//! All programs are built first, at once. Otherwise each benchmark would build its own, with other features of their libraries, on a machine that is to be
//! quiet. A benchmark that fails does not keep the others from being run.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::programs::{self, BUILT};

/// Those of the gateway that compare times, or need a program that Debian has: less than an hour together, on two CPUs.
const GATEWAY: [&str; 5] = ["gateway", "tls-overload", "slow-clients", "idle", "testssl"];

/// What they and the others of the gateway measure.
const SELECTION: [&str; 8] = ["--package", "weal", "--package", "weal-demo", "--package", "weal-gateway", "--bins", "--examples"];

#[derive(clap::Args)]
pub struct Arguments {
    /// Which benchmarks, in this order; without any, those of the gateway whose pages need a quiet machine
    names: Vec<String>,
    /// Fewer and shorter rounds, and no page is written: shows that they run
    #[arg(long)]
    quick: bool,
}

/// Runs them. False when one failed.
pub fn run(arguments: &Arguments) -> Result<bool> {
    let given: Vec<&str> = arguments.names.iter().map(String::as_str).collect();
    let names = if given.is_empty() { &GATEWAY[..] } else { &given[..] };
    // The benchmarks run in the repository's folder, wherever this was called.
    let built = std::path::absolute(programs::release(&SELECTION)?)?;
    ensure!(
        built.join("weal").exists() && built.join("examples/sessions-bench").exists(),
        "{} has not all programs: build {}",
        built.display(),
        SELECTION.join(" ")
    );
    let itself = std::env::current_exe().context("cannot tell where this program lies")?;
    let mut all_well = true;
    for name in names {
        let begun = Instant::now();
        let ended = Command::new(&itself)
            .args(["bench", name, if arguments.quick { "--quick" } else { "--write" }])
            .env(BUILT, &built)
            .current_dir(programs::root())
            .status()
            .with_context(|| format!("cannot begin with {name}"))?;
        all_well &= ended.success();
        eprintln!(
            "{name}: {} after {:.1} minutes",
            if ended.success() { "done" } else { "FAILED" },
            begun.elapsed().as_secs_f64() / 60.0
        );
    }
    Ok(all_well)
}
