//! The machine under a config.

use weal_model::Bytes;

/// The machine that a config is for, as far as its checks and defaults depend on it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MachineSize {
    /// Cores that weal may use.
    pub cpus: f64,
    /// Memory that it has.
    pub memory: Bytes,
}
