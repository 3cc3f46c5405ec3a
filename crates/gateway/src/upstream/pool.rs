//! Connections to one instance: those that nothing uses now, and new ones.
//!
//! While nobody uses a connection, nobody notices that the instance closed it; that shows when it is taken out again.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use tokio::net::TcpStream;
use weal_model::InstanceProtocol;

use super::lease::Lease;
use super::link::Link;
use super::multiplexed::Multiplexed;
use crate::limits::Limits;

/// One instance's address with the connections to it that nothing uses now.
#[derive(Debug)]
pub(crate) struct Upstream {
    address: SocketAddr,
    /// By worker, so that a connection stays with the reactor that it is registered at, and a lock is never waited for.
    idle: Box<[Mutex<Vec<Idle>>]>,
    /// By worker too: connections over HTTP/2.
    multiplexed: Box<[Multiplexed]>,
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
        let multiplexed = (0..workers.max(1)).map(|_| Multiplexed::default()).collect();
        Self { address, idle, multiplexed, sweeps: AtomicU32::new(0), closed: AtomicBool::new(false) }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// An open connection that has room for a request; `None` when there is none.
    pub fn take(&self, worker: usize, protocol: InstanceProtocol) -> Option<Lease> {
        if protocol == InstanceProtocol::H2c {
            return self.multiplexed(worker).take().map(Lease::H2);
        }
        loop {
            let mut link = self.list(worker).pop()?.link;
            if link.is_usable() {
                return Some(Lease::H1(link));
            }
        }
    }

    /// A new connection.
    pub async fn connect(&self, worker: usize, protocol: InstanceProtocol, limits: &Limits) -> io::Result<Lease> {
        if protocol == InstanceProtocol::H2c {
            let keep = !self.is_closed();
            return self.multiplexed(worker).open(limits, keep, self.connect_stream(limits)).await.map(Lease::H2);
        }
        let stream = self.connect_stream(limits).await?;
        Link::open(stream).await.map(Lease::H1)
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
    pub fn put_back(&self, worker: usize, lease: Lease, limits: &Limits) {
        let Lease::H1(mut link) = lease else { return };
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
            self.multiplexed(worker).close();
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
            self.multiplexed(worker).sweep(now, sweeps);
        }
    }

    fn multiplexed(&self, worker: usize) -> &Multiplexed {
        &self.multiplexed[worker % self.multiplexed.len()]
    }

    fn list(&self, worker: usize) -> std::sync::MutexGuard<'_, Vec<Idle>> {
        self.idle[worker % self.idle.len()].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
