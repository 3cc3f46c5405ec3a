//! Idle connections that an instance may have no thread to spare for.
//!
//! A server with a thread for each connection, such as Tomcat with ten, gives its threads to connections and not to requests. When ten idle
//! ones are kept, the eleventh waits in the backlog until one of them is closed, whatever little there is to do. The gateway cannot see how
//! many threads there are. It sees a connection that is new and gets no answer, and then gives up one idle connection for it.
//!
//! An instance that is only slow loses a connection that would have saved some microseconds, once for each new connection that waits as long.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long a new connection waits for its first answer before an idle one is given up for it. Shorter, and each slow request costs a
/// connection; longer, and that is what the clients of a full server wait.
pub(crate) const WAIT: Duration = Duration::from_millis(50);

/// New connections that wait, and how many idle ones were given up for them. Invariant: not more than wait.
#[derive(Debug, Clone, Default)]
pub(super) struct Claims(Arc<AtomicU64>);

/// A new connection that waits, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Claim(Claims);

/// Both numbers in one, so that they change together.
#[derive(Debug, Clone, Copy)]
struct Counts {
    waiting: u32,
    met: u32,
}

impl Counts {
    fn read(packed: u64) -> Self {
        Self { waiting: (packed >> 32) as u32, met: packed as u32 }
    }

    fn pack(self) -> u64 {
        u64::from(self.waiting) << 32 | u64::from(self.met)
    }
}

impl Claims {
    /// A new connection waits; `met` says whether an idle one was given up for it.
    pub fn make(&self, met: bool) -> Claim {
        self.change(|Counts { waiting, met: before }| Some(Counts { waiting: waiting + 1, met: before + u32::from(met) }));
        Claim(self.clone())
    }

    /// A new connection was answered before it claimed anything. If connections were given up for others, it was most likely ahead of them in the
    /// backlog and has the thread that was meant for one of them, which needs another.
    pub fn note_unclaimed(&self) {
        if self.0.load(Ordering::Relaxed) != 0 {
            self.change(|counts| Some(Counts { met: counts.met.saturating_sub(1), ..counts }));
        }
    }

    /// A connection becomes idle: true when it is given up for one that waits.
    pub fn meet(&self) -> bool {
        // Mostly nobody waits.
        self.0.load(Ordering::Relaxed) != 0
            && self.change(|counts| (counts.met < counts.waiting).then_some(Counts { met: counts.met + 1, ..counts }))
    }

    fn change(&self, next: impl Fn(Counts) -> Option<Counts>) -> bool {
        let next = |packed| next(Counts::read(packed)).map(Counts::pack);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // It was answered, most likely by the thread of one that was given up.
        self.0.change(|Counts { waiting, met }| Some(Counts { waiting: waiting.saturating_sub(1), met: met.saturating_sub(1) }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn for_one_whose_thread_another_has_got_one_more_is_given_up() {
        let claims = Claims::default();
        let claim = claims.make(true);
        assert!(!claims.meet());
        claims.note_unclaimed();
        assert!(claims.meet(), "it still waits");
        drop(claim);
        claims.note_unclaimed();
        assert!(!claims.meet(), "nobody waits");
    }

    #[test]
    fn for_each_that_waits_one_is_given_up() {
        let claims = Claims::default();
        assert!(!claims.meet(), "nobody waits");
        let (first, second) = (claims.make(false), claims.make(false));
        assert!(claims.meet());
        drop(first);
        assert!(claims.meet(), "the other still waits");
        assert!(!claims.meet());
        let third = claims.make(true);
        assert!(!claims.meet(), "one was idle already");
        drop((second, third));
        assert!(!claims.meet());
    }
}
