//! What came of a run.

use weal_model::{Action, Report, Status};
use weal_scenario::report::Run;

/// A simulated run.
#[derive(Debug, Clone)]
pub struct Simulated {
    /// What was measured, in the form that reports show.
    pub run: Run,
    /// The actions that the controller began.
    pub moves: Vec<Move>,
    /// What must hold and did not; empty in a sound run.
    pub findings: Vec<String>,
    /// Events that happened.
    pub events: u64,
    /// Requests that were neither answered nor rejected nor lost when the run ended.
    pub unfinished: usize,
    /// What the controller shows in the end, and its last decisions; `None` without a controller.
    pub shown: Option<(Status, Report)>,
}

/// An action that the controller began.
#[derive(Debug, Clone, PartialEq)]
pub struct Move {
    /// When, in seconds since the start.
    pub t_s: f64,
    /// What.
    pub action: Action,
    /// It starts an instance that is to stand by.
    pub is_ahead: bool,
    /// What and why, in a sentence.
    pub text: String,
}
