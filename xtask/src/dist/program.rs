//! The program that is handed out: built static, or as it was built.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::cross;
use crate::elf::number;
use crate::programs::{root, target};

/// What this machine is called in [`Program::architecture`].
const HERE: &str = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };

/// A weal.
pub struct Program {
    /// Where it lies.
    pub path: PathBuf,
    /// Its machine as Debian, Go and OCI call it: `amd64`, `arm64`.
    pub architecture: &'static str,
    /// Whether it needs no library at run time.
    pub is_static: bool,
}

impl Program {
    /// Builds one. Only the last step, linking, differs from other builds: what is compiled already is used.
    ///
    /// # Errors
    /// Something is missing for `triple`, or cargo fails; its own words are on standard error.
    pub fn build(triple: Option<&str>, debug: bool) -> Result<Self> {
        let profile = if debug { "dev" } else { "dist" };
        let mut cargo = Command::new(env!("CARGO"));
        cargo.current_dir(root()).args(["rustc", "--package", "weal", "--bin", "weal", "--profile", profile]);
        if let Some(triple) = triple {
            cross::prepare(triple, &mut cargo)?;
            cargo.arg(format!("--target={triple}"));
        }
        cargo.args(["--", "-C", "target-feature=+crt-static"]);
        ensure!(cargo.status().context("cannot run cargo")?.success(), "cannot build weal");
        let folder = target().join(triple.unwrap_or_default());
        Self::read(&folder.join(if debug { "debug" } else { profile }).join("weal"))
    }

    /// One that is there.
    ///
    /// # Errors
    /// It cannot be read, or is no program of Linux's for a machine that weal knows.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let (architecture, is_static) = read_elf(&bytes).with_context(|| path.display().to_string())?;
        Ok(Self { path: fs::canonicalize(path)?, architecture, is_static })
    }

    /// Runs it, by an emulator where it is for another machine.
    pub fn command(&self) -> Command {
        if self.architecture == HERE {
            return Command::new(&self.path);
        }
        let mut command = Command::new(emulator(self.architecture));
        command.arg(&self.path);
        command
    }

    /// What has to be here for [`Program::command`].
    pub fn needs(&self) -> String {
        match self.architecture {
            HERE => self.path.display().to_string(),
            other => format!("{} (Debian package qemu-user) for a program of another machine", emulator(other)),
        }
    }
}

fn emulator(architecture: &str) -> &'static str {
    if architecture == "arm64" { "qemu-aarch64" } else { "qemu-x86_64" }
}

/// Architecture, and whether no interpreter loads libraries, of a 64-bit ELF file (System V ABI, chapters 4 and 5).
fn read_elf(bytes: &[u8]) -> Result<(&'static str, bool)> {
    const INTERPRETER: u64 = 3;
    ensure!(bytes.starts_with(b"\x7fELF\x02\x01"), "not a program for 64-bit Linux");
    let architecture = match number(bytes, 18, 2)? {
        62 => "amd64",
        183 => "arm64",
        other => bail!("a program for machine {other} of ELF, which weal is not built for"),
    };
    let (table, size, count) = (number(bytes, 32, 8)?, number(bytes, 54, 2)?, number(bytes, 56, 2)?);
    let kinds: Result<Vec<u64>> = (0..count).map(|index| number(bytes, table + index * size, 4)).collect();
    Ok((architecture, !kinds?.contains(&INTERPRETER)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_programs_machine_and_its_need_of_libraries_are_read_from_it() {
        let own = Program::read(Path::new("/proc/self/exe")).unwrap();
        assert_eq!((own.architecture, own.is_static), (HERE, cfg!(target_feature = "crt-static")));
        assert_eq!(own.command().get_program(), own.path);
    }

    #[test]
    fn a_program_for_another_machine_is_run_by_an_emulator() {
        let other = if HERE == "arm64" { "amd64" } else { "arm64" };
        let program = Program { path: PathBuf::from("/dist/weal"), architecture: other, is_static: true };
        assert!(program.command().get_program().to_string_lossy().starts_with("qemu-"));
        assert!(program.command().get_args().eq([Path::new("/dist/weal")]));
        assert!(program.needs().contains("qemu-user"));
    }

    #[test]
    fn what_is_no_program_is_refused() {
        assert!(read_elf(b"#!/bin/sh\n").is_err());
        assert!(read_elf(b"\x7fELF\x02\x01").unwrap_err().to_string().contains("cut short"));
    }
}
