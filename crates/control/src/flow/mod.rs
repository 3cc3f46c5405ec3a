//! Flows: seats and weights under the current placement.

pub mod controller;
pub mod crowd;
pub mod pipeline;
pub mod seats;
pub mod shares;
pub mod sharing;
