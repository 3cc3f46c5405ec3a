//! The HTTP API: one table of routes makes both the router and the OpenAPI document, so they cannot differ.
//!
//! Who may call what is in `access`; docs/decisions says why.

mod access;
mod answer;
mod audit;
mod dashboard;
mod handlers;
mod jobs;
mod keys;
mod logs;
mod openapi;
mod places;
mod rates;
mod room;
mod routes;
mod secure;
mod serve;
mod state;
mod stream;
mod tokens;

pub use openapi::openapi;

pub(crate) use access::Door;
pub(crate) use audit::Audit;
pub(crate) use routes::router;
pub use secure::{ApiTlsError, acceptor};
pub(crate) use serve::{serve_local, serve_tcp};
pub(crate) use state::{Api, ListLogs, ReadLogs, ReadOutput};
pub(crate) use tokens::{FileError, Tokens};
