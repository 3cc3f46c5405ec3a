//! What sleepers use. A frozen process does nothing that could change it, and to look costs: of a hundred application servers a tenth of a
//! core, every second. So they are looked at when they have fallen asleep, and seldom after that, for what the kernel does to them.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use weal_model::{InstanceId, Time};

use crate::isolation::Usage;

/// A machine that is short of memory may page out more of a sleeper.
const LOOKED_AT_EVERY: Duration = Duration::from_secs(10);

/// What was seen of each sleeper when it was looked at last.
#[derive(Debug, Default)]
pub struct Sleepers(Mutex<BTreeMap<InstanceId, Seen>>);

#[derive(Debug)]
struct Seen {
    /// In the sleep that began then.
    since: Time,
    at: Instant,
    usage: Usage,
}

impl Sleepers {
    /// What an instance uses that sleeps undisturbed since `asleep`, by `look` where it may have changed.
    pub fn usage(&self, id: &InstanceId, asleep: Option<Time>, look: impl FnOnce() -> Usage) -> Usage {
        let Some(since) = asleep else {
            self.forget(id);
            return look();
        };
        let fresh = |seen: &&Seen| seen.since == since && seen.at.elapsed() < LOOKED_AT_EVERY;
        if let Some(usage) = self.known().get(id).filter(fresh).map(|seen| seen.usage) {
            return usage;
        }
        let usage = look();
        self.known().insert(id.clone(), Seen { since, at: Instant::now(), usage });
        usage
    }

    /// It is awake, or gone.
    pub fn forget(&self, id: &InstanceId) {
        self.known().remove(id);
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<InstanceId, Seen>> {
        self.0.lock().expect("nothing panics while it is held")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_sleeps_on_is_not_looked_at_again_and_who_fell_asleep_anew_is() {
        let (sleepers, id) = (Sleepers::default(), InstanceId::from("shop-1"));
        let seen = |asleep: Option<f64>, bytes: u64| {
            let asleep = asleep.map(Time::from_secs_f64);
            sleepers.usage(&id, asleep, || Usage { memory: Some(bytes), ..Usage::default() }).memory
        };
        assert_eq!([seen(None, 9), seen(None, 8)], [Some(9), Some(8)]);
        assert_eq!([seen(Some(1.0), 7), seen(Some(1.0), 6)], [Some(7), Some(7)]);
        assert_eq!([seen(Some(2.0), 5), seen(Some(2.0), 4)], [Some(5), Some(5)]);
        assert_eq!([seen(None, 3), seen(Some(2.0), 2)], [Some(3), Some(2)]);
    }
}
