//! The first screen: nodes, applications, jobs, flows and the last events.

use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::text::Span;
use ratatui::widgets::{Cell, Paragraph, Row};
use weal_model::{AppStatus, Bytes, FlowStatus, InstanceState, JobPhase, JobStatus, NodeStatus, Status, Utility};

use super::draw::{Rows, bar, block, color, draw_table, event_lines, utility_bar};
use super::sorted::{Part, memory, share};
use super::state::Top;
use crate::commands::jobs::{done, expected, goal_at, phase_tone};
use crate::commands::status::achieved;
use crate::output::{Tone, utility_tone};
use crate::supervisor::state_tone;

/// The border, the heading and one row.
const LEAST: u16 = 3;

pub fn draw(frame: &mut Frame, area: Rect, top: &Top, status: &Status) {
    let rows = Part::ALL.map(|part| top.rows(part));
    let heights = heights(area.height, rows, top.focus());
    let mut from = area.y;
    for (part, height) in Part::ALL.into_iter().zip(heights) {
        let place = Rect { y: from, height, ..area };
        from += height;
        if height > 0 {
            draw_part(frame, place, part, top, status);
        }
    }
    let events = Rect { y: from, height: area.bottom().saturating_sub(from), ..area };
    frame.render_widget(Paragraph::new(event_lines(top.events().iter())).block(block("events")), events);
}

/// The lines of each part; the rest is for events. Every part that has rows gets its least first, the focused one before the others, then that
/// one gets what it needs up to half of the screen, and the others up to a quarter.
fn heights(height: u16, rows: [usize; 4], focus: Part) -> [u16; 4] {
    let wanted = rows.map(|rows| if rows == 0 { 0 } else { u16::try_from(rows.saturating_add(2)).unwrap_or(u16::MAX) });
    let order =
        || std::iter::once(focus).chain(Part::ALL.into_iter().filter(move |part| *part != focus)).map(|part| part as usize);
    let (mut given, mut left) = ([0; 4], height);
    for part in order() {
        if wanted[part] > 0 && left >= LEAST {
            given[part] = LEAST;
            left -= LEAST;
        }
    }
    let mut left = left.saturating_sub(LEAST);
    for part in order().filter(|part| given[*part] > 0).collect::<Vec<_>>() {
        let most = if part == focus as usize { height / 2 } else { height / 4 };
        let more = wanted[part].min(most.max(LEAST)).saturating_sub(LEAST).min(left);
        given[part] += more;
        left -= more;
    }
    given
}

fn draw_part(frame: &mut Frame, area: Rect, part: Part, top: &Top, status: &Status) {
    let sorting = top.sorting(part);
    let selected = top.place(part).filter(|_| part == top.focus());
    let title = |what: &str| format!("{what}, {}", sorting.text());
    match part {
        Part::Nodes => {
            let rows = sorting.nodes(status).into_iter().map(|node| node_row(node, area.width)).collect();
            draw_table(frame, area, &title("nodes"), &NODE_HEADING, &NODE_WIDTHS, Rows { rows, selected });
        }
        Part::Apps => {
            let rows = sorting.apps(status).into_iter().map(app_row).collect();
            draw_table(frame, area, &title("applications"), &APP_HEADING, &APP_WIDTHS, Rows { rows, selected });
        }
        Part::Jobs => {
            let rows = sorting.jobs(status).into_iter().map(|job| job_row(job, status)).collect();
            let title = format!("{}, {}", split(status), sorting.text());
            draw_table(frame, area, &title, &JOB_HEADING, &JOB_WIDTHS, Rows { rows, selected });
        }
        Part::Flows => {
            let rows = sorting.flows(status).into_iter().map(flow_row).collect();
            draw_table(frame, area, &title("flows"), &FLOW_HEADING, &FLOW_WIDTHS, Rows { rows, selected });
        }
    }
}

pub const NODE_HEADING: [&str; 5] = ["node", "", "CPU", "given", "memory"];
pub const NODE_WIDTHS: [Constraint; 5] =
    [Constraint::Length(16), Constraint::Min(10), Constraint::Length(13), Constraint::Length(6), Constraint::Length(18)];

pub fn node_row(node: &NodeStatus, width: u16) -> Row<'static> {
    // What the other columns and their gaps leave.
    let bar_width = usize::from(width).saturating_sub(57).clamp(8, 40);
    let name = if node.up { node.name.to_string() } else { format!("{} (down)", node.name) };
    Row::new([
        Cell::from(name),
        Cell::from(bar(share(node.cpu_used.0, node.cpu_capacity.0), bar_width)),
        Cell::from(format!("{:.2} of {:.2}", node.cpu_used.0, node.cpu_capacity.0)),
        Cell::from(format!("{:.2}", node.cpu_allocated.0)),
        Cell::from(format!("{} of {}", node.memory_used, node.memory_capacity)),
    ])
}

const APP_HEADING: [&str; 7] = ["app", "ready", "utility", "CPU", "given", "memory", "state"];
const APP_WIDTHS: [Constraint; 7] = [
    Constraint::Length(16),
    Constraint::Length(10),
    Constraint::Length(7),
    Constraint::Length(6),
    Constraint::Length(6),
    Constraint::Length(8),
    Constraint::Min(16),
];

fn app_row(app: &AppStatus) -> Row<'static> {
    let ready = app.instances.iter().filter(|one| one.state == InstanceState::Ready).count();
    let state = if app.detail.is_empty() { app.state.to_string() } else { format!("{}: {}", app.state, app.detail) };
    Row::new([
        Cell::from(app.name.to_string()),
        Cell::from(format!("{ready} of {}..{}", app.min, app.max)),
        utility_cell(app.utility),
        Cell::from(format!("{:.2}", app.cpu_used.0)),
        Cell::from(format!("{:.2}", app.cpu_allocated.0)),
        Cell::from(Bytes(memory(app)).to_string()),
        Cell::from(Span::styled(state, color(state_tone(app.state)))),
    ])
}

fn utility_cell(utility: Option<Utility>) -> Cell<'static> {
    let text = utility.map_or_else(|| "-".to_owned(), |utility| utility.to_string());
    Cell::from(Span::styled(text, color(utility.map_or(Tone::Dim, utility_tone))))
}

const JOB_HEADING: [&str; 9] = ["job", "state", "node", "done", "given", "goal", "expected", "utility", "why"];
const JOB_WIDTHS: [Constraint; 9] = [
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

fn job_row(job: &JobStatus, status: &Status) -> Row<'static> {
    Row::new([
        Cell::from(job.id.to_string()),
        Cell::from(Span::styled(job.state.as_str(), color(phase_tone(job.state)))),
        Cell::from(job.node.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string)),
        Cell::from(format!("{} {:>4}", bar(job.progress, 8), done(job))),
        Cell::from(format!("{:.2}", job.cpu_allocated.0)),
        Cell::from(goal_at(job, status.time)),
        Cell::from(expected(job, status.time)),
        utility_cell(job.utility),
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

const FLOW_HEADING: [&str; 8] = ["flow", "goal", "achieved", "missed|met", "utility", "req/s", "queue", "seats"];
const FLOW_WIDTHS: [Constraint; 8] = [
    Constraint::Min(12),
    Constraint::Length(14),
    Constraint::Length(8),
    Constraint::Length(11),
    Constraint::Length(7),
    Constraint::Length(6),
    Constraint::Length(5),
    Constraint::Length(5),
];

fn flow_row(flow: &FlowStatus) -> Row<'static> {
    let (bar, text, tone) = utility_bar(flow.utility);
    let goal = if flow.goal_text.is_empty() { "best effort".to_owned() } else { flow.goal_text.clone() };
    Row::new([
        Cell::from(flow.id.to_string()),
        Cell::from(goal),
        Cell::from(achieved(flow)),
        Cell::from(Span::styled(bar, color(tone))),
        Cell::from(text),
        Cell::from(format!("{:.0}", flow.throughput_per_s)),
        Cell::from(format!("{:.0}", flow.queue_mean)),
        Cell::from(flow.seats.to_string()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_part_takes_a_line_that_the_screen_does_not_have_and_the_focused_one_comes_first() {
        for height in 0..120 {
            for rows in [[0; 4], [1, 1, 0, 1], [3, 40, 5, 60], [300; 4]] {
                for focus in Part::ALL {
                    let given = heights(height, rows, focus);
                    assert!(given.iter().sum::<u16>() <= height, "{given:?} of {height}");
                    assert!(given.iter().zip(rows).all(|(lines, rows)| rows > 0 || *lines == 0), "{given:?}");
                    let seen = rows[focus as usize] == 0 || height < LEAST || given[focus as usize] >= LEAST;
                    assert!(seen, "{given:?} of {height}");
                }
            }
        }
        assert_eq!(heights(40, [2, 30, 0, 30], Part::Apps), [4, 20, 0, 10]);
        assert_eq!(heights(40, [2, 30, 0, 30], Part::Flows), [4, 10, 0, 20]);
    }
}
