//! Counting what came back.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use weal_model::{LatencyHistogram, LatencySummary};

/// How one request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// An answer with this status.
    Status(u16),
    /// None in time.
    TimedOut,
    /// The connection failed or broke off.
    Broken,
    /// The generator had too many outstanding and did not send it.
    NotSent,
}

/// One flow's counts, while it runs and afterwards.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    response: LatencyHistogram,
    lateness: LatencyHistogram,
    statuses: BTreeMap<u16, u64>,
    sent: u64,
    timed_out: u64,
    broken: u64,
    not_sent: u64,
    within_target: u64,
    seconds: Vec<SecondTally>,
}

#[derive(Debug, Default)]
struct SecondTally {
    due: u64,
    answered: u64,
    within_target: u64,
    response: LatencyHistogram,
}

impl Tally {
    /// Counts a request that was due `due` after the start and left `late` after that.
    pub fn count_sent(&mut self, due: Duration, late: Duration) {
        self.sent += 1;
        self.lateness.record(late);
        self.second(due).due += 1;
    }

    /// Counts how it ended, `response` after it was due.
    pub fn count_ending(&mut self, due: Duration, response: Duration, ending: Ending, target: Option<Duration>) {
        match ending {
            Ending::Status(status) => {
                *self.statuses.entry(status).or_default() += 1;
                self.response.record(response);
                let good = (200..400).contains(&status);
                let within = good && target.is_some_and(|target| response <= target);
                self.within_target += u64::from(within);
                let second = self.second(due);
                second.answered += u64::from(good);
                second.within_target += u64::from(within);
                second.response.record(response);
            }
            Ending::TimedOut => self.timed_out += 1,
            Ending::Broken => self.broken += 1,
            Ending::NotSent => self.not_sent += 1,
        }
    }

    fn second(&mut self, due: Duration) -> &mut SecondTally {
        let index = usize::try_from(due.as_secs()).unwrap_or(usize::MAX).min(MOST_SECONDS - 1);
        if self.seconds.len() <= index {
            self.seconds.resize_with(index + 1, SecondTally::default);
        }
        &mut self.seconds[index]
    }

    /// What is shown while it runs.
    pub fn progress(&self, name: &str) -> Progress {
        Progress { name: name.to_owned(), sent: self.sent, answered: self.good(), response: LatencySummary::of(&self.response) }
    }

    fn good(&self) -> u64 {
        self.statuses.range(200..400).map(|(_, count)| count).sum()
    }

    /// The final counts.
    pub fn finish(self, name: &str, target: Option<Duration>) -> FlowResult {
        let late_s = self.lateness.quantile_s(0.99).unwrap_or(0.0);
        let overloaded = self.not_sent > 0 || late_s > LATEST.as_secs_f64();
        let rejected = self.statuses.get(&503).copied().unwrap_or(0);
        let answered = self.good();
        let due = self.sent + self.not_sent;
        let second = |(at, second): (usize, &SecondTally)| Second {
            at_s: at as u64,
            due: second.due,
            answered: second.answered,
            within_goal: target.map(|_| second.within_target),
            response: LatencySummary::of(&second.response),
        };
        FlowResult {
            name: name.to_owned(),
            sent: self.sent,
            answered,
            rejected,
            failed: self.statuses.values().sum::<u64>() - answered - rejected,
            timed_out: self.timed_out,
            broken: self.broken,
            not_sent: self.not_sent,
            within_goal: target.map(|_| if due == 0 { 1.0 } else { self.within_target as f64 / due as f64 }),
            late_p99_ms: late_s * 1e3,
            generator_overloaded: overloaded,
            response: LatencySummary::of(&self.response),
            seconds: self.seconds.iter().enumerate().map(second).collect(),
            statuses: self.statuses,
            histogram: self.response,
        }
    }
}

/// A day. Longer runs put the rest into the last second.
const MOST_SECONDS: usize = 86_400;

/// A request that leaves later than this after it was due says more about the generator than about the server. Timers are
/// good to about 1 ms; on a machine shared with the server, a few more are normal.
const LATEST: Duration = Duration::from_millis(50);

/// A flow while it runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    /// Its name.
    pub name: String,
    /// Requests sent so far.
    pub sent: u64,
    /// Answered 2xx or 3xx so far.
    pub answered: u64,
    /// Response times so far.
    pub response: LatencySummary,
}

/// What a whole run measured. The stable shape behind `weal load -o json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LoadResult {
    /// Seconds from the first due request to the last answer.
    pub took_s: f64,
    /// One per flow, in the order given.
    pub flows: Vec<FlowResult>,
}

/// What one flow measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FlowResult {
    /// Its name.
    pub name: String,
    /// Requests sent.
    pub sent: u64,
    /// Answered 2xx or 3xx.
    pub answered: u64,
    /// Answered 503.
    pub rejected: u64,
    /// Answered with another status.
    pub failed: u64,
    /// Not answered in time.
    pub timed_out: u64,
    /// Connections that failed or broke off.
    pub broken: u64,
    /// Due, but not sent: the generator had too many outstanding.
    pub not_sent: u64,
    /// Share (0..=1) of the due requests answered 2xx or 3xx within the goal's time, if one was given.
    pub within_goal: Option<f64>,
    /// 99th percentile of how late requests left, in milliseconds.
    pub late_p99_ms: f64,
    /// True when the generator itself could not make this load, so that the numbers are about it as well.
    pub generator_overloaded: bool,
    /// Response times, from the moment when the request was due.
    pub response: LatencySummary,
    /// Answers per status.
    pub statuses: BTreeMap<u16, u64>,
    /// Second by second, by when requests were due.
    pub seconds: Vec<Second>,
    /// All response times, as `[microseconds, count]` pairs.
    pub histogram: LatencyHistogram,
}

/// One second of one flow.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Second {
    /// Seconds since the start.
    pub at_s: u64,
    /// Requests due in it and sent.
    pub due: u64,
    /// Of these, answered 2xx or 3xx.
    pub answered: u64,
    /// Of these, within the goal's time, if one was given.
    pub within_goal: Option<u64>,
    /// Their response times.
    pub response: LatencySummary,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_are_counted_once_and_by_when_they_were_due() {
        let target = Some(Duration::from_millis(100));
        let mut tally = Tally::default();
        for (at_ms, took_ms, ending) in [
            (0, 50, Ending::Status(200)),
            (500, 150, Ending::Status(200)),
            (1500, 10, Ending::Status(503)),
            (1600, 10, Ending::Status(500)),
            (1700, 900, Ending::TimedOut),
            (1800, 1, Ending::Broken),
        ] {
            let due = Duration::from_millis(at_ms);
            tally.count_sent(due, Duration::ZERO);
            tally.count_ending(due, Duration::from_millis(took_ms), ending, target);
        }
        let result = tally.finish("shop", target);
        let counts = (result.sent, result.answered, result.rejected, result.failed, result.timed_out, result.broken);
        assert_eq!(counts, (6, 2, 1, 1, 1, 1));
        assert!((result.within_goal.unwrap() - 1.0 / 6.0).abs() < 1e-9);
        assert_eq!(result.seconds.iter().map(|second| (second.due, second.answered)).collect::<Vec<_>>(), [(2, 2), (4, 0)]);
        assert!(!result.generator_overloaded);
    }

    #[test]
    fn a_generator_that_cannot_keep_up_says_so() {
        let mut late = Tally::default();
        late.count_sent(Duration::ZERO, Duration::from_millis(200));
        assert!(late.finish("late", None).generator_overloaded);
        let mut full = Tally::default();
        full.count_ending(Duration::ZERO, Duration::ZERO, Ending::NotSent, None);
        assert!(full.finish("full", None).generator_overloaded);
    }
}
