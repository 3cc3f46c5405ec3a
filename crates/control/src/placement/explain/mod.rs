//! Why a placement is as it is, and what another one would bring: in words, with the numbers that made it so.
//!
//! | file | question |
//! | --- | --- |
//! | `report` | why does each application have what it has, and what would more bring? |
//! | `question` | why is an application on a node, or not? |
//! | `what_if` | what would another goal, node or load do? |

mod question;
mod report;
mod what_if;

pub(super) use question::why_node;
pub(super) use report::report;
pub(super) use what_if::compare;
pub use what_if::{Shift, WhatIf};
