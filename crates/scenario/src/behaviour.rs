//! What a simulation has to be told about applications: what their requests cost and what becoming ready takes.
//!
//! It comes from `[app.NAME]` where the scenario describes its own pool, and from `[[simulate]]` where a `weal.toml` does; the latter
//! overrides the former, and a table with a `class` those without.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;
use weal_control::jobs::Costs;
use weal_model::Bytes;

use super::file::{AppTable, Spread};
use super::values::{Bandwidth, Size, Span};

/// CPU time of a request that nothing is said about, in seconds; a simulation that assumes it notes that it does.
pub const ASSUMED_WORK_S: f64 = 0.01;

/// `[[simulate]]`: what is said here holds for the requests of `class`, or for all of the application's.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SimulateTable {
    /// The application.
    pub app: Spanned<String>,
    /// Only requests of this class; `work`, `spread`, `delay` and `calls` may differ by class.
    pub class: Option<String>,
    /// CPU time of one request on a standard core.
    pub work: Option<Span>,
    /// How the work varies: `exponential` or `constant`.
    pub spread: Option<Spread>,
    /// Time of one request that is not CPU: disk, sleep, other machines.
    pub delay: Option<Span>,
    /// Calls to other applications, one after the other, before the request's own work.
    pub calls: Option<Vec<CallTable>>,
    /// Size of a request, to it or a call; it takes time where `[simulation]` has a `bandwidth`. Default: nothing.
    pub request: Option<Size>,
    /// Size of an answer, to it or a call; it takes time where `[simulation]` has a `bandwidth`. Default: nothing.
    pub response: Option<Size>,
    /// What changes of an instance take, all at once; what is said below counts more.
    pub costs: Option<CostPreset>,
    /// Seconds from a start until it is ready, on an idle node.
    pub start: Option<Span>,
    /// CPU time that a start takes, at most one core at a time; part of `start`.
    pub start_work: Option<Span>,
    /// From the resume of a suspended instance until it is ready.
    pub resume: Option<Span>,
    /// What the resume of a parked instance takes beyond that, for its memory to come back.
    pub page_in: Option<Span>,
    /// From the end of draining until it is suspended.
    pub suspend: Option<Span>,
    /// What paging out takes.
    pub park: Option<Span>,
    /// From the end of draining until it is gone.
    pub stop: Option<Span>,
    /// What an instance does beside requests: `{ every = "10s", work = "50ms" }`.
    pub housekeeping: Option<Housekeeping>,
}

/// Measured costs of changes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum CostPreset {
    /// Virtual machines under Xen (Carrera, Table 5.1): a boot takes 3.6 s, suspend and resume grow with the memory.
    #[serde(rename = "carrera-5.1")]
    Carrera,
    /// Processes that are frozen and paged out: the defaults.
    #[default]
    #[serde(rename = "processes")]
    Processes,
}

/// One entry of `calls`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallTable {
    /// Who is called.
    pub app: String,
    /// How often. Default: once.
    #[serde(default = "once")]
    pub count: u32,
    /// CPU time of one call there. Default: the `work` of that application.
    pub work: Option<Span>,
}

fn once() -> u32 {
    1
}

/// Work that an instance does at regular times.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Housekeeping {
    /// Between two times.
    pub every: Span,
    /// CPU time of each.
    pub work: Span,
}

/// What a simulated application does.
#[derive(Debug, Clone, PartialEq)]
pub struct Behaviour {
    /// What its requests cost, for classes that nothing else is said about.
    pub request: RequestCost,
    /// What requests of these classes cost.
    pub classes: BTreeMap<String, RequestCost>,
    /// What its instances take to change.
    pub changes: ChangeTimes,
    /// What its instances do beside requests.
    pub housekeeping: Option<Housekeeping>,
    /// Where its instances run at the beginning; where it says nothing, as many run as must.
    pub initially: Vec<String>,
    /// From which second on its work is multiplied by what.
    pub cost_changes: Vec<(f64, f64)>,
    /// True when nobody said what its requests cost.
    pub assumed: bool,
}

/// What one request costs.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestCost {
    /// CPU-seconds in the application itself.
    pub work_s: f64,
    /// How they vary.
    pub spread: Spread,
    /// Seconds that are not CPU.
    pub delay_s: f64,
    /// Calls to other applications, in order.
    pub calls: Vec<Call>,
    /// Size of the request.
    pub request: Bytes,
    /// Size of the answer.
    pub response: Bytes,
}

/// Calls to another application.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// Which.
    pub app: String,
    /// How often.
    pub count: u32,
    /// CPU-seconds there; `None` is what its own requests cost.
    pub work_s: Option<f64>,
}

/// Seconds that changes of an instance take once nothing is outstanding at it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChangeTimes {
    /// From start to ready on an idle node.
    pub start_s: f64,
    /// CPU-seconds of it.
    pub start_work_s: f64,
    /// From resume to ready.
    pub resume_s: f64,
    /// What a parked one takes beyond that.
    pub page_in_s: f64,
    /// To suspend.
    pub suspend_s: f64,
    /// To page out.
    pub park_s: f64,
    /// To stop.
    pub stop_s: f64,
    /// On top, for each MiB of the instance: to suspend or page out, and to resume.
    pub suspend_s_per_mib: f64,
    /// See `suspend_s_per_mib`.
    pub resume_s_per_mib: f64,
}

impl Default for ChangeTimes {
    /// As measured with middling web applications: a start of seconds, a resume of milliseconds.
    fn default() -> Self {
        Self {
            start_s: 5.0,
            start_work_s: 0.0,
            resume_s: 0.25,
            page_in_s: 0.5,
            suspend_s: 0.05,
            park_s: 0.5,
            stop_s: 0.25,
            suspend_s_per_mib: 0.0,
            resume_s_per_mib: 0.0,
        }
    }
}

impl CostPreset {
    fn changes(self) -> ChangeTimes {
        let costs = Costs::THESIS;
        match self {
            Self::Processes => ChangeTimes::default(),
            Self::Carrera => ChangeTimes {
                start_s: costs.start_s,
                resume_s: 0.0,
                page_in_s: 0.0,
                suspend_s: 0.0,
                park_s: 0.0,
                suspend_s_per_mib: costs.suspend_s_per_mib,
                resume_s_per_mib: costs.resume_s_per_mib,
                ..ChangeTimes::default()
            },
        }
    }
}

impl Default for RequestCost {
    fn default() -> Self {
        let (spread, calls, nothing) = (Spread::default(), Vec::new(), Bytes(0));
        Self { work_s: ASSUMED_WORK_S, spread, delay_s: 0.0, calls, request: nothing, response: nothing }
    }
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            request: RequestCost::default(),
            classes: BTreeMap::new(),
            changes: ChangeTimes::default(),
            housekeeping: None,
            initially: Vec::new(),
            cost_changes: Vec::new(),
            assumed: true,
        }
    }
}

impl Behaviour {
    /// What a request of `class` costs.
    pub fn request(&self, class: &str) -> &RequestCost {
        self.classes.get(class).unwrap_or(&self.request)
    }

    /// What its work is multiplied by at `time_s`.
    pub fn factor_at(&self, time_s: f64) -> f64 {
        self.cost_changes.iter().take_while(|(at_s, _)| *at_s <= time_s).last().map_or(1.0, |&(_, factor)| factor)
    }

    pub(super) fn of_app(app: &AppTable) -> Self {
        let request = RequestCost { work_s: app.work.0, spread: app.spread, delay_s: app.delay.0, ..RequestCost::default() };
        Self {
            request,
            changes: ChangeTimes { start_s: app.start.0, resume_s: app.resume.0, ..ChangeTimes::default() },
            initially: app.initially.clone(),
            cost_changes: app.cost_changes.iter().map(|change| (change.at.0, change.factor)).collect(),
            assumed: false,
            ..Self::default()
        }
    }

    /// Takes what a `[[simulate]]` says; those without a class come first.
    pub(super) fn take(&mut self, table: &SimulateTable) {
        let base = self.request.clone();
        let request = match &table.class {
            Some(class) => self.classes.entry(class.clone()).or_insert(base),
            None => &mut self.request,
        };
        set(&mut request.work_s, table.work);
        set(&mut request.delay_s, table.delay);
        request.spread = table.spread.unwrap_or(request.spread);
        if let Some(calls) = &table.calls {
            let call = |call: &CallTable| Call { app: call.app.clone(), count: call.count, work_s: call.work.map(|work| work.0) };
            request.calls = calls.iter().map(call).collect();
        }
        request.request = table.request.map_or(request.request, |size| size.0);
        request.response = table.response.map_or(request.response, |size| size.0);
        self.changes = table.costs.map_or(self.changes, CostPreset::changes);
        let changes = &mut self.changes;
        for (seconds, said) in [
            (&mut changes.start_s, table.start),
            (&mut changes.start_work_s, table.start_work),
            (&mut changes.resume_s, table.resume),
            (&mut changes.page_in_s, table.page_in),
            (&mut changes.suspend_s, table.suspend),
            (&mut changes.park_s, table.park),
            (&mut changes.stop_s, table.stop),
        ] {
            set(seconds, said);
        }
        self.housekeeping = table.housekeeping.or(self.housekeeping);
        self.assumed &= table.work.is_none();
    }
}

fn set(seconds: &mut f64, said: Option<Span>) {
    *seconds = said.map_or(*seconds, |span| span.0);
}

/// What changes of jobs take that are processes, frozen and paged out like instances: a start is that of a process; 340 MB take 0.4 s to page
/// out and as long to read in; a move goes through a link of 1 Gbit/s.
const JOBS_AS_PROCESSES: Costs =
    Costs { start_s: 0.5, suspend_s_per_mib: 0.0012, resume_s_per_mib: 0.0012, migrate_s_per_mib: 0.0107 };

/// `[simulation]`: what surrounds the pool.
#[derive(Debug, Default, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Surroundings {
    /// Between any two processes, one way. Default: none.
    pub latency: Span,
    /// Of the links of the nodes and of the gateway (`1Gbit/s`): what leaves one of them shares its link evenly. Default: no size takes time.
    pub bandwidth: Option<Bandwidth>,
    /// Nodes are slices of one machine with so many cores, as the kernel makes them: a node uses up to all of these cores at once, of which
    /// the others have their parts, until its share of a period of 100 ms is used up, then nothing. Default (0): each node is a machine of its own.
    pub slices_of: u32,
    /// What changes of jobs take. Default: `processes`.
    pub job_costs: CostPreset,
}

impl Surroundings {
    /// What changes of jobs take.
    pub fn job_costs(&self) -> Costs {
        match self.job_costs {
            CostPreset::Processes => JOBS_AS_PROCESSES,
            CostPreset::Carrera => Costs::THESIS,
        }
    }
}
