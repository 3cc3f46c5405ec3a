//! Connections to instances.

pub(crate) mod attempt;
pub(crate) mod claims;
pub(crate) mod error;
pub(crate) mod h1;
pub(crate) mod lease;
mod listener;
mod multiplexed;
pub(crate) mod pool;
pub(crate) mod speech;
