//! The placement problem: what a snapshot and a policy ask, in dense indices, and the rules that every answer keeps.
//!
//! | file | what |
//! | --- | --- |
//! | [`dense`] | nodes and applications as arrays of numbers |
//! | `translate`, `jobs` | names become indices, measured states become what can be counted on; running jobs take part |
//! | [`layout`] | a placement under construction: what may be added and removed, and what changes |
//! | [`mandatory`] | what must be so whatever it gains: fewest instances, nothing where it must not be |
//! | [`bound`] | what no placement can exceed |
//! | [`generate`] | random problems for tests and benchmarks |

pub mod bound;
pub mod dense;
pub mod generate;
pub(in crate::placement) mod jobs;
pub mod layout;
pub mod mandatory;
pub(in crate::placement) mod translate;

pub use dense::{App, ChangeCost, Node, Problem};
