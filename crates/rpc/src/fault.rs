//! A refusal, as it is sent.

use serde::{Deserialize, Serialize};
use weal_protocol::Refusal;

/// A refusal, as sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RpcRefusal {
    /// HTTP status.
    pub status: u16,
    /// A fragment that fits "failed to call: ...".
    pub message: String,
    /// The same for a caller that decides by it; `None` where nobody does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<Refusal>,
}

impl RpcRefusal {
    /// A refusal that the caller may decide by.
    pub fn refused(status: u16, refusal: Refusal) -> Self {
        Self { status, message: refusal.to_string(), refusal: Some(refusal) }
    }

    /// The caller's mistake.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self { status: 400, message: message.into(), refusal: None }
    }

    /// The request did not come in time.
    pub(crate) fn too_slow(message: impl Into<String>) -> Self {
        Self { status: 408, message: message.into(), refusal: None }
    }

    /// No such request is as long.
    pub(crate) fn too_large(message: impl Into<String>) -> Self {
        Self { status: 413, message: message.into(), refusal: None }
    }

    /// There is no room for more of this caller's.
    pub(crate) fn no_room(message: impl Into<String>) -> Self {
        Self { status: 429, message: message.into(), refusal: None }
    }

    /// Our own.
    pub fn internal(message: impl Into<String>) -> Self {
        Self { status: 500, message: message.into(), refusal: None }
    }
}
