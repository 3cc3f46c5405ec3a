//! Fluid mode: load as rates instead of requests, for questions about minutes to weeks.
//!
//! | module | what flows |
//! | --- | --- |
//! | [`crowd`] | requests of one application into a queue, while an instance is being brought up |
//! | [`autoscaled`] | instances of a web load, started and stopped by an autoscaler, beside a job queue |
//! | [`beside_web`] | a job log beside a recorded web load, under each policy |
//! | [`log`] | jobs of a recorded log, beside web load that follows the hours, into [`batch`](crate::batch) |
//!
//! Jobs are fluid in [`batch`](crate::batch) already: each runs at a speed, and only arrivals, completions and the edges of
//! cycles are events. So hundreds of nodes and weeks take seconds.

pub mod autoscaled;
pub mod beside_web;
pub mod crowd;
pub mod log;
