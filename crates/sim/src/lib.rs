//! The simulator: a virtual clock, an event heap, workloads, faults and oracles around the very code that `weal up` runs.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`scenario`] | the files under `scenarios/`: a sentence of intent, inputs, load, faults, expected ranges |
//! | [`workload`] | arrivals and jobs as iterators from (seed, specification); a load generator plays the same ones for real |
//! | [`report`] | one self-contained page about a run |
//! | [`batch`] | batch jobs in virtual time under any scheduler |
//! | [`reproduce`] | the papers' cases, run again |
//! | [`fluid`] | load as rates: flash crowds, job logs beside web load, weeks in seconds |
//! | [`engine`] | the virtual clock and its event heap |
//! | [`world`] | a whole pool in virtual time, under the control code of a running one |
//! | [`swarm`] | random pools, loads and faults, and what must come of them |
//! | [`random`] | one independent stream of random numbers per purpose, from one seed |
//!
//! Everything is a function of the scenario and its seed: the same two give the same run, bit by bit.

pub mod batch;
pub mod engine;
pub mod fluid;
pub mod random;
pub mod report;
pub mod reproduce;
pub mod scenario;
pub mod swarm;
pub mod workload;
pub mod world;
