//! The controller against a fake engine and a fake gateway: everything but processes and clients is real.

mod api;
mod beside_simulator;
mod fake;
mod faults;
mod fuzz;
mod jobs;
mod looping;
mod metrics;
mod store;
mod tokens;
