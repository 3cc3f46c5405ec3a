//! What a request and the connection that carries it say to each other, whichever version of HTTP that speaks.

use std::task::Context;

use http::Request;

use crate::http::interim::Interim;
use crate::http::request_body::RequestBody;

/// A request until it is sent, and again when it turns out that the instance has surely not begun with it. Everybody between its client and
/// an instance borrows it: it is large, and handing it on would copy it each time.
pub(crate) type Sendable = Option<Request<RequestBody>>;

/// What has to hold before a request is sent.
pub(crate) const SENDABLE: &str = "only a request that may be sent is sent";

/// What happens between a request and its response.
pub(crate) trait Meanwhile {
    /// The head of an interim response has come.
    fn handle_interim(&mut self, interim: Interim);

    /// True when something has changed by which the connection may be able to go on.
    fn poll_change(&mut self, cx: &mut Context<'_>) -> bool;
}
