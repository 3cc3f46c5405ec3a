//! What the tests of several crates share.

pub mod image;

use std::fmt::Display;
use std::io::Write as _;

/// Says which test is not run, or not to its end, and why. It writes past the test runner, which shows what a test prints only when that fails:
/// a test that nobody knows to be left out counts as passed.
pub fn skip(why: impl Display) {
    let thread = std::thread::current();
    // Nobody may read it.
    let _ = writeln!(std::io::stderr(), "skipped: {}: {why}", thread.name().unwrap_or("a test"));
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    const TOLD: &str = "WEAL_TESTING_SKIPS";

    #[test]
    fn skips_when_it_is_told_to() {
        if std::env::var_os(TOLD).is_some() {
            skip("it was told to");
        }
    }

    #[test]
    fn a_skip_is_seen_although_its_test_passes() {
        let mut own = Command::new(std::env::current_exe().unwrap());
        let run = own.args(["--exact", "tests::skips_when_it_is_told_to"]).env(TOLD, "1").output().unwrap();
        let said = String::from_utf8_lossy(&run.stderr);
        assert!(run.status.success() && said.contains("skipped: tests::skips_when_it_is_told_to: it was told to\n"), "{said}");
    }
}
