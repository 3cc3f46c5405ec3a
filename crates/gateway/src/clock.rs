//! The time for pure code: counted from the Unix epoch, and never set back.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use weal_model::Time;

/// A clock that began at the system's time and runs steadily from there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    begun: Time,
    instant: Instant,
}

impl Clock {
    pub fn new() -> Self {
        let begun = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Self { begun: Time::ZERO + begun, instant: Instant::now() }
    }

    pub fn now(&self) -> Time {
        self.begun + self.instant.elapsed()
    }

    /// When this clock was made.
    pub fn begun(&self) -> Time {
        self.begun
    }
}
