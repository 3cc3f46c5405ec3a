//! What sleepers use. A frozen process does nothing that could change it, and to look costs: of a hundred application servers a tenth of a
//! core, every second. So they are looked at when they have fallen asleep, and seldom after that, for what the kernel does to them.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use weal_model::{InstanceId, Time};

use crate::isolation::Usage;

/// A machine that is short of memory may page out more of a sleeper. So soon it is looked at again that was seen to change.
const SOON: Duration = Duration::from_secs(10);
/// And after twice as long each time that nothing has changed, up to this.
const SELDOM: Duration = Duration::from_secs(80);

/// What was seen of each sleeper when it was looked at last.
#[derive(Debug, Default)]
pub struct Sleepers(Mutex<BTreeMap<InstanceId, Seen>>);

#[derive(Debug, Clone, Copy)]
struct Seen {
    /// In the sleep that began then.
    since: Time,
    /// When to look again.
    until: Instant,
    pause: Duration,
    usage: Usage,
}

impl Sleepers {
    /// What an instance uses that sleeps undisturbed since `asleep`, by `look` where it may have changed.
    pub fn usage(&self, id: &InstanceId, asleep: Option<Time>, now: Instant, look: impl FnOnce() -> Usage) -> Usage {
        let Some(since) = asleep else {
            self.forget(id);
            return look();
        };
        let before = self.known().get(id).filter(|seen| seen.since == since).copied();
        if let Some(seen) = before.filter(|seen| now < seen.until) {
            return seen.usage;
        }
        let usage = look();
        let unchanged = before.filter(|seen| seen.usage == usage);
        let pause = unchanged.map_or(SOON, |seen| (seen.pause * 2).min(SELDOM));
        self.known().insert(id.clone(), Seen { since, until: now + pause, pause, usage });
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
            sleepers.usage(&id, asleep, Instant::now(), || Usage { memory: Some(bytes), ..Usage::default() }).memory
        };
        assert_eq!([seen(None, 9), seen(None, 8)], [Some(9), Some(8)]);
        assert_eq!([seen(Some(1.0), 7), seen(Some(1.0), 6)], [Some(7), Some(7)]);
        assert_eq!([seen(Some(2.0), 5), seen(Some(2.0), 4)], [Some(5), Some(5)]);
        assert_eq!([seen(None, 3), seen(Some(2.0), 2)], [Some(3), Some(2)]);
    }

    #[test]
    fn who_does_not_change_is_looked_at_less_and_less() {
        let (sleepers, id, began) = (Sleepers::default(), InstanceId::from("shop-1"), Instant::now());
        let looks = |seconds: std::ops::Range<u64>, bytes: u64| {
            let mut looks = Vec::new();
            for second in seconds {
                sleepers.usage(&id, Some(Time::from_secs_f64(1.0)), began + Duration::from_secs(second), || {
                    looks.push(second);
                    Usage { memory: Some(bytes), ..Usage::default() }
                });
            }
            looks
        };
        assert_eq!(looks(0..300, 9), [0, 10, 30, 70, 150, 230]);
        // What has changed may go on changing.
        assert_eq!(looks(300..350, 8), [310, 320, 340]);
    }
}
