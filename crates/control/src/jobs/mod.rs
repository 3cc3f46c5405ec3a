//! Batch jobs: what each still needs, what the group is headed for, and which runs where (Carrera 5.4.2).
//!
//! Symbols, as in the thesis: a job `m` has stages with work `alpha`, speeds `omega_min..omega_max` and memory `gamma`; it
//! has done `alpha*`; its goal is to be done by `tau`, counted from `tau_start`:
//!
//! ```text
//! u_m(t)     = (tau - t) / (tau - tau_start)                                        (5.8)
//! omega_m(u) = remaining work / (t_m(u) - now)      the average speed that leads to u  (5.13)
//! ```
//!
//! A job's utility is known only when it is done. Until then decisions go by *hypothetical* utility: all unfinished jobs,
//! running or not, share the group's allocation so that the worst off is as well off as possible.
//!
//! | file | what |
//! | --- | --- |
//! | `job` | stages, progress, aggregation over a cycle, maximum achievable utility |
//! | `runs` | the work of a job that does not say it, from earlier runs or its progress |
//! | `changes`, `peaks` | what changes to jobs took, and the most memory that jobs used, by family |
//! | `hypothetical` | hypothetical utility by exact bisection |
//! | `interpolation` | the same by the thesis' sampling and interpolation, kept for the reproduction |
//! | `situation` | the inner interface: nodes, jobs, applications' curves, costs; assignments; the [`Scheduler`] trait |
//! | `divide` | the CPU of given runs: level by level, jobs and applications alike |
//! | `places` | when a job that waits is foreseen to get a place |
//! | `weal` | the scheduler of `weal up` |
//! | `baseline` | first come first served, earliest deadline first, static partitions |
//!
//! Units are free as long as they are the same throughout; the thesis counts in MHz and Mcycles.

mod baseline;
mod changes;
mod divide;
mod family;
mod hypothetical;
mod interpolation;
mod job;
mod peaks;
mod places;
mod runs;
mod situation;
mod weal;

pub use baseline::{EarliestDeadlineFirst, FirstComeFirstServed, StaticPartition};
pub use changes::{ChangeKind, Changes, Measured, Took};
pub use divide::{Division, divide};
pub use hypothetical::{Outlook, equalize, evaluate, hypothetical};
pub use interpolation::{Interpolated, Samples};
pub use job::{Job, Needs};
pub use peaks::{Peaks, Request};
pub use runs::{Estimate, Runs, Source};
pub use situation::{AppCurve, Assignment, Costs, JobChange, Run, Scheduler, Site, Situation};
pub use weal::WealScheduler;
#[cfg(test)]
pub(crate) use weal::predicted;
pub(crate) use weal::{Outcome, bars_the_way, best_at, in_line, present};
use weal_model::Utility;

/// Below this utility a job is not expected to end at all.
pub(crate) const NEVER: Utility = Utility(-1e5);
