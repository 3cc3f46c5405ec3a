//! How fast an instance may write to its log. What is faster waits in its pipe, so the instance pays for its own flood, and not the disk and the
//! CPU that others need.

use std::time::{Duration, Instant};

/// Bytes per second in the long run.
pub const RATE: f64 = (8 << 20) as f64;
/// Bytes at once, after a quiet time: a long traceback never waits.
pub const BURST: f64 = (32 << 20) as f64;
/// Bytes that are read together. One waits until there is room for so many.
const PIECE: f64 = (64 << 10) as f64;
/// Between two times that it is told of: the text would be part of the flood.
const SILENCE: Duration = Duration::from_secs(60);

/// A token bucket.
#[derive(Debug)]
pub struct Pace {
    /// Bytes that may be read now.
    room: f64,
    since: Instant,
    told: Option<Instant>,
}

impl Pace {
    /// A full bucket.
    pub fn new(now: Instant) -> Self {
        Self { room: BURST, since: now, told: None }
    }

    /// `bytes` were read.
    pub fn handle_read(&mut self, now: Instant, bytes: usize) {
        self.refill(now);
        self.room -= bytes as f64;
    }

    /// How long nothing is to be read; zero when something may be.
    pub fn poll_wait(&mut self, now: Instant) -> Duration {
        self.refill(now);
        Duration::from_secs_f64(((PIECE - self.room) / RATE).max(0.0))
    }

    /// True when a wait is to be told of: the first, and again when a minute has passed.
    pub fn poll_told(&mut self, now: Instant) -> bool {
        let is_due = self.told.is_none_or(|told| now.duration_since(told) >= SILENCE);
        if is_due {
            self.told = Some(now);
        }
        is_due
    }

    fn refill(&mut self, now: Instant) {
        self.room = (self.room + RATE * now.duration_since(self.since).as_secs_f64()).min(BURST);
        self.since = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: usize = PIECE as usize;

    #[test]
    fn a_burst_is_read_at_once_and_then_so_much_a_second() {
        let begun = Instant::now();
        let mut pace = Pace::new(begun);
        let mut now = begun;
        let mut read = 0.0;
        while now < begun + Duration::from_secs(10) {
            let wait = pace.poll_wait(now);
            if wait.is_zero() {
                pace.handle_read(now, READ);
                read += PIECE;
            }
            assert!(read <= BURST + RATE * now.duration_since(begun).as_secs_f64());
            now += wait;
        }
        assert!(read >= BURST + 9.9 * RATE, "{read}");
        now += Duration::from_secs(3600);
        assert!(pace.poll_wait(now).is_zero());
        let burst = (0..)
            .take_while(|_| {
                pace.poll_wait(now).is_zero() && {
                    pace.handle_read(now, READ);
                    true
                }
            })
            .count();
        assert_eq!(burst, (BURST / PIECE) as usize, "a quiet time fills it, no more than once");
    }

    #[test]
    fn it_is_told_of_once_a_minute() {
        let now = Instant::now();
        let mut pace = Pace::new(now);
        let after = |seconds| now + Duration::from_secs(seconds);
        let told = [0, 1, 59, 60, 61, 120].map(|seconds| pace.poll_told(after(seconds)));
        assert_eq!(told, [true, false, false, true, false, true]);
    }
}
