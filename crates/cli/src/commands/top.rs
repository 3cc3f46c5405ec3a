//! `weal top`: the pool live in the terminal.

use std::time::{Duration, Instant};

use anyhow::Context;
use ratatui::Frame;
use ratatui::crossterm::event::{self, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Table};
use weal_model::{Event, FlowStatus, InstanceState, JobName, JobPhase, JobStatus, NodeStatus, Severity, Status, Utility};

use super::jobs::{done, expected, goal_at, phase_tone};
use super::status::achieved;
use crate::args::PoolArgs;
use crate::client::{Client, Error, block_on};
use crate::failure::{Exit, Failure};
use crate::output::{Stream, Tone, clock, is_terminal, utility_tone};
use crate::state::StateDir;
use crate::supervisor::event_text;
use job::Page;

/// Between two looks at the pool.
const LOOK: Duration = Duration::from_secs(1);
/// Between two looks at the keyboard: keys feel immediate.
const KEYS: Duration = Duration::from_millis(100);

/// What the arrows move in.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Focus {
    #[default]
    Flows,
    Jobs,
}

/// What is shown.
#[derive(Default)]
struct View {
    status: Option<Status>,
    events: Vec<Event>,
    problem: Option<String>,
    scroll: usize,
    focus: Focus,
    /// The selected job. Its place may change from look to look.
    job: Option<JobName>,
    /// The page of the selected job, in place of everything else.
    page: Option<Page>,
}

impl View {
    fn jobs(&self) -> &[JobStatus] {
        self.status.as_ref().map_or(&[], |status| &status.jobs)
    }

    /// The place of the selected job: the first where that is gone.
    fn selected(&self) -> usize {
        self.jobs().iter().position(|job| Some(&job.id) == self.job.as_ref()).unwrap_or(0)
    }

    /// Selects the job so many places further down.
    fn select(&mut self, by: isize) {
        let last = self.jobs().len().saturating_sub(1);
        let to = self.selected().saturating_add_signed(by).min(last);
        self.job = self.jobs().get(to).map(|job| job.id.clone());
    }
}

/// Runs it.
///
/// # Errors
/// No terminal (exit code 2), no pool (4).
pub fn run(target: &PoolArgs, json: bool) -> anyhow::Result<()> {
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
        if looked.elapsed() >= LOOK || view.page.as_ref().is_some_and(Page::is_new) {
            looked = Instant::now();
            view.problem = look(client, view).await.err().map(|error| error.to_string());
        }
    }
}

async fn look(client: &Client, view: &mut View) -> Result<(), Error> {
    view.status = Some(client.status().await?);
    view.events = client.events(None, 50).await?;
    view.events.sort_by_key(|event| std::cmp::Reverse(event.id));
    match &mut view.page {
        Some(page) => page.look(client).await,
        None => Ok(()),
    }
}

/// True when it ends.
fn handle_key(event: &event::Event, view: &mut View) -> bool {
    let event::Event::Key(key) = event else { return false };
    if key.kind != KeyEventKind::Press {
        return false;
    }
    match key.code {
        KeyCode::Char('q') => return true,
        KeyCode::Char('c') => return key.modifiers.contains(KeyModifiers::CONTROL),
        KeyCode::Esc if view.page.is_none() => return true,
        KeyCode::Esc | KeyCode::Backspace | KeyCode::Left => view.page = None,
        KeyCode::Tab if view.page.is_none() => {
            view.focus = if view.focus == Focus::Flows { Focus::Jobs } else { Focus::Flows };
        }
        KeyCode::Enter | KeyCode::Right if view.focus == Focus::Jobs => {
            view.page = view.jobs().get(view.selected()).map(|job| Page::of(job.clone()));
        }
        KeyCode::Down | KeyCode::Char('j') => move_by(view, 1),
        KeyCode::Up | KeyCode::Char('k') => move_by(view, -1),
        _ => {}
    }
    false
}

fn move_by(view: &mut View, by: isize) {
    match (&view.page, view.focus) {
        (Some(_), _) => {}
        (None, Focus::Flows) => view.scroll = view.scroll.saturating_add_signed(by),
        (None, Focus::Jobs) => view.select(by),
    }
}

fn draw(frame: &mut Frame, view: &mut View) {
    let Some(status) = &view.status else { return };
    if let Some(page) = &view.page {
        let [head, rest] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(frame.area());
        draw_head(frame, head, status, view.problem.as_deref(), keys(view));
        return page.draw(frame, rest, status.time);
    }
    let wanted = |rows: usize| u16::try_from(rows + 2).unwrap_or(u16::MAX);
    let area = frame.area();
    // Flows matter most: nodes, applications and jobs get at most a quarter of the screen each, and nothing when there are none.
    let part = (area.height / 4).max(4);
    let jobs_height = if status.jobs.is_empty() { 0 } else { wanted(status.jobs.len()).min(part) };
    let [head, nodes, apps, jobs, flows, events] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(wanted(status.nodes.len()).min(part)),
        Constraint::Length(wanted(status.apps.len()).min(part)),
        Constraint::Length(jobs_height),
        Constraint::Min(4),
        Constraint::Length(part),
    ])
    .areas(area);
    let last = status.flows.len().saturating_sub(1);
    view.scroll = view.scroll.min(last);
    draw_head(frame, head, status, view.problem.as_deref(), keys(view));
    draw_nodes(frame, nodes, &status.nodes);
    draw_apps(frame, apps, status);
    draw_jobs(frame, jobs, view);
    draw_flows(frame, flows, &status.flows[view.scroll.min(status.flows.len())..]);
    draw_events(frame, events, &view.events);
}

/// What can be pressed.
fn keys(view: &View) -> &'static str {
    match view.focus {
        _ if view.page.is_some() => "q ends, esc goes back",
        _ if view.jobs().is_empty() => "q ends, arrows scroll",
        Focus::Flows => "q ends, arrows scroll, tab selects a job",
        Focus::Jobs => "q ends, arrows select, enter shows the job",
    }
}

fn draw_head(frame: &mut Frame, area: Rect, status: &Status, problem: Option<&str>, keys: &str) {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let problem = problem.or_else(|| status.problems.first().map(String::as_str)).or(status.config_error.as_deref());
    let (verdict, tone) = match problem {
        Some(problem) => (problem.to_owned(), Tone::Bad),
        None => verdict(&status.flows),
    };
    let name = Span::styled(format!("{} ", status.pool), bold);
    let keys = Span::styled(format!("  {keys}"), color(Tone::Dim));
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
        let state = if app.detail.is_empty() { app.state.to_string() } else { format!("{}: {}", app.state, app.detail) };
        Row::new([
            Cell::from(app.name.to_string()),
            Cell::from(format!("{ready} of {}..{}", app.min, app.max)),
            Cell::from(format!("{:.2}", app.cpu_used.0)),
            Cell::from(format!("{:.2}", app.cpu_allocated.0)),
            Cell::from(Span::styled(state, color(crate::supervisor::state_tone(app.state)))),
        ])
    });
    let widths =
        [Constraint::Length(16), Constraint::Length(10), Constraint::Length(6), Constraint::Length(6), Constraint::Min(20)];
    frame.render_widget(table(rows.collect(), &widths, &["app", "ready", "CPU", "given", "state"], "applications"), area);
}

fn draw_jobs(frame: &mut Frame, area: Rect, view: &View) {
    let Some(status) = &view.status else { return };
    let selected = (view.focus == Focus::Jobs).then(|| view.selected());
    // Those above the selected one scroll away where the part is too small: its border and its heading take two lines.
    let rows_shown = usize::from(area.height).saturating_sub(2).max(1);
    let first = selected.map_or(0, |selected| (selected + 1).saturating_sub(rows_shown));
    let rows = status.jobs.iter().enumerate().skip(first).map(|(number, job)| {
        let is_selected = selected == Some(number);
        let row = job_row(job, status);
        if is_selected { row.style(Style::new().add_modifier(Modifier::REVERSED)) } else { row }
    });
    let widths = [
        Constraint::Length(18),
        Constraint::Length(9),
        Constraint::Length(8),
        Constraint::Length(20),
        Constraint::Length(5),
        Constraint::Length(16),
        Constraint::Length(16),
        Constraint::Length(7),
        Constraint::Min(10),
    ];
    let heading = ["job", "state", "node", "done", "given", "goal", "expected", "utility", "why"];
    frame.render_widget(table(rows.collect(), &widths, &heading, &split(status)), area);
}

fn job_row<'a>(job: &JobStatus, status: &Status) -> Row<'a> {
    let utility = job.utility.map_or_else(|| "-".to_owned(), |utility| utility.to_string());
    let tone = job.utility.map_or(Tone::Dim, utility_tone);
    Row::new([
        Cell::from(job.id.to_string()),
        Cell::from(Span::styled(job.state.as_str(), color(phase_tone(job.state)))),
        Cell::from(job.node.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string)),
        Cell::from(format!("{} {:>4}", bar(job.progress, 8), done(job))),
        Cell::from(format!("{:.2}", job.cpu_allocated.0)),
        Cell::from(goal_at(job, status.time)),
        Cell::from(expected(job, status.time)),
        Cell::from(Span::styled(utility, color(tone))),
        Cell::from(job.detail.clone()),
    ])
}

/// How the pool's CPU is divided between applications and jobs.
fn split(status: &Status) -> String {
    let running = status.jobs.iter().filter(|job| job.state == JobPhase::Running);
    let jobs: f64 = running.map(|job| job.cpu_allocated.0).sum();
    let apps: f64 = status.apps.iter().map(|app| app.cpu_allocated.0).sum();
    let capacity: f64 = status.nodes.iter().map(|node| node.cpu_capacity.0).sum();
    format!("jobs: {jobs:.2} CPU given to jobs, {apps:.2} to applications, of {capacity:.2}")
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

fn table<'a>(rows: Vec<Row<'a>>, widths: &[Constraint], heading: &[&'a str], title: &str) -> Table<'a> {
    let heading = Row::new(heading.to_vec()).style(color(Tone::Dim));
    Table::new(rows, widths.to_vec()).header(heading).block(Block::new().borders(Borders::TOP).title(title.to_owned()))
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

mod job;

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

    fn status(flows: usize) -> Status {
        let json = |value: &dyn Fn(usize) -> serde_json::Value, count: usize| (0..count).map(value).collect::<Vec<_>>();
        let latency = serde_json::to_value(weal_model::LatencySummary::default()).unwrap();
        let flow = |number: usize| {
            let id = weal_model::FlowId { gateway: "gw".into(), app: format!("app{number}").into(), class: "gold".into() };
            serde_json::json!({
                "id": id, "app": id.app, "class": "gold", "goal": null, "goal_text": "mean < 250ms", "importance": weal_model::Importance::NORMAL,
                "achieved": null, "utility": Utility(0.5 - number as f64), "predicted_utility": null, "arrival_per_s": 7.0,
                "throughput_per_s": 7.0, "rejected_per_s": 0.0, "errors_per_s": 0.0, "response": latency, "service": latency,
                "queue_mean": 3.0, "in_service_mean": 1.0, "seats": 4, "weight": 1.0, "cpu_used": 0.2, "cpu_allocated": 0.5,
                "work_factors": [], "binding": { "limit": "satisfied" }
            })
        };
        let app = |number: usize| {
            serde_json::json!({
                "name": format!("app{number}"), "state": "ready", "detail": "", "min": 1, "max": 4, "cpu_used": 0.2, "cpu_demand": 0.5,
                "cpu_allocated": 0.5, "utility": null, "instances": []
            })
        };
        let node = |number: usize| {
            serde_json::json!({
                "name": format!("n{number}"), "up": number == 0, "cpu_capacity": 1.0, "cpu_used": 0.25, "cpu_allocated": 0.5,
                "memory_capacity": 1_073_741_824, "memory_used": 1_048_576
            })
        };
        let whole = serde_json::json!({
            "pool": "demo", "version": "0", "time": 0, "config_generation": 1, "config_error": null, "control": true, "listen": "", "api": "",
            "limits": [], "problems": [], "nodes": json(&node, 2), "apps": json(&app, flows), "flows": json(&flow, flows), "plan": null
        });
        serde_json::from_value(whole).unwrap()
    }

    fn screen(view: &mut View, width: u16, height: u16) -> String {
        let mut terminal = ratatui::Terminal::new(ratatui::backend::TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, view)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y: u16| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(|y| line(y).trim_end().to_owned() + "\n").collect()
    }

    fn press(view: &mut View, code: KeyCode) -> bool {
        handle_key(&event::Event::Key(event::KeyEvent::new(code, KeyModifiers::NONE)), view)
    }

    #[test]
    fn the_screen_says_who_is_worst_off_and_shows_every_part() {
        let mut view = View { status: Some(status(2)), ..View::default() };
        let shown = screen(&mut view, 100, 30);
        assert!(shown.starts_with("demo "), "{shown}");
        assert!(shown.lines().next().unwrap().contains("worst off: app1/gold at -0.50"), "{shown}");
        for part in ["nodes", "applications", "flows", "events", "n1 (down)", "0.25 of 1.00", "mean < 250ms", "0 of 1..4"] {
            assert!(shown.contains(part), "{part} in\n{shown}");
        }
        view.problem = Some("the controller broke off".into());
        assert!(screen(&mut view, 100, 30).lines().next().unwrap().contains("the controller broke off"));
    }

    fn job(number: usize) -> JobStatus {
        let json = serde_json::json!({
            "id": format!("render-{number}"), "state": "running", "detail": "", "command": ["povray"], "class": null, "submitted": 0,
            "deadline": 600_000_000_000_u64, "expected_end": 200_000_000_000_u64, "utility": 0.66, "began": 0, "node": "n1", "attempt": 1,
            "cpu_used": 50.0, "work": 100.0, "work_source": "as submitted", "progress": 0.5, "cpu_allocated": 0.75, "cpus": 1.0,
            "memory_limit": 1_048_576, "memory_used": null, "end": null
        });
        serde_json::from_value(json).unwrap()
    }

    fn with_jobs(count: usize) -> View {
        let status = Status { jobs: (1..=count).map(job).collect(), ..status(2) };
        View { status: Some(status), ..View::default() }
    }

    #[test]
    fn jobs_are_shown_with_what_they_take_from_applications() {
        assert!(!screen(&mut with_jobs(0), 120, 40).contains("given to jobs"));
        let shown = screen(&mut with_jobs(1), 120, 40);
        for part in [
            "jobs: 0.75 CPU given to jobs, 1.00 to applications, of 2.00",
            "render-1",
            "running   n1",
            " 50%",
            "in 10m 0s",
            "in 3m 20s",
            "+0.66",
        ] {
            assert!(shown.contains(part), "{part} in\n{shown}");
        }
    }

    #[test]
    fn a_job_is_selected_stays_selected_and_has_a_page_of_its_own() {
        let mut view = with_jobs(40);
        assert!(screen(&mut view, 120, 40).contains("tab selects a job"));
        assert!(!press(&mut view, KeyCode::Enter) && view.page.is_none(), "no job is selected yet");
        press(&mut view, KeyCode::Tab);
        (0..30).for_each(|_| assert!(!press(&mut view, KeyCode::Down)));
        assert!(screen(&mut view, 120, 40).contains("render-31 "), "it scrolls along");
        view.status.as_mut().unwrap().jobs.remove(0);
        press(&mut view, KeyCode::Enter);
        view.status.as_mut().unwrap().jobs.clear();
        let page = screen(&mut view, 120, 40);
        for part in ["render-31 is running", "in 10m 0s", "50.0 s of about 100.0 s", "it has written nothing yet"] {
            assert!(page.contains(part), "{part} in\n{page}");
        }
        assert!(!press(&mut view, KeyCode::Esc) && view.page.is_none(), "back to all of them");
        assert!(press(&mut view, KeyCode::Esc));
    }

    #[test]
    fn arrows_scroll_within_the_flows_and_q_ends() {
        let mut view = View { status: Some(status(30)), ..View::default() };
        assert!(screen(&mut view, 80, 24).contains("app0/gold "));
        (0..99).for_each(|_| assert!(!press(&mut view, KeyCode::Down)));
        let shown = screen(&mut view, 80, 24);
        let flows = shown.split("flows").nth(1).unwrap();
        assert!(flows.contains("app29/gold") && !flows.contains("app28/gold"), "{shown}");
        (0..99).for_each(|_| assert!(!press(&mut view, KeyCode::Up)));
        assert!(screen(&mut view, 80, 24).split("flows").nth(1).unwrap().contains("app0/gold"));
        assert!(press(&mut view, KeyCode::Char('q')));
    }

    #[test]
    fn the_smallest_screen_and_an_empty_pool_are_drawn_too() {
        for (width, height) in [(1, 1), (20, 5), (300, 100)] {
            for flows in [0, 3] {
                screen(&mut View { status: Some(status(flows)), ..View::default() }, width, height);
            }
        }
    }
}
