//! Connections to one instance: those that nothing uses now, and new ones.
//!
//! While nobody uses a connection, nobody notices that the instance closed it; that shows when it is taken out again.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use tokio::net::TcpStream;

use super::link::Link;
use crate::limits::Limits;

/// One instance's address with the connections to it that nothing uses now.
#[derive(Debug)]
pub(crate) struct Upstream {
    address: SocketAddr,
    /// By worker, so that a connection stays with the reactor that it is registered at, and a lock is never waited for.
    idle: Box<[Mutex<Vec<Idle>>]>,
    /// Sweeps so far: a clock that costs nothing to read.
    sweeps: AtomicU32,
    /// True: connections are not kept after their use.
    closed: AtomicBool,
}

#[derive(Debug)]
struct Idle {
    link: Link,
    /// The sweep that it was put back after.
    since: u32,
}

impl Upstream {
    pub fn new(address: SocketAddr, workers: usize) -> Self {
        let idle = (0..workers.max(1)).map(|_| Mutex::default()).collect();
        Self { address, idle, sweeps: AtomicU32::new(0), closed: AtomicBool::new(false) }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// An open connection that is idle; `None` when there is none.
    pub fn take_idle(&self, worker: usize) -> Option<Link> {
        loop {
            let mut link = self.list(worker).pop()?.link;
            if link.is_usable() {
                return Some(link);
            }
        }
    }

    /// A new connection.
    pub async fn connect(&self, limits: &Limits) -> io::Result<Link> {
        let stream = self.connect_stream(limits).await?;
        Link::open(stream).await
    }

    /// A new connection, still without protocol.
    pub async fn connect_stream(&self, limits: &Limits) -> io::Result<TcpStream> {
        let stream = tokio::time::timeout(limits.connect, TcpStream::connect(self.address))
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// Keeps a connection whose exchange has ended. Whether either side wants it closed shows when it is taken out again.
    pub fn put_back(&self, worker: usize, mut link: Link, limits: &Limits) {
        if !link.is_reusable() || self.is_closed() {
            return;
        }
        link.note_use();
        let mut list = self.list(worker);
        if list.len() < limits.idle_upstreams {
            list.push(Idle { link, since: self.sweeps.load(Ordering::Relaxed) });
        }
    }

    /// Closes what is idle, and from now on each connection after its use.
    pub fn close_idle(&self) {
        self.closed.store(true, Ordering::Relaxed);
        for worker in 0..self.idle.len() {
            let closed = std::mem::take(&mut *self.list(worker));
            drop(closed);
        }
    }

    /// True once [`Upstream::close_idle`] was called.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Closes what has been idle for `sweeps` calls of this.
    pub fn sweep(&self, sweeps: u32) {
        let now = self.sweeps.fetch_add(1, Ordering::Relaxed);
        for worker in 0..self.idle.len() {
            let mut list = self.list(worker);
            // The last to be put back is the first to be taken, so the old ones are in front.
            let old = list.iter().take_while(|entry| now.wrapping_sub(entry.since) >= sweeps).count();
            let closed: Vec<Idle> = list.drain(..old).collect();
            drop(list);
            drop(closed);
        }
    }

    fn list(&self, worker: usize) -> std::sync::MutexGuard<'_, Vec<Idle>> {
        self.idle[worker % self.idle.len()].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
