//! An instance: its state, and what is being done to it.

use weal_model::{Action, InstanceId, InstanceState, Rung};
use weal_protocol::engine::Revision;

use super::controller::BAD;

/// An instance, as long as anything of it is there.
#[derive(Debug, Clone)]
pub struct Instance {
    pub id: InstanceId,
    pub app: usize,
    pub node: usize,
    /// The version that it was started from.
    pub revision: Revision,
    pub state: InstanceState,
    pub since_s: f64,
    /// When it was last started.
    pub started_s: f64,
    /// Requests that the gateway has outstanding at it.
    pub in_flight: u32,
    /// Counts what happens to it, so that a stop overtakes a start.
    pub version: u64,
    /// What is being done to it.
    pub operation: Option<InstanceOperation>,
    /// What its last wake took; infinite when it was never woken.
    pub last_wake_s: f64,
    /// When the node agent last named it to the gateway.
    pub named_s: f64,
    /// From its start to ready.
    pub start_took_s: Option<f64>,
    /// How often it was started again.
    pub restarts: u32,
    /// Runs of it that failed one after the other.
    pub failed_in_a_row: u32,
}

/// What the engine is doing to an instance.
#[derive(Debug, Clone, PartialEq)]
pub struct InstanceOperation {
    pub change: OperationKind,
    /// It will fail.
    pub fails: bool,
    /// When it began.
    pub began_s: f64,
    /// The controller's order, which hears what becomes of it; `None` when the gateway has asked for it.
    pub ordered: Option<Action>,
}

/// An action on an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperationKind {
    Start,
    Stop,
    Sleep(Rung),
    Resume,
}

impl Instance {
    /// What is being done to it.
    pub fn change(&self) -> Option<OperationKind> {
        self.operation.as_ref().map(|operation| operation.change)
    }

    /// Its program ends before it is ready.
    pub fn is_broken(&self) -> bool {
        self.revision.start.starts_with(BAD)
    }

    /// Its process takes connections. One that is being resumed does, too: the kernel takes them for it, and it finds them when it runs.
    pub fn answers(&self) -> bool {
        matches!(self.state, InstanceState::Ready | InstanceState::Stopping) || self.change() == Some(OperationKind::Resume)
    }
}
