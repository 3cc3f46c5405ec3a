//! The page of one application: why it is as it is, its instances, what they wrote, what happened.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Wrap};
use weal_model::{AppName, Event, InstanceStatus, Time};
use weal_protocol::controller::LogLine;

use super::draw::{Rows, block, color, draw_table, event_lines};
use super::pages::{AppPage, Shown};
use crate::commands::status::instance_tone;
use crate::log_entry::Entry;
use crate::output::{Tone, clock, milliseconds, span};
use crate::supervisor::state_tone;
use crate::terminal;

/// Lines for the short answer: three sentences of a line and a half on a usual terminal.
const ANSWER: u16 = 6;

/// The answer is how far it can be moved.
pub fn draw(frame: &mut Frame, area: Rect, page: &AppPage, now: Time, events: &[Event]) -> usize {
    let [head, rest] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    frame.render_widget(Paragraph::new(head_line(page)), head);
    match page.shown {
        Shown::All => {
            draw_all(frame, rest, page, now);
            0
        }
        Shown::Why => draw_text(frame, rest, "why, at length", at_length(page), page.scroll),
        Shown::Logs => draw_logs(frame, rest, page, page.scroll),
        Shown::Events => {
            let title = format!("events of {}", page.app.name);
            let lines = event_lines(events.iter().filter(|event| is_about(event, &page.app.name)));
            draw_text(frame, rest, &title, lines, page.scroll)
        }
    }
}

fn is_about(event: &Event, app: &AppName) -> bool {
    event.app.as_ref() == Some(app)
}

fn head_line(page: &AppPage) -> Line<'static> {
    let app = &page.app;
    let detail = if app.detail.is_empty() { String::new() } else { format!(": {}", app.detail) };
    let utility = app.utility.map_or_else(String::new, |utility| format!("utility {utility}, "));
    let cpu = format!("{utility}{:.2} CPU of the {:.2} given", app.cpu_used.0, app.cpu_allocated.0);
    Line::from(vec![
        Span::styled(format!("{} ", app.name), color(Tone::Strong)),
        Span::styled(format!("{}{detail}", app.state), color(state_tone(app.state))),
        Span::raw(format!("  {cpu}")),
    ])
}

fn draw_all(frame: &mut Frame, area: Rect, page: &AppPage, now: Time) {
    let wanted = u16::try_from(page.app.instances.len().max(1) + 2).unwrap_or(u16::MAX);
    let [why, instances, output] = Layout::vertical([
        Constraint::Length(ANSWER.min(area.height / 3)),
        Constraint::Length(wanted.min((area.height / 3).max(3))),
        Constraint::Min(0),
    ])
    .areas(area);
    let answer = page.why.as_ref().map(|why| why.answer.iter().map(|sentence| Line::from(sentence.clone())).collect());
    draw_text(frame, why, "why", answer.unwrap_or_else(asked), 0);
    let rows = page.app.instances.iter().map(|instance| instance_row(instance, now)).collect();
    let selected = (!page.app.instances.is_empty()).then(|| page.selected());
    draw_table(frame, instances, "instances", &HEADING, &WIDTHS, Rows { rows, selected });
    draw_logs(frame, output, page, 0);
}

/// Stands where an answer will.
fn asked() -> Vec<Line<'static>> {
    vec![Line::from(Span::styled("asked for", color(Tone::Dim)))]
}

pub const HEADING: [&str; 9] = ["instance", "node", "state", "for", "CPU", "memory", "swap", "requests", "why"];
pub const WIDTHS: [Constraint; 9] = [
    Constraint::Length(16),
    Constraint::Length(8),
    Constraint::Length(10),
    Constraint::Length(8),
    Constraint::Length(5),
    Constraint::Length(8),
    Constraint::Length(8),
    Constraint::Length(8),
    Constraint::Min(8),
];

pub fn instance_row(instance: &InstanceStatus, now: Time) -> Row<'static> {
    let restarts = if instance.restarts > 0 { format!("started {} times again; ", instance.restarts) } else { String::new() };
    let wake = instance.last_wake_ms.map_or_else(String::new, |wake| format!("last wake {}; ", milliseconds(wake)));
    let why = format!("{restarts}{wake}{}", instance.detail);
    Row::new([
        Cell::from(instance.id.to_string()),
        Cell::from(instance.node.to_string()),
        Cell::from(Span::styled(instance.state.as_str(), color(instance_tone(instance.state)))),
        Cell::from(span(now.since(instance.since).as_secs())),
        Cell::from(format!("{:.2}", instance.cpu_used.0)),
        Cell::from(instance.memory_used.to_string()),
        Cell::from(instance.swap_used.to_string()),
        Cell::from(instance.in_flight.to_string()),
        Cell::from(why.trim_end_matches("; ").to_owned()),
    ])
}

fn at_length(page: &AppPage) -> Vec<Line<'static>> {
    let Some(why) = &page.why else { return asked() };
    let mut lines: Vec<Line> = why.sentences.iter().map(|sentence| Line::from(format!("- {sentence}"))).collect();
    if !why.events.is_empty() {
        lines.push(Line::from(""));
        lines.push(Line::from(Span::styled("last events", color(Tone::Dim))));
        lines.extend(event_lines(why.events.iter()));
    }
    lines
}

/// A text from its `scroll`th line on; the last one stays in sight.
fn draw_text(frame: &mut Frame, area: Rect, title: &str, lines: Vec<Line<'static>>, scroll: usize) -> usize {
    let most = lines.len().saturating_sub(1);
    let shown: Vec<Line> = lines.into_iter().skip(scroll.min(most)).collect();
    frame.render_widget(Paragraph::new(shown).wrap(Wrap { trim: false }).block(block(title.to_owned())), area);
    most
}

/// The end of what was written, moved up by `back` lines.
fn draw_logs(frame: &mut Frame, area: Rect, page: &AppPage, back: usize) -> usize {
    let room = usize::from(area.height).saturating_sub(1);
    let most = page.lines.as_ref().map_or(0, |lines| lines.len().saturating_sub(room));
    let of = page.only.as_ref().map_or_else(|| "all instances".to_owned(), ToString::to_string);
    let title = format!("logs of {of}");
    let lines = match page.lines.as_deref() {
        None => asked(),
        Some([]) => vec![Line::from(Span::styled("nothing is written", color(Tone::Dim)))],
        Some(lines) => {
            let end = lines.len() - back.min(most);
            lines[end.saturating_sub(room)..end].iter().map(log_line).collect()
        }
    };
    frame.render_widget(Paragraph::new(lines).block(block(title)), area);
    most
}

fn log_line(line: &LogLine) -> Line<'static> {
    let time = line.time.map_or_else(|| " ".repeat(8), clock);
    let head = Span::styled(format!("{time} {} ", line.instance), color(Tone::Dim));
    let said = Entry::of(line).pieces(terminal::visible).into_iter();
    let said =
        said.map(|(text, tone)| tone.map_or_else(|| Span::raw(text.clone()), |tone| Span::styled(text.clone(), color(tone))));
    Line::from(std::iter::once(head).chain(said).collect::<Vec<_>>())
}
