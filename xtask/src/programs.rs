//! The workspace's own programs, built before they are measured.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::de::DeserializeOwned;

/// Where programs are that were built before.
pub const BUILT: &str = "WEAL_PROGRAMS";

/// Builds what cargo's `selection` names (`--package weal-sim --example swarm`) with the profile `measured` and returns the folder with the
/// programs; examples are in `examples` below it. `WEAL_PROGRAMS=DIR` says that they are in DIR already: an older build to compare with.
pub fn release(selection: &[&str]) -> Result<PathBuf> {
    built("measured", selection)
}

/// The same with the profile `release`: instructions are compared with those of former programs, which were built so.
pub fn fully_optimized(selection: &[&str]) -> Result<PathBuf> {
    built("release", selection)
}

fn built(profile: &str, selection: &[&str]) -> Result<PathBuf> {
    if let Some(built) = std::env::var_os(BUILT) {
        return Ok(PathBuf::from(built));
    }
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--profile", profile]).args(selection).current_dir(root());
    ensure!(cargo.status()?.success(), "cannot build {}", selection.join(" "));
    Ok(target().join(profile))
}

/// What a program prints as JSON.
///
/// # Errors
/// It cannot be run, fails, or prints something else; says which program it was, and how it was called.
pub fn json_of<T: DeserializeOwned>(command: &mut Command) -> Result<T> {
    serde_json::from_str(&text_of(command)?).with_context(|| format!("{command:?} printed no JSON that is known"))
}

/// What a program prints.
///
/// # Errors
/// It cannot be run, or fails; says which program it was, and how it was called.
pub fn text_of(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(output.status.success(), "{command:?} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The interpreter of a Python environment with these packages in it, which is made in the folder `venv` if it is not there.
///
/// # Errors
/// It cannot be made, or pip cannot install a package; says why.
pub fn python_with(venv: &Path, packages: &[&str]) -> Result<PathBuf> {
    let python = venv.join("bin/python");
    if !python.exists() {
        run(Command::new("python3").args(["-m", "venv"]).arg(venv))
            .context("no Python environment (`apt-get install python3-venv`)")?;
    }
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    run(Command::new(&python).args(install).args(packages))
        .with_context(|| format!("cannot install {}", packages.join(" and ")))?;
    Ok(python)
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("cannot start {:?}", command.get_program()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}", said.lines().last().unwrap_or("it failed"));
    Ok(())
}

/// The folder that cargo builds in.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the root").to_owned()
}
