//! What happens, and when: the world's agenda holds these.

/// A [`Task`](super::tasks::Task)'s number.
pub type TaskId = u64;

/// The name of the simulated gateway.
pub const GATEWAY: &str = "gw";

/// Something that happens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Event {
    /// An open load's next request.
    Arrival {
        load: usize,
    },
    /// A session has thought and asks.
    Ask {
        load: usize,
        session: u32,
    },
    /// The number of sessions of a load changes.
    Sessions {
        load: usize,
    },
    /// A step of a task that is not CPU is over.
    Waited {
        task: TaskId,
    },
    /// Something may be done on a node; only the latest of these per node counts.
    Node {
        node: usize,
        version: u64,
    },
    /// Slices may be in each other's way no more.
    Settled,
    /// Something may have gone through a link; only the latest of these per link counts.
    Link {
        link: usize,
        version: u64,
    },
    /// What an action does to an instance is done.
    Changed {
        instance: usize,
        version: u64,
    },
    Housekeeping {
        instance: usize,
        version: u64,
    },
    /// Some request of an application may have been there for too long.
    Deadline {
        app: usize,
    },
    /// The gateway looks at those who wait for an application, although none has come or ended.
    WakeCheck {
        app: usize,
    },
    /// A call of the gateway to the node agent has taken as long as it may.
    WakeLate {
        app: usize,
        call: u64,
    },
    /// A job comes in.
    Submission {
        job: usize,
    },
    /// What an action does to a job is done.
    JobChanged {
        job: usize,
        version: u64,
    },
    /// The pool is measured for the report, once a flow cycle.
    Measurement,
    /// The controller's loop is called; only the latest of these counts.
    Cycle {
        version: u64,
    },
    /// Somebody gives the controller an order.
    Order {
        index: usize,
    },
    Fault {
        index: usize,
        begins: bool,
    },
}
