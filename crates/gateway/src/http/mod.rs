//! What passes over a connection: requests, checked and written anew, their bodies and answers, and tunnels.

pub(crate) mod answer_body;
mod deadline;
pub(crate) mod error_response;
pub(crate) mod forward;
pub(crate) mod request_body;
pub(crate) mod session;
mod tunnel;
