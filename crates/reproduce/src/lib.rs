//! The papers' cases, run again: `weal reproduce`.
//!
//! | module | what it is |
//! | --- | --- |
//! | `cases` | the list of all cases, one file of a few for each part of a paper |
//! | [`batch`] | batch jobs in virtual time under any scheduler |
//! | [`fluid`] | load as rates: flash crowds, job logs beside web load, weeks in seconds |
//!
//! Each case states the claim, where it stands, its inputs and its tolerance; `experiments/CASE/README.md` tells the same to
//! readers. A case that is not met is reported as a difference. Nothing here is tuned to a paper's number: inputs come
//! from the papers, and the code under test is that of `weal up`.

pub mod batch;
mod cases;
mod figure;
pub mod fluid;
mod number;
mod page;
mod plot;
mod record;
mod setting;

pub use cases::cases;
pub use figure::Figure;
pub use page::{Heading, files, page, page_of};
pub use record::{
    Expected, Judged, Measure, NOT_STATED, Record, Reproduction, Row, at_least, at_most, exactly, near, said, within,
};
pub use setting::{Effort, InTurn, Setting, Workers};

use number::mean;

/// A case that can be run.
#[derive(Clone, Copy)]
pub struct Case {
    /// `C1`, as in `experiments/`.
    pub name: &'static str,
    /// The claim in a line.
    pub title: &'static str,
    /// Runs it.
    pub run: fn(&Setting) -> Reproduction,
}

/// Runs the case of this name, one piece after the other.
pub fn reproduce(name: &str, effort: Effort) -> Option<Reproduction> {
    let setting = Setting { effort, workers: &InTurn };
    cases().into_iter().find(|case| case.name.eq_ignore_ascii_case(name)).map(|case| (case.run)(&setting))
}

#[cfg(test)]
mod tests;
