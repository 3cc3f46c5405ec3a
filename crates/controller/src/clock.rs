//! The clocks of the controller.

use std::time::SystemTime;

use tokio::time::Instant;
use weal_model::Time;

/// Now, for people. A clock set before 1970 counts as 1970.
pub(crate) fn now() -> Time {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Time::ZERO + since_epoch
}

/// The loop's clock: it begins with the time of day, and then only goes on, whatever is done to the machine's clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    time: Time,
    instant: Instant,
}

impl Clock {
    /// Begins now.
    pub fn new() -> Self {
        Self { time: now(), instant: Instant::now() }
    }

    /// The time of the loop.
    pub fn now(&self) -> Time {
        self.time + self.instant.elapsed()
    }

    /// When the loop's clock shows `time`.
    pub fn instant(&self, time: Time) -> Instant {
        self.instant + time.since(self.time)
    }
}
