//! What a request and the connection that carries it say to each other, whichever version of HTTP that speaks.

use std::task::Context;

use http::Request;

use crate::http::incoming::IncomingError;
use crate::http::interim::Interim;
use crate::http::request_body::RequestBody;

/// A request until it is sent, and afterwards as long as all of it is still there: then it can be sent again. Everybody between its client and
/// an instance borrows it: it is large, and handing it on would copy it each time.
pub(crate) type Sendable = Option<Request<RequestBody>>;

/// What has to hold before a request is sent.
pub(crate) const SENDABLE: &str = "only a request that may be sent is sent";

/// Interim responses to one request: a word each second for half an hour.
pub(super) const MOST_INTERIM: usize = 2000;

/// A request that an instance has not answered.
#[derive(Debug)]
pub(crate) struct Failed {
    pub error: IncomingError,
    /// True when the instance has surely not begun with it.
    pub is_untouched: bool,
}

/// What happens between a request and its response.
pub(crate) trait Meanwhile {
    /// The head of an interim response has come.
    fn handle_interim(&mut self, interim: Interim);

    /// True when something has changed by which the connection may be able to go on.
    fn poll_change(&mut self, cx: &mut Context<'_>) -> bool;
}
