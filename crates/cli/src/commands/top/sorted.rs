//! The parts of the overview, and in which order the rows of each stand.

use std::cmp::Ordering;

use weal_model::{AppState, AppStatus, FlowStatus, JobStatus, NodeStatus, Status, Utility};

/// A part of the overview that rows are selected in.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    Nodes,
    #[default]
    Apps,
    Jobs,
    Flows,
}

impl Part {
    /// All of them, from the top of the screen.
    pub const ALL: [Self; 4] = [Self::Nodes, Self::Apps, Self::Jobs, Self::Flows];

    /// The orders that its rows may have; the first is how it begins.
    pub fn orders(self) -> &'static [By] {
        match self {
            Self::Nodes => &[By::Name, By::Cpu, By::Memory],
            Self::Apps => &[By::Worst, By::Name, By::Cpu, By::Memory],
            Self::Jobs => &[By::Queue, By::Worst, By::Progress, By::Name],
            Self::Flows => &[By::Worst, By::Name, By::Rate, By::Queue],
        }
    }
}

/// What rows are ordered by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// What fails, then the lowest utility.
    Worst,
    /// The alphabet.
    Name,
    /// The most CPU used: of a node, of what it has.
    Cpu,
    /// The most memory used: of a node, of what it has.
    Memory,
    /// The most requests a second.
    Rate,
    /// The longest queue; of jobs the order in which the controller lists them.
    Queue,
    /// The farthest.
    Progress,
}

impl By {
    /// As a title says it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Worst => "worst first",
            Self::Name => "by name",
            Self::Cpu => "by CPU",
            Self::Memory => "by memory",
            Self::Rate => "by requests",
            Self::Queue => "by queue",
            Self::Progress => "by progress",
        }
    }
}

/// How one part is ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sorting {
    part: Part,
    /// Invariant: below the number of the part's orders.
    chosen: usize,
    reversed: bool,
}

impl Sorting {
    pub fn of(part: Part) -> Self {
        Self { part, chosen: 0, reversed: false }
    }

    pub fn next(&mut self) {
        (self.chosen, self.reversed) = ((self.chosen + 1) % self.part.orders().len(), false);
    }

    pub fn reverse(&mut self) {
        self.reversed = !self.reversed;
    }

    pub fn by(self) -> By {
        self.part.orders()[self.chosen]
    }

    /// As a title says it.
    pub fn text(self) -> String {
        format!("{}{}", self.by().as_str(), if self.reversed { ", reversed" } else { "" })
    }

    /// Rows that count alike keep the order in which the controller lists them, so that nothing jumps about.
    fn sort<T>(self, rows: &[T], compare: impl Fn(By, &T, &T) -> Ordering) -> Vec<&T> {
        let mut sorted: Vec<&T> = rows.iter().collect();
        sorted.sort_by(|a, b| compare(self.by(), a, b));
        if self.reversed {
            sorted.reverse();
        }
        sorted
    }

    pub fn nodes(self, status: &Status) -> Vec<&NodeStatus> {
        let cpu = |node: &NodeStatus| share(node.cpu_used.0, node.cpu_capacity.0);
        let memory = |node: &NodeStatus| share(node.memory_used.0 as f64, node.memory_capacity.0 as f64);
        self.sort(&status.nodes, |by, a, b| match by {
            By::Cpu => cpu(b).total_cmp(&cpu(a)),
            By::Memory => memory(b).total_cmp(&memory(a)),
            _ => a.name.cmp(&b.name),
        })
    }

    pub fn apps(self, status: &Status) -> Vec<&AppStatus> {
        self.sort(&status.apps, |by, a, b| match by {
            By::Worst => (rank(a.state)).cmp(&rank(b.state)).then(worse(a.utility, b.utility)),
            By::Cpu => b.cpu_used.0.total_cmp(&a.cpu_used.0),
            By::Memory => memory(b).cmp(&memory(a)),
            _ => a.name.cmp(&b.name),
        })
    }

    pub fn jobs(self, status: &Status) -> Vec<&JobStatus> {
        self.sort(&status.jobs, |by, a, b| match by {
            By::Worst => worse(a.utility, b.utility),
            By::Progress => b.progress.total_cmp(&a.progress),
            By::Name => a.id.cmp(&b.id),
            _ => Ordering::Equal,
        })
    }

    pub fn flows(self, status: &Status) -> Vec<&FlowStatus> {
        self.sort(&status.flows, |by, a, b| match by {
            By::Worst => worse(a.utility, b.utility),
            By::Rate => b.throughput_per_s.total_cmp(&a.throughput_per_s),
            By::Queue => b.queue_mean.total_cmp(&a.queue_mean),
            _ => a.id.cmp(&b.id),
        })
    }
}

/// Bytes of memory that an application's instances use.
pub fn memory(app: &AppStatus) -> u64 {
    app.instances.iter().map(|instance| instance.memory_used.0).sum()
}

/// `used` of `capacity`; 0 of nothing.
pub fn share(used: f64, capacity: f64) -> f64 {
    if capacity > 0.0 { used / capacity } else { 0.0 }
}

/// What fails comes first, and what does not run last.
fn rank(state: AppState) -> u8 {
    match state {
        AppState::Failed => 0,
        AppState::Degraded => 1,
        AppState::Starting | AppState::Waiting | AppState::Running => 2,
        AppState::Ready => 3,
        AppState::Asleep => 4,
        AppState::Done | AppState::Stopped => 5,
    }
}

/// The lower utility first; who has none, last.
fn worse(a: Option<Utility>, b: Option<Utility>) -> Ordering {
    let value = |utility: Option<Utility>| utility.map_or(f64::INFINITY, |utility| utility.0);
    value(a).total_cmp(&value(b))
}
