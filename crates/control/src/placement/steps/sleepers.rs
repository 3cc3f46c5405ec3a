//! What stands by goes deeper, or makes room.

use super::actions::Steps;
use crate::placement::policy::Policy;
use crate::placement::problem::translate::Translation;
use crate::placement::standby::{self, Ladder, Place};

/// Lets what stands by go deeper where that has become cheaper, and ends what may not stand by any more.
pub(super) fn descend(steps: &mut Steps, translation: &Translation, policy: &Policy) {
    if !policy.pool.control || !policy.algorithm.knows_goals() {
        return;
    }
    for (&(m, n), sleepers) in &translation.standby {
        let ladder = Ladder::of(translation, policy, m, n);
        for instance in sleepers {
            if !steps.stands_by(m, n, &instance.id) {
                continue;
            }
            match standby::lower_place(translation, policy, &ladder, m, instance) {
                Some((Place::Asleep(rung), why)) => steps.put_to_sleep(translation, m, n, &instance.id, rung, why),
                Some((Place::Ended, why)) => steps.end_standby(translation, m, n, &instance.id, why),
                _ => {}
            }
        }
    }
}

/// Keeps memory free on every node for an average instance of those that may still grow, by paging out what is suspended.
pub(super) fn tidy(steps: &mut Steps, translation: &Translation, policy: &Policy) {
    for (n, bytes) in standby::kept_free(translation, policy) {
        steps.make_memory(translation, policy, n, bytes, None);
    }
}
