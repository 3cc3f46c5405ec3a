//! Refusals as gRPC's clients understand them: its status, beside HTTP's 200 (gRPC over HTTP2, "Responses", Trailers-Only).

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};

use super::answer_body::AnswerBody;
use super::error_response::{ErrorResponse, WORD};
use crate::listen::client::Busy;

const GRPC: &[u8] = b"application/grpc";
const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// True for a call, whatever its messages are encoded in.
pub(crate) fn is_call(headers: &HeaderMap) -> bool {
    let content_type = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    content_type.and_then(|of| of.strip_prefix(GRPC)).is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

/// The answer to a call that no instance gets, or that none has answered.
pub(crate) fn refusal(refusal: &ErrorResponse, busy: Busy) -> Response<AnswerBody> {
    let mut response = Response::new(AnswerBody::empty(busy));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(STATUS, HeaderValue::from_static(status(refusal.status)));
    if let Ok(message) = HeaderValue::try_from(percent_encoded(&refusal.reason)) {
        headers.insert(MESSAGE, message);
    }
    headers.insert(WORD, HeaderValue::from_static(refusal.why.as_str()));
    response
}

/// gRPC's status for one of HTTP. Where HTTP has a status for what gRPC has one for, it is that; otherwise gRPC's own table for proxies
/// that do not know it ("HTTP to gRPC Status Code Mapping").
fn status(http: StatusCode) -> &'static str {
    match http {
        // DEADLINE_EXCEEDED
        StatusCode::GATEWAY_TIMEOUT | StatusCode::REQUEST_TIMEOUT => "4",
        // RESOURCE_EXHAUSTED
        StatusCode::PAYLOAD_TOO_LARGE | StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => "8",
        // UNIMPLEMENTED
        StatusCode::NOT_FOUND => "12",
        // INTERNAL
        StatusCode::BAD_REQUEST => "13",
        // UNAVAILABLE: the client may try again
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE => "14",
        // UNKNOWN
        _ => "2",
    }
}

/// Bytes other than visible ASCII, and `%` (gRPC over HTTP2, "Status-Message").
fn percent_encoded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b' '..=b'~' if byte != b'%' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_grpc_itself_is_a_call() {
        let is = |content_type: &str| {
            let value = HeaderValue::try_from(content_type).unwrap();
            is_call(&HeaderMap::from_iter([(header::CONTENT_TYPE, value)]))
        };
        assert!(is("application/grpc") && is("application/grpc+proto") && is("application/grpc;x=y"));
        assert!(!is("application/grpc-web") && !is("application/json") && !is_call(&HeaderMap::new()));
    }

    #[test]
    fn messages_are_encoded() {
        assert_eq!(percent_encoded("50% \u{e4}\n"), "50%25 %C3%A4%0A");
    }
}
