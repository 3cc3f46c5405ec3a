//! How weal's roles talk: HTTP/1.1 with JSON bodies over local sockets.
//!
//! A call is `POST /METHOD` with the request as JSON; the answer is `200` with the response as JSON, or another status with
//! a [`RpcRefusal`]. Any HTTP client can join in:
//! `curl --unix-socket .weal/run/node.sock -X POST http://weal/node.v2/observe -d null`.
//!
//! Each method names the users that may call it ([`Callers`]), and the kernel names the user of each connection. Anybody else is answered `403`
//! with a refusal that says which user called what. The modes of sockets and of their folder are a second wall.
//!
//! A caller that means harm takes little: each method says how long a request may be, a request that does not come in time is given up, and each
//! user has only so many connections and so many bytes under way.
//!
//! A role of another version is understood or refused, never misread. The method's name carries its version (`gateway.v1/configure`). Within a
//! version a message only gains fields that may be missing, and a field that is not known is ignored. A role that is called by a name of another
//! version answers `404`, and its sentence names both.

mod callers;
mod client;
mod error;
mod fault;
mod handover;
pub mod http;
mod room;
mod server;
mod socket;

pub use callers::Callers;
pub use client::Client;
pub use error::Error;
pub use fault::RpcRefusal;
pub use handover::{MOST_SOCKETS, bind_handover, discard_handed_over, hand_over, receive_handed_over};
pub use http::BODY_LIMIT;
pub use server::{Router, serve};
pub use socket::{bind, peer_uid};
pub use weal_protocol::Method;
