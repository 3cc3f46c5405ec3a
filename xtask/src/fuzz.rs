//! `cargo xtask fuzz`: the targets that `make test` runs for some seconds, for longer.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::programs;

#[derive(clap::Args)]
pub struct Arguments {
    /// Mutations that each target runs
    #[arg(long, default_value_t = 200_000)]
    executions: u64,
    /// Go on behind so many mutations: a former run with the same seed has done them
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// One target only, by the name of its folder in crates/fuzz/corpus
    #[arg(long)]
    target: Option<String>,
    /// Other mutations than those of seed 1
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Which tests are targets, as arguments of `cargo test`. Each is named `fuzz_…`.
const PLACES: [&[&str]; 10] = [
    &["-p", "weal-gateway", "--lib"],
    &["-p", "weal-gateway", "--test", "it"],
    &["-p", "weal-rpc", "--test", "fuzz"],
    &["-p", "weal-load", "--lib"],
    &["-p", "weal-node", "--lib"],
    &["-p", "weal-image", "--lib"],
    &["-p", "weal", "--bin", "weal"],
    &["-p", "weal-scenario", "--lib"],
    &["-p", "weal-config", "--test", "fuzz"],
    &["-p", "weal-controller", "--test", "controller"],
];

/// Runs the targets. False when one fails.
pub fn run(arguments: &Arguments) -> Result<bool> {
    let root = programs::root();
    if let Some(target) = &arguments.target {
        let targets = targets(&root)?;
        ensure!(targets.contains(target), "there is no target `{target}`: {}", targets.join(", "));
    }
    let mut is_good = true;
    for place in PLACES {
        let mut command = Command::new(env!("CARGO"));
        command.arg("test").arg("--quiet").args(place).args(["fuzz_", "--", "--nocapture"]).current_dir(&root);
        command.env("WEAL_FUZZ_EXECUTIONS", arguments.executions.to_string()).env("WEAL_FUZZ_SEED", arguments.seed.to_string());
        command.env("WEAL_FUZZ_FIRST", arguments.first.to_string());
        if let Some(target) = &arguments.target {
            command.env("WEAL_FUZZ_TARGET", target);
        }
        is_good &= command.status().context("cannot run cargo")?.success();
    }
    println!(
        "{} mutations of each target with seed {}, the first {} left out: {}",
        arguments.executions,
        arguments.seed,
        arguments.first,
        if is_good { "ok" } else { "FAILED" }
    );
    Ok(is_good)
}

fn targets(root: &Path) -> Result<Vec<String>> {
    let mut names: Vec<String> = std::fs::read_dir(root.join("crates/fuzz/corpus"))?
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    Ok(names)
}
