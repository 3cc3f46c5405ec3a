//! What the parts of the screen are drawn with.

use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Row, Table};
use weal_model::{Event, Severity, Utility};

use crate::output::{Stream, Tone, clock, colored, utility_tone};
use crate::supervisor::event_text;

/// A table below a title, from the first row on that lets the selected one be seen.
pub fn draw_table(frame: &mut Frame, area: Rect, title: &str, heading: &[&str], widths: &[Constraint], rows: Rows) {
    let heading = Row::new(heading.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()).style(color(Tone::Dim));
    let first = rows.first_shown(area);
    let selected = rows.selected;
    let shown = rows.rows.into_iter().enumerate().skip(first).map(|(place, row)| {
        let is_selected = selected == Some(place);
        if is_selected { row.style(Style::new().add_modifier(Modifier::REVERSED)) } else { row }
    });
    let title =
        if selected.is_some() { Span::styled(title.to_owned(), color(Tone::Strong)) } else { Span::raw(title.to_owned()) };
    let table = Table::new(shown.collect::<Vec<_>>(), widths.to_vec()).header(heading).block(block(title));
    frame.render_widget(table, area);
}

/// Rows of a table, and which of them is selected, where keys go to this table.
pub struct Rows<'a> {
    pub rows: Vec<Row<'a>>,
    pub selected: Option<usize>,
}

impl Rows<'_> {
    /// The border and the heading take two lines.
    fn first_shown(&self, area: Rect) -> usize {
        let room = usize::from(area.height).saturating_sub(2).max(1);
        self.selected.map_or(0, |selected| (selected + 1).saturating_sub(room))
    }
}

/// Events, the newest first.
pub fn event_lines<'e>(events: impl Iterator<Item = &'e Event>) -> Vec<Line<'static>> {
    let line = |event: &Event| {
        let tone = match event.severity {
            Severity::Info => Style::new(),
            Severity::Warning => color(Tone::Warn),
            Severity::Error => color(Tone::Bad),
        };
        Line::from(vec![Span::raw(format!("{} ", clock(event.time))), Span::styled(event_text(event), tone)])
    };
    events.map(line).collect()
}

/// A part without side borders, below its title.
pub fn block<'t>(title: impl Into<Line<'t>>) -> Block<'t> {
    Block::new().borders(Borders::TOP).title(title)
}

pub fn color(tone: Tone) -> Style {
    match tone {
        Tone::Dim | Tone::Strong => {
            let modifier = if tone == Tone::Dim { Modifier::DIM } else { Modifier::BOLD };
            Style::new().add_modifier(modifier)
        }
        _ if !colored(Stream::Out) => Style::new(),
        Tone::Good => Style::new().fg(Color::Green),
        Tone::Warn => Style::new().fg(Color::Yellow),
        Tone::Bad => Style::new().fg(Color::Red),
    }
}

/// `share` of `width` cells filled; above 1 it is full.
pub fn bar(share: f64, width: usize) -> String {
    let filled = ((share.clamp(0.0, 1.0) * width as f64).round() as usize).min(width);
    format!("{}{}", "█".repeat(filled), "░".repeat(width - filled))
}

/// A bar from the middle: to the right for a goal that is met, to the left for one that is missed, five cells a unit.
pub fn utility_bar(utility: Option<Utility>) -> (String, String, Tone) {
    const SIDE: usize = 5;
    let Some(utility) = utility else { return (format!("{:SIDE$}|{:SIDE$}", "", ""), "-".to_owned(), Tone::Dim) };
    let cells = ((utility.0.abs().min(1.0) * SIDE as f64).ceil() as usize).min(SIDE);
    let full = "█".repeat(cells);
    let bar = if utility.0 >= 0.0 { format!("{:SIDE$}|{full:<SIDE$}", "") } else { format!("{full:>SIDE$}|{:SIDE$}", "") };
    (bar, utility.to_string(), utility_tone(utility))
}
