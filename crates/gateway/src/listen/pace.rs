//! How slowly a client may send, or take what it is sent.
//!
//! A client has a credit of time, `most` at first. The credit runs down while the gateway waits for the client. Each byte brings `1 / rate`
//! seconds back, up to `most` again. So a client may pause for `most`. A client that moves `x` bytes a second, less than the rate, is out of
//! credit after `most / (1 - x / rate)`: with 13 bytes a second, a rate of 240 and a credit of 10 s, after 10.6 s.
//!
//! Patience has an end: once the gateway has waited for a client for `t > PATIENCE` in all, the rate is `t / PATIENCE` times as high. So a
//! client that moves `x` bytes a second keeps the gateway waiting for little more than `PATIENCE * x / rate`: with 480 bytes a second
//! for ten minutes, with 10 kB for three and a half hours. A client that moves bytes as fast as the gateway hands them on is not waited for.

use std::time::Duration;

/// How long a client may keep the gateway waiting in all by keeping to the least rate. Shorter, and an upload over a bad line ends that would
/// have come through; longer, and whoever takes the seats of an application keeps them for longer.
const PATIENCE: Duration = Duration::from_secs(300);

/// What one client has left of its credit. Invariant: `left <= most`.
#[derive(Debug)]
pub(crate) struct Pace {
    most: Duration,
    left: Duration,
    /// How long the gateway has waited for it in all.
    waited: Duration,
}

impl Pace {
    pub fn new(most: Duration) -> Self {
        Self { most, left: most, waited: Duration::ZERO }
    }

    /// The gateway has waited, and then so many bytes have moved. `rate` is in bytes per second; by 0 any progress brings back all.
    pub fn handle_progress(&mut self, waited: Duration, bytes: usize, rate: u32) {
        let left = self.left.saturating_sub(waited);
        self.waited = self.waited.saturating_add(waited);
        let times = self.waited.div_duration_f64(PATIENCE).max(1.0);
        let gained = if rate == 0 { self.most } else { Duration::from_secs_f64(bytes as f64 / (f64::from(rate) * times)) };
        self.left = left.saturating_add(gained).min(self.most);
    }

    /// How much longer nothing may move.
    pub fn left(&self) -> Duration {
        self.left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds that a client lasts which moves `bytes` every `gap_ms`, up to an hour.
    fn lasts_s(bytes: usize, gap_ms: u64, rate: u32) -> f64 {
        let (mut pace, gap, mut lasted) = (Pace::new(Duration::from_secs(10)), Duration::from_millis(gap_ms), Duration::ZERO);
        while lasted < Duration::from_secs(3600) && pace.left() > gap {
            pace.handle_progress(gap, bytes, rate);
            lasted += gap;
        }
        (lasted + pace.left()).as_secs_f64()
    }

    #[test]
    fn a_client_below_the_rate_runs_out_of_credit_and_one_that_keeps_to_it_does_not() {
        let slow = lasts_s(13, 1000, 240);
        assert!((10.0..11.0).contains(&slow), "{slow}");
        assert!(lasts_s(120, 1000, 240) < 21.0);
        assert!(lasts_s(240, 1000, 240) > 300.0 && lasts_s(2160, 9000, 240) > 300.0, "however its bytes come");
        assert!(lasts_s(1, 9000, 0) > 3600.0, "without a rate, progress is enough");
    }

    #[test]
    fn who_keeps_to_the_rate_does_not_keep_the_gateway_waiting_for_ever() {
        let [least, twice, fast] = [240, 480, 10_000].map(|bytes| lasts_s(bytes, 1000, 240));
        assert!((300.0..400.0).contains(&least), "{least}");
        assert!((600.0..800.0).contains(&twice), "{twice}");
        assert!(fast > 3600.0, "a line of 10 kB/s may take hours");
        let mut pace = Pace::new(Duration::from_secs(10));
        (0..100_000).for_each(|_| pace.handle_progress(Duration::ZERO, 10, 240));
        assert_eq!(pace.left(), Duration::from_secs(10), "who is not waited for may take little for ever");
    }

    #[test]
    fn what_came_quickly_buys_no_more_than_the_whole_credit() {
        let mut pace = Pace::new(Duration::from_secs(10));
        pace.handle_progress(Duration::from_secs(4), 100 << 20, 240);
        assert_eq!(pace.left(), Duration::from_secs(10));
    }
}
