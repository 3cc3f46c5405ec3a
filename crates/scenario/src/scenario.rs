//! A scenario, read and found consistent, as simulator and rehearsal take it.

use std::collections::BTreeMap;

use weal_model::PoolSpec;

use crate::behaviour::Behaviour;
use crate::jobs::JobSource;
use crate::tables::{ExpectTable, FaultKind, Surroundings};
use crate::workload::{Page, Workload};

/// A scenario, read and found consistent.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// What it is there to show.
    pub intent: String,
    /// Where all random numbers come from.
    pub seed: u64,
    /// Seconds that it runs.
    pub duration_s: f64,
    /// Seconds at the beginning that expectations leave out.
    pub warm_up_s: f64,
    /// The `weal.toml` of a run with real processes, relative to the scenario file.
    pub config: Option<String>,
    /// The pool. Without `[[node]]` and `[app]` tables (a scenario for real processes only) it has none.
    pub pool: PoolSpec,
    /// What a simulation has to be told about each application of the pool.
    pub behaviours: BTreeMap<String, Behaviour>,
    /// What surrounds the pool in a simulation.
    pub surroundings: Surroundings,
    /// What comes in, in the file's order.
    pub loads: Vec<LoadSource>,
    /// What jobs come in, in the file's order.
    pub jobs: Vec<JobSource>,
    /// What goes wrong, by time.
    pub faults: Vec<Fault>,
    /// What must come out.
    pub expectations: Vec<ExpectTable>,
}

/// One `[[load]]`.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadSource {
    /// Names its streams of random numbers: `APP/CLASS/INDEX`.
    pub name: String,
    /// Who gets the requests.
    pub app: String,
    /// The class that they belong to.
    pub class: String,
    /// What is asked for in a run with real processes.
    pub path: String,
    /// `Host` in a run with real processes.
    pub host: Option<String>,
    /// Headers in a run with real processes.
    pub headers: BTreeMap<String, String>,
    /// What comes in, when.
    pub workload: Workload,
    /// Pages that sessions walk through; empty when all of their requests are alike.
    pub pages: Vec<Page>,
    /// CPU time relative to the application's.
    pub work_factor: f64,
}

/// One `[[fault]]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Fault {
    /// What goes wrong.
    pub kind: FaultKind,
    /// From which second.
    pub at_s: f64,
    /// Until which second; infinity when it stays.
    pub until_s: f64,
    /// Where; `None` hits every node.
    pub node: Option<String>,
    /// Whose instance.
    pub app: Option<String>,
    /// How much.
    pub amount: f64,
}

impl LoadSource {
    /// The classes of its requests.
    pub fn classes(&self) -> impl Iterator<Item = &str> {
        let own = std::iter::once(self.class.as_str()).filter(|_| self.pages.is_empty());
        own.chain(self.pages.iter().map(|page| page.class.as_str()))
    }
}
