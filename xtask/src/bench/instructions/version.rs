//! A version's programs, and how their instructions are counted.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

/// One version's programs, and a folder for what callgrind writes.
pub struct Version {
    /// Where the programs are.
    pub examples: PathBuf,
    /// A folder that goes when all is measured.
    pub scratch: PathBuf,
}

/// Valgrind that counts instructions into `file`; the program and its arguments follow.
pub fn callgrind(file: &Path) -> Command {
    let mut valgrind = Command::new("valgrind");
    // One thread runs at a time; without turns, the gateway's may starve each other for seconds.
    valgrind.args(["--quiet", "--fair-sched=yes", "--tool=callgrind"]).arg(format!("--callgrind-out-file={}", file.display()));
    valgrind
}

/// The instructions that callgrind counted.
pub fn counted(file: &Path) -> Result<f64> {
    let text = std::fs::read_to_string(file).with_context(|| format!("callgrind has not written {}", file.display()))?;
    total(&text).with_context(|| format!("{} has no line `totals:`", file.display()))
}

fn total(text: &str) -> Option<f64> {
    text.lines().rev().find_map(|line| line.strip_prefix("totals: ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_read_from_what_callgrind_writes() {
        assert_eq!(total("version: 1\nevents: Ir\nfn=main\n16 400\n\ntotals: 1234567\n"), Some(1_234_567.0));
        assert_eq!(total("version: 1\n"), None);
    }
}
