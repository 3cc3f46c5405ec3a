//! The HTTP API: one table of routes makes both the router and the OpenAPI document, so they cannot differ.
//!
//! Who may call what is in `access`; docs/decisions says why.

mod access;
mod answer;
mod handlers;
mod jobs;
mod logs;
mod openapi;
mod routes;
mod serve;
mod state;
mod stream;

pub use openapi::openapi;

pub(crate) use access::{Door, Token};
pub(crate) use routes::router;
pub(crate) use serve::{serve_local, serve_tcp};
pub(crate) use state::{Api, ReadLogs, ReadOutput};
