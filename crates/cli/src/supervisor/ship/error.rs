//! Why lines are not taken.

use std::time::Duration;

use crate::supervisor::outgoing::OutgoingError;

/// Why lines were not taken. No variant holds an address or a line.
#[derive(Debug, thiserror::Error)]
pub enum ShipError {
    /// The journal does not listen, or its queue is full.
    #[error("the journal does not take them: {0}")]
    Journal(std::io::Error),
    /// The collector does not answer.
    #[error(transparent)]
    Unanswered(#[from] OutgoingError),
    /// It wants to be asked again.
    #[error("the collector answered {0}")]
    Busy(hyper::StatusCode),
    /// It does not take these lines, now or later.
    #[error("the collector refused them: {0}")]
    Refused(hyper::StatusCode),
    /// It took too long.
    #[error("the collector took longer than {0:?}")]
    TooSlow(Duration),
}

impl ShipError {
    /// Whether the same lines may be taken later.
    pub fn is_passing(&self) -> bool {
        !matches!(self, Self::Refused(_))
    }
}

/// What was not taken.
#[derive(Debug)]
pub struct Unsent {
    /// So many lines were, before it.
    pub sent: usize,
    pub why: ShipError,
}
