//! The most memory that jobs used: what plans reserve for a job of which nobody said it.
//!
//! The request is the largest of the last peaks of its family, and a quarter more. It is never a limit: a run that needs more than its family ever did
//! is not ended for that. Its limit is what somebody once allowed a job of its family, and no less than the default.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use weal_model::{Bytes, JobName};

use super::family::Families;

/// Runs remembered of each family. More keep the memory of one large run for longer, fewer forget it before the next one.
const REMEMBERED: usize = 8;
/// A request over the largest peak. Peaks are the largest of looks one or two seconds apart, so what lies between was not seen.
const MARGIN: f64 = 1.25;
/// No request is smaller: below it, what a process needs to begin decides.
const LEAST: Bytes = Bytes::mib(16);

/// The most memory that jobs used.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Peaks {
    /// The newest at the end.
    families: Families<VecDeque<Peak>>,
}

/// One run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Peak {
    /// The most memory of a task.
    used: Bytes,
    /// What it might have used.
    limit: Bytes,
}

/// What a job of which nobody said the memory may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// What plans reserve.
    pub memory: Bytes,
    /// Beyond this it is ended.
    pub limit: Bytes,
}

impl Peaks {
    /// Takes in a run that is done: the most memory that one of its tasks was seen to use, and its limit.
    pub fn learn(&mut self, name: &JobName, used: Bytes, limit: Bytes) {
        if used == Bytes(0) {
            return;
        }
        let peaks = self.families.learn(name);
        peaks.push_back(Peak { used, limit });
        if peaks.len() > REMEMBERED {
            peaks.pop_front();
        }
    }

    /// What a job of this name is to have that does not say it; `None` when no run of its family is known. Without earlier runs it would have `default`.
    pub fn request(&self, name: &JobName, default: Bytes) -> Option<Request> {
        let peaks = self.families.get(name)?;
        let used = peaks.iter().map(|peak| peak.used).max()?;
        let limit = peaks.iter().map(|peak| peak.limit).fold(default, Bytes::max);
        let memory = Bytes((used.0 as f64 * MARGIN) as u64).max(LEAST);
        Some(Request { memory: memory.min(limit), limit })
    }
}

#[cfg(test)]
mod tests {
    use super::super::family::MOST_FAMILIES;
    use super::*;

    const DEFAULT: Bytes = Bytes::mib(256);

    #[test]
    fn a_job_asks_for_a_quarter_more_than_its_family_ever_used() {
        let mut peaks = Peaks::default();
        assert_eq!(peaks.request(&"a-1".into(), DEFAULT), None);
        for used in [40, 80, 60] {
            peaks.learn(&"a-1".into(), Bytes::mib(used), DEFAULT);
        }
        peaks.learn(&"a-2".into(), Bytes(0), DEFAULT);
        let request = |name: &str| peaks.request(&name.into(), DEFAULT);
        assert_eq!(request("a-7"), Some(Request { memory: Bytes::mib(100), limit: DEFAULT }), "its limit is not lowered");
        assert_eq!(request("b-7"), None);
    }

    #[test]
    fn the_limit_is_what_somebody_allowed_and_never_what_was_learnt() {
        let mut peaks = Peaks::default();
        peaks.learn(&"a-1".into(), Bytes::mib(600), Bytes::gib(1));
        peaks.learn(&"a-2".into(), Bytes::mib(3), DEFAULT);
        assert_eq!(peaks.request(&"a-3".into(), DEFAULT), Some(Request { memory: Bytes::mib(750), limit: Bytes::gib(1) }));
        let mut small = Peaks::default();
        small.learn(&"a-1".into(), Bytes(1), DEFAULT);
        assert_eq!(small.request(&"a-1".into(), DEFAULT), Some(Request { memory: LEAST, limit: DEFAULT }));
        let mut full = Peaks::default();
        full.learn(&"a-1".into(), Bytes::mib(250), DEFAULT);
        assert_eq!(full.request(&"a-1".into(), DEFAULT).unwrap().memory, DEFAULT, "no request is above its limit");
    }

    #[test]
    fn only_the_last_runs_of_the_last_families_count() {
        let mut peaks = Peaks::default();
        peaks.learn(&"a-1".into(), Bytes::mib(200), DEFAULT);
        (0..REMEMBERED).for_each(|_| peaks.learn(&"a-1".into(), Bytes::mib(80), DEFAULT));
        assert_eq!(peaks.request(&"a-1".into(), DEFAULT).unwrap().memory, Bytes::mib(100));
        let name = |at: usize| JobName::from(format!("job{}x", "i".repeat(at)));
        (0..MOST_FAMILIES).for_each(|at| peaks.learn(&name(at), Bytes::mib(1), DEFAULT));
        assert_eq!((peaks.families.len(), peaks.request(&"a-1".into(), DEFAULT)), (MOST_FAMILIES, None));
    }
}
