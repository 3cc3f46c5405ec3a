//! Deadlines that a worker uses for one request after the other.
//!
//! Most requests end long before their time is up. Moving a timer that is set to a later moment costs next to nothing, while
//! setting and removing one for each request costs as much as reading its head. Setting the only one of a worker costs a call of the kernel too: the
//! runtime then wakes itself.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// A deadline that is set.
#[derive(Debug)]
pub(crate) struct Deadline(Pin<Box<Sleep>>);

impl Deadline {
    /// Passes `timeout` from now. `used` is one that is set no longer.
    pub fn set(used: Option<Self>, timeout: Duration) -> Self {
        match used {
            Some(mut deadline) => {
                deadline.restart(timeout);
                deadline
            }
            None => Self(Box::pin(tokio::time::sleep(timeout.min(LONGEST)))),
        }
    }

    /// Passes `timeout` from now instead.
    pub fn restart(&mut self, timeout: Duration) {
        self.0.as_mut().reset(Instant::now() + timeout.min(LONGEST));
    }

    /// What `future` gives; `None` when the deadline passes first.
    pub async fn within<F: Future + Unpin>(&mut self, mut future: F) -> Option<F::Output> {
        std::future::poll_fn(|cx| {
            if let Poll::Ready(output) = Pin::new(&mut future).poll(cx) {
                return Poll::Ready(Some(output));
            }
            self.0.as_mut().poll(cx).map(|()| None)
        })
        .await
    }
}

/// Deadlines that are set no longer, by worker: each hangs on the clock of the runtime that it was made in.
#[derive(Debug)]
pub(crate) struct Deadlines(Box<[Mutex<Vec<Deadline>>]>);

/// So many of a worker are kept. Each takes about 200 bytes; requests beyond that are under way at once make theirs anew.
const KEPT: usize = 256;

impl Deadlines {
    /// None yet.
    pub fn new(workers: usize) -> Self {
        Self((0..workers.max(1)).map(|_| Mutex::default()).collect())
    }

    /// The one that was kept last: it is set to the latest moment, most likely.
    pub fn take(&self, worker: usize) -> Option<Deadline> {
        self.of(worker).pop()
    }

    pub fn keep(&self, worker: usize, deadline: Deadline) {
        let mut kept = self.of(worker);
        if kept.len() < KEPT {
            kept.push(deadline);
        }
    }

    fn of(&self, worker: usize) -> MutexGuard<'_, Vec<Deadline>> {
        self.0[worker % self.0.len()].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A month: beyond it a timer may not be representable, and no request lasts that long.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);
