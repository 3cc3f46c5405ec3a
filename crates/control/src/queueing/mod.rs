//! Queueing models: what a share of CPU means for response time and throughput.

mod flow_model;
mod formulas;

pub use flow_model::FlowModel;
pub use formulas::{closed_throughput, mg1_response, ps_response};
