//! What a request and the connection that carries it say to each other, whichever version of HTTP that speaks.

use std::task::Context;

use http::Request;

use crate::http::incoming::IncomingError;
use crate::http::interim::Interim;
use crate::http::request_body::RequestBody;

/// Why an exchange brought no response.
#[derive(Debug)]
pub(crate) struct ExchangeError {
    /// The request, when the instance has surely not begun with it.
    pub unsent: Option<Request<RequestBody>>,
    pub source: IncomingError,
}

/// What happens between a request and its response.
pub(crate) trait Meanwhile {
    /// The head of an interim response has come.
    fn handle_interim(&mut self, interim: Interim);

    /// True when something has changed by which the connection may be able to go on.
    fn poll_change(&mut self, cx: &mut Context<'_>) -> bool;
}
