//! What one client address may take of this gateway, for all its workers: [`ClientUse`] behind locks.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weal_control::clients::ClientUse;
use weal_model::Time;

/// So many locks, so that workers seldom meet at one. Each has a memory of its own.
const SHARDS: usize = 16;

/// What clients take.
#[derive(Debug, Clone, Default)]
pub(crate) struct Guard(Arc<[Mutex<ClientUse>; SHARDS]>);

/// An address has as many connections as it may have.
#[derive(Debug)]
pub(crate) struct TooMany {
    pub most: u32,
}

/// A connection that counts, until this is dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    guard: Guard,
    address: IpAddr,
}

impl Guard {
    /// A connection comes in. `None` when there is no limit.
    pub fn hold(&self, now: Time, address: IpAddr, most: u32) -> Result<Option<Hold>, TooMany> {
        if most == 0 {
            return Ok(None);
        }
        if !self.shard(address).handle_connect(now, address, most) {
            return Err(TooMany { most });
        }
        Ok(Some(Hold { guard: self.clone(), address }))
    }

    /// A request comes in. An error says how much too early.
    pub fn handle_request(&self, now: Time, address: IpAddr, rate: u32) -> Result<(), Duration> {
        self.shard(address).handle_request(now, address, rate)
    }

    /// By the part of an address that its connections have in common.
    fn shard(&self, address: IpAddr) -> MutexGuard<'_, ClientUse> {
        let byte = match address.to_canonical() {
            IpAddr::V4(v4) => v4.octets()[3],
            IpAddr::V6(v6) => v6.octets()[7],
        };
        self.0[usize::from(byte) % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.guard.shard(self.address).handle_disconnect(self.address);
    }
}
