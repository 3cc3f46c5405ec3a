//! Why calls fail.

use weal_protocol::Refusal;

use crate::fault::RpcRefusal;
use crate::http::HttpError;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody listens there, or it broke off.
    #[error("{socket} does not answer: {source}")]
    Unreachable {
        /// The socket's path.
        socket: String,
        /// What went wrong.
        source: HttpError,
    },
    /// No answer in time.
    #[error("{socket} gave no answer to {method} within {seconds} s")]
    TimedOut {
        /// The socket's path.
        socket: String,
        /// What was called.
        method: &'static str,
        /// How long was waited.
        seconds: f64,
    },
    /// The other side could not do it.
    #[error("{method}: {0}", .fault.message)]
    Refused {
        /// What was called.
        method: &'static str,
        /// What the other side said.
        fault: RpcRefusal,
    },
    /// The request cannot be written as JSON.
    #[error("{method}: the request is not JSON: {source}")]
    Unwritable {
        /// What was called.
        method: &'static str,
        /// Why.
        source: serde_json::Error,
    },
    /// The answer cannot be read.
    #[error("{method}: unreadable answer: {source}")]
    Unreadable {
        /// What was called.
        method: &'static str,
        /// Why.
        source: serde_json::Error,
    },
}

impl Error {
    /// Why the other side refused, where it said so as a type.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused { fault, .. } => fault.refusal.as_ref(),
            _ => None,
        }
    }
}
