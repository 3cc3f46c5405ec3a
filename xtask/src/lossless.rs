//! `cargo xtask lossless`: the test of that name with many requests. Clients of every kind ask a real pool, which gets one config, one certificate and
//! one program after the other meanwhile.

use std::process::Command;

use anyhow::{Context, Result};

use crate::programs;

#[derive(clap::Args)]
pub struct Arguments {
    /// Requests and messages in all, at least
    #[arg(long, default_value_t = 100_000)]
    requests: u64,
}

/// Runs it; the test prints what it counted. False when something was lost.
pub fn run(arguments: &Arguments) -> Result<bool> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["test", "--quiet", "--package", "weal", "--test", "e2e", "lossless::", "--", "--nocapture"]);
    command.env("WEAL_REQUESTS", arguments.requests.to_string()).current_dir(programs::root());
    Ok(command.status().context("cannot run cargo")?.success())
}
