//! The random numbers of faults.

use weal_rng::{self as random, Rng};

/// An action that hangs is given up after this.
pub const HANGS_S: f64 = 60.0;

/// The random numbers of faults.
pub struct Faults {
    pub actions: Rng,
    pub victims: Rng,
    pub measurements: Rng,
}

impl Faults {
    pub fn new(seed: u64) -> Self {
        let stream = |name| random::stream(seed, name);
        Self { actions: stream("faults/actions"), victims: stream("faults/victims"), measurements: stream("measurements") }
    }
}
