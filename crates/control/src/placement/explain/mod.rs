//! Why a placement is as it is, and what another one would bring: in words, with the numbers that made it so.
//!
//! | file | question |
//! | --- | --- |
//! | `report` | why does each application have what it has, and what would more bring? |
//! | `question` | why is an application on a node, or not? |
//! | `what_if` | what would another goal, node or load do? |

mod question;
mod report;
#[cfg(test)]
mod truth_tests;
mod what_if;

/// Why an application of [`Policy::held`](super::Policy::held) gets no other placement.
const HELD: &str = "its instances are being replaced, or others have to make room first, and the next plan looks again";

pub(super) use question::why_node;
pub(super) use report::report;
pub(super) use what_if::compare;
pub use what_if::{Shift, WhatIf};
