//! Why lines are not taken.

use crate::supervisor::otlp::CollectorError;
use crate::supervisor::outlet::Untaken;

/// Why lines were not taken. No variant holds an address or a line.
#[derive(Debug, thiserror::Error)]
pub enum ShipError {
    /// The journal does not listen, or its queue is full.
    #[error("the journal does not take them: {0}")]
    Journal(std::io::Error),
    /// The collector does not take them.
    #[error(transparent)]
    Collector(#[from] CollectorError),
}

impl Untaken for ShipError {
    fn is_passing(&self) -> bool {
        match self {
            Self::Journal(_) => true,
            Self::Collector(error) => error.is_passing(),
        }
    }
}

/// What was not taken.
#[derive(Debug)]
pub struct Unsent {
    /// So many lines were, before it.
    pub sent: usize,
    pub why: ShipError,
}
