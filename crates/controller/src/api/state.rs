//! What the handlers work with.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use axum::extract::State;
use tokio::sync::mpsc;
use weal_model::Time;
use weal_protocol::engine::{OutputPiece, OutputRequest};
use weal_protocol::node::LogSource;

use super::audit::Audit;
use super::tokens::Tokens;
use crate::board::Board;
use crate::driver::Order;
use crate::logs::ReadPiece;

/// Reads a piece of an instance's log.
pub(crate) type ReadLogs = Arc<ReadPiece<weal_engine::Error>>;

/// Whose logs are kept, of an application or else of a job.
pub(crate) type ListLogs =
    Arc<dyn Fn(String) -> Pin<Box<dyn Future<Output = Result<Vec<LogSource>, weal_engine::Error>> + Send>> + Send + Sync>;

/// Reads a piece of what a run of a job has written.
pub(crate) type ReadOutput =
    Arc<dyn Fn(OutputRequest) -> Pin<Box<dyn Future<Output = Result<OutputPiece, weal_engine::Error>> + Send>> + Send + Sync>;

/// What the handlers work with.
#[derive(Clone)]
pub(crate) struct Api {
    pub board: Arc<Board>,
    pub orders: mpsc::Sender<Order>,
    pub list_logs: ListLogs,
    pub read_logs: ReadLogs,
    pub read_output: ReadOutput,
    pub gateway: weal_rpc::Client,
    /// When this controller began to count.
    pub started: Time,
    pub tokens: Arc<Tokens>,
    pub audit: Arc<Audit>,
    /// The OpenAPI document.
    pub document: Arc<serde_json::Value>,
}

/// The same, as a handler takes it.
pub(super) type ApiState = State<Api>;
