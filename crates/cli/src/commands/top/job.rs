//! The page of one job: all about it, why it does not run, and the end of what it wrote.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Wrap};
use weal_model::Time;

use super::draw::block;
use super::pages::JobPage;
use crate::commands::jobs::described_at;

/// Draws it as of `now`.
pub fn draw(frame: &mut Frame, area: Rect, page: &JobPage, now: Time) {
    let text = described_at(&page.job, now);
    let lines: Vec<Line> = text.lines().map(Line::from).collect();
    let height = u16::try_from(lines.len()).unwrap_or(u16::MAX).saturating_add(2);
    let [about, output] = Layout::vertical([Constraint::Length(height), Constraint::Min(3)]).areas(area);
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }).block(block("job")), about);
    let rows = usize::from(output.height).saturating_sub(1);
    let last: Vec<Line> = match page.output.as_slice() {
        [] => vec![Line::from("it has written nothing yet")],
        lines => lines[lines.len().saturating_sub(rows)..].iter().map(|line| Line::from(line.as_str())).collect(),
    };
    frame.render_widget(Paragraph::new(last).block(block("output")), output);
}
