//! What was found that must not be.

use weal_model::Time;

/// More findings than this say nothing new.
const MOST_FINDINGS: usize = 20;

/// What was found.
#[derive(Debug, Default)]
pub struct Oracle {
    pub findings: Vec<String>,
    /// Applications whose queues the last event touched.
    pub touched: Vec<usize>,
}

impl Oracle {
    pub fn note(&mut self, now_s: f64, what: String) {
        if self.findings.len() < MOST_FINDINGS {
            self.findings.push(format!("at {now_s:.3} s: {what}"));
        }
    }

    pub fn touch(&mut self, app: usize) {
        self.touched.push(app);
    }

    /// `ended` is what the pipeline said to the end of a request.
    pub fn answered_once(&mut self, now: Time, ended: bool) {
        if !ended {
            self.note(now.as_secs_f64(), "a request was answered that had been answered before".to_owned());
        }
    }

    pub fn into_findings(self) -> Vec<String> {
        self.findings
    }
}
