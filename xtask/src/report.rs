//! Pages that a command writes: above a mark stands what people have written, below it what the command printed last.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

/// Between the two.
pub const MARK: &str = "<!-- Below stands what the command printed, as it printed it. -->\n";

/// A page, taken apart at its mark.
///
/// # Errors
/// It cannot be read, or has no mark.
pub fn halves(page: &Path) -> Result<(String, String)> {
    let text = std::fs::read_to_string(page).with_context(|| format!("cannot read {}", page.display()))?;
    let (head, printed) = text.split_once(MARK).with_context(|| format!("{} has no line `{}`", page.display(), MARK.trim()))?;
    Ok((head.to_owned(), printed.to_owned()))
}

/// Puts `printed` below the mark of a page.
///
/// # Errors
/// The same, and it cannot be written.
pub fn replace(page: &Path, printed: &str) -> Result<()> {
    let (head, _) = halves(page)?;
    Ok(std::fs::write(page, format!("{head}{MARK}\n{printed}"))?)
}

/// Where and with what something was run: the day, the commit, the kernel and the CPUs.
pub fn circumstances() -> String {
    let cpus = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let kernel: Vec<&str> = kernel.trim().split(['.', '-']).take(2).collect();
    let day = said_by("date", &["-u", "+%-d %B %Y"]);
    format!("{day}, commit {}, Linux {}, {cpus} CPUs", commit(), kernel.join("."))
}

fn commit() -> String {
    let commit = said_by("git", &["rev-parse", "--short=8", "HEAD"]);
    let is_changed = !said_by("git", &["status", "--porcelain", "--untracked-files=no"]).is_empty();
    if is_changed { commit + " with changes" } else { commit }
}

fn said_by(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).current_dir(crate::programs::root()).output();
    output.map_or_else(|_| String::new(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
