//! The page of one job in `weal top`: all about it, why it does not run, and the end of what it wrote.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Line;
use ratatui::widgets::{Block, Borders, Paragraph, Wrap};
use weal_model::{JobStatus, Time};

use crate::client::{Client, Error};
use crate::commands::jobs::described_at;
use crate::terminal;

/// Lines of its output that are asked for: more than a screen has.
const TAIL: usize = 200;

/// One job.
pub(super) struct Page {
    job: JobStatus,
    /// The end of what it wrote, without what would command a terminal.
    output: Vec<String>,
    /// Nothing was asked yet.
    is_new: bool,
}

impl Page {
    pub fn of(job: JobStatus) -> Self {
        Self { job, output: Vec::new(), is_new: true }
    }

    /// Whether it still shows only what the list knew.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Asks for the job and for its output. A job that the controller does not know any more is shown as it was.
    pub async fn look(&mut self, client: &Client) -> Result<(), Error> {
        self.is_new = false;
        let id = self.job.id.to_string();
        self.job = client.job(&id).await?;
        // One that has not begun has no output, and that is no problem.
        if let Ok(bytes) = client.job_output(&id, TAIL).await {
            self.output = String::from_utf8_lossy(&bytes).lines().map(|line| terminal::visible(line).into_owned()).collect();
        }
        Ok(())
    }

    /// Draws it as of `now`.
    pub fn draw(&self, frame: &mut Frame, area: Rect, now: Time) {
        let text = described_at(&self.job, now);
        let lines: Vec<Line> = text.lines().map(Line::from).collect();
        let height = u16::try_from(lines.len()).unwrap_or(u16::MAX).saturating_add(2);
        let [about, output] = Layout::vertical([Constraint::Length(height), Constraint::Min(3)]).areas(area);
        let block = |title: &str| Block::new().borders(Borders::TOP).title(title.to_owned());
        frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }).block(block("job")), about);
        let rows = usize::from(output.height).saturating_sub(1);
        let last: Vec<Line> = match self.output.as_slice() {
            [] => vec![Line::from("it has written nothing yet")],
            lines => lines[lines.len().saturating_sub(rows)..].iter().map(|line| Line::from(line.as_str())).collect(),
        };
        frame.render_widget(Paragraph::new(last).block(block("output")), output);
    }
}
