//! The HTTP API: one table of routes makes both the router and the OpenAPI document, so they cannot differ.
//!
//! Who may call what is in `access`; docs/decisions says why.

mod access;
mod answer;
mod handlers;
mod logs;
mod openapi;
mod routes;
mod serve;
mod stream;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::mpsc;
use weal_protocol::node::{LogsChunk, LogsRequest};

use crate::board::Board;
use crate::driver::Order;

pub use openapi::openapi;

pub(crate) use access::{Door, Token};
pub(crate) use routes::router;
pub(crate) use serve::{serve_local, serve_tcp};

/// Reads a piece of an instance's log.
pub(crate) type ReadLogs =
    Arc<dyn Fn(LogsRequest) -> Pin<Box<dyn Future<Output = Result<LogsChunk, String>> + Send>> + Send + Sync>;

/// What the handlers work with.
#[derive(Clone)]
pub(crate) struct Api {
    pub board: Arc<Board>,
    pub orders: mpsc::Sender<Order>,
    pub read_logs: ReadLogs,
    pub gateway: weal_rpc::Client,
}
