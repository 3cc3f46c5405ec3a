//! What is computed beside the loop for callers: a few at a time. A caller that asks again and again, which takes no right to order, would take the
//! CPU from the plans otherwise.

use std::sync::Arc;

use tokio::sync::{Semaphore, oneshot};

/// So many are computed at once. The others wait, each with the connection on which it was asked for.
const AT_ONCE: usize = 2;

/// Turns to compute.
pub(super) struct Beside(Arc<Semaphore>);

impl Beside {
    pub fn new() -> Self {
        Self(Arc::new(Semaphore::new(AT_ONCE)))
    }

    /// Computes the answer for `reply` when its turn has come, unless whoever asked has gone by then.
    pub fn compute<T: Send + 'static>(&self, reply: oneshot::Sender<T>, work: impl FnOnce() -> T + Send + 'static) {
        let turns = Arc::clone(&self.0);
        tokio::spawn(async move {
            let Ok(turn) = turns.acquire_owned().await else { return };
            if reply.is_closed() {
                return;
            }
            tokio::task::spawn_blocking(move || {
                let _ = reply.send(work());
                drop(turn);
            });
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn few_answers_are_computed_at_once_and_none_for_who_has_gone() {
        let beside = Beside::new();
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let ask = || {
            let (reply, answer) = oneshot::channel();
            let (running, most) = (Arc::clone(&running), Arc::clone(&most));
            beside.compute(reply, move || {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(5));
                running.fetch_sub(1, Ordering::SeqCst);
            });
            answer
        };
        let answers: Vec<_> = (0..20).map(|_| ask()).collect();
        for answer in answers {
            answer.await.unwrap();
        }
        assert!(most.load(Ordering::SeqCst) <= AT_ONCE);
        let (reply, gone) = oneshot::channel();
        drop(gone);
        beside.compute(reply, || panic!("nobody waits for it"));
        ask().await.unwrap();
    }
}
