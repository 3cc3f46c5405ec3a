//! Workloads: what comes in, when. Pure functions of (seed, specification), so that the simulator and a load generator
//! play the very same requests.
//!
//! A load generator drives an open workload by [`Workload::arrivals`] and a closed one by [`Workload::sessions_at`] and one
//! [`Thoughts`] per session.

pub mod access_log;
mod jobs;
mod modulated;
mod phase;
mod swf;
mod trace;
mod walk;

use serde::{Deserialize, Serialize};

pub use jobs::{JobArrival, JobKind, JobMix, JobStream};
pub use modulated::{Flash, State, with_flashes};
pub use phase::Phase;
pub use swf::{SwfError, SwfJob, read_swf};
pub use trace::{TraceError, TraceWindow, read_requests_per_minute};
pub use walk::{Page, Walk};

use phase::level_at;
use weal_rng::{self as random, Rng};

/// What drives one flow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Workload {
    /// Open: requests come in at a rate, whatever becomes of those before (Poisson).
    Open {
        /// Requests per second from each phase's start on. Invariant: sorted by start; before the first, none come.
        phases: Vec<Phase>,
    },
    /// Closed: so many sessions each think, ask, wait for the answer, and think again.
    Sessions {
        /// Sessions from each phase's start on. Invariant: as above.
        phases: Vec<Phase>,
        /// Mean think time in seconds, exponentially distributed; 0 asks again at once.
        think_s: f64,
    },
    /// Open and bursty: a Markov chain in continuous time jumps between states, each with its rate (a Markov-modulated Poisson process).
    Bursty {
        /// Invariant: not empty, and each lasts longer than nothing in the mean.
        states: Vec<State>,
    },
    /// Open, with recorded counts: `counts[i]` requests spread evenly at random over the i-th period.
    Counts {
        /// Requests per period, fractions allowed.
        counts: Vec<f64>,
        /// Seconds of one period. Invariant: positive.
        period_s: f64,
    },
}

impl Workload {
    /// The moments, in seconds from the start, at which requests come in before `until_s`; none for a closed workload.
    pub fn arrivals(&self, seed: u64, name: &str, until_s: f64) -> Arrivals {
        let pieces = match self {
            Self::Open { phases } => pieces_of(phases, until_s),
            Self::Counts { counts, period_s } => counts
                .iter()
                .enumerate()
                .map(|(i, count)| Piece { start_s: i as f64 * period_s, end_s: (i + 1) as f64 * period_s, mean: *count })
                .map(|piece| piece.cut(until_s))
                .collect(),
            Self::Bursty { states } => {
                let phases = modulated::phases(states, &mut random::stream(seed, &format!("{name}/states")), until_s);
                pieces_of(&phases, until_s)
            }
            Self::Sessions { .. } => Vec::new(),
        };
        let recorded = matches!(self, Self::Counts { .. });
        Arrivals { rng: random::stream(seed, name), pieces: pieces.into_iter(), recorded, ready: Vec::new() }
    }

    /// The same with `factor` times as many clients. Recorded counts are one outcome of chance: fewer clients leave some of those requests
    /// out, more add their own, at the rate of the minute around. Counts multiplied would come in volleys that no clients send.
    pub fn with_clients(&self, factor: f64, rng: &mut Rng) -> Self {
        let scaled = |phases: &[Phase]| phases.iter().map(|phase| Phase { level: phase.level * factor, ..*phase }).collect();
        match self {
            Self::Open { phases } => Self::Open { phases: scaled(phases) },
            Self::Sessions { phases, think_s } => Self::Sessions { phases: scaled(phases), think_s: *think_s },
            Self::Bursty { states } => {
                Self::Bursty { states: states.iter().map(|state| State { rate: state.rate * factor, ..*state }).collect() }
            }
            Self::Counts { counts, period_s } => {
                let around = (30.0 / period_s).ceil() as usize;
                let more = |at: usize, rng: &mut Rng| {
                    let minute = &counts[at.saturating_sub(around)..(at + around + 1).min(counts.len())];
                    let mean = minute.iter().sum::<f64>() / minute.len() as f64;
                    counts[at] + random::poisson(rng, (factor - 1.0) * mean)
                };
                let fewer = |at: usize, rng: &mut Rng| random::binomial(rng, counts[at], factor);
                let count = |at: usize| if factor > 1.0 { more(at, rng) } else { fewer(at, rng) };
                Self::Counts { counts: (0..counts.len()).map(count).collect(), period_s: *period_s }
            }
        }
    }

    /// How many sessions a closed workload has at `time_s`; 0 for an open one.
    pub fn sessions_at(&self, time_s: f64) -> u32 {
        match self {
            Self::Sessions { phases, .. } => level_at(phases, time_s) as u32,
            _ => 0,
        }
    }

    /// The moments at which the number of sessions or the rate changes.
    pub fn changes(&self) -> Vec<f64> {
        match self {
            Self::Open { phases } | Self::Sessions { phases, .. } => phases.iter().map(|phase| phase.start_s).collect(),
            Self::Counts { counts, period_s } => (0..counts.len()).map(|i| i as f64 * period_s).collect(),
            Self::Bursty { .. } => Vec::new(),
        }
    }

    /// The think times of session number `session` of a closed workload; zeros for an open one.
    pub fn thoughts(&self, seed: u64, name: &str, session: u32) -> Thoughts {
        let mean_s = if let Self::Sessions { think_s, .. } = self { *think_s } else { 0.0 };
        Thoughts { rng: random::stream(seed, &format!("{name}/{session}")), mean_s }
    }

    /// Requests per second offered at `time_s` by an open workload, in the mean for a bursty one; `None` for a closed one, whose rate
    /// depends on the answers.
    pub fn rate_at(&self, time_s: f64) -> Option<f64> {
        match self {
            Self::Open { phases } => Some(level_at(phases, time_s)),
            Self::Counts { counts, period_s } => {
                Some(counts.get((time_s / period_s) as usize).copied().unwrap_or(0.0) / period_s)
            }
            Self::Bursty { states } => Some(modulated::mean_rate(states)),
            Self::Sessions { .. } => None,
        }
    }
}

fn pieces_of(phases: &[Phase], until_s: f64) -> Vec<Piece> {
    let ends = phases.iter().skip(1).map(|phase| phase.start_s).chain([f64::INFINITY]);
    phases
        .iter()
        .zip(ends)
        .map(|(phase, end_s)| {
            let end_s = end_s.min(until_s);
            Piece { start_s: phase.start_s, end_s, mean: phase.level * (end_s - phase.start_s).max(0.0) }
        })
        .collect()
}

/// A span in which `mean` requests are expected, evenly spread.
#[derive(Debug, Clone, Copy)]
struct Piece {
    start_s: f64,
    end_s: f64,
    mean: f64,
}

impl Piece {
    fn cut(self, until_s: f64) -> Self {
        let end_s = self.end_s.min(until_s);
        let share = ((end_s - self.start_s) / (self.end_s - self.start_s)).max(0.0);
        Self { start_s: self.start_s, end_s, mean: self.mean * share }
    }
}

/// The moments at which requests come in, ascending, in seconds.
#[derive(Debug, Clone)]
pub struct Arrivals {
    rng: Rng,
    pieces: std::vec::IntoIter<Piece>,
    /// Recorded counts are kept (up to rounding); Poisson counts vary.
    recorded: bool,
    /// Arrivals of the current piece, latest first.
    ready: Vec<f64>,
}

impl Iterator for Arrivals {
    type Item = f64;

    fn next(&mut self) -> Option<f64> {
        while self.ready.is_empty() {
            let piece = self.pieces.next()?;
            self.fill(piece);
        }
        self.ready.pop()
    }
}

impl Arrivals {
    fn fill(&mut self, piece: Piece) {
        use rand::RngExt;
        let span = piece.end_s - piece.start_s;
        if span <= 0.0 || piece.mean <= 0.0 {
            return;
        }
        if self.recorded {
            let count = random::round_randomly(&mut self.rng, piece.mean);
            self.ready.extend((0..count).map(|_| piece.start_s + span * self.rng.random::<f64>()));
            self.ready.sort_by(|a, b| b.total_cmp(a));
            return;
        }
        let mean_gap = span / piece.mean;
        let mut at = piece.start_s + random::exponential(&mut self.rng, mean_gap);
        while at < piece.end_s {
            self.ready.push(at);
            at += random::exponential(&mut self.rng, mean_gap);
        }
        self.ready.reverse();
    }
}

/// The think times of one session, in seconds; never ends.
#[derive(Debug, Clone)]
pub struct Thoughts {
    rng: Rng,
    mean_s: f64,
}

impl Iterator for Thoughts {
    type Item = f64;

    fn next(&mut self) -> Option<f64> {
        Some(random::exponential(&mut self.rng, self.mean_s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_workload_keeps_its_rates_and_its_order() {
        let workload =
            Workload::Open { phases: vec![Phase { start_s: 10.0, level: 50.0 }, Phase { start_s: 110.0, level: 5.0 }] };
        let arrivals: Vec<f64> = workload.arrivals(3, "web", 210.0).collect();
        assert!(arrivals.is_sorted());
        assert!(arrivals[0] >= 10.0 && *arrivals.last().unwrap() < 210.0);
        let first = arrivals.iter().filter(|&&at| at < 110.0).count() as f64;
        assert!((first - 5000.0).abs() < 300.0, "{first}");
        assert!((arrivals.len() as f64 - first - 500.0).abs() < 100.0);
        assert_eq!(arrivals, workload.arrivals(3, "web", 210.0).collect::<Vec<_>>(), "the seed decides");
        assert_ne!(arrivals, workload.arrivals(4, "web", 210.0).collect::<Vec<_>>());
        assert_eq!(workload.rate_at(20.0), Some(50.0));
    }

    #[test]
    fn recorded_counts_are_kept() {
        let workload = Workload::Counts { counts: vec![10.0, 0.0, 2.5], period_s: 1.0 };
        let arrivals: Vec<f64> = workload.arrivals(1, "trace", 100.0).collect();
        assert!(arrivals.is_sorted());
        assert_eq!(arrivals.iter().filter(|&&at| at < 1.0).count(), 10);
        assert!((12..=13).contains(&arrivals.len()));
    }

    #[test]
    fn a_closed_workload_tells_sessions_and_think_times() {
        let workload = Workload::Sessions {
            phases: vec![Phase { start_s: 0.0, level: 10.0 }, Phase { start_s: 60.0, level: 40.0 }],
            think_s: 2.0,
        };
        assert_eq!((workload.sessions_at(59.0), workload.sessions_at(60.0)), (10, 40));
        let mean = workload.thoughts(1, "web", 3).take(10_000).sum::<f64>() / 1e4;
        assert!((mean - 2.0).abs() < 0.1);
        assert_eq!(workload.arrivals(1, "web", 60.0).count(), 0);
    }
}
