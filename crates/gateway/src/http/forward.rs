//! What is changed in a request and a response on their way through.
//!
//! Heads are always written anew from what was understood, never copied, so that an instance cannot read them otherwise.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::{PathAndQuery, Uri};
use http::{Method, Request, StatusCode, Version};

use super::check::Malformed;
use super::present::Present;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");

/// Makes the target path and query only, as an instance gets it. The host that it named replaces the field's (RFC 9112 section 3.2.2).
pub(crate) fn origin_form<B>(request: &mut Request<B>) -> Result<(), Malformed> {
    let uri = request.uri();
    let Some(authority) = uri.authority() else { return Ok(()) };
    let host = HeaderValue::from_str(authority.as_str()).map_err(|_| Malformed::Target)?;
    let path = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    *request.uri_mut() = Uri::from(path);
    request.headers_mut().insert(header::HOST, host);
    Ok(())
}

/// The protocols that the request asks for, of those that may be granted; `None` when there is none. The others are left out, as if the
/// gateway did not know them (RFC 9110 section 7.8).
pub(crate) fn wanted_upgrade<B>(request: &Request<B>, allowed: &[String]) -> Option<HeaderValue> {
    let headers = request.headers();
    if request.version() != Version::HTTP_11 {
        return None;
    }
    tokens(headers, &header::CONNECTION).find(|token| token.eq_ignore_ascii_case(b"upgrade"))?;
    let wanted: Vec<&[u8]> = tokens(headers, &header::UPGRADE).filter(|protocol| is_allowed(protocol, allowed)).collect();
    if wanted.is_empty() { None } else { HeaderValue::try_from(wanted.join(&b", "[..])).ok() }
}

/// True when an instance's `101` switches to a protocol that may be granted.
pub(crate) fn grants_upgrade(headers: &HeaderMap, allowed: &[String]) -> bool {
    let mut protocols = tokens(headers, &header::UPGRADE).peekable();
    protocols.peek().is_some() && protocols.all(|protocol| is_allowed(protocol, allowed))
}

fn is_allowed(protocol: &[u8], allowed: &[String]) -> bool {
    allowed.iter().any(|allowed| allowed == "*" || allowed.as_bytes().eq_ignore_ascii_case(protocol))
}

/// Removes what concerns only one connection (RFC 9110 section 7.6.1), and what `Connection` names. True when `TE` said that trailers are
/// taken. `Transfer-Encoding: chunked` of a request stays: it tells hyper that there is a body.
pub(crate) fn remove_hop_by_hop(headers: &mut HeaderMap, present: Present) -> bool {
    if !present.has(Present::CONNECTION | Present::ONE_HOP | Present::UPGRADE | Present::EXPECT) {
        return false;
    }
    if present.has(Present::CONNECTION) {
        let named: Vec<HeaderName> = tokens(headers, &header::CONNECTION)
            .filter(|token| !is_plain_option(token))
            .filter_map(|token| HeaderName::from_bytes(token).ok())
            .filter(|name| !is_essential(name))
            .collect();
        for name in named {
            headers.remove(name);
        }
        headers.remove(header::CONNECTION);
    }
    let mut takes_trailers = false;
    while let Some(name) = headers.keys().find(|name| is_for_one_hop(name)) {
        let name = name.clone();
        takes_trailers |= name == header::TE && tokens(headers, &name).any(|coding| coding.eq_ignore_ascii_case(b"trailers"));
        headers.remove(name);
    }
    takes_trailers
}

/// True for what is removed even where `Connection` does not name it.
fn is_for_one_hop(name: &HeaderName) -> bool {
    const ALWAYS: [HeaderName; 7] =
        [KEEP_ALIVE, PROXY_CONNECTION, header::PROXY_AUTHORIZATION, header::UPGRADE, HTTP2_SETTINGS, header::EXPECT, header::TE];
    ALWAYS.contains(name)
}

/// Removes what speaks of a connection: over HTTP/2 there is no such field (RFC 9113 section 8.2.2).
pub(crate) fn remove_connection_fields(headers: &mut HeaderMap) {
    for name in [header::CONNECTION, header::TRANSFER_ENCODING, header::UPGRADE, KEEP_ALIVE, PROXY_CONNECTION] {
        headers.remove(name);
    }
}

/// Asks for trailers on the next connection too (RFC 9110 section 10.1.4).
pub(crate) fn take_trailers(headers: &mut HeaderMap) {
    headers.insert(header::TE, HeaderValue::from_static("trailers"));
    headers.append(header::CONNECTION, HeaderValue::from_static("TE"));
}

/// The options that nearly every `Connection` header is made of, and that name no other header.
fn is_plain_option(token: &[u8]) -> bool {
    [&b"keep-alive"[..], b"close", b"upgrade"].iter().any(|option| token.eq_ignore_ascii_case(option))
}

/// Headers that a client must not have removed by naming them in `Connection`: instances rely on them.
fn is_essential(name: &HeaderName) -> bool {
    [header::HOST, header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::TE].contains(name)
}

/// The members of a field that is a list, well-formed or not: one that is not leaves the others what they are.
pub(crate) fn tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
    let members = headers.get_all(name).iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    members.map(<[u8]>::trim_ascii).filter(|token| !token.is_empty())
}

/// What the head says of the body's length.
pub(crate) fn declared_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// True for methods whose requests have content as a rule (RFC 9110 section 8.6).
pub(crate) fn expects_content(method: &Method) -> bool {
    [Method::POST, Method::PUT, Method::PATCH].contains(method)
}

/// Says over HTTP/1 how long the body of a request over HTTP/2 is: `length`, or until its last chunk. False when the client says it in more
/// than one way.
pub(crate) fn set_length(headers: &mut HeaderMap, present: Present, has_content: bool, length: Option<u64>) -> bool {
    if present.has(Present::LENGTH) {
        return make_length_single(headers);
    }
    match length {
        None => drop(headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"))),
        // Some servers answer 411 to such a request without a length.
        Some(0) if has_content => drop(headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"))),
        Some(_) => {}
    }
    true
}

/// Counts one hop down in `Max-Forwards` (RFC 9110 section 7.6.2). False when the request goes no further.
pub(crate) fn count_hop(headers: &mut HeaderMap) -> bool {
    let Some(value) = headers.get(header::MAX_FORWARDS) else { return true };
    // What is no number says nothing.
    let Some(hops) = value.to_str().ok().and_then(|text| text.parse::<u64>().ok()) else { return true };
    if let Some(left) = hops.checked_sub(1) {
        headers.insert(header::MAX_FORWARDS, left.into());
    }
    hops > 0
}

/// Fields that no trailer may be: they decide how a message is read, routed or answered, or speak of a connection (RFC 9110 section 6.5.1).
const NO_TRAILERS: [HeaderName; 28] = [
    header::AUTHORIZATION,
    header::CACHE_CONTROL,
    header::CONNECTION,
    header::CONTENT_ENCODING,
    header::CONTENT_LENGTH,
    header::CONTENT_RANGE,
    header::CONTENT_TYPE,
    header::COOKIE,
    header::EXPECT,
    header::HOST,
    header::IF_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_NONE_MATCH,
    header::IF_RANGE,
    header::IF_UNMODIFIED_SINCE,
    HTTP2_SETTINGS,
    KEEP_ALIVE,
    header::MAX_FORWARDS,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    PROXY_CONNECTION,
    header::RANGE,
    header::SET_COOKIE,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::WWW_AUTHENTICATE,
];

/// Removes from the trailers of a message what no trailer may be.
pub(crate) fn clean_trailers(trailers: &mut HeaderMap) {
    for name in &NO_TRAILERS {
        trailers.remove(name);
    }
}

/// Why an instance's response is not passed on.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadResponse {
    #[error("its transfer coding is not just `chunked`")]
    TransferEncoding,
    #[error("its Content-Length is not one number")]
    ContentLength,
    #[error("it switched protocols unasked, or before it had the whole request")]
    Switch,
}

/// A response's head as a client gets it: hyper frames the body anew. True when the connection that it came over may be used again.
pub(crate) fn incoming_head(parts: &mut http::response::Parts) -> Result<bool, BadResponse> {
    let present = Present::of(&parts.headers);
    remove_hop_by_hop(&mut parts.headers, present);
    parts.extensions.clear();
    parts.version = Version::HTTP_11;
    if present.has(Present::TRANSFER_ENCODING) {
        return without_coding(&mut parts.headers);
    }
    if present.has(Present::LENGTH) {
        if !make_length_single(&mut parts.headers) {
            return Err(BadResponse::ContentLength);
        }
        if parts.status == StatusCode::NO_CONTENT {
            // RFC 9110 section 8.6. hyper does so too, but h2 does not.
            parts.headers.remove(header::CONTENT_LENGTH);
        }
    }
    Ok(true)
}

/// A coding other than `chunked` would be lost on the way, as would one beside it (RFC 9112 section 6.1). A length beside it is removed, and
/// what follows the response is not trusted (RFC 9112 section 6.3, item 3).
fn without_coding(headers: &mut HeaderMap) -> Result<bool, BadResponse> {
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    let is_chunked = codings.next().is_some_and(|coding| coding.as_bytes().eq_ignore_ascii_case(b"chunked"));
    if !is_chunked || codings.next().is_some() {
        return Err(BadResponse::TransferEncoding);
    }
    headers.remove(header::TRANSFER_ENCODING);
    Ok(headers.remove(header::CONTENT_LENGTH).is_none())
}

/// RFC 9112 section 6.3, item 5: a list of equal lengths is replaced by one of them. hyper refuses lists that are not, but it does not look
/// where there is no body; h2 compares numbers, to which a zero in front makes no difference. False for what is not one number.
fn make_length_single(headers: &mut HeaderMap) -> bool {
    let is_number = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let mut lengths = headers.get_all(header::CONTENT_LENGTH).iter();
    let Some(first) = lengths.next() else { return true };
    if lengths.next().is_none() && is_number(first.as_bytes()) {
        return true;
    }
    let mut members =
        headers.get_all(header::CONTENT_LENGTH).iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    let Some(first) = members.next().map(<[u8]>::trim_ascii).filter(|first| is_number(first)) else { return false };
    if !members.all(|member| member.trim_ascii() == first) {
        return false;
    }
    let Ok(length) = HeaderValue::from_bytes(first) else { return false };
    headers.insert(header::CONTENT_LENGTH, length);
    true
}
