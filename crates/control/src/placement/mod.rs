//! Which instances run where, and in which state.
//!
//! The problem (Carrera 5.3.1): nodes with CPU and memory; applications with memory per instance, bounds and a curve
//! utility(CPU); find the instances and their loads such that the utilities, sorted from the worst, are lexicographically
//! as great as can be, with the fewest changes. It is NP-hard. The way from a snapshot to a plan:
//!
//! | step | module |
//! | --- | --- |
//! | names become indices, measured states become what can be counted on | [`plan`](mod@plan), [`problem`] |
//! | what no placement can exceed | [`bound`] |
//! | what must be so whatever it gains: fewest instances, nothing where it must not be | [`mandatory`] |
//! | a better placement near the current one | [`search`], which lets [`repair`] and [`pack`] work on a [`layout`] |
//! | in small pools, every exchange of a few instances, then the best for the worst off by branch and bound | `polish`, `exact` |
//! | the same for pools of more than 12,000 nodes, in parts | [`partition`] |
//! | the best loads for a placement, exactly | [`load`] on maximum [`flow`] |
//! | indices become ordered actions on named instances, standby ones included | [`plan`](mod@plan), `standby` |
//! | which jobs run beside them, and how fast | `batch`, with [`crate::jobs`] |
//! | who changes places for nothing, and is doubted for that | [`restless`] |
//! | why | `explain`; why not there: [`question`] |
//! | what another goal, node or load would do | [`what_if`](mod@what_if) |
//! | the older algorithms, for comparison | [`baseline`], [`autoscaler`] |
//! | random problems for tests and benchmarks | [`generate`] |
//!
//! A change has a cost in utility, from what starting and resuming were measured to take, and is made only when it gains
//! more. That is the only damping: there are no cooldown timers, and a stable snapshot gives an empty plan.

mod actions;
pub mod autoscaler;
pub mod baseline;
mod batch;
pub mod bound;
mod exact;
mod explain;
pub mod flow;
pub mod generate;
pub mod layout;
pub mod load;
pub mod mandatory;
pub mod pack;
pub mod partition;
pub mod plan;
mod polish;
pub mod problem;
pub mod question;
pub mod repair;
pub mod restless;
pub mod search;
mod standby;
mod translate;
pub mod what_if;

#[cfg(test)]
pub(crate) mod fixtures;
#[cfg(test)]
mod noise_tests;
#[cfg(test)]
mod oracle_tests;
#[cfg(test)]
mod plan_tests;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod robust_tests;

pub use plan::{AppCosts, Iterations, Policy, plan};
pub use search::solve_with;
pub(crate) use standby::SPARE_CPU;
pub use weal_model::Algorithm;
pub use what_if::{Shift, WhatIf, what_if};
