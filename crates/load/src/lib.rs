//! Makes load, and measures what comes back.
//!
//! The load is open-loop: a request is due when the workload says so, whatever became of those before, and its response time
//! counts from that moment. A slow server therefore cannot slow the questions down and look better for it (coordinated
//! omission). Closed sessions ask again a think time after the answer, as people do; theirs counts from that moment too.
//!
//! What drives a flow is `weal_scenario`'s own [`Workload`](weal_scenario::workload::Workload), so that a scenario runs in simulation and here unchanged.

mod connections;
mod driver;
mod jobs;
mod recording;
mod rehearsal;
mod tally;
#[cfg(test)]
mod test_status;

pub use driver::{Error, LoadFlow, Options, Request, Source, drive};
pub use recording::{Recorder, Recording, RecordingError};
pub use rehearsal::{Rehearsal, flows_of};
pub use tally::{FlowResult, LoadResult, Progress, Second};
pub use weal_scenario::workload::access_log;
