//! What all works have in common.

/// Client connections: enough to keep every proxy busy, few enough to fit the scheduler's noise.
pub const CONNECTIONS: usize = 64;

/// Bytes of a small answer.
pub const SMALL: usize = 64;

/// How long a work is done.
#[derive(Clone, Copy)]
pub struct Course {
    pub rounds: usize,
    pub seconds: u32,
}

/// What a load has done.
pub struct Done {
    /// Requests, handshakes or messages.
    pub count: u64,
    pub seconds: f64,
    pub p99_ms: Option<f64>,
}
