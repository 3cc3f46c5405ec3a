//! The workspace's own programs, built before they are measured.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

/// Builds what cargo's `selection` names (`--package weal-sim --example swarm`) in release form and returns the folder with the
/// programs; examples are in `examples` below it. `WEAL_PROGRAMS=DIR` says that they are in DIR already: an older build to compare with.
pub fn release(selection: &[&str]) -> Result<PathBuf> {
    if let Some(built) = std::env::var_os("WEAL_PROGRAMS") {
        return Ok(PathBuf::from(built));
    }
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--release"]).args(selection).current_dir(root());
    ensure!(cargo.status()?.success(), "cannot build {}", selection.join(" "));
    Ok(target().join("release"))
}

/// The folder that cargo builds in.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the root").to_owned()
}
