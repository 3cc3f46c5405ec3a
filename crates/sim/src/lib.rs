//! The simulator: a virtual clock, an event heap, faults and oracles around the very code that `weal up` runs.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`engine`] | the virtual clock and its event heap |
//! | [`world`] | a whole pool in virtual time, under the control code of a running one |
//! | [`swarm`] | random pools, loads and faults, and what must come of them |
//!
//! Scenarios, workloads and reports are [`weal_scenario`]'s. Everything is a function of the scenario and its seed: the same two give
//! the same run, bit by bit.

pub mod engine;
pub mod swarm;
pub mod world;
