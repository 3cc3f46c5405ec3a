//! Connections to instances.

pub(crate) mod attempt;
pub(crate) mod lease;
mod link;
mod multiplexed;
pub(crate) mod pool;
mod wire;
