//! Printing: colours, tables, units, JSON.

use std::io::{IsTerminal, Write};
use std::sync::{LazyLock, OnceLock};

use anstyle::{AnsiColor, Style};
use comfy_table::{CellAlignment, presets};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use serde::Serialize;
use weal_model::{Time, Utility};

use crate::args::ColorChoice;
use crate::terminal;

/// What a colour says. Never the only carrier of it: the words say it too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// As it should be.
    Good,
    /// Worth a look.
    Warn,
    /// Wrong.
    Bad,
    /// Beside the point.
    Dim,
    /// A heading.
    Strong,
}

/// Where a text goes.
#[derive(Debug, Clone, Copy)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

static CHOICE: OnceLock<ColorChoice> = OnceLock::new();

/// Sets the choice of colours for the process.
pub fn set_color(choice: ColorChoice) {
    // A second call would come from a second command line in one process; the first one stays in force.
    let _ = CHOICE.set(choice);
}

/// Whether colours go to `stream`. NO_COLOR counts when it is set and not empty (no-color.org); `--color` beats it.
pub fn colored(stream: Stream) -> bool {
    match CHOICE.get().copied().unwrap_or(ColorChoice::Auto) {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto => {
            let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
            let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
            !refused && !dumb && is_terminal(stream)
        }
    }
}

/// Whether a person reads `stream` on a terminal.
pub fn is_terminal(stream: Stream) -> bool {
    match stream {
        Stream::Out => std::io::stdout().is_terminal(),
        Stream::Err => std::io::stderr().is_terminal(),
    }
}

/// `text` in the colour of `tone` if colours go to `stream`.
pub fn paint(text: &str, tone: Tone, stream: Stream) -> String {
    if !colored(stream) {
        return text.to_owned();
    }
    let style = match tone {
        Tone::Good => AnsiColor::Green.on_default(),
        Tone::Warn => AnsiColor::Yellow.on_default(),
        Tone::Bad => AnsiColor::Red.on_default().bold(),
        Tone::Dim => Style::new().dimmed(),
        Tone::Strong => Style::new().bold(),
    };
    format!("{style}{text}{style:#}")
}

/// Prints to standard output, without anything that would command a terminal but colours; a reader who went away
/// (`weal status | head -1`) ends the process quietly.
pub fn print(text: &str) {
    write(terminal::colored(text).as_bytes());
}

/// Clears the terminal, so that what is printed next takes the place of what was there.
pub fn clear() {
    write(b"\x1b[H\x1b[J");
}

/// Prints a line to standard error, without anything that would command a terminal but colours.
pub fn complain(text: &str) {
    remark(&format!("{}\n", terminal::colored(text)));
}

/// Writes to standard error as it is. What finds no place there (the disk is full, the reader is gone) is lost: nothing can be told of it.
pub fn remark(text: &str) {
    let mut err = std::io::stderr().lock();
    let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
}

/// Bytes as they are: a log that goes to a file or another program.
pub fn write(bytes: &[u8]) {
    let mut out = std::io::stdout().lock();
    if let Err(error) = out.write_all(bytes).and_then(|()| out.flush())
        && error.kind() == std::io::ErrorKind::BrokenPipe
    {
        std::process::exit(0);
    }
}

/// Prints a line.
pub fn line(text: &str) {
    print(&format!("{text}\n"));
}

/// Prints `value` as a JSON document, on one line when `compact`.
pub fn json<T: Serialize>(value: &T, compact: bool) -> anyhow::Result<()> {
    let text = if compact { serde_json::to_string(value)? } else { serde_json::to_string_pretty(value)? };
    line(&terminal::json(&text));
    Ok(())
}

/// What stands in a cell of a table, and its colour.
pub type Cell = (String, Option<Tone>);

/// A table with a heading; the columns are as wide as their widest cell, and columns of numbers go right.
pub struct Table {
    heading: Vec<Cell>,
    rows: Vec<Vec<Cell>>,
    /// Columns that a narrow terminal is spared, in this order.
    spared: Vec<&'static str>,
}

/// Of a last column of sentences, so much is worth a line.
const SENTENCE: usize = 16;

impl Table {
    /// An empty one.
    pub fn new(heading: &[&str]) -> Self {
        Self { heading: heading.iter().map(|word| toned(*word, Tone::Dim)).collect(), rows: Vec::new(), spared: Vec::new() }
    }

    /// Names columns that are left out where a terminal is too narrow for all, the first of them first.
    #[must_use]
    pub fn sparing(self, spared: &[&'static str]) -> Self {
        Self { spared: spared.to_vec(), ..self }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// The table as text: on a terminal within its width, elsewhere whole.
    pub fn render(&self) -> String {
        match terminal_width() {
            Some(width) => self.render_within(width),
            None => self.text(&(0..self.heading.len()).collect::<Vec<_>>()),
        }
    }

    /// The table in lines of at most `width` columns: columns that may be spared go first, then what is too long is cut.
    fn render_within(&self, width: usize) -> String {
        let mut columns: Vec<usize> = (0..self.heading.len()).collect();
        for spared in &self.spared {
            if self.width(&columns) <= width {
                break;
            }
            columns.retain(|column| self.heading[*column].0 != *spared);
        }
        let text = self.text(&columns);
        text.lines().map(|line| console::truncate_str(line, width, "\u{2026}").into_owned() + "\n").collect()
    }

    /// How wide a line with these columns is; of sentences at the end of a line only a start counts.
    fn width(&self, columns: &[usize]) -> usize {
        let rows = || std::iter::once(&self.heading).chain(&self.rows);
        let widest = |column: usize| rows().map(|row| console::measure_text_width(&row[column].0)).max().unwrap_or(0);
        let widths = columns.iter().map(|column| match *column + 1 == self.heading.len() {
            true => widest(*column).min(SENTENCE),
            false => widest(*column),
        });
        widths.sum::<usize>() + 2 * columns.len().saturating_sub(1)
    }

    fn text(&self, columns: &[usize]) -> String {
        // Whether colours are wanted is decided here alone, so the table is told nothing of the terminal.
        let mut table = comfy_table::Table::new();
        table.load_style(presets::NOTHING).force_no_tty();
        let shown = |row: &Vec<Cell>| -> Vec<String> {
            let painted = |(text, tone): &Cell| tone.map_or_else(|| text.clone(), |tone| paint(text, tone, Stream::Out));
            columns.iter().map(|column| painted(&row[*column])).collect()
        };
        table.set_header(shown(&self.heading)).add_rows(self.rows.iter().map(shown));
        for (at, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, 2));
            column.set_cell_alignment(if self.is_number(columns[at]) { CellAlignment::Right } else { CellAlignment::Left });
        }
        table.trim_fmt() + "\n"
    }

    fn is_number(&self, column: usize) -> bool {
        let numeric = |text: &str| text.starts_with(|first: char| first.is_ascii_digit() || "+-".contains(first));
        !self.rows.is_empty() && self.rows.iter().filter_map(|row| row.get(column)).all(|(text, _)| numeric(text))
    }
}

/// How many columns the terminal has that standard output is; `None` where it is none.
fn terminal_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok().filter(|_| is_terminal(Stream::Out))?;
    Some(usize::from(size.ws_col)).filter(|width| *width >= 20)
}

/// A plain cell. A table reads colours in a text, and ends them, so whoever wrote it must not say any.
pub fn cell(text: impl Into<String>) -> Cell {
    (terminal::visible(&text.into()).into_owned(), None)
}

/// A coloured cell.
pub fn toned(text: impl Into<String>, tone: Tone) -> Cell {
    (terminal::visible(&text.into()).into_owned(), Some(tone))
}

/// A utility with its colour, `-` when there is none.
pub fn utility(value: Option<Utility>) -> Cell {
    match value {
        None => cell("-"),
        Some(value) => toned(value.to_string(), utility_tone(value)),
    }
}

/// Good when the goal is met, bad when it is missed by much.
pub fn utility_tone(value: Utility) -> Tone {
    if value.0 >= 0.0 {
        Tone::Good
    } else if value.0 > -0.25 {
        Tone::Warn
    } else {
        Tone::Bad
    }
}

/// Local time of day, `14:03:07`; in UTC where the machine has no time zone.
pub fn clock(time: Time) -> String {
    local(time).strftime("%H:%M:%S").to_string()
}

/// Local date and time of day to the second, `2026-11-27 03:00:15`.
pub fn moment(time: Time) -> String {
    local(time).strftime("%Y-%m-%d %H:%M:%S").to_string()
}

/// Local date and time of day to the millisecond, `2026-11-27 03:00:15.042`.
pub fn moment_ms(time: Time) -> String {
    local(time).strftime("%Y-%m-%d %H:%M:%S.%3f").to_string()
}

/// Local date and time of day, `2026-11-27 03:00`.
pub fn date(time: Time) -> String {
    local(time).strftime("%Y-%m-%d %H:%M").to_string()
}

fn local(time: Time) -> Zoned {
    let moment = Timestamp::from_nanosecond(i128::from(time.0)).unwrap_or(Timestamp::MAX);
    moment.to_zoned(zone().clone())
}

/// The zone in which times are shown and read: that of `TZ`, else the machine's, else UTC.
pub fn zone() -> &'static TimeZone {
    static ZONE: LazyLock<TimeZone> = LazyLock::new(TimeZone::system);
    &ZONE
}

/// The present.
pub fn now() -> Time {
    let elapsed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Time(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX))
}

/// A span in two units at most: `42s`, `3m 20s`, `2d 4h`.
pub fn span(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m {}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h {}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// Milliseconds with as many digits as make sense.
pub fn milliseconds(value: f64) -> String {
    match value {
        v if v >= 10_000.0 => format!("{:.1}s", v / 1e3),
        v if v >= 100.0 => format!("{v:.0}ms"),
        v => format!("{v:.1}ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_aligns_words_left_and_numbers_right() {
        let mut table = Table::new(&["NAME", "CPU"]);
        table.row(vec![cell("a"), cell("1.5")]);
        table.row(vec![cell("longer"), cell("10.25")]);
        assert_eq!(table.render(), "NAME      CPU\na         1.5\nlonger  10.25\n");
    }

    #[test]
    fn colours_take_no_room_in_a_table() {
        let mut table = Table::new(&["STATE", "WHY"]);
        table.row(vec![
            ("\u{1b}[32mready\u{1b}[39m".to_owned(), None),
            cell("größer 日本, long words that no terminal's width breaks ".repeat(5).trim()),
        ]);
        table.row(vec![cell("asleep"), cell("")]);
        let shown = table.render();
        let lines: Vec<&str> = shown.lines().collect();
        assert!(lines.len() == 3 && lines[2] == "asleep", "{shown}");
        assert_eq!(lines[0].find("WHY"), Some(8), "{shown}");
        assert!(lines[1].starts_with("\u{1b}[32mready\u{1b}[39m\u{1b}[0m   größer 日本"), "{shown:?}");
    }

    #[test]
    fn a_narrow_terminal_is_spared_columns_and_sentences_are_cut() {
        let mut table = Table::new(&["APP", "ADDRESS", "CPU", "WHY"]).sparing(&["ADDRESS", "CPU"]);
        table.row(vec![cell("shop"), cell("localhost:40001"), cell("1.25"), cell("all its CPU is used, and its nodes are full")]);
        assert_eq!(table.render_within(100).lines().next(), Some("APP   ADDRESS           CPU  WHY"));
        assert_eq!(
            table.render_within(30),
            "APP    CPU  WHY\nshop  1.25  all its CPU is us\u{2026}\n",
            "{}",
            table.render_within(30)
        );
        assert!(table.render_within(24).lines().all(|line| line.chars().count() <= 24));
    }

    #[test]
    fn spans_and_milliseconds_read_well() {
        assert_eq!([span(42), span(200), span(7260), span(187_200)], ["42s", "3m 20s", "2h 1m", "2d 4h"]);
        assert_eq!([milliseconds(3.25), milliseconds(250.4), milliseconds(12_345.0)], ["3.2ms", "250ms", "12.3s"]);
    }
}
