//! The clients of one worker that wait for their handshakes: [`Handshakes`] behind a lock, and around it their tasks.
//!
//! The worker says when it has nothing else to do ([`Line::handle_idle`], called before its thread waits for events). One handshake goes at a
//! time, so that between two of them the worker looks at everything else that has come.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::Notify;
use weal_control::admission::handshakes::{Effort, HandshakePlace, Handshakes, Overloaded};

use crate::clock::Clock;

/// Who waits at one worker.
#[derive(Debug)]
pub(crate) struct Line {
    clock: Clock,
    /// False lets everybody go at once.
    orders: bool,
    core: Mutex<Core>,
    /// Whether anybody waits, to be asked without the lock.
    any_waits: AtomicBool,
    /// Somebody waits who did not before.
    joined: Notify,
}

#[derive(Debug, Default)]
struct Core {
    handshakes: Handshakes,
    /// Of those that wait. One that may go is no longer among them.
    wakers: BTreeMap<HandshakePlace, Option<Waker>>,
}

/// How a wait ended that came to nothing.
#[derive(Debug)]
pub(crate) enum NoTurn {
    /// It would have been too long.
    Overloaded(Overloaded),
    /// The client has gone.
    Gone,
}

impl Line {
    /// Nobody waits. Without `orders`, nobody ever does.
    pub fn new(clock: Clock, orders: bool) -> Self {
        Self { clock, orders, core: Mutex::default(), any_waits: AtomicBool::new(false), joined: Notify::new() }
    }

    /// Waits until the client of `stream` may be shaken hands with.
    pub async fn turn(&self, effort: Effort, stream: &TcpStream) -> Result<(), NoTurn> {
        let Some(place) = self.join(effort).map_err(NoTurn::Overloaded)? else { return Ok(()) };
        let waiting = Waiting { line: self, place };
        tokio::select! {
            () = waiting.called() => Ok(()),
            () = left(stream) => Err(NoTurn::Gone),
        }
    }

    /// A handshake's costly part has taken so much CPU time.
    pub fn note(&self, effort: Effort, cost: Duration) {
        self.lock().handshakes.handle_done(self.clock.now(), effort, cost);
    }

    /// The worker has nothing else to do.
    pub fn handle_idle(&self) {
        if self.any_waits.load(Ordering::Relaxed) {
            let now = self.clock.now();
            self.call(|handshakes| handshakes.poll_idle(now));
        }
    }

    /// Calls those who are due although the worker is never idle, until this is dropped.
    pub async fn serve(&self) {
        loop {
            let now = self.clock.now();
            self.call(|handshakes| handshakes.poll_due(now));
            let due = self.lock().handshakes.poll_timeout();
            let pause = async {
                match due {
                    Some(due) => tokio::time::sleep(due.since(now)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = pause => {}
                () = self.joined.notified(), if due.is_none() => {}
            }
        }
    }

    fn join(&self, effort: Effort) -> Result<Option<HandshakePlace>, Overloaded> {
        if !self.orders {
            return Ok(None);
        }
        let mut core = self.lock();
        let place = core.handshakes.handle_hello(self.clock.now(), effort)?;
        if let Some(place) = place {
            core.wakers.insert(place, None);
            self.any_waits.store(true, Ordering::Relaxed);
            self.joined.notify_one();
        }
        Ok(place)
    }

    fn call(&self, next: impl FnOnce(&mut Handshakes) -> Option<HandshakePlace>) {
        let mut core = self.lock();
        let waker = next(&mut core.handshakes).and_then(|place| core.wakers.remove(&place)).flatten();
        self.any_waits.store(!core.wakers.is_empty(), Ordering::Relaxed);
        drop(core);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client that waits, until this is dropped.
struct Waiting<'a> {
    line: &'a Line,
    place: HandshakePlace,
}

impl Waiting<'_> {
    async fn called(&self) {
        poll_fn(|cx| match self.line.lock().wakers.get_mut(&self.place) {
            Some(waker) => {
                *waker = Some(cx.waker().clone());
                Poll::Pending
            }
            None => Poll::Ready(()),
        })
        .await;
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut core = self.line.lock();
        if core.wakers.remove(&self.place).is_some() {
            core.handshakes.handle_leave(self.place);
            self.line.any_waits.store(!core.wakers.is_empty(), Ordering::Relaxed);
        }
    }
}

/// Completes when the client closes its side. Of one that has sent more already, that cannot be seen.
async fn left(stream: &TcpStream) {
    match stream.peek(&mut [0]).await {
        Ok(0) | Err(_) => {}
        Ok(_) => std::future::pending().await,
    }
}
