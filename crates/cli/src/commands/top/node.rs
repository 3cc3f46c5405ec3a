//! The page of one node: what it has, what runs there, what happened there.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;
use weal_model::{Event, InstanceStatus, Status};

use super::app::{HEADING, WIDTHS, instance_row};
use super::draw::{Rows, block, draw_table, event_lines};
use super::overview::{NODE_HEADING, NODE_WIDTHS, node_row};
use super::pages::NodePage;

/// The border, the heading and the node.
const NODE: u16 = 3;

/// The answer is how far it can be moved.
pub fn draw(frame: &mut Frame, area: Rect, page: &NodePage, status: &Status, events: &[Event]) -> usize {
    let jobs: Vec<Line> = status
        .jobs
        .iter()
        .filter(|job| job.node.as_ref() == Some(&page.node) || job.nodes.contains(&page.node))
        .map(|job| {
            Line::from(format!("{} is {}, {:.2} CPU given, {}", job.id, job.state.as_str(), job.cpu_allocated.0, job.detail))
        })
        .collect();
    let jobs_height = if jobs.is_empty() { 0 } else { u16::try_from(jobs.len() + 1).unwrap_or(u16::MAX).min(area.height / 4) };
    let [head, instances, jobs_area, events_area] = Layout::vertical([
        Constraint::Length(NODE),
        Constraint::Min(3),
        Constraint::Length(jobs_height),
        Constraint::Length(area.height / 4),
    ])
    .areas(area);
    let rows = status.nodes.iter().filter(|node| node.name == page.node).map(|node| node_row(node, area.width)).collect();
    draw_table(frame, head, "node", &NODE_HEADING, &NODE_WIDTHS, Rows { rows, selected: None });
    let there = there(page, status);
    let most = there.len().saturating_sub(1);
    let title = format!("{} instances there, by CPU", there.len());
    let rows = there.into_iter().skip(page.scroll.min(most)).map(|instance| instance_row(instance, status.time)).collect();
    draw_table(frame, instances, &title, &HEADING, &WIDTHS, Rows { rows, selected: None });
    if jobs_height > 0 {
        frame.render_widget(Paragraph::new(jobs).block(block("jobs there")), jobs_area);
    }
    let lines = event_lines(events.iter().filter(|event| event.node.as_ref() == Some(&page.node)));
    frame.render_widget(Paragraph::new(lines).block(block("events there")), events_area);
    most
}

/// Its instances, which use most CPU first.
fn there<'s>(page: &NodePage, status: &'s Status) -> Vec<&'s InstanceStatus> {
    let all = status.apps.iter().flat_map(|app| &app.instances);
    let mut there: Vec<&InstanceStatus> = all.filter(|instance| instance.node == page.node).collect();
    there.sort_by(|a, b| b.cpu_used.0.total_cmp(&a.cpu_used.0));
    there
}
