//! How weal's roles talk: HTTP/1.1 with JSON bodies over local sockets.
//!
//! A call is `POST /METHOD` with the request as JSON; the answer is `200` with the response as JSON, or another status with
//! an [`Error`]. The method's name carries its version (`gateway.v1/configure`), so a role that speaks a newer one says so
//! with `404` instead of misreading. Any HTTP client can join in:
//! `curl --unix-socket .weal/run/node.sock -X POST http://weal/node.v1/observe -d null`.

mod client;
mod server;
mod socket;

pub use client::Client;
pub use server::{Router, serve};
pub use socket::{bind, connect, peer_uid};
pub use weal_protocol::Method;

use serde::{Deserialize, Serialize};

/// The largest request or response that is read. A snapshot of 200 flows and 50 nodes is about 1 MiB; beyond 64 MiB
/// something is wrong and memory is at risk.
pub const BODY_LIMIT: usize = 64 << 20;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody listens there, or it broke off.
    #[error("{socket} does not answer: {source}")]
    Unreachable {
        /// The socket's path.
        socket: String,
        /// What the system said.
        source: std::io::Error,
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
        fault: Fault,
    },
    /// The answer cannot be read.
    #[error("{method}: unreadable answer: {reason}")]
    Unreadable {
        /// What was called.
        method: &'static str,
        /// Why.
        reason: String,
    },
}

/// A refusal, as sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// HTTP status.
    pub status: u16,
    /// A fragment that fits "failed to call: ...".
    pub message: String,
}

impl Fault {
    /// The caller's mistake.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self { status: 400, message: message.into() }
    }

    /// Our own.
    pub fn internal(message: impl Into<String>) -> Self {
        Self { status: 500, message: message.into() }
    }
}
