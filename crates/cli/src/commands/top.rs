//! `weal top`: the pool live in the terminal.

use std::time::{Duration, Instant};

use anyhow::Context;
use ratatui::Frame;
use ratatui::crossterm::event::{self, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Table};
use weal_model::{Event, FlowStatus, InstanceState, NodeStatus, Severity, Status, Utility};

use super::status::achieved;
use crate::args::Target;
use crate::client::{Client, Error, block_on};
use crate::failure::{Exit, Failure};
use crate::output::{Stream, Tone, clock, is_terminal, utility_tone};
use crate::state::StateDir;
use crate::supervisor::event_text;

/// Between two looks at the pool.
const LOOK: Duration = Duration::from_secs(1);
/// Between two looks at the keyboard: keys feel immediate.
const KEYS: Duration = Duration::from_millis(100);

/// What is shown.
#[derive(Default)]
struct View {
    status: Option<Status>,
    events: Vec<Event>,
    trouble: Option<String>,
    scroll: usize,
}

/// Runs it.
///
/// # Errors
/// No terminal (exit code 2), no pool (4).
pub fn run(target: &Target, json: bool) -> anyhow::Result<()> {
    if json || !is_terminal(Stream::Out) {
        return Err(Failure::new(Exit::Usage, "weal top needs a terminal: use weal status --watch -o json").into());
    }
    let client = Client::new(&StateDir::find(target)?).with_timeout(Duration::from_secs(2));
    let mut view = View::default();
    block_on(async {
        look(&client, &mut view).await.map_err(Error::into_failure)?;
        let mut terminal = ratatui::try_init().context("cannot use this terminal")?;
        let ended = watch(&client, &mut view, &mut terminal).await;
        ratatui::restore();
        ended
    })
}

async fn watch(client: &Client, view: &mut View, terminal: &mut ratatui::DefaultTerminal) -> anyhow::Result<()> {
    let mut looked = Instant::now();
    loop {
        terminal.draw(|frame| draw(frame, view))?;
        if event::poll(KEYS)? && handle_key(&event::read()?, view) {
            return Ok(());
        }
        if looked.elapsed() >= LOOK {
            looked = Instant::now();
            view.trouble = look(client, view).await.err().map(|error| error.to_string());
        }
    }
}

async fn look(client: &Client, view: &mut View) -> Result<(), Error> {
    view.status = Some(client.status().await?);
    view.events = client.events(None, 50).await?;
    view.events.sort_by_key(|event| std::cmp::Reverse(event.id));
    Ok(())
}

/// True when it ends.
fn handle_key(event: &event::Event, view: &mut View) -> bool {
    let event::Event::Key(key) = event else { return false };
    if key.kind != KeyEventKind::Press {
        return false;
    }
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => return true,
        KeyCode::Char('c') => return key.modifiers.contains(KeyModifiers::CONTROL),
        KeyCode::Down | KeyCode::Char('j') => view.scroll += 1,
        KeyCode::Up | KeyCode::Char('k') => view.scroll = view.scroll.saturating_sub(1),
        _ => {}
    }
    false
}

fn draw(frame: &mut Frame, view: &mut View) {
    let Some(status) = &view.status else { return };
    let wanted = |rows: usize| u16::try_from(rows + 2).unwrap_or(u16::MAX);
    let area = frame.area();
    // Flows matter most: nodes and applications get at most a quarter of the screen each.
    let part = (area.height / 4).max(4);
    let [head, nodes, apps, flows, events] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(wanted(status.nodes.len()).min(part)),
        Constraint::Length(wanted(status.apps.len()).min(part)),
        Constraint::Min(4),
        Constraint::Length(part),
    ])
    .areas(area);
    let last = status.flows.len().saturating_sub(1);
    view.scroll = view.scroll.min(last);
    draw_head(frame, head, status, view.trouble.as_deref());
    draw_nodes(frame, nodes, &status.nodes);
    draw_apps(frame, apps, status);
    draw_flows(frame, flows, &status.flows[view.scroll.min(status.flows.len())..]);
    draw_events(frame, events, &view.events);
}

fn draw_head(frame: &mut Frame, area: Rect, status: &Status, trouble: Option<&str>) {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let trouble = trouble.or_else(|| status.problems.first().map(String::as_str)).or(status.config_error.as_deref());
    let (verdict, tone) = match trouble {
        Some(trouble) => (trouble.to_owned(), Tone::Bad),
        None => verdict(&status.flows),
    };
    let name = Span::styled(format!("{} ", status.pool), bold);
    let keys = Span::styled("  q ends, arrows scroll", color(Tone::Dim));
    let line = Line::from(vec![name, Span::raw(clock(status.time)), Span::raw("  "), Span::styled(verdict, color(tone)), keys]);
    frame.render_widget(Paragraph::new(line), area);
}

/// Who is worst off, in a few words.
fn verdict(flows: &[FlowStatus]) -> (String, Tone) {
    let measured = flows.iter().filter_map(|flow| Some((flow, flow.utility?)));
    match measured.min_by(|(_, a), (_, b)| a.0.total_cmp(&b.0)) {
        None => ("no flow with a goal has traffic".to_owned(), Tone::Dim),
        Some((worst, utility)) if utility.0 < 0.0 => (format!("worst off: {} at {utility}", worst.id), utility_tone(utility)),
        Some((worst, utility)) => (format!("goals met; nearest to its limit: {} at {utility}", worst.id), Tone::Good),
    }
}

fn draw_nodes(frame: &mut Frame, area: Rect, nodes: &[NodeStatus]) {
    // What the other columns and their gaps leave.
    let bar_width = usize::from(area.width).saturating_sub(57).clamp(8, 40);
    let rows = nodes.iter().map(|node| {
        let share = if node.cpu_capacity.0 > 0.0 { node.cpu_used.0 / node.cpu_capacity.0 } else { 0.0 };
        let name = if node.up { node.name.to_string() } else { format!("{} (down)", node.name) };
        Row::new([
            Cell::from(name),
            Cell::from(bar(share, bar_width)),
            Cell::from(format!("{:.2} of {:.2}", node.cpu_used.0, node.cpu_capacity.0)),
            Cell::from(format!("{:.2}", node.cpu_allocated.0)),
            Cell::from(format!("{} of {}", node.memory_used, node.memory_capacity)),
        ])
    });
    let widths =
        [Constraint::Length(16), Constraint::Min(10), Constraint::Length(13), Constraint::Length(6), Constraint::Length(18)];
    let heading = ["node", "", "CPU", "given", "memory"];
    frame.render_widget(table(rows.collect(), &widths, &heading, "nodes"), area);
}

fn draw_apps(frame: &mut Frame, area: Rect, status: &Status) {
    let rows = status.apps.iter().map(|app| {
        let ready = app.instances.iter().filter(|one| one.state == InstanceState::Ready).count();
        let state = if app.detail.is_empty() { app.state.clone() } else { format!("{}: {}", app.state, app.detail) };
        Row::new([
            Cell::from(app.name.to_string()),
            Cell::from(format!("{ready} of {}..{}", app.min, app.max)),
            Cell::from(format!("{:.2}", app.cpu_used.0)),
            Cell::from(format!("{:.2}", app.cpu_allocated.0)),
            Cell::from(Span::styled(state, color(crate::supervisor::state_tone(&app.state)))),
        ])
    });
    let widths =
        [Constraint::Length(16), Constraint::Length(10), Constraint::Length(6), Constraint::Length(6), Constraint::Min(20)];
    frame.render_widget(table(rows.collect(), &widths, &["app", "ready", "CPU", "given", "state"], "applications"), area);
}

fn draw_flows(frame: &mut Frame, area: Rect, flows: &[FlowStatus]) {
    let rows = flows.iter().map(|flow| {
        let (bar, text, tone) = utility_bar(flow.utility);
        Row::new([
            Cell::from(flow.id.to_string()),
            Cell::from(if flow.goal_text.is_empty() { "best effort" } else { &flow.goal_text }),
            Cell::from(achieved(flow)),
            Cell::from(Span::styled(bar, color(tone))),
            Cell::from(text),
            Cell::from(format!("{:.0}", flow.throughput_per_s)),
            Cell::from(format!("{:.0}", flow.queue_mean)),
            Cell::from(flow.seats.to_string()),
        ])
    });
    let widths = [
        Constraint::Min(12),
        Constraint::Length(14),
        Constraint::Length(8),
        Constraint::Length(11),
        Constraint::Length(7),
        Constraint::Length(6),
        Constraint::Length(5),
        Constraint::Length(5),
    ];
    let heading = ["flow", "goal", "achieved", "missed|met", "utility", "req/s", "queue", "seats"];
    frame.render_widget(table(rows.collect(), &widths, &heading, "flows"), area);
}

fn draw_events(frame: &mut Frame, area: Rect, events: &[Event]) {
    let lines: Vec<Line> = events
        .iter()
        .map(|event| {
            let tone = match event.severity {
                Severity::Info => Style::new(),
                Severity::Warning => color(Tone::Warn),
                Severity::Error => color(Tone::Bad),
            };
            Line::from(vec![Span::raw(format!("{} ", clock(event.time))), Span::styled(event_text(event), tone)])
        })
        .collect();
    let block = Block::new().borders(Borders::TOP).title("events");
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

fn table<'a>(rows: Vec<Row<'a>>, widths: &[Constraint], heading: &[&'a str], title: &'a str) -> Table<'a> {
    let heading = Row::new(heading.to_vec()).style(color(Tone::Dim));
    Table::new(rows, widths.to_vec()).header(heading).block(Block::new().borders(Borders::TOP).title(title))
}

fn color(tone: Tone) -> Style {
    if !crate::output::colored(Stream::Out) {
        return Style::new();
    }
    match tone {
        Tone::Good => Style::new().fg(Color::Green),
        Tone::Warn => Style::new().fg(Color::Yellow),
        Tone::Bad => Style::new().fg(Color::Red),
        Tone::Dim => Style::new().add_modifier(Modifier::DIM),
        Tone::Strong => Style::new().add_modifier(Modifier::BOLD),
    }
}

/// `share` of `width` cells filled; above 1 it is full.
fn bar(share: f64, width: usize) -> String {
    let filled = ((share.clamp(0.0, 1.0) * width as f64).round() as usize).min(width);
    format!("{}{}", "█".repeat(filled), "░".repeat(width - filled))
}

/// A bar from the middle: to the right for a goal that is met, to the left for one that is missed, five cells a unit.
fn utility_bar(utility: Option<Utility>) -> (String, String, Tone) {
    const SIDE: usize = 5;
    let Some(utility) = utility else { return (format!("{:SIDE$}|{:SIDE$}", "", ""), "-".to_owned(), Tone::Dim) };
    let cells = ((utility.0.abs().min(1.0) * SIDE as f64).ceil() as usize).min(SIDE);
    let full = "█".repeat(cells);
    let bar = if utility.0 >= 0.0 { format!("{:SIDE$}|{full:<SIDE$}", "") } else { format!("{full:>SIDE$}|{:SIDE$}", "") };
    (bar, utility.to_string(), utility_tone(utility))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_goal_points_left_and_a_met_one_right() {
        assert_eq!(utility_bar(Some(Utility(-0.5))).0, "  ███|     ");
        assert_eq!(utility_bar(Some(Utility(0.2))).0, "     |█    ");
        assert_eq!(utility_bar(None).0, "     |     ");
    }

    #[test]
    fn a_bar_is_never_longer_than_its_place() {
        assert_eq!(bar(7.0, 4), "████");
        assert_eq!(bar(0.5, 4), "██░░");
    }
}
