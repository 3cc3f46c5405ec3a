//! Levels that hold from a moment on.

use serde::{Deserialize, Serialize};

/// From `start_s` on, `level` (requests per second, or sessions).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// Seconds from the beginning of the run.
    pub start_s: f64,
    /// Requests per second, or sessions.
    pub level: f64,
}

/// The level at `time_s`; 0 before the first phase.
pub(super) fn level_at(phases: &[Phase], time_s: f64) -> f64 {
    phases.iter().take_while(|phase| phase.start_s <= time_s).last().map_or(0.0, |phase| phase.level)
}
