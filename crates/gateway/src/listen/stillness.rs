//! For how long nothing has moved on a connection that is passed on unread.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use weal_model::Time;

use crate::clock::Clock;

/// When bytes last moved, in either direction.
#[derive(Debug)]
pub(crate) struct Stillness {
    clock: Clock,
    moved: AtomicU64,
}

impl Stillness {
    pub fn new(clock: Clock) -> Self {
        Self { clock, moved: AtomicU64::new(clock.now().0) }
    }

    pub fn note_move(&self) {
        self.moved.store(self.clock.now().0, Ordering::Relaxed);
    }

    /// Completes when nothing has moved for `limit`.
    pub async fn lasts(&self, limit: Duration) {
        loop {
            let still = self.clock.now().since(Time(self.moved.load(Ordering::Relaxed)));
            if still >= limit {
                return;
            }
            tokio::time::sleep(limit - still).await;
        }
    }
}
