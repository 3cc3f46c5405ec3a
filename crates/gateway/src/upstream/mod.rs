//! Connections to instances.

pub(crate) mod pool;
