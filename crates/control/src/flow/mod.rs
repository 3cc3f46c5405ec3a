//! Flows: seats and weights under the current placement.

pub mod pipeline;
pub mod seats;
