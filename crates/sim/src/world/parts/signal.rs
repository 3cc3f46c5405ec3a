//! What a change in one part means for another. The part that makes the change emits it, and does not know which part takes it.

use weal_model::{Action, InstanceState};
use weal_protocol::Refusal;

use super::event::TaskId;

/// Something that another part has to take up.
#[derive(Debug, Clone, PartialEq)]
pub enum Signal {
    /// A step of a task is over.
    Stepped(TaskId),
    /// A task is at the end of its steps.
    Ended(TaskId),
    /// What a task needs is gone.
    Broken(TaskId),
    /// An instance of an application has changed, which a wake call may wait for.
    Changed { app: usize },
    /// The node agent names an instance that is awake to the gateway.
    Woken { app: usize, instance: usize },
    /// The node agent can wake nothing for the gateway.
    WakeRefused { app: usize },
    /// An instance has entered a state.
    State { instance: usize, state: InstanceState },
    /// What became of an action that the controller had ordered.
    Acted { action: Action, took_s: f64, refusal: Option<Refusal> },
    /// The run of a job has changed.
    Job { job: usize },
}
