//! What a person sees while load is made: requests of each second, those that were answered, and how long they took.

use std::collections::VecDeque;
use std::time::Duration;

use weal_load::Progress;

use crate::output::milliseconds;

/// Seconds that are shown: what a terminal of 80 columns has room for beside the words.
const SECONDS: usize = 40;
/// Heights of a bar, from nothing on.
const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Counts so far.
#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    at: Duration,
    sent: u64,
    answered: u64,
    /// Milliseconds that all answers took together.
    time_ms: f64,
}

/// One second of it.
#[derive(Debug, Clone, Copy)]
struct Second {
    sent_per_s: f64,
    answered_per_s: f64,
    /// The mean of what was answered in it; 0 when nothing was.
    mean_ms: f64,
}

/// The last seconds.
#[derive(Debug, Default)]
pub struct Chart {
    /// Where the second began that goes on.
    begun: Counts,
    now: Counts,
    p95_ms: f64,
    seconds: VecDeque<Second>,
}

impl Chart {
    /// Takes in how far each flow is at `at`.
    pub fn handle_progress(&mut self, at: Duration, flows: &[Progress]) {
        let answers = |flow: &Progress| flow.response.mean_ms * flow.response.count as f64;
        self.now = Counts {
            at,
            sent: flows.iter().map(|flow| flow.sent).sum(),
            answered: flows.iter().map(|flow| flow.answered).sum(),
            time_ms: flows.iter().map(answers).sum(),
        };
        self.p95_ms = flows.iter().map(|flow| flow.response.p95_ms).fold(0.0, f64::max);
        let took_s = at.saturating_sub(self.begun.at).as_secs_f64();
        if took_s >= 1.0 {
            self.seconds.push_back(second(self.begun, self.now, took_s));
            self.begun = self.now;
        }
        while self.seconds.len() > SECONDS {
            self.seconds.pop_front();
        }
    }

    /// Three lines: a bar for each second, the newest at the right.
    pub fn text(&self) -> String {
        let last = self.seconds.back();
        let line =
            |value: fn(&Second) -> f64, words: String| format!("{:>SECONDS$}  {words}", bars(self.seconds.iter().map(value)));
        let of_last = |value: fn(&Second) -> f64| last.map_or(0.0, value);
        [
            line(
                |second| second.sent_per_s,
                format!("{:.0}/s sent, {} in all", of_last(|second| second.sent_per_s), self.now.sent),
            ),
            line(
                |second| second.answered_per_s,
                format!("{:.0}/s answered, {} in all", of_last(|second| second.answered_per_s), self.now.answered),
            ),
            line(
                |second| second.mean_ms,
                format!("{} mean, p95 of all {}", milliseconds(of_last(|second| second.mean_ms)), milliseconds(self.p95_ms)),
            ),
        ]
        .join("\n")
    }
}

fn second(from: Counts, to: Counts, took_s: f64) -> Second {
    let answered = to.answered.saturating_sub(from.answered) as f64;
    let mean_ms = if answered > 0.0 { ((to.time_ms - from.time_ms) / answered).max(0.0) } else { 0.0 };
    Second { sent_per_s: to.sent.saturating_sub(from.sent) as f64 / took_s, answered_per_s: answered / took_s, mean_ms }
}

/// A bar for each value, as high as its share of the highest.
fn bars(values: impl Iterator<Item = f64> + Clone) -> String {
    let highest = values.clone().fold(0.0, f64::max);
    let height = |value: f64| if highest > 0.0 { (value / highest * (BARS.len() - 1) as f64).ceil() as usize } else { 0 };
    values.map(|value| BARS[height(value).min(BARS.len() - 1)]).collect()
}

#[cfg(test)]
mod tests {
    use weal_model::LatencySummary;

    use super::*;

    fn progress(sent: u64, answered: u64, mean_ms: f64) -> Progress {
        let response = LatencySummary { count: answered, mean_ms, p95_ms: 2.0 * mean_ms, ..LatencySummary::default() };
        Progress { name: "a".to_owned(), sent, answered, response }
    }

    #[test]
    fn each_second_is_a_bar_and_only_whole_ones_are_shown() {
        let mut chart = Chart::default();
        let at = Duration::from_millis;
        chart.handle_progress(at(500), &[progress(50, 50, 10.0)]);
        assert!(chart.text().starts_with(&" ".repeat(SECONDS)), "{}", chart.text());
        chart.handle_progress(at(1000), &[progress(100, 100, 10.0)]);
        chart.handle_progress(at(2000), &[progress(150, 125, 14.0)]);
        let text = chart.text();
        let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
        assert_eq!(lines, ["█▄  50/s sent, 150 in all", "█▂  25/s answered, 125 in all", "▃█  30.0ms mean, p95 of all 28.0ms"]);
        for second in 3..100 {
            chart.handle_progress(at(second * 1000), &[progress(150, 125, 14.0)]);
        }
        assert!(chart.text().lines().all(|line| line.chars().count() < 80), "{}", chart.text());
        assert!(chart.text().contains("0/s sent, 150 in all"), "{}", chart.text());
    }
}
