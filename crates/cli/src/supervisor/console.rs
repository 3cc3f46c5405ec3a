//! What the person in front of `weal up` sees: lines that stay, and on a terminal lines below them that change. Lines that stay also go to
//! `logs/supervisor.log`.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use console::{strip_ansi_codes, truncate_str};

use crate::output::{Stream, Tone, clock, is_terminal, now, paint};
use crate::terminal;

/// Clones print to the same place.
#[derive(Clone)]
pub struct Console {
    shared: Arc<Mutex<Shared>>,
}

struct Shared {
    terminal: bool,
    silent: bool,
    live: String,
    log: Option<File>,
}

/// So many lines change at most: they must fit on any terminal, or it could not go back to the first of them.
const MOST_LIVE: usize = 12;

impl Console {
    /// Prints to standard output, and to `log` unless that is where standard output goes already.
    pub fn new(log: Option<&Path>) -> Self {
        let log = log.and_then(|path| OpenOptions::new().append(true).create(true).mode(0o600).open(path).ok());
        Self::of(Shared { terminal: is_terminal(Stream::Out), silent: false, live: String::new(), log })
    }

    /// Prints nothing: for `-o json`.
    pub fn silent() -> Self {
        Self::of(Shared { terminal: false, silent: true, live: String::new(), log: None })
    }

    fn of(shared: Shared) -> Self {
        Self { shared: Arc::new(Mutex::new(shared)) }
    }

    /// Whether a live line is shown.
    pub fn is_live(&self) -> bool {
        self.lock().terminal
    }

    /// A line that stays.
    pub fn say(&self, text: &str) {
        let mut shared = self.lock();
        let text = terminal::colored(text);
        let plain = strip_ansi_codes(&text);
        if let Some(log) = &mut shared.log {
            // A full disk must not stop the supervisor; the terminal still has the line.
            let _ = writeln!(log, "{} {plain}", clock(now()));
        }
        if shared.silent {
            return;
        }
        let (clear, live) = if shared.terminal { (clear(&shared.live), shared.live.as_str()) } else { (String::new(), "") };
        write(&format!("{clear}{text}\n{live}"));
    }

    /// A line of an application, which has a log of its own. Nothing in it commands the terminal.
    pub fn pass_on(&self, line: &str) {
        let shared = self.lock();
        if shared.silent {
            return;
        }
        let (clear, live) = if shared.terminal { (clear(&shared.live), shared.live.as_str()) } else { (String::new(), "") };
        write(&format!("{clear}{}\n{live}", terminal::visible(line)));
    }

    /// A line that stays, with its tone in front.
    pub fn tell(&self, tone: Tone, mark: &str, text: &str) {
        self.say(&format!("{} {text}", paint(mark, tone, Stream::Out)));
    }

    /// The lines that change; nothing where there is no terminal.
    pub fn live(&self, text: &str) {
        let mut shared = self.lock();
        if shared.terminal {
            let before = clear(&shared.live);
            shared.live = block(&terminal::colored(text), width());
            write(&format!("{before}{}", shared.live));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        // A panic while printing leaves nothing half-done that matters.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A terminal's words for "back to the first column of the first of these lines, and clear all from there".
fn clear(live: &str) -> String {
    match live.matches('\n').count() {
        0 => "\r\x1b[J".to_owned(),
        above => format!("\r\x1b[{above}A\x1b[J"),
    }
}

/// `text` as lines that fit.
fn block(text: &str, width: usize) -> String {
    let lines: Vec<String> = text.lines().map(|line| cut(line, width)).collect();
    let left_out = lines.len().saturating_sub(MOST_LIVE);
    let shown = lines[..lines.len() - left_out].join("\n");
    if left_out == 0 { shown } else { format!("{shown}\n  and {left_out} more") }
}

/// A terminal that went away must not end the supervisor.
fn write(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn width() -> usize {
    rustix::termios::tcgetwinsize(std::io::stdout()).map_or(80, |size| usize::from(size.ws_col).max(20))
}

/// `text` cut to fewer than `width` columns, so that the terminal does not break the line; colours do not count.
fn cut(text: &str, width: usize) -> String {
    truncate_str(text, width.saturating_sub(1), "").into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_do_not_count_for_the_width_and_are_kept_whole() {
        assert_eq!(cut("\x1b[31mabcdef\x1b[0m", 4), "\x1b[31mabc\x1b[0m");
        assert_eq!(cut("日本", 4), "日");
    }

    #[test]
    fn lines_that_change_are_few_and_the_terminal_goes_back_over_all_of_them() {
        assert_eq!(block("abcdef\ngh", 4), "abc\ngh");
        let many = block(&"x\n".repeat(15), 80);
        assert!(many.ends_with("x\n  and 3 more"), "{many}");
        assert_eq!((clear("x"), clear(&many)), ("\r\x1b[J".to_owned(), "\r\x1b[12A\x1b[J".to_owned()));
    }
}
