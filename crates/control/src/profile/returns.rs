//! How long clients think, as whom each request finds there tells it.
//!
//! Symbols as in [`super::flow`]; `N(t)` requests in the system at a moment. Of `C` clients that wait for their answers and think for `Z`,
//! `C - N(t)` think, so requests come at a rate of `(C - N(t)) / Z`: each one that is there makes it fall by `mu = 1 / Z`. In the mean over time this
//! is `lambda = C / (R + Z)` (Carrera 5.5). Independent arrivals come at a rate that does not know `N(t)`, and find there what there is in the mean
//! over time (Wolff 1982, "Poisson arrivals see time averages"). So both are told by the regression of that rate on `N(t)`,
//!
//! ```text
//! mu = - sum over requests (N found - mean of N) / integral of (N(t) - mean of N)^2
//! ```
//!
//! whose standard deviation is the root of `lambda` over that integral. What a request finds was there before it. Means over whole cycles tell
//! less: clients that happen to return together make `N` and `R` grow alike in the same cycle, as independent arrivals do.

use serde::{Deserialize, Serialize};
use weal_model::FlowObservation;

/// Sums over cycles; what is older counts less.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Returns {
    seconds: f64,
    /// Integrals of `N` and of its square.
    there: f64,
    squares: f64,
    arrivals: f64,
    /// What these have found, summed.
    found: f64,
}

/// Kept per cycle: fifty cycles, in which a load that changes slowly stays the same.
const KEEP: f64 = 0.98;
/// Fewer requests tell nothing.
const ENOUGH: f64 = 20.0;
/// Of a population that never changes, the square of what it may vary by: all of few clients are always there.
const LEAST_VARIANCE: f64 = 1e-4;

impl Returns {
    pub fn observe(&mut self, seen: &FlowObservation, window_s: f64) {
        let population = seen.population_mean();
        if !(population.is_finite() && seen.square_mean.is_finite() && seen.square_mean > 0.0) {
            return;
        }
        let add = |sum: &mut f64, value: f64| *sum = *sum * KEEP + value;
        add(&mut self.seconds, window_s);
        add(&mut self.there, population * window_s);
        add(&mut self.squares, seen.square_mean * window_s);
        add(&mut self.arrivals, seen.arrivals as f64);
        add(&mut self.found, seen.found as f64);
    }

    /// `mu` and its standard deviation, per second; `None` while too few requests have come.
    pub fn rate(&self) -> Option<(f64, f64)> {
        if self.arrivals < ENOUGH || self.seconds <= 0.0 {
            return None;
        }
        let mean = self.there / self.seconds;
        let variation = (self.squares - self.there * mean).max(LEAST_VARIANCE * self.seconds);
        let rate = (self.arrivals * mean - self.found) / variation;
        Some((rate.max(0.0), (self.arrivals / self.seconds / variation).sqrt()))
    }
}

#[cfg(test)]
mod tests {
    use weal_model::FlowId;

    use super::*;
    use crate::seeded::Seeded;

    const STEP_S: f64 = 0.002;
    const SERVICE_S: f64 = 0.2;

    /// `mu` after some cycles of a second: `clients` that think for `think_s`, or independent arrivals of `per_s`; each request takes
    /// [`SERVICE_S`], or longer where more than `seats` are there.
    fn learnt(clients: f64, think_s: f64, per_s: f64, seats: f64) -> (f64, f64) {
        let mut random = Seeded::new(5);
        let (mut returns, mut there, mut away) = (Returns::default(), 0.0, clients);
        for _ in 0..120 {
            let mut seen = FlowObservation::empty(FlowId { gateway: "g".into(), app: "a".into(), class: "c".into() });
            for _ in 0..(1.0 / STEP_S) as usize {
                seen.in_service_mean += there * STEP_S;
                seen.square_mean += there * there * STEP_S;
                let (comes, goes) = (away * STEP_S / think_s + per_s * STEP_S, f64::min(there, seats) * STEP_S / SERVICE_S);
                if random.between(0.0, 1.0) < comes {
                    (seen.arrivals, seen.found) = (seen.arrivals + 1, seen.found + there as u64);
                    (there, away) = (there + 1.0, (away - 1.0).max(0.0));
                }
                if random.between(0.0, 1.0) < goes {
                    there -= 1.0;
                    away += if clients > 0.0 { 1.0 } else { 0.0 };
                }
            }
            returns.observe(&seen, 1.0);
        }
        returns.rate().unwrap()
    }

    #[test]
    fn whom_requests_find_there_tells_how_long_clients_think() {
        for (clients, think_s) in [(40.0, 1.0), (20.0, 0.5), (90.0, 3.0)] {
            for seats in [100.0, 4.0] {
                let (rate, deviation) = learnt(clients, think_s, 0.0, seats);
                assert!((rate - 1.0 / think_s).abs() < 3.0 * deviation, "{rate} +- {deviation} of {}", 1.0 / think_s);
                assert!(deviation < 0.4 / think_s + 0.25, "{deviation}");
            }
        }
        let (rate, deviation) = learnt(0.0, 1.0, 40.0, 100.0);
        assert!(rate < 3.0 * deviation && deviation < 0.5, "independent arrivals: {rate} +- {deviation}");
    }

    #[test]
    fn clients_that_never_think_are_told_from_all_others() {
        let mut returns = Returns::default();
        let mut seen = FlowObservation::empty(FlowId { gateway: "g".into(), app: "a".into(), class: "c".into() });
        assert_eq!(returns.rate(), None);
        // Nine of ten are there whenever the tenth returns, which it does at once.
        (seen.in_service_mean, seen.square_mean, seen.arrivals, seen.found) = (10.0, 100.0, 50, 450);
        returns.observe(&seen, 1.0);
        assert!(returns.rate().unwrap().0 > 1000.0);
        let before = returns;
        returns.observe(&FlowObservation { square_mean: f64::NAN, ..seen.clone() }, 1.0);
        returns.observe(&FlowObservation { square_mean: 0.0, ..seen }, 1.0);
        assert_eq!(returns, before, "what was not measured tells nothing");
    }
}
