//! Connections to instances.

pub(crate) mod link;
pub(crate) mod pool;
mod wire;
