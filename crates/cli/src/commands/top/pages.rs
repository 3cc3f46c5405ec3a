//! The page of one application, node or job, in place of the overview: what is known of it, and what keys do there.

use ratatui::crossterm::event::KeyCode;
use weal_model::{AppName, AppStatus, InstanceId, JobName, JobStatus, NodeName, Status, Why};
use weal_protocol::controller::LogLine;

/// What the pool is to be asked for beside its status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    Nothing,
    /// Why an application is as it is, and what its instances wrote, or one of them.
    App {
        app: AppName,
        instance: Option<InstanceId>,
    },
    /// All about a job, and what it wrote.
    Job(JobName),
}

/// The answer.
#[derive(Debug)]
pub enum Detail {
    App {
        why: Box<Why>,
        lines: Vec<LogLine>,
    },
    /// The output holds nothing that would command a terminal.
    Job {
        job: Box<JobStatus>,
        output: Vec<String>,
    },
}

/// What an application's page shows.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// Why in short, the instances, the end of what they wrote.
    #[default]
    All,
    /// All that is known of why.
    Why,
    /// What they wrote.
    Logs,
    /// What happened.
    Events,
}

/// One application.
#[derive(Debug)]
pub struct AppPage {
    /// As it was seen last: it may have left the pool since.
    pub app: AppStatus,
    pub shown: Shown,
    /// The selected instance.
    pub instance: Option<InstanceId>,
    /// Only what this one wrote is shown.
    pub only: Option<InstanceId>,
    /// Lines that a long text is moved by: from its beginning, logs from their end.
    pub scroll: usize,
    pub why: Option<Why>,
    /// `None` until they were asked for.
    pub lines: Option<Vec<LogLine>>,
}

/// One node.
#[derive(Debug)]
pub struct NodePage {
    pub node: NodeName,
    pub scroll: usize,
}

/// One job.
#[derive(Debug)]
pub struct JobPage {
    /// As it was seen last.
    pub job: JobStatus,
    /// The end of what it wrote.
    pub output: Vec<String>,
}

/// What stands in place of the overview.
#[derive(Debug)]
pub enum Page {
    App(Box<AppPage>),
    Node(NodePage),
    Job(Box<JobPage>),
}

/// Whether a page stays after a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    Stays,
    /// Something else is shown than what was asked for.
    Asks,
    Closes,
}

impl Page {
    pub fn of_app(app: &AppStatus) -> Self {
        let page = AppPage {
            app: app.clone(),
            shown: Shown::All,
            instance: app.instances.first().map(|instance| instance.id.clone()),
            only: None,
            scroll: 0,
            why: None,
            lines: None,
        };
        Self::App(Box::new(page))
    }

    pub fn of_node(node: &NodeName) -> Self {
        Self::Node(NodePage { node: node.clone(), scroll: 0 })
    }

    pub fn of_job(job: &JobStatus) -> Self {
        Self::Job(Box::new(JobPage { job: job.clone(), output: Vec::new() }))
    }

    /// What it needs of the pool.
    pub fn wanted(&self) -> Wanted {
        match self {
            Self::App(page) => Wanted::App { app: page.app.name.clone(), instance: page.only.clone() },
            Self::Node(_) => Wanted::Nothing,
            Self::Job(page) => Wanted::Job(page.job.id.clone()),
        }
    }

    pub fn handle_status(&mut self, status: &Status) {
        if let Self::App(page) = self
            && let Some(app) = status.apps.iter().find(|app| app.name == page.app.name)
        {
            page.handle_app(app);
        }
    }

    /// Takes the answer in, unless it is to another question than is open now.
    pub fn handle_detail(&mut self, detail: Detail) {
        match (self, detail) {
            (Self::App(page), Detail::App { why, lines }) if why.app == page.app.name => {
                page.why = Some(*why);
                page.lines = Some(lines);
            }
            (Self::Job(page), Detail::Job { job, output }) if job.id == page.job.id => {
                page.job = *job;
                page.output = output;
            }
            _ => {}
        }
    }

    /// The screen can be moved no further.
    pub fn cut_scroll(&mut self, most: usize) {
        match self {
            Self::App(page) => page.scroll = page.scroll.min(most),
            Self::Node(page) => page.scroll = page.scroll.min(most),
            Self::Job(_) => {}
        }
    }

    pub fn handle_key(&mut self, code: KeyCode) -> After {
        match self {
            Self::App(page) => page.handle_key(code),
            Self::Node(page) if !is_back(code) => {
                page.scroll = moved(page.scroll, code);
                After::Stays
            }
            Self::Job(_) if !is_back(code) => After::Stays,
            Self::Node(_) | Self::Job(_) => After::Closes,
        }
    }
}

impl AppPage {
    fn handle_app(&mut self, app: &AppStatus) {
        self.app = app.clone();
        let is_there = |id: &InstanceId| self.app.instances.iter().any(|instance| instance.id == *id);
        if !self.instance.as_ref().is_some_and(is_there) {
            self.instance = self.app.instances.first().map(|instance| instance.id.clone());
        }
    }

    fn handle_key(&mut self, code: KeyCode) -> After {
        match code {
            KeyCode::Char('w') => self.show(Shown::Why),
            KeyCode::Char('l') => self.show(Shown::Logs),
            KeyCode::Char('e') => self.show(Shown::Events),
            KeyCode::Char('a') if self.only.is_some() => return self.listen_to(None),
            code if is_back(code) => return self.step_back(),
            KeyCode::Enter | KeyCode::Right if self.shown == Shown::All => {
                self.show(Shown::Logs);
                return self.listen_to(self.instance.clone());
            }
            code if self.shown == Shown::All => self.select(code),
            // What was written last stands below, so that going up goes back in time.
            code if self.shown == Shown::Logs => self.scroll = moved(self.scroll, turned(code)),
            code => self.scroll = moved(self.scroll, code),
        }
        After::Stays
    }

    /// The same key goes there and back.
    fn show(&mut self, shown: Shown) {
        self.shown = if self.shown == shown { Shown::All } else { shown };
        self.scroll = 0;
    }

    fn step_back(&mut self) -> After {
        if self.shown == Shown::All {
            return After::Closes;
        }
        self.show(Shown::All);
        if self.only.is_some() { self.listen_to(None) } else { After::Stays }
    }

    fn listen_to(&mut self, only: Option<InstanceId>) -> After {
        self.scroll = 0;
        if self.only == only {
            return After::Stays;
        }
        self.only = only;
        self.lines = None;
        After::Asks
    }

    fn select(&mut self, code: KeyCode) {
        let last = self.app.instances.len().saturating_sub(1);
        self.instance = self.app.instances.get(moved(self.selected(), code).min(last)).map(|one| one.id.clone());
    }

    /// The place of the selected instance.
    pub fn selected(&self) -> usize {
        self.app.instances.iter().position(|one| Some(&one.id) == self.instance.as_ref()).unwrap_or(0)
    }
}

/// Lines that a page is moved by at once.
const LEAP: usize = 10;

/// A place after a key; whoever has fewer places cuts it ([`Page::cut_scroll`]).
pub fn moved(place: usize, code: KeyCode) -> usize {
    match code {
        KeyCode::Down | KeyCode::Char('j') => place.saturating_add(1),
        KeyCode::Up | KeyCode::Char('k') => place.saturating_sub(1),
        KeyCode::PageDown => place.saturating_add(LEAP),
        KeyCode::PageUp => place.saturating_sub(LEAP),
        KeyCode::Home | KeyCode::Char('g') => 0,
        KeyCode::End | KeyCode::Char('G') => usize::MAX,
        _ => place,
    }
}

/// The key that goes the other way.
fn turned(code: KeyCode) -> KeyCode {
    match code {
        KeyCode::Down | KeyCode::Char('j') => KeyCode::Up,
        KeyCode::Up | KeyCode::Char('k') => KeyCode::Down,
        KeyCode::PageDown => KeyCode::PageUp,
        KeyCode::PageUp => KeyCode::PageDown,
        KeyCode::Home | KeyCode::Char('g') => KeyCode::End,
        KeyCode::End | KeyCode::Char('G') => KeyCode::Home,
        other => other,
    }
}

fn is_back(code: KeyCode) -> bool {
    matches!(code, KeyCode::Esc | KeyCode::Backspace | KeyCode::Left)
}
