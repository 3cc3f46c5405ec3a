//! What a simulation has to be told about applications: what their requests cost and what becoming ready takes.
//!
//! It comes from `[app.NAME]` where the scenario describes its own pool, and from `[[simulate]]` where a `weal.toml` does; the latter
//! overrides the former, and a table with a `class` those without.

use std::collections::BTreeMap;

use weal_control::jobs::Costs;
use weal_model::Bytes;

use crate::tables::{AppTable, CallTable, CostPreset, Housekeeping, SimulateTable, WorkDistribution};
use crate::values::Span;

/// CPU time of a request that nothing is said about, in seconds; a simulation that assumes it notes that it does.
pub const ASSUMED_WORK_S: f64 = 0.01;

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
    pub spread: WorkDistribution,
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

impl ChangeTimes {
    fn of(preset: CostPreset) -> Self {
        let costs = Costs::THESIS;
        match preset {
            CostPreset::Processes => Self::default(),
            CostPreset::Carrera => Self {
                start_s: costs.start_s,
                resume_s: 0.0,
                page_in_s: 0.0,
                suspend_s: 0.0,
                park_s: 0.0,
                suspend_s_per_mib: costs.suspend_s_per_mib,
                resume_s_per_mib: costs.resume_s_per_mib,
                ..Self::default()
            },
        }
    }
}

impl Default for RequestCost {
    fn default() -> Self {
        let (spread, calls, nothing) = (WorkDistribution::default(), Vec::new(), Bytes(0));
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

    pub(crate) fn of_app(app: &AppTable) -> Self {
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
    pub(crate) fn take(&mut self, table: &SimulateTable) {
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
        self.changes = table.costs.map_or(self.changes, ChangeTimes::of);
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
