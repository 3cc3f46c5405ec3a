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
    /// Where nobody answered and why, as a fragment that goes on "X does not answer:"; `None` when the other side has answered.
    pub fn silence(&self) -> Option<String> {
        match self {
            Self::Unreachable { socket, source } => Some(format!("{socket}: {source}")),
            Self::TimedOut { socket, method, seconds } => Some(format!("{socket}: {method} took longer than {seconds} s")),
            Self::Refused { .. } | Self::Unwritable { .. } | Self::Unreadable { .. } => None,
        }
    }

    /// The same as a refusal of the role that sentences name `peer`.
    #[must_use]
    pub fn into_refusal(self, peer: &str) -> Refusal {
        match (self.silence(), self) {
            (Some(detail), _) => Refusal::Away { peer: peer.to_owned(), detail },
            (None, Self::Refused { fault, .. }) => fault.refusal.unwrap_or_else(|| Refusal::failed(fault.message)),
            (None, error) => Refusal::failed(error.to_string()),
        }
    }

    /// Why the other side refused, where it said so as a type.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused { fault, .. } => fault.refusal.as_ref(),
            _ => None,
        }
    }
}
