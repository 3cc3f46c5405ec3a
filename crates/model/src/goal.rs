//! Goals, importance, and the utility that follows from them.
//!
//! For a goal `tau` and a response time `t` (Carrera eq. 5.4, with importance read as reproductions.md says):
//!
//! ```text
//! u(t) = (tau - t) / tau                  if t <= tau
//!        weight * (tau - t) / tau         otherwise
//! ```
//!
//! so `u` is 1 for an instant answer, 0 exactly at the goal, and falls faster the more important the class is. The thesis
//! and Pacifici number importance the other way round (1 is the most important and divides): `weight = 1 / i`.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::written::{parse_rate, parse_span};
use crate::{ClassName, LatencyHistogram, Utility};

/// What is asked of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Goal {
    /// The mean response time stays below `target_s` seconds: `mean < 1200ms`.
    Mean {
        /// Seconds. Invariant: finite and positive.
        target_s: f64,
    },
    /// The share `percentile` of requests is answered within `target_s` seconds: `p95 < 250ms`.
    Percentile {
        /// Invariant: 0 < percentile < 1.
        percentile: f64,
        /// Seconds. Invariant: finite and positive.
        target_s: f64,
    },
    /// At least `per_second` requests are answered each second: `throughput > 50/s`.
    Throughput {
        /// Requests per second. Invariant: finite and positive.
        per_second: f64,
    },
}

impl Goal {
    /// The response time that is asked for; `None` for a goal on throughput.
    pub fn target_s(&self) -> Option<f64> {
        match *self {
            Self::Mean { target_s } | Self::Percentile { target_s, .. } => Some(target_s),
            Self::Throughput { .. } => None,
        }
    }

    /// What a goal for response time is about, in seconds, as `answered` requests and `refused` ones achieve it together. A refused one
    /// counts as an answer after twice the target: its utility is as far below zero as that of an instant answer is above, times the
    /// importance. Where answers take longer, or the oldest request has waited longer (`waited_s`), it counts as such a one. Otherwise a flow
    /// would look better the more of its requests are refused, and get less. `None` without requests, and for a goal on throughput, which
    /// counts only answers.
    pub fn achieved_s(&self, answered: &LatencyHistogram, refused: u64, waited_s: f64) -> Option<f64> {
        let at_least = |target_s: f64, alone: Option<f64>| (2.0 * target_s).max(waited_s).max(alone.unwrap_or(0.0));
        match *self {
            Self::Mean { target_s } => answered.mean_with_s(refused, at_least(target_s, answered.mean_s())),
            Self::Percentile { percentile, target_s } => {
                let alone = answered.quantile_s(percentile);
                answered.quantile_with_s(percentile, refused, at_least(target_s, alone))
            }
            Self::Throughput { .. } => None,
        }
    }

    /// The utility of an achieved value: a response time in seconds, or requests per second for a throughput goal.
    ///
    /// Monotone; 0 exactly at the goal. NaN and negative inputs count as the worst value seen: -infinity never comes out.
    pub fn utility(&self, achieved: f64, importance: Importance) -> Utility {
        let relative = match *self {
            Self::Mean { target_s } | Self::Percentile { target_s, .. } => (target_s - achieved) / target_s,
            Self::Throughput { per_second } => ((achieved - per_second) / per_second).min(1.0),
        };
        let relative = if relative.is_nan() { -1e6 } else { relative.clamp(-1e6, 1.0) };
        Utility(if relative >= 0.0 { relative } else { relative * importance.weight() })
    }

    /// The value (seconds, or requests per second) whose utility is `utility`: the inverse of [`Goal::utility`].
    ///
    /// For a response time it is never negative: a utility above 1 asks for zero seconds.
    pub fn achieved_at(&self, utility: Utility, importance: Importance) -> f64 {
        let relative = if utility.0 >= 0.0 { utility.0 } else { utility.0 / importance.weight() };
        match *self {
            Self::Mean { target_s } | Self::Percentile { target_s, .. } => (target_s * (1.0 - relative)).max(0.0),
            Self::Throughput { per_second } => (per_second * (1.0 + relative)).max(0.0),
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Mean { target_s } => write!(f, "mean < {}", show_span(target_s)),
            Self::Percentile { percentile, target_s } => {
                let percent = (percentile * 1e5).round() / 1e3;
                write!(f, "p{percent} < {}", show_span(target_s))
            }
            Self::Throughput { per_second } => write!(f, "throughput > {per_second}/s"),
        }
    }
}

fn show_span(seconds: f64) -> String {
    if seconds < 1.0 || (seconds * 1e3).round() % 1e3 != 0.0 {
        format!("{}ms", (seconds * 1e6).round() / 1e3)
    } else {
        format!("{seconds}s")
    }
}

/// Why a goal could not be read, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GoalError {
    /// Neither `<` nor `>` in it.
    #[error("a goal compares: write `p95 < 250ms`, `mean < 1200ms` or `throughput > 50/s`")]
    NoComparison,
    /// The left side is unknown.
    #[error("unknown measure `{0}`: use `mean`, a percentile such as `p95`, or `throughput`")]
    UnknownMeasure(String),
    /// A percentile out of range.
    #[error("percentile `{0}` is not between p1 and p99.99")]
    Percentile(String),
    /// `<` where `>` belongs or the other way round.
    #[error("`{measure}` takes `{right}`")]
    Direction {
        /// What is compared.
        measure: String,
        /// The sign it takes.
        right: char,
    },
    /// The right side cannot be read.
    #[error("`{0}` is not a positive time: write `250ms`, `1.5s` or `2min`")]
    Span(String),
    /// The right side of a throughput goal cannot be read.
    #[error("`{0}` is not a positive rate: write `50/s` or `3000/min`")]
    Rate(String),
}

impl FromStr for Goal {
    type Err = GoalError;

    fn from_str(text: &str) -> Result<Self, GoalError> {
        let at = text.find(['<', '>']).ok_or(GoalError::NoComparison)?;
        let sign = if text[at..].starts_with('<') { '<' } else { '>' };
        let (measure, value) = (text[..at].trim(), text[at + 1..].trim_start_matches('=').trim());
        let expect = |right: char| {
            if sign == right { Ok(()) } else { Err(GoalError::Direction { measure: measure.to_owned(), right }) }
        };
        if measure == "throughput" {
            expect('>')?;
            let per_second = parse_rate(value).ok().and_then(positive);
            return Ok(Self::Throughput { per_second: per_second.ok_or_else(|| GoalError::Rate(value.to_owned()))? });
        }
        let percentile = match measure.strip_prefix('p') {
            _ if measure == "mean" => None,
            Some(digits) if digits.starts_with(|c: char| c.is_ascii_digit()) => {
                let percent: f64 = digits.parse().map_err(|_| GoalError::Percentile(measure.to_owned()))?;
                if !(1.0..=99.99).contains(&percent) {
                    return Err(GoalError::Percentile(measure.to_owned()));
                }
                Some(percent / 100.0)
            }
            _ => return Err(GoalError::UnknownMeasure(measure.to_owned())),
        };
        expect('<')?;
        let target_s = parse_span(value).ok().and_then(positive).ok_or_else(|| GoalError::Span(value.to_owned()))?;
        Ok(match percentile {
            None => Self::Mean { target_s },
            Some(percentile) => Self::Percentile { percentile, target_s },
        })
    }
}

fn positive(value: f64) -> Option<f64> {
    (value > 0.0 && value.is_finite()).then_some(value)
}

/// How much missing a goal matters, as the factor on negative utilities. Grows with importance.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Importance(f64);

impl Importance {
    /// The words of the config and their weights: each step doubles how fast a miss hurts.
    pub const WORDS: [(&'static str, f64); 5] =
        [("lowest", 0.25), ("low", 0.5), ("normal", 1.0), ("high", 2.0), ("highest", 4.0)];
    /// What a class has when it says nothing.
    pub const NORMAL: Self = Self(1.0);

    /// From a weight; `None` unless it lies in 0.001..=1000 (beyond that one class would silence all others).
    pub fn from_weight(weight: f64) -> Option<Self> {
        (0.001..=1000.0).contains(&weight).then_some(Self(weight))
    }

    /// From one of [`Importance::WORDS`].
    pub fn from_word(word: &str) -> Option<Self> {
        Self::WORDS.iter().find(|(name, _)| *name == word).map(|&(_, weight)| Self(weight))
    }

    /// The factor on negative utilities.
    pub fn weight(self) -> f64 {
        self.0
    }
}

impl Default for Importance {
    fn default() -> Self {
        Self::NORMAL
    }
}

impl fmt::Display for Importance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Self::WORDS.iter().find(|&&(_, weight)| weight == self.0) {
            Some((word, _)) => f.pad(word),
            None => write!(f, "{}", self.0),
        }
    }
}

/// A service class: goal + importance of a kind of request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceClass {
    /// Its name, from `[class.NAME]`.
    pub name: ClassName,
    /// What is asked; `None` is best effort: it gets what goals leave over.
    pub goal: Option<Goal>,
    /// How much a miss matters.
    pub importance: Importance,
    /// What becomes of a request that has waited until it can no longer meet the goal.
    #[serde(default)]
    pub late: LatePolicy,
    /// Requests per second that each of its flows may send to instances; `None` does not limit them. Invariant: finite and positive.
    #[serde(default)]
    pub rate_limit_per_s: Option<f64>,
    /// The cookie by which applications know a session: requests that bring it wait before those that do not.
    #[serde(default)]
    pub session_cookie: Option<String>,
}

/// What becomes of a request that has waited until it can no longer meet its goal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LatePolicy {
    /// It goes on waiting.
    #[default]
    Serve,
    /// It is refused, so that its seat serves one that still can.
    Drop,
}

impl LatePolicy {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Serve, Self::Drop];

    /// As it is written in a config.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Serve => "serve",
            Self::Drop => "drop",
        }
    }
}

/// How the requests of one flow wait, beside its weight.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct FlowPolicy {
    /// Seconds after its arrival within which a request has to be answered to be worth a seat; `None` serves late ones too.
    pub drop_after_s: Option<f64>,
    /// Requests per second that may go to instances; `None` does not limit them.
    pub rate_limit_per_s: Option<f64>,
}

impl ServiceClass {
    /// A class that only has a goal: none of its requests is dropped, limited or preferred.
    pub fn new(name: ClassName, goal: Option<Goal>, importance: Importance) -> Self {
        Self { name, goal, importance, late: LatePolicy::Serve, rate_limit_per_s: None, session_cookie: None }
    }

    /// How requests of this class wait. A goal on throughput makes no request late.
    pub fn flow_policy(&self) -> FlowPolicy {
        let target_s = self.goal.and_then(|goal| goal.target_s());
        FlowPolicy { drop_after_s: target_s.filter(|_| self.late == LatePolicy::Drop), rate_limit_per_s: self.rate_limit_per_s }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_read_back_as_they_were_written() {
        for text in ["p95 < 250ms", "mean < 1200ms", "p99.9 < 2s", "throughput > 50/s", "mean < 0.5ms"] {
            assert_eq!(text.parse::<Goal>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_wrong_goal_says_what_would_be_right() {
        for (text, part) in [
            ("p95", "a goal compares"),
            ("p95 > 250ms", "`p95` takes `<`"),
            ("median < 1s", "unknown measure `median`"),
            ("p200 < 1s", "percentile `p200`"),
            ("mean < fast", "`fast` is not a positive time"),
            ("mean < 0ms", "not a positive time"),
            ("throughput > 50", "not a positive rate"),
        ] {
            let error = text.parse::<Goal>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn refused_requests_count_as_missed() {
        let mut answered = LatencyHistogram::default();
        for ms in 1..=90 {
            answered.record(std::time::Duration::from_millis(ms));
        }
        let p95: Goal = "p95 < 100ms".parse().unwrap();
        assert!((p95.achieved_s(&answered, 0, 0.0).unwrap() - 0.0855).abs() < 0.002);
        assert!((p95.achieved_s(&answered, 4, 0.0).unwrap() - 0.090).abs() < 0.002, "as many as may miss it");
        assert!((p95.achieved_s(&answered, 10, 0.0).unwrap() - 0.2).abs() < 1e-9);
        let mean: Goal = "mean < 100ms".parse().unwrap();
        assert!((mean.achieved_s(&answered, 90, 0.0).unwrap() - (0.0455 + 0.2) / 2.0).abs() < 0.001);
        assert!((mean.achieved_s(&LatencyHistogram::default(), 3, 0.0).unwrap() - 0.2).abs() < 1e-9);
        assert_eq!(mean.achieved_s(&LatencyHistogram::default(), 0, 0.0), None);
        assert!((p95.achieved_s(&LatencyHistogram::default(), 3, 5.0).unwrap() - 5.0).abs() < 0.1, "it has waited longer");
        let mut slow = LatencyHistogram::default();
        slow.record_n(std::time::Duration::from_secs(1), 10);
        for goal in [p95, mean] {
            let [few, many] = [1, 1000].map(|refused| goal.achieved_s(&slow, refused, 0.0).unwrap());
            assert!(few >= 0.98 && many >= few - 1e-9, "who is refused does no better than who is answered late: {few} {many}");
        }
        answered.record(std::time::Duration::from_secs(9));
        assert_eq!("p99.9 < 100ms".parse::<Goal>().unwrap().achieved_s(&answered, 5, 0.0).map(f64::round), Some(9.0));
    }

    #[test]
    fn utility_is_zero_at_the_goal_and_its_inverse_undoes_it() {
        let goal: Goal = "mean < 350ms".parse().unwrap();
        assert_eq!(goal.utility(0.35, Importance::NORMAL), Utility(0.0));
        for importance in Importance::WORDS.map(|(_, w)| Importance::from_weight(w).unwrap()) {
            for achieved in [0.0, 0.1, 0.35, 0.7, 3.5] {
                let utility = goal.utility(achieved, importance);
                assert!((goal.achieved_at(utility, importance) - achieved).abs() < 1e-12);
            }
        }
        assert!(goal.utility(f64::NAN, Importance::NORMAL).0.is_finite());
    }

    #[test]
    fn the_more_important_class_falls_faster_below_its_goal() {
        let goal: Goal = "mean < 1s".parse().unwrap();
        let (high, low) = (Importance::from_word("high").unwrap(), Importance::from_word("low").unwrap());
        assert!(goal.utility(2.0, high) < goal.utility(2.0, low));
        assert_eq!(goal.utility(0.5, high), goal.utility(0.5, low));
    }
}
