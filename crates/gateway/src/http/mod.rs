//! What passes over a connection: requests, checked and written anew, their bodies and answers, and tunnels.

pub(crate) mod answer_body;
mod between;
mod check;
pub(crate) mod choice;
mod compression;
pub(crate) mod deadline;
pub(crate) mod error_response;
pub(crate) mod exchange;
pub(crate) mod forged;
pub(crate) mod forward;
pub(crate) mod framing;
mod gather;
mod grpc;
pub(crate) mod h2;
pub(crate) mod incoming;
pub(crate) mod interim;
pub(crate) mod origin;
mod place;
pub(crate) mod present;
mod relay;
pub(crate) mod remarks;
pub(crate) mod request_body;
mod resume;
pub(crate) mod session;
pub(crate) mod trace;
mod tunnel;
