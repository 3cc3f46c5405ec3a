//! Scenarios: their files, the workloads they describe, and the reports about their runs.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`Scenario`] | the files under `scenarios/`: a sentence of intent, inputs, load, faults, expected ranges |
//! | [`workload`] | arrivals and jobs as iterators from (seed, specification); a load generator plays the same ones for real |
//! | [`report`] | one self-contained page about a run |
//!
//! The same file runs in the simulator and, as a rehearsal, with real processes:
//!
//! ```toml
//! intent = "Two flows that cannot both be satisfied end up equally far from their goals."
//! duration = "120s"
//! warm-up = "40s"
//!
//! [[node]]
//! name = "n1"
//! cpu = 2.0
//! memory = "2GiB"
//!
//! [class.gold]
//! goal = "mean < 200ms"
//!
//! [app.shop]
//! memory = "300MiB"
//! work = "20ms"
//! initially = ["n1"]
//!
//! [[load]]
//! app = "shop"
//! class = "gold"
//! sessions = 10
//! think = "1s"
//! steps = [{ at = "60s", sessions = 40 }]
//!
//! [[expect]]
//! what = "utility"
//! app = "shop"
//! class = "gold"
//! at-least = 0.0
//! ```

mod behaviour;
mod file;
mod jobs;
mod load;
mod read;
pub mod report;
mod values;
pub mod workload;

use std::collections::BTreeMap;

use weal_model::PoolSpec;

pub use behaviour::{
    Behaviour, Call, CallTable, ChangeTimes, CostPreset, Housekeeping, RequestCost, SimulateTable, Surroundings,
};
pub use file::{
    AppTable, CostChange, ExpectTable, FaultKind, FaultTable, LoadTable, Measure, NodeTable, ScenarioFile, Spread, StepTable,
    TraceTable,
};
pub use jobs::{JobLogTable, JobSource, JobTable, StageTable};
pub use read::ScenarioError;
pub use values::{Bandwidth, GoalText, Rate, Size, Span};

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
    pub loads: Vec<Load>,
    /// What jobs come in, in the file's order.
    pub jobs: Vec<JobSource>,
    /// What goes wrong, by time.
    pub faults: Vec<Fault>,
    /// What must come out.
    pub expectations: Vec<ExpectTable>,
}

/// One `[[load]]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
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

impl Load {
    /// The classes of its requests.
    pub fn classes(&self) -> impl Iterator<Item = &str> {
        let own = std::iter::once(self.class.as_str()).filter(|_| self.pages.is_empty());
        own.chain(self.pages.iter().map(|page| page.class.as_str()))
    }
}

impl Scenario {
    /// Reads a scenario. `read_file` gives the text of a file named in it (a recording), relative to the scenario file.
    ///
    /// # Errors
    /// The first mistake, with its line and column.
    pub fn parse(text: &str, read_file: impl FnMut(&str) -> Result<String, String>) -> Result<Self, ScenarioError> {
        read::read(text, read_file)
    }

    /// The scenario with the pool that its `config` describes, so that it can be simulated.
    ///
    /// # Errors
    /// The first thing that the scenario names and the pool does not have, in words.
    pub fn with_pool(mut self, pool: PoolSpec) -> Result<Self, String> {
        let control = self.pool.control && pool.control;
        self.pool = PoolSpec { control, ..pool };
        for app in self.pool.apps.keys() {
            self.behaviours.entry(app.to_string()).or_default();
        }
        read::check_names(&self)?;
        Ok(self)
    }
}
