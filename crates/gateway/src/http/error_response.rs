//! Answers of the gateway's own: a status and one line of plain text that says why.

use std::time::Duration;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Response, StatusCode};
use weal_control::flow::pipeline::{DropReason, Rejection};
use weal_model::OwnAnswer;
use weal_protocol::gateway::Unavailable;

use crate::http::answer_body::AnswerBody;
use crate::http::check::Malformed;
use crate::listen::client::Busy;
use crate::routing::cluster::Expired;
use crate::routing::extras::Extras;

/// Seconds after which a rejected client may try again: about a flow cycle, in which seats may change.
const RETRY_AFTER_S: HeaderValue = HeaderValue::from_static("1");

/// The methods that may be passed on. Others may too; instances know.
const ALLOWED: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS, TRACE");

/// Bytes of a reason at most. It may quote what a client sent, and some thousand refusals are remembered.
const LONGEST_REASON: usize = 512;

/// Says in a word why the gateway answers itself, for programs.
pub(crate) const WORD: HeaderName = HeaderName::from_static("x-weal-reason");

/// An answer that is not an instance's.
#[derive(Debug)]
pub(crate) struct ErrorResponse {
    pub status: StatusCode,
    /// In a word, for programs: the header `x-weal-reason`.
    pub why: OwnAnswer,
    /// In words: the body.
    pub reason: String,
    /// True: what remains of the request cannot be told from the next one.
    close: bool,
    /// True: the methods that there are belong to the answer (RFC 9110 section 15.5.6).
    allow: bool,
    /// Where the client is sent.
    location: Option<Box<HeaderValue>>,
    /// Seconds after which it may try again, where that is not as always.
    retry_after_s: Option<u32>,
}

impl ErrorResponse {
    fn new(status: StatusCode, why: OwnAnswer, mut reason: String) -> Self {
        if reason.len() > LONGEST_REASON {
            reason.truncate(reason.floor_char_boundary(LONGEST_REASON));
            reason.push('…');
            reason.shrink_to_fit();
        }
        Self { status, why, reason, close: false, allow: false, location: None, retry_after_s: None }
    }

    pub fn malformed(malformed: &Malformed) -> Self {
        let allow = *malformed == Malformed::Connect;
        // An instance may have seen the start of a request whose body is malformed.
        let why = if *malformed == Malformed::Body { OwnAnswer::MalformedBody } else { OwnAnswer::Malformed };
        Self { close: true, allow, ..Self::new(malformed.status(), why, malformed.to_string()) }
    }

    pub fn unrouted(host: &str, path: &str) -> Self {
        let host = if host.is_empty() { "no host" } else { host };
        Self::new(StatusCode::NOT_FOUND, OwnAnswer::NoRoute, format!("no route for {host} and {path}"))
    }

    /// The client is sent elsewhere.
    pub fn redirect(status: StatusCode, location: HeaderValue) -> Self {
        let reason = format!("what was asked for is at {}", String::from_utf8_lossy(location.as_bytes()));
        Self { location: Some(Box::new(location)), ..Self::new(status, OwnAnswer::Redirect, reason) }
    }

    /// What proves to an authority that a host is ours.
    pub fn challenge(proof: &str) -> Self {
        Self::new(StatusCode::OK, OwnAnswer::AcmeChallenge, proof.to_owned())
    }

    /// The request goes no further because its client wants so (RFC 9110 section 7.6.2). What came is not sent back to who sent it: that may be
    /// more than the client itself has said (section 9.3.8).
    pub fn last_hop(method: &Method) -> Self {
        let status = if *method == Method::OPTIONS { StatusCode::OK } else { StatusCode::METHOD_NOT_ALLOWED };
        Self {
            allow: true,
            ..Self::new(status, OwnAnswer::MaxForwards, "the request goes no further than this gateway".to_owned())
        }
    }

    pub fn maintenance() -> Self {
        let reason = "closed for maintenance: try again later".to_owned();
        Self::new(StatusCode::SERVICE_UNAVAILABLE, OwnAnswer::Maintenance, reason)
    }

    /// The body is longer than the route takes; what of it is still to come is not read.
    pub fn too_large(limit: u64) -> Self {
        let reason = format!("the request's body is longer than {limit} bytes, the limit of this route");
        Self { close: true, ..Self::new(StatusCode::PAYLOAD_TOO_LARGE, OwnAnswer::BodyTooLarge, reason) }
    }

    /// The client sends more than it may; in `wait` it may again.
    pub fn too_many(wait: Duration) -> Self {
        let retry_after_s = u32::try_from(wait.as_secs()).unwrap_or(u32::MAX).saturating_add(1);
        let reason = format!("too many requests from this address: try again in {retry_after_s} s");
        Self { retry_after_s: Some(retry_after_s), ..Self::new(StatusCode::TOO_MANY_REQUESTS, OwnAnswer::ClientRate, reason) }
    }

    /// The client's address holds its part of the seats, and too much waits for that already or waited `for_long`.
    pub fn too_many_seats(for_long: Option<Duration>) -> Self {
        let waited =
            for_long.map_or(String::new(), |time| format!(", and the request waited {:.1} s for one", time.as_secs_f64()));
        let reason = format!("this address already holds its share of the application's seats{waited}: try again later");
        Self { retry_after_s: Some(1), ..Self::new(StatusCode::TOO_MANY_REQUESTS, OwnAnswer::ClientSeats, reason) }
    }

    /// False when all is as it should be: nothing was refused.
    pub fn is_refusal(&self) -> bool {
        self.location.is_none() && self.status != StatusCode::OK
    }

    /// For what is no HTTP, and is closed without an answer: only people see it.
    pub fn closed(why: OwnAnswer, reason: String) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, why, reason)
    }

    pub fn rejected(rejection: &Rejection) -> Self {
        match rejection {
            Rejection::QueueFull => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, OwnAnswer::QueueFull, format!("{rejection}: try again later"))
            }
            Rejection::Unavailable(reason) => Self::unavailable(*reason),
        }
    }

    fn unavailable(reason: Unavailable) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, OwnAnswer::Unavailable, format!("{reason}: try again later"))
    }

    pub fn expired(expired: &Expired, timeout: Duration) -> Self {
        if let Some(reason) = expired.unavailable {
            return Self::unavailable(reason);
        }
        if expired.is_abandoned {
            let reason = "the client closed its side of the connection while the request waited";
            return Self::new(StatusCode::SERVICE_UNAVAILABLE, OwnAnswer::ClientGone, reason.to_owned());
        }
        if let Some(dropped) = expired.dropped {
            let why = match dropped {
                DropReason::Late => OwnAnswer::Late,
                DropReason::Displaced => OwnAnswer::Displaced,
            };
            return Self::new(StatusCode::SERVICE_UNAVAILABLE, why, format!("{dropped}: try again later"));
        }
        let (why, what) = if expired.any_open {
            (OwnAnswer::NoSeat, "no seat became free")
        } else {
            (OwnAnswer::NoInstance, "no instance was ready")
        };
        let reason = format!("{what} within {:.1} s: try again later", timeout.as_secs_f64());
        Self::new(StatusCode::SERVICE_UNAVAILABLE, why, reason)
    }

    pub fn timed_out(timeout: Duration) -> Self {
        let reason = format!("the instance did not answer within {:.1} s", timeout.as_secs_f64());
        Self::new(StatusCode::GATEWAY_TIMEOUT, OwnAnswer::InstanceTimeout, reason)
    }

    /// The client has stopped sending within its request.
    pub fn stalled(timeout: Duration) -> Self {
        let reason = format!("nothing more of the request came within {:.1} s", timeout.as_secs_f64());
        Self { close: true, ..Self::new(StatusCode::REQUEST_TIMEOUT, OwnAnswer::ClientTimeout, reason) }
    }

    /// The client sends its body at less than `rate` bytes per second.
    pub fn too_slow(rate: u32) -> Self {
        let reason = format!("the request's body came at less than {rate} bytes per second");
        Self { close: true, ..Self::new(StatusCode::REQUEST_TIMEOUT, OwnAnswer::ClientTooSlow, reason) }
    }

    /// More bodies than the gateway keeps are still to come.
    pub fn too_many_bodies() -> Self {
        let reason = "too many requests wait for their bodies: try again later".to_owned();
        Self { close: true, ..Self::new(StatusCode::SERVICE_UNAVAILABLE, OwnAnswer::TooManyUploads, reason) }
    }

    /// No seat may wait for this request's body, and none did within `timeout`.
    pub fn no_seat_for_body(timeout: Duration) -> Self {
        Self { close: true, ..Self::expired(&Expired::TIME_UP, timeout) }
    }

    /// No instance has begun with the request: each of those that were tried refused the connection.
    pub fn no_connection(reason: &str) -> Self {
        Self::new(StatusCode::BAD_GATEWAY, OwnAnswer::InstanceRefused, format!("no connection to the instance: {reason}"))
    }

    /// The instance had the request, and its connection ended before the head of an answer.
    pub fn broken_off(reason: &str) -> Self {
        Self::new(StatusCode::BAD_GATEWAY, OwnAnswer::InstanceBrokeOff, format!("the instance broke off: {reason}"))
    }

    /// The instance answered with what cannot be passed on.
    pub fn bad_answer(reason: &str) -> Self {
        Self::new(
            StatusCode::BAD_GATEWAY,
            OwnAnswer::InstanceMalformed,
            format!("the instance's answer cannot be passed on: {reason}"),
        )
    }

    /// The answer; `extras` are those of the request's route.
    pub fn into_response(self, busy: Busy, extras: Option<&Extras>) -> Response<AnswerBody> {
        let page = extras.and_then(|extras| extras.page(self.status));
        let (content_type, text) = match page {
            Some(page) => (page.content_type.clone(), page.text.clone()),
            None => (HeaderValue::from_static("text/plain; charset=utf-8"), format!("{}\n", self.reason).into()),
        };
        let mut response = Response::new(AnswerBody::text(text, busy));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, content_type);
        headers.insert(WORD, HeaderValue::from_static(self.why.as_str()));
        let retry_after = (self.status == StatusCode::SERVICE_UNAVAILABLE).then_some(RETRY_AFTER_S);
        if let Some(seconds) = self.retry_after_s.map(HeaderValue::from).or(retry_after) {
            headers.insert(header::RETRY_AFTER, seconds);
        }
        if let Some(location) = self.location {
            headers.insert(header::LOCATION, *location);
        }
        if self.allow {
            headers.insert(header::ALLOW, ALLOWED);
        }
        if self.close {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// Tells the client the request's id, so that a report can be found in the logs.
pub(crate) fn note_id(headers: &mut HeaderMap, id: HeaderValue) {
    headers.insert(HeaderName::from_static("x-request-id"), id);
}
