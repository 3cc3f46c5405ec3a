//! Orders about jobs, which are answered when what they change is on disk.

use tokio::sync::oneshot;
use weal_control::cycle::{JobOrdered, StoreProblem};
use weal_protocol::Refusal;
use weal_protocol::controller::JobTaken;

/// Where the answer to an order about a job goes.
pub(crate) type Answer<T> = oneshot::Sender<Result<T, NotTaken>>;

/// Why an order about a job was not taken.
#[derive(Debug)]
pub(crate) enum NotTaken {
    /// The loop says no.
    Refused(Refusal),
    /// It could not be written down.
    NotKept(StoreProblem),
}

/// An order that waits for its record to be on disk.
#[derive(Debug)]
pub(super) struct WaitingOrder {
    pub ordered: JobOrdered,
    pub reply: Answer<JobTaken>,
}
