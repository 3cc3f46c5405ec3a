//! What is selected, opened and asked for. Keys and answers come in; what to draw and what to ask goes out.

use ratatui::crossterm::event::{Event as Input, KeyCode, KeyEventKind, KeyModifiers};
use weal_model::{AppName, Event, FlowId, JobName, NodeName, Status};

use super::pages::{After, Detail, Page, Wanted, moved};
use super::sorted::{Part, Sorting};

/// What one look at the pool brought.
#[derive(Debug)]
pub struct Look {
    pub status: Status,
    pub events: Vec<Event>,
    pub detail: Option<Detail>,
}

/// The rows that are selected, by their names: their places change from look to look.
#[derive(Debug, Default)]
struct Selected {
    node: Option<NodeName>,
    app: Option<AppName>,
    job: Option<JobName>,
    flow: Option<FlowId>,
}

/// All that is shown.
#[derive(Debug)]
pub struct Top {
    status: Option<Status>,
    /// The newest first.
    events: Vec<Event>,
    problem: Option<String>,
    focus: Part,
    sortings: [Sorting; 4],
    selected: Selected,
    page: Option<Page>,
    has_help: bool,
    is_over: bool,
    asks: bool,
}

impl Default for Top {
    fn default() -> Self {
        Self {
            status: None,
            events: Vec::new(),
            problem: None,
            focus: Part::default(),
            sortings: Part::ALL.map(Sorting::of),
            selected: Selected::default(),
            page: None,
            has_help: false,
            is_over: false,
            asks: false,
        }
    }
}

impl Top {
    /// Takes in what a look brought.
    pub fn handle_look(&mut self, look: Look) {
        self.problem = None;
        self.asks = false;
        self.events = look.events;
        self.events.sort_by_key(|event| std::cmp::Reverse(event.id));
        if let Some(page) = &mut self.page {
            page.handle_status(&look.status);
            look.detail.into_iter().for_each(|detail| page.handle_detail(detail));
        }
        self.status = Some(look.status);
        if self.rows(self.focus) == 0 && self.page.is_none() {
            self.focus = Part::default();
        }
    }

    /// A look failed: what was known stays.
    pub fn handle_problem(&mut self, problem: String) {
        self.asks = false;
        self.problem = Some(problem);
    }

    /// Takes in what the terminal tells.
    pub fn handle_event(&mut self, event: &Input) {
        let Input::Key(key) = event else { return };
        if key.kind != KeyEventKind::Press {
            return;
        }
        let is_interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
        if is_interrupt || key.code == KeyCode::Char('q') {
            self.is_over = true;
        } else if self.has_help {
            // Whatever is pressed: the help has been read.
            self.has_help = false;
        } else if matches!(key.code, KeyCode::Char('?' | 'h')) {
            self.has_help = true;
        } else {
            self.handle_key(key.code);
        }
    }

    fn handle_key(&mut self, code: KeyCode) {
        let Some(page) = &mut self.page else { return self.handle_overview_key(code) };
        match page.handle_key(code) {
            After::Stays => {}
            After::Asks => self.asks = true,
            After::Closes => self.page = None,
        }
    }

    fn handle_overview_key(&mut self, code: KeyCode) {
        match code {
            KeyCode::Esc => self.is_over = true,
            KeyCode::Tab => self.turn(1),
            KeyCode::BackTab => self.turn(Part::ALL.len() - 1),
            KeyCode::Char('s') => self.sorting_mut().next(),
            KeyCode::Char('r') => self.sorting_mut().reverse(),
            KeyCode::Enter | KeyCode::Right => self.open(),
            code => self.select(code),
        }
    }

    /// Goes so many parts further, to one that has rows.
    fn turn(&mut self, by: usize) {
        let at = |part: Part| Part::ALL.iter().position(|one| *one == part).unwrap_or(0);
        let next = |part: Part| Part::ALL[(at(part) + by) % Part::ALL.len()];
        let mut part = next(self.focus);
        while part != self.focus && self.rows(part) == 0 {
            part = next(part);
        }
        self.focus = part;
    }

    fn select(&mut self, code: KeyCode) {
        let last = self.rows(self.focus).saturating_sub(1);
        let to = moved(self.place(self.focus).unwrap_or(0), code).min(last);
        let Some(status) = &self.status else { return };
        let sorting = self.sorting(self.focus);
        match self.focus {
            Part::Nodes => self.selected.node = sorting.nodes(status).get(to).map(|node| node.name.clone()),
            Part::Apps => self.selected.app = sorting.apps(status).get(to).map(|app| app.name.clone()),
            Part::Jobs => self.selected.job = sorting.jobs(status).get(to).map(|job| job.id.clone()),
            Part::Flows => self.selected.flow = sorting.flows(status).get(to).map(|flow| flow.id.clone()),
        }
    }

    /// Opens the page of what is selected; of a flow that of its application.
    fn open(&mut self) {
        let (Some(status), Some(place)) = (&self.status, self.place(self.focus)) else { return };
        let sorting = self.sorting(self.focus);
        let page = match self.focus {
            Part::Nodes => sorting.nodes(status).get(place).map(|node| Page::of_node(&node.name)),
            Part::Apps => sorting.apps(status).get(place).map(|app| Page::of_app(app)),
            Part::Jobs => sorting.jobs(status).get(place).map(|job| Page::of_job(job)),
            Part::Flows => sorting
                .flows(status)
                .get(place)
                .and_then(|flow| status.apps.iter().find(|app| app.name == flow.app).map(Page::of_app)),
        };
        self.asks = page.as_ref().is_some_and(|page| page.wanted() != Wanted::Nothing);
        self.page = page;
    }

    /// The page that is shown can be moved no further.
    pub fn cut_scroll(&mut self, most: usize) {
        self.page.iter_mut().for_each(|page| page.cut_scroll(most));
    }

    fn sorting_mut(&mut self) -> &mut Sorting {
        &mut self.sortings[self.focus as usize]
    }

    /// What to ask the pool for beside its status.
    pub fn wanted(&self) -> Wanted {
        self.page.as_ref().map_or(Wanted::Nothing, Page::wanted)
    }

    /// Whether something is open of which nothing is known yet.
    pub fn asks_at_once(&self) -> bool {
        self.asks
    }

    pub fn is_over(&self) -> bool {
        self.is_over
    }

    pub fn has_help(&self) -> bool {
        self.has_help
    }

    pub fn status(&self) -> Option<&Status> {
        self.status.as_ref()
    }

    pub fn events(&self) -> &[Event] {
        &self.events
    }

    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    pub fn page(&self) -> Option<&Page> {
        self.page.as_ref()
    }

    pub fn focus(&self) -> Part {
        self.focus
    }

    pub fn sorting(&self, part: Part) -> Sorting {
        self.sortings[part as usize]
    }

    /// How many rows a part has.
    pub fn rows(&self, part: Part) -> usize {
        self.status.as_ref().map_or(0, |status| match part {
            Part::Nodes => status.nodes.len(),
            Part::Apps => status.apps.len(),
            Part::Jobs => status.jobs.len(),
            Part::Flows => status.flows.len(),
        })
    }

    /// The place of the selected row of a part: the first one where it is gone, `None` where there is no row.
    pub fn place(&self, part: Part) -> Option<usize> {
        let status = self.status.as_ref().filter(|_| self.rows(part) > 0)?;
        let sorting = self.sorting(part);
        let place = match part {
            Part::Nodes => sorting.nodes(status).iter().position(|node| Some(&node.name) == self.selected.node.as_ref()),
            Part::Apps => sorting.apps(status).iter().position(|app| Some(&app.name) == self.selected.app.as_ref()),
            Part::Jobs => sorting.jobs(status).iter().position(|job| Some(&job.id) == self.selected.job.as_ref()),
            Part::Flows => sorting.flows(status).iter().position(|flow| Some(&flow.id) == self.selected.flow.as_ref()),
        };
        Some(place.unwrap_or(0))
    }
}
