//! What a gateway remembers of requests, for people who ask.

pub(crate) mod access_log;
mod date;
pub(crate) mod ended;
pub(crate) mod record;
pub(crate) mod refused;
pub(crate) mod spans;
