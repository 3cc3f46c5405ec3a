//! What a receiver gets, and why it did not.

use std::time::Duration;

use serde::Serialize;
use weal_model::Occasion;

use crate::supervisor::outgoing::OutgoingError;

/// What a receiver gets, as JSON.
#[derive(Debug, Clone, Serialize)]
pub struct Message {
    pub event: Occasion,
    pub pool: String,
    pub subject: String,
    /// A sentence. Slack and Mattermost show what stands under this name.
    pub text: String,
    /// Local date and time since when.
    pub since: String,
    pub resolved: bool,
}

/// Why a receiver was not told. No variant holds an address, an argument or an answer.
#[derive(Debug, thiserror::Error)]
pub enum DeliveryError {
    /// It cannot be asked.
    #[error(transparent)]
    Unanswered(#[from] OutgoingError),
    /// It said no.
    #[error("it answered {0}")]
    Refused(hyper::StatusCode),
    /// It took too long.
    #[error("it took longer than {0:?}")]
    TooSlow(Duration),
    /// The command does not start.
    #[error("it does not start: {0}")]
    NotStarted(std::io::Error),
    /// The command failed.
    #[error("it ended with {0}")]
    Failed(std::process::ExitStatus),
}
