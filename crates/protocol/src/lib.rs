//! What the roles of weal say to each other. Types and names only: no socket, no clock, no decision.
//!
//! | module | between |
//! | --- | --- |
//! | [`node`] | the engine of one machine and its node agent |
//! | [`gateway`] | the controller and a gateway |
//! | [`spans`] | the supervisor and a gateway: what is traced |
//! | [`controller`] | the controller's API and its callers |
//! | [`metrics`] | the same: all metrics, as data |
//! | [`engine`] | the controller's control loop and an engine, whichever it is |
//! | [`capabilities`] | what a machine or a cluster can do |
//! | [`refusal`] | why something that was asked for is not done |
//!
//! **Versions.** A method's name carries its version (`node.v1/observe`). Within a version fields are only added, each with a default, so
//! that a role of the version before is understood. A change that a former role would misread makes a new method name; a role that does
//! not know it answers so in a clear sentence.

pub mod capabilities;
pub mod controller;
pub mod engine;
pub mod gateway;
mod method;
pub mod metrics;
pub mod node;
pub mod refusal;
pub mod spans;
pub mod tls;

pub use capabilities::{Capabilities, NodeOrigin};
pub use method::Method;
pub use refusal::{InstanceCommand, Refusal};
