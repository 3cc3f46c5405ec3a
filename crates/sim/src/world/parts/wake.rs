//! A gateway's call for an instance at the node agent, and what the agent can do with each instance.

use weal_model::{InstanceId, InstanceState, wake_rank};

use super::instance::{Instance, OperationKind};

/// A call that is under way.
#[derive(Debug, Clone)]
pub struct WakeCall {
    pub number: u64,
    /// One of these, and no other; any when empty.
    pub instances: Vec<InstanceId>,
    /// The instance that it has begun to wake.
    pub ordered: Option<usize>,
    /// Those that could not be woken.
    pub failed: Vec<usize>,
}

/// What the agent can do with an instance.
pub enum Condition {
    Awake,
    Asleep,
    /// It starts, wakes or falls asleep: to be seen again when that is over.
    Changes,
    Leaves,
}

impl Condition {
    pub fn of(instance: &Instance) -> Self {
        match (instance.state, instance.change()) {
            (InstanceState::Ready, None) => Self::Awake,
            (state, None) if state.is_asleep() => Self::Asleep,
            (_, Some(OperationKind::Stop)) => Self::Leaves,
            (InstanceState::Starting | InstanceState::Backoff, _) | (_, Some(_)) => Self::Changes,
            _ => Self::Leaves,
        }
    }
}

/// How soon it is named to the gateway: the lowest first.
pub fn rank(instance: &Instance) -> u8 {
    wake_rank(instance.state, matches!(Condition::of(instance), Condition::Awake))
}
