//! Connections to instances.

pub(crate) mod attempt;
pub(crate) mod claims;
pub(crate) mod lease;
mod link;
mod listener;
mod multiplexed;
pub(crate) mod pool;
pub(crate) mod speech;
mod wire;
