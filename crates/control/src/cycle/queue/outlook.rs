//! How far a run is said to be.
//!
//! The work of a job is an estimate, and progress is a share of it. An estimate may be wrong by ten times either way, and changes while the job
//! runs. So progress goes back when the estimate grows. People are told it by two rules:
//!
//! - Progress goes back only together with what the estimate was before ([`Raised`]).
//! - A share of a guess is no progress. Of twice what a job has used, it has always done half.

use weal_model::{Raised, Time, Work};

use crate::jobs::Estimate;

/// Estimates waver. A share that falls by less than this is held where it was: smaller, and each new look gives a reason; larger, and progress stands
/// still for long.
const STEP: f64 = 0.01;

/// What people are told of a run.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(in super::super) struct Outlook {
    /// The share of the work that is done; 0 while the work is a guess.
    pub share: f64,
    /// The last time that the share went back.
    pub raised: Option<Raised>,
    /// The work per task that it is a share of, in CPU-seconds; 0 before the first look.
    work: f64,
    /// That work was no guess.
    is_known: bool,
}

impl Outlook {
    /// Each task of the run has used `used` CPU-seconds, and says that it is at `progress`; its job has stated so much work. True when the work turns
    /// out larger.
    pub fn handle_seen(&mut self, now: Time, used: f64, stated: f64, progress: Option<f64>, estimate: &Estimate) -> bool {
        if self.work <= 0.0 {
            (self.work, self.is_known) = (stated, stated > 0.0);
        }
        let by_work = || (!estimate.is_guess()).then(|| (used / estimate.work.0).clamp(0.0, 1.0));
        let share = progress.or_else(by_work);
        let is_larger = share.map_or(self.is_known, |share| share + STEP < self.share);
        if is_larger {
            self.raised = Some(Raised { time: now, from: Work(self.work) });
            self.share = share.unwrap_or(0.0);
        }
        (self.share, self.work, self.is_known) = (self.share.max(share.unwrap_or(0.0)), estimate.work.0, share.is_some());
        is_larger
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::Source;
    use crate::seeded::Seeded;

    fn at(second: u64) -> Time {
        Time(second * 1_000_000_000)
    }

    fn estimate(work: f64, source: Source) -> Estimate {
        Estimate { work: Work(work), range: (Work(work), Work(work)), source }
    }

    #[test]
    fn a_guess_is_no_progress_and_what_replaces_it_is_no_step_back() {
        let mut outlook = Outlook::default();
        for used in [0.5, 1.0, 2.0] {
            assert!(!outlook.handle_seen(at(1), used, 0.0, None, &estimate(2.0 * used, Source::Progress)));
            assert_eq!(outlook.share, 0.0, "half of a guess would be shown for ever");
        }
        assert!(!outlook.handle_seen(at(2), 2.4, 0.0, Some(0.12), &estimate(20.0, Source::Stated)));
        assert_eq!((outlook.share, outlook.raised), (0.12, None));
    }

    #[test]
    fn progress_goes_back_only_with_what_the_estimate_was() {
        let mut outlook = Outlook::default();
        assert!(!outlook.handle_seen(at(1), 5.0, 10.0, None, &estimate(10.0, Source::Stated)));
        assert!(
            outlook.handle_seen(at(2), 6.0, 10.0, Some(0.06), &estimate(100.0, Source::Stated)),
            "ten times as much as was said"
        );
        assert_eq!((outlook.share, outlook.raised), (0.06, Some(Raised { time: at(2), from: Work(10.0) })));
        assert!(!outlook.handle_seen(at(3), 9.0, 10.0, Some(0.9), &estimate(10.0, Source::Stated)), "less work is no step back");
        assert!(
            outlook.handle_seen(at(4), 20.0, 10.0, None, &estimate(40.0, Source::Progress)),
            "it has outrun all that was known"
        );
        assert_eq!((outlook.share, outlook.raised), (0.0, Some(Raised { time: at(4), from: Work(10.0) })));
    }

    #[test]
    fn a_job_that_has_used_more_than_it_stated_before_anybody_looked_is_larger_too() {
        let mut outlook = Outlook::default();
        assert!(outlook.handle_seen(at(2), 1.5, 1.0, None, &estimate(3.0, Source::Progress)));
        assert_eq!(outlook.raised, Some(Raised { time: at(2), from: Work(1.0) }));
        assert!(!outlook.handle_seen(at(4), 3.5, 1.0, None, &estimate(7.0, Source::Progress)), "a guess that grows is no news");
    }

    #[test]
    fn whatever_estimates_come_progress_never_falls_without_a_reason() {
        let sources = [Source::Stated, Source::EarlierRuns(2), Source::Progress, Source::Nothing];
        let mut random = Seeded::new(1);
        for _ in 0..200 {
            let (mut outlook, mut used) = (Outlook::default(), 0.0);
            for second in 1..50 {
                used += random.between(0.0, 3.0);
                let known = estimate(used * random.between(1.0, 20.0) + 0.1, sources[random.below(4) as usize]);
                let progress = (random.below(3) == 0).then(|| random.between(0.05, 1.0));
                let before = outlook;
                let is_larger = outlook.handle_seen(at(second), used, 0.0, progress, &known);
                assert!(is_larger || outlook.share >= before.share, "{before:?}, then {outlook:?}");
                let told = outlook.raised.filter(|raised| raised.time == at(second));
                assert_eq!(is_larger, told.is_some_and(|raised| raised.from == Work(before.work)), "{outlook:?}");
            }
        }
    }
}
