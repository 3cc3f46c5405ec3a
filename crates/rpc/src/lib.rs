//! How weal's roles talk: HTTP/1.1 with JSON bodies over local sockets.
//!
//! A call is `POST /METHOD` with the request as JSON; the answer is `200` with the response as JSON, or another status with
//! an [`Error`]. The method's name carries its version (`gateway.v1/configure`), so a role that speaks a newer one says so
//! with `404` instead of misreading. Any HTTP client can join in:
//! `curl --unix-socket .weal/run/node.sock -X POST http://weal/node.v1/observe -d null`.

mod client;
mod error;
pub mod http;
mod server;
mod socket;

pub use client::Client;
pub use error::{Error, Fault};
pub use http::BODY_LIMIT;
pub use server::{Router, serve};
pub use socket::{bind, peer_uid};
pub use weal_protocol::Method;
