//! When an authority is asked for a certificate: at once for the first one, in time for the next one, and after a failure less and less often.

use std::time::Duration;

use weal_model::AcmeSpec;

use crate::certificate::Validity;

/// The share of a certificate's life, in its end, in which the next one is asked for: a third, as authorities advise. Of 90 days that
/// leaves 30 for whatever may go wrong.
const RENEWED_IN_LAST: i64 = 3;
/// After the first failure. Doubled each time, this asks five times within an hour, which is what Let's Encrypt allows for a host.
const FIRST_PAUSE: Duration = Duration::from_secs(120);
/// The longest pause: four attempts a day.
const LONGEST_PAUSE: Duration = Duration::from_secs(6 * 3600);

/// When one certificate is asked for.
#[derive(Debug, Default)]
pub struct Schedule {
    failures: u32,
    /// Not before this, seconds since 1970.
    pause_until_s: i64,
    /// What failed last. Another wish is tried at once.
    failed: Option<AcmeSpec>,
}

impl Schedule {
    /// Whether a certificate as `spec` says is to be asked for now, when there is this one.
    pub fn is_due(&self, now_s: i64, spec: &AcmeSpec, held: Option<&Validity>) -> bool {
        let is_wanted = held.is_none_or(|held| is_to_be_renewed(held, now_s));
        is_wanted && !self.pauses(now_s, spec)
    }

    /// Whether a certificate as `spec` says failed so lately that nothing is asked for.
    pub fn pauses(&self, now_s: i64, spec: &AcmeSpec) -> bool {
        now_s < self.pause_until_s && self.failed.as_ref() == Some(spec)
    }

    /// One was given.
    pub fn handle_success(&mut self) {
        *self = Self::default();
    }

    /// None was given: how long to wait.
    pub fn handle_failure(&mut self, now_s: i64, spec: &AcmeSpec) -> Duration {
        if self.failed.as_ref() != Some(spec) {
            *self = Self { failed: Some(spec.clone()), ..Self::default() };
        }
        let pause = FIRST_PAUSE.saturating_mul(1 << self.failures.min(16)).min(LONGEST_PAUSE);
        self.failures += 1;
        self.pause_until_s = now_s + i64::try_from(pause.as_secs()).unwrap_or(i64::MAX / 2);
        pause
    }
}

fn is_to_be_renewed(held: &Validity, now_s: i64) -> bool {
    held.last_s - now_s <= (held.last_s - held.first_s) / RENEWED_IN_LAST
}

#[cfg(test)]
mod tests {
    use weal_model::AcmeChallenge;

    use super::*;

    const DAY_S: i64 = 24 * 3600;

    fn spec(host: &str) -> AcmeSpec {
        let (hosts, directory) = (vec![host.to_owned()], AcmeSpec::DIRECTORY.to_owned());
        AcmeSpec { hosts, directory, email: None, challenge: AcmeChallenge::Http01, directory_ca: None }
    }

    #[test]
    fn the_first_is_asked_for_at_once_and_the_next_in_the_last_third_of_its_life() {
        let (schedule, spec) = (Schedule::default(), spec("a.example"));
        assert!(schedule.is_due(0, &spec, None));
        let held = Validity { first_s: 0, last_s: 90 * DAY_S };
        assert!(!schedule.is_due(60 * DAY_S - 1, &spec, Some(&held)));
        assert!(schedule.is_due(60 * DAY_S, &spec, Some(&held)));
        assert!(schedule.is_due(200 * DAY_S, &spec, Some(&held)), "it has ended");
    }

    #[test]
    fn failures_make_it_patient_and_another_wish_is_tried_at_once() {
        let (mut schedule, mut now_s, wish) = (Schedule::default(), 0, spec("a.example"));
        let mut attempts = Vec::new();
        while attempts.len() < 12 {
            if schedule.is_due(now_s, &wish, None) {
                attempts.push(now_s);
                schedule.handle_failure(now_s, &wish);
            }
            now_s += 1;
        }
        let within = |hours: i64| attempts.iter().filter(|at| **at < hours * 3600).count();
        assert_eq!((within(1), attempts[11] - attempts[10]), (5, 6 * 3600), "{attempts:?}");
        assert!(!schedule.is_due(now_s, &wish, None));
        assert!(schedule.is_due(now_s, &spec("b.example"), None), "the config was corrected");
        schedule.handle_success();
        assert!(schedule.is_due(now_s, &wish, None));
    }
}
