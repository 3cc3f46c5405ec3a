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
mod error;
mod job_step;
mod jobs;
mod read;
pub mod report;
mod scenario;
mod tables;
mod values;
pub mod workload;

pub use behaviour::{Behaviour, Call, ChangeTimes, RequestCost};
pub use error::{FileProblem, Lacking, Mistake, ScenarioError};
pub use job_step::{ExpectedStep, JobStep, NoStep};
pub use jobs::JobSource;
pub use read::no_files;
pub use scenario::{Fault, LoadSource, Scenario};
pub use tables::{
    AppTable, CallTable, CostChange, CostPreset, ExpectTable, FaultKind, FaultTable, Housekeeping, JOBS_AS_PROCESSES,
    JobLogTable, JobTable, LoadTable, Measure, NodeTable, ScenarioFile, SimulateTable, StageTable, StepTable, Surroundings,
    TraceTable, WorkDistribution,
};
pub use values::{Bandwidth, GoalText, Rate, Size, Span};
