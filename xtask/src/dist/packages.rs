//! Packages of Debian and RPM, by nfpm from one description (docs/decisions/packages.md).

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::program::Program;
use super::tree;
use crate::programs::{root, target};

/// The version of nfpm whose output was tried.
const NFPM: &str = "github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.43.0";

/// For whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packager {
    /// Debian.
    Deb,
    /// RPM.
    Rpm,
}

impl Packager {
    fn as_str(self) -> &'static str {
        match self {
            Self::Deb => "deb",
            Self::Rpm => "rpm",
        }
    }
}

/// Makes the package for `packager` in `to`. Returns its path.
///
/// # Errors
/// nfpm cannot be had or fails, or something cannot be written.
pub fn make(packager: Packager, program: &Program, version: &str, to: &Path) -> Result<PathBuf> {
    let nfpm = nfpm()?;
    let sources = tempfile::tempdir()?;
    tree::lay(program, sources.path())?;
    let name = match packager {
        Packager::Rpm => format!("weal-{version}.{}.rpm", rpm_machine(program.architecture)),
        Packager::Deb => format!("weal_{version}_{}.deb", program.architecture),
    };
    let package = to.join(name);
    let mut command = Command::new(nfpm);
    command.current_dir(sources.path()).args(["package", "--packager", packager.as_str(), "--config"]);
    command.arg(root().join("packaging/nfpm.yaml")).arg("--target").arg(&package);
    command.env("WEAL_VERSION", version).env("WEAL_ARCHITECTURE", program.architecture);
    command.env("SOURCE_DATE_EPOCH", time_of_sources());
    let output = command.output().context("cannot run nfpm")?;
    ensure!(output.status.success(), "nfpm: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(package)
}

/// nfpm, which is built once. It is a program in Go, and needs Go only for that.
fn nfpm() -> Result<PathBuf> {
    let folder = std::path::absolute(target().join("nfpm"))?;
    let program = folder.join("nfpm");
    if !program.exists() {
        let built = Command::new("go").args(["install", NFPM]).env("GOBIN", &folder).output();
        let built = built.context("packages need nfpm, and building that needs Go 1.24 or newer: cannot run `go`")?;
        ensure!(built.status.success(), "cannot build {NFPM}: {}", String::from_utf8_lossy(&built.stderr).trim());
    }
    Ok(program)
}

fn rpm_machine(architecture: &str) -> &'static str {
    if architecture == "arm64" { "aarch64" } else { "x86_64" }
}

/// The last commit's time, in seconds: two builds of the same sources are the same package.
fn time_of_sources() -> String {
    let said = Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(root()).output();
    let said = said.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
    if said.is_empty() { "0".to_owned() } else { said }
}
