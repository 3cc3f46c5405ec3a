//! What a request and the connection that carries it say to each other, whichever version of HTTP that speaks.

use std::task::Context;

use http::{Method, Request};

use crate::http::interim::Interim;
use crate::http::remarks::Remarks;
use crate::http::request_body::RequestBody;
use crate::upstream::error::InstanceError;

/// A request with what is said of it.
#[derive(Debug)]
pub(crate) struct Outbound {
    pub request: Request<RequestBody>,
    pub remarks: Remarks,
}

impl Outbound {
    /// The request with all that is said of it among its fields.
    pub fn into_request(mut self) -> Request<RequestBody> {
        self.remarks.move_into(self.request.headers_mut());
        self.request
    }

    /// True when it may be sent twice: idempotent and without a body.
    pub fn may_be_repeated(&self) -> bool {
        matches!(self.request.body(), RequestBody::Empty) && is_idempotent(self.request.method())
    }

    /// The same once more, if it may be sent twice.
    pub fn replay(&self) -> Option<Self> {
        if !self.may_be_repeated() {
            return None;
        }
        let Self { request, remarks } = self;
        let mut copy = Request::new(RequestBody::Empty);
        *copy.method_mut() = request.method().clone();
        *copy.uri_mut() = request.uri().clone();
        *copy.headers_mut() = request.headers().clone();
        Some(Self { request: copy, remarks: remarks.clone() })
    }
}

impl From<Request<RequestBody>> for Outbound {
    fn from(request: Request<RequestBody>) -> Self {
        Self { request, remarks: Remarks::default() }
    }
}

/// RFC 9110 section 9.2.2.
pub(crate) fn is_idempotent(method: &Method) -> bool {
    [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE, Method::PUT, Method::DELETE].contains(method)
}

/// A request until it is sent, and afterwards as long as all of it is still there: then it can be sent again. Everybody between its client and
/// an instance borrows it: it is large, and handing it on would copy it each time.
pub(crate) type Sendable = Option<Outbound>;

/// What has to hold before a request is sent.
pub(crate) const SENDABLE: &str = "only a request that may be sent is sent";

/// Interim responses to one request: a word each second for half an hour.
pub(super) const MOST_INTERIM: usize = 2000;

/// A request that an instance has not answered.
#[derive(Debug)]
pub(crate) struct Failed {
    pub error: InstanceError,
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
