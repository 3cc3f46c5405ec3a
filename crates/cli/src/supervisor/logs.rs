//! The roles' logs.

use std::io;
use std::path::Path;

/// A role's log is cut when it grows beyond this; one older piece of the same size is kept.
const LOG_LIMIT: u64 = 10 << 20;

/// Cuts `log` if it is long. Roles open their logs for appending, so a log can be cut while its role writes: the next line begins at
/// the new end.
///
/// # Errors
/// The old piece cannot be kept, or the log cannot be cut.
pub fn cut_long(log: &Path) -> io::Result<()> {
    if std::fs::metadata(log).is_ok_and(|meta| meta.len() > LOG_LIMIT) {
        let kept = std::fs::copy(log, log.with_extension("log.1"));
        // Cut it all the same: on a full disk, old lines cost more than they are worth.
        std::fs::OpenOptions::new().write(true).open(log)?.set_len(0)?;
        kept?;
    }
    Ok(())
}

/// The last `count` lines of `text`, indented.
pub fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].iter().map(|line| format!("  {line}\n")).collect()
}
