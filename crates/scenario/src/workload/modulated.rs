//! Rates that change: bursts by chance, and flash crowds.

use rand::RngExt;
use serde::{Deserialize, Serialize};

use super::phase::{Phase, level_at};
use weal_rng::{self as random, Rng};

/// Seconds between two steps of a ramp.
const STEP_S: f64 = 1.0;

/// A state of a Markov-modulated Poisson process.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Requests per second while it lasts.
    pub rate: f64,
    /// Seconds that it lasts in the mean, exponentially distributed; then each other state is as likely.
    pub mean_s: f64,
}

/// A flash crowd: the rate rises by `extra` within `rise_s`, stays there for `hold_s` and falls again within `fall_s`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Flash {
    /// When it begins, in seconds.
    pub at_s: f64,
    /// Requests per second on top of what comes anyway.
    pub extra: f64,
    /// Seconds.
    pub rise_s: f64,
    /// Seconds.
    pub hold_s: f64,
    /// Seconds.
    pub fall_s: f64,
}

impl Flash {
    /// Requests per second that it adds at `time_s`.
    pub fn at(&self, time_s: f64) -> f64 {
        let t = time_s - self.at_s;
        let risen = if self.rise_s > 0.0 { t / self.rise_s } else { f64::from(t >= 0.0) };
        let left = self.rise_s + self.hold_s + self.fall_s - t;
        let fallen = if self.fall_s > 0.0 { left / self.fall_s } else { f64::from(left > 0.0) };
        self.extra * risen.min(fallen).clamp(0.0, 1.0)
    }

    fn steps(&self) -> impl Iterator<Item = f64> {
        let end_s = self.at_s + self.rise_s + self.hold_s + self.fall_s;
        let count = ((end_s - self.at_s) / STEP_S).ceil() as u32;
        let at_s = self.at_s;
        (0..count).map(move |step| at_s + f64::from(step) * STEP_S).chain([end_s])
    }
}

/// The rates of `phases` with flash crowds on top, in steps of a second.
pub fn with_flashes(phases: &[Phase], flashes: &[Flash]) -> Vec<Phase> {
    let mut starts: Vec<f64> = phases.iter().map(|phase| phase.start_s).chain(flashes.iter().flat_map(Flash::steps)).collect();
    starts.sort_by(f64::total_cmp);
    starts.dedup();
    let level = |start_s: f64| {
        // In the middle of a step, so that a ramp has the right mean.
        let added: f64 = flashes.iter().map(|flash| flash.at(start_s + STEP_S / 2.0)).sum();
        level_at(phases, start_s) + added
    };
    starts.iter().map(|&start_s| Phase { start_s, level: level(start_s) }).collect()
}

/// One path of the chain, from its first state.
pub(super) fn phases(states: &[State], rng: &mut Rng, until_s: f64) -> Vec<Phase> {
    let (mut now_s, mut at, mut phases) = (0.0, 0, Vec::new());
    while now_s < until_s {
        phases.push(Phase { start_s: now_s, level: states[at].rate });
        now_s += random::exponential(rng, states[at].mean_s).max(1e-6);
        if states.len() > 1 {
            at = (at + rng.random_range(1..states.len())) % states.len();
        }
    }
    phases
}

/// The rate in the long run: every state is entered equally often, so each counts for as long as it lasts.
pub(super) fn mean_rate(states: &[State]) -> f64 {
    let (sum, span) = states.iter().fold((0.0, 0.0), |(sum, span), state| (sum + state.rate * state.mean_s, span + state.mean_s));
    if span > 0.0 { sum / span } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Workload;

    #[test]
    fn a_bursty_workload_keeps_its_mean_and_is_more_uneven_than_poisson() {
        let states = vec![State { rate: 10.0, mean_s: 30.0 }, State { rate: 100.0, mean_s: 10.0 }];
        let workload = Workload::Bursty { states };
        assert_eq!(workload.rate_at(0.0), Some(32.5));
        let arrivals: Vec<f64> = workload.arrivals(5, "web", 20_000.0).collect();
        assert!(arrivals.is_sorted());
        assert!((arrivals.len() as f64 / 20_000.0 - 32.5).abs() < 3.0, "{}", arrivals.len());
        let mut counts = vec![0.0_f64; 2_000];
        arrivals.iter().for_each(|at| counts[(at / 10.0) as usize] += 1.0);
        let mean = counts.iter().sum::<f64>() / 2_000.0;
        let variance = counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / 2_000.0;
        assert!(variance / mean > 10.0, "the counts of a Poisson process have a variance like their mean: {}", variance / mean);
    }

    #[test]
    fn a_flash_crowd_rises_stays_and_falls() {
        let flash = Flash { at_s: 100.0, extra: 90.0, rise_s: 10.0, hold_s: 30.0, fall_s: 20.0 };
        let phases = with_flashes(&[Phase { start_s: 0.0, level: 10.0 }], &[flash]);
        let workload = Workload::Open { phases };
        for (time_s, rate) in [(50.0, 10.0), (105.2, 59.5), (120.0, 100.0), (150.2, 53.5 + 0.0), (170.0, 10.0)] {
            let got = workload.rate_at(time_s).unwrap();
            assert!((got - rate).abs() < 3.0, "at {time_s}: {got}, not {rate}");
        }
        let added: f64 = workload.arrivals(1, "web", 200.0).count() as f64 - 2000.0;
        assert!((added - 90.0 * 45.0).abs() < 250.0, "{added}");
    }
}
