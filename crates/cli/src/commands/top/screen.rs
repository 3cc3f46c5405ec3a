//! The whole screen: who is worst off, the overview or a page, and what can be pressed.

use ratatui::Frame;
use ratatui::layout::{Constraint, Flex, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph};
use weal_model::{FlowStatus, Status};

use super::draw::color;
use super::pages::{AppPage, Page, Shown};
use super::state::Top;
use super::{app, job, node, overview};
use crate::output::{Tone, clock, utility_tone};

/// Draws all of it, and cuts a place in a long text that the screen does not have.
pub fn draw(frame: &mut Frame, top: &mut Top) {
    let most = draw_all(frame, top);
    top.cut_scroll(most);
}

/// The answer is how far the page can be moved.
fn draw_all(frame: &mut Frame, top: &Top) -> usize {
    let Some(status) = top.status() else { return 0 };
    let [head, middle, help] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)]).areas(frame.area());
    draw_head(frame, head, status, top.problem());
    let mut most = 0;
    match top.page() {
        None => overview::draw(frame, middle, top, status),
        Some(Page::App(page)) => most = app::draw(frame, middle, page, status.time, top.events()),
        Some(Page::Node(page)) => most = node::draw(frame, middle, page, status, top.events()),
        Some(Page::Job(page)) => job::draw(frame, middle, page, status.time),
    }
    frame.render_widget(Paragraph::new(help_line(top)).style(color(Tone::Dim)), help);
    if top.has_help() {
        draw_help(frame, middle);
    }
    most
}

/// What can be pressed, the most useful first: a narrow terminal cuts the end.
fn help_line(top: &Top) -> &'static str {
    match top.page() {
        None => "↑↓ select  enter open  tab next part  s sort  r reverse  ? help  q quit",
        Some(Page::App(page)) => app_help(page),
        Some(Page::Node(_)) => "↑↓ scroll  esc back  ? help  q quit",
        Some(Page::Job(_)) => "esc back  ? help  q quit",
    }
}

fn app_help(page: &AppPage) -> &'static str {
    match (page.shown, page.only.is_some()) {
        (Shown::All, _) => "↑↓ select  enter its log  l logs  w why  e events  esc back  ? help  q quit",
        (Shown::Logs, true) => "↑↓ scroll  a all instances  w why  e events  esc back  ? help  q quit",
        _ => "↑↓ scroll  l logs  w why  e events  esc back  ? help  q quit",
    }
}

const HELP: [(&str, &str); 13] = [
    ("↑ ↓  j k", "the row above, below; in a long text the line"),
    ("PgUp PgDn", "ten of them"),
    ("Home End", "the first, the last"),
    ("tab", "the next part: nodes, applications, jobs, flows"),
    ("s", "the next order of this part"),
    ("r", "the same order from its other end"),
    ("enter", "the page of what is selected; of an instance its log"),
    ("w", "all that is known of why an application is as it is"),
    ("l", "what its instances wrote; a: of all of them again"),
    ("e", "what happened to it"),
    ("esc", "back; from the first screen, the end"),
    ("?", "this"),
    ("q", "the end"),
];

fn draw_help(frame: &mut Frame, area: Rect) {
    let width = area.width.min(66);
    let height = area.height.min(HELP.len() as u16 + 2);
    let [line] = Layout::vertical([Constraint::Length(height)]).flex(Flex::Center).areas(area);
    let [place] = Layout::horizontal([Constraint::Length(width)]).flex(Flex::Center).areas(line);
    let lines = HELP
        .iter()
        .map(|(key, what)| Line::from(vec![Span::styled(format!(" {key:<11}"), color(Tone::Strong)), Span::raw(*what)]));
    frame.render_widget(Clear, place);
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()).block(Block::bordered().title("keys")), place);
}

fn draw_head(frame: &mut Frame, area: Rect, status: &Status, problem: Option<&str>) {
    let problem = problem.or_else(|| status.problems.first().map(String::as_str)).or(status.config_error.as_deref());
    let (verdict, tone) = match problem {
        Some(problem) => (problem.to_owned(), Tone::Bad),
        None => verdict(&status.flows),
    };
    let name = Span::styled(format!("{} ", status.pool), color(Tone::Strong));
    let line = Line::from(vec![name, Span::raw(clock(status.time)), Span::raw("  "), Span::styled(verdict, color(tone))]);
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
