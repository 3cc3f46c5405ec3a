//! What is changed in a request and a response on their way through.
//!
//! Heads are always written anew from what was understood, never copied, so that an instance cannot read them otherwise.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};

use http::header::{self, Entry, HeaderMap, HeaderName, HeaderValue};
use http::uri::{Authority, PathAndQuery, Uri};
use http::{Method, Request, Version};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED: HeaderName = HeaderName::from_static("forwarded");
const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// Why a request is refused before anybody sees it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    #[error("a request needs exactly one valid Host header")]
    Host,
    #[error("Host and the request's target name different hosts")]
    HostsDiffer,
    #[error("Content-Length and Transfer-Encoding exclude each other")]
    BothLengths,
    #[error("only `Transfer-Encoding: chunked` is understood")]
    TransferEncoding,
    #[error("CONNECT is for forward proxies")]
    Connect,
    #[error("the request's target is neither a path nor a URL")]
    Target,
}

impl Malformed {
    pub fn status(&self) -> http::StatusCode {
        match self {
            Self::TransferEncoding => http::StatusCode::NOT_IMPLEMENTED,
            Self::Connect => http::StatusCode::METHOD_NOT_ALLOWED,
            _ => http::StatusCode::BAD_REQUEST,
        }
    }
}

/// Refuses what could be read in two ways, beyond what hyper refuses. `length_in_raw_head` looks for a
/// Content-Length in the head as it was received.
pub(crate) fn check<B>(request: &Request<B>, length_in_raw_head: impl FnOnce() -> bool) -> Result<(), Malformed> {
    let headers = request.headers();
    if request.method() == Method::CONNECT {
        return Err(Malformed::Connect);
    }
    if headers.contains_key(header::TRANSFER_ENCODING) {
        let mut values = headers.get_all(header::TRANSFER_ENCODING).iter();
        let chunked = values.next().is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"chunked"));
        if !chunked || values.next().is_some() {
            return Err(Malformed::TransferEncoding);
        }
        // hyper drops a Content-Length beside it without a word, so only the raw head tells.
        if headers.contains_key(header::CONTENT_LENGTH) || length_in_raw_head() {
            return Err(Malformed::BothLengths);
        }
    }
    check_host(request)
}

fn check_host<B>(request: &Request<B>) -> Result<(), Malformed> {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let (first, second) = (hosts.next(), hosts.next());
    if second.is_some() || (first.is_none() && request.version() != Version::HTTP_10) {
        return Err(Malformed::Host);
    }
    if let Some(host) = first {
        let valid = host.as_bytes().iter().all(|&byte| IN_HOST[usize::from(byte)]);
        if !valid {
            return Err(Malformed::Host);
        }
    }
    match (request.uri().authority(), first) {
        (Some(authority), Some(host)) if !host.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes()) => {
            Err(Malformed::HostsDiffer)
        }
        _ => Ok(()),
    }
}

/// The bytes that a host with its port is made of. A table, because every byte of every request's host is looked up.
const IN_HOST: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < table.len() {
        table[byte] =
            matches!(byte as u8, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b':' | b'[' | b']' | b'%');
        byte += 1;
    }
    table
};

/// True when one of the first head's lines in `raw` is a Content-Length.
pub(crate) fn names_content_length(raw: &[u8]) -> bool {
    const NAME: &[u8] = b"content-length";
    raw.split(|&byte| byte == b'\n')
        .take_while(|line| !matches!(line, [] | [b'\r']))
        .any(|line| line.get(..NAME.len()).is_some_and(|start| start.eq_ignore_ascii_case(NAME)))
}

/// The host that a request is for, without port and in lower case; empty when it names none.
pub(crate) fn host_of<'a>(headers: &'a HeaderMap, authority: Option<&'a Authority>) -> Cow<'a, str> {
    let named = authority.map(Authority::as_str).or_else(|| headers.get(header::HOST)?.to_str().ok()).unwrap_or("");
    let host = match named.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or(named, |(address, _)| address),
        None => named.rsplit_once(':').map_or(named, |(host, _)| host),
    };
    let host = host.trim_end_matches('.');
    if host.bytes().any(|byte| byte.is_ascii_uppercase()) { host.to_ascii_lowercase().into() } else { host.into() }
}

/// Refuses a target that is neither a path nor a URL.
pub(crate) fn check_target(uri: &Uri) -> Result<(), Malformed> {
    let valid = match uri.authority() {
        None => uri.path().starts_with('/') || uri.path() == "*",
        // Without a scheme it is CONNECT's form of target.
        Some(_) => uri.scheme().is_some(),
    };
    if valid { Ok(()) } else { Err(Malformed::Target) }
}

/// Makes the target path and query only, as an instance gets it, and keeps the host that it named.
pub(crate) fn origin_form<B>(request: &mut Request<B>) -> Result<(), Malformed> {
    let uri = request.uri();
    let Some(authority) = uri.authority() else { return Ok(()) };
    let host = HeaderValue::from_str(authority.as_str()).map_err(|_| Malformed::Target)?;
    let path = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    *request.uri_mut() = Uri::from(path);
    request.headers_mut().entry(header::HOST).or_insert(host);
    Ok(())
}

/// True when the request asks for another protocol in a way that may be granted.
pub(crate) fn wants_upgrade<B>(request: &Request<B>) -> bool {
    let headers = request.headers();
    request.version() == Version::HTTP_11
        && headers.contains_key(header::UPGRADE)
        && tokens(headers, &header::CONNECTION).any(|token| token.eq_ignore_ascii_case("upgrade"))
}

/// Removes what concerns only one connection (RFC 9110 section 7.6.1), and what `Connection` names.
/// `Transfer-Encoding: chunked` of a request stays: it tells hyper that there is a body.
pub(crate) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    if headers.contains_key(header::CONNECTION) {
        let named: Vec<HeaderName> = tokens(headers, &header::CONNECTION)
            .filter(|token| !is_plain_option(token))
            .filter_map(|token| HeaderName::from_bytes(token.as_bytes()).ok())
            .filter(|name| !is_essential(name))
            .collect();
        for name in named {
            headers.remove(name);
        }
        headers.remove(header::CONNECTION);
    }
    // Hardly any head has one of these, and comparing names is cheaper than looking up each of them.
    while let Some((name, _)) = headers.iter().find(|(name, value)| is_for_one_hop(name, value)) {
        let name = name.clone();
        headers.remove(name);
    }
}

/// True for what is removed even where `Connection` does not name it. hyper answers `Expect` itself, as soon as the instance's
/// connection takes the body.
fn is_for_one_hop(name: &HeaderName, value: &HeaderValue) -> bool {
    const ALWAYS: [HeaderName; 5] = [KEEP_ALIVE, PROXY_CONNECTION, header::PROXY_AUTHORIZATION, header::UPGRADE, header::EXPECT];
    ALWAYS.contains(name) || (name == header::TE && !value.as_bytes().eq_ignore_ascii_case(b"trailers"))
}

/// The options that nearly every `Connection` header is made of, and that name no other header.
fn is_plain_option(token: &str) -> bool {
    ["keep-alive", "close", "upgrade"].iter().any(|option| token.eq_ignore_ascii_case(option))
}

/// Headers that a client must not have removed by naming them in `Connection`: instances rely on them.
fn is_essential(name: &HeaderName) -> bool {
    [header::HOST, header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::TE].contains(name)
}

fn tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).filter(|token| !token.is_empty())
}

/// What is told to instances about one client connection, written once.
#[derive(Debug)]
pub(crate) struct Origin {
    /// True when the client is on this machine: a proxy in front, most likely, whose word about its own clients counts.
    trusted: bool,
    address: HeaderValue,
    /// `for=192.0.2.1;proto=http;host=`.
    forwarded_start: String,
    /// The last `Host` seen, and the whole `Forwarded` for it.
    last: Option<(HeaderValue, HeaderValue)>,
}

impl Origin {
    pub fn new(peer: SocketAddr) -> Self {
        let ip = peer.ip().to_canonical();
        let node = match ip {
            IpAddr::V4(v4) => v4.to_string(),
            IpAddr::V6(v6) => format!("\"[{v6}]\""),
        };
        let address = HeaderValue::from_str(&ip.to_string()).expect("an address is made of visible characters");
        Self { trusted: ip.is_loopback(), address, forwarded_start: format!("for={node};proto=http;host="), last: None }
    }

    /// Sets `X-Forwarded-*` and `Forwarded`. A trusted client's own values are kept and added to, anybody else's replaced.
    pub fn announce(&mut self, headers: &mut HeaderMap) {
        let host = headers.get(header::HOST).cloned();
        let forwarded = host.as_ref().and_then(|host| self.forwarded(host));
        if self.trusted {
            append(headers, X_FORWARDED_FOR, self.address.clone());
            if let Some(forwarded) = forwarded {
                append(headers, FORWARDED, forwarded);
            }
            headers.entry(X_FORWARDED_PROTO).or_insert(HeaderValue::from_static("http"));
            if let Some(host) = host {
                headers.entry(X_FORWARDED_HOST).or_insert(host);
            }
        } else {
            headers.insert(X_FORWARDED_FOR, self.address.clone());
            headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static("http"));
            set_or_remove(headers, FORWARDED, forwarded);
            set_or_remove(headers, X_FORWARDED_HOST, host);
        }
    }

    fn forwarded(&mut self, host: &HeaderValue) -> Option<HeaderValue> {
        if let Some((last, forwarded)) = &self.last
            && last == host
        {
            return Some(forwarded.clone());
        }
        let text = host.to_str().ok()?;
        // Only a token needs no quotes (RFC 7239 section 4); a port's colon makes it none.
        let quote = if text.contains(|c: char| !(c.is_ascii_alphanumeric() || "-._~".contains(c))) { "\"" } else { "" };
        let value = HeaderValue::from_str(&format!("{}{quote}{text}{quote}", self.forwarded_start)).ok()?;
        self.last = Some((host.clone(), value.clone()));
        Some(value)
    }
}

fn append(headers: &mut HeaderMap, name: HeaderName, value: HeaderValue) {
    let mut present = match headers.entry(name) {
        Entry::Vacant(vacant) => {
            vacant.insert(value);
            return;
        }
        Entry::Occupied(present) => present,
    };
    let earlier = present.iter().map(HeaderValue::as_bytes);
    let joined = earlier.chain([value.as_bytes()]).collect::<Vec<_>>().join(&b", "[..]);
    if let Ok(joined) = HeaderValue::from_bytes(&joined) {
        present.insert(joined);
    }
}

fn set_or_remove(headers: &mut HeaderMap, name: HeaderName, value: Option<HeaderValue>) {
    match value {
        Some(value) => headers.insert(name, value),
        None => headers.remove(name),
    };
}

/// Gives out request ids that differ between gateway processes.
#[derive(Debug)]
pub(crate) struct RequestIds {
    /// In hexadecimal digits.
    prefix: [u8; 16],
    next: AtomicU64,
}

impl RequestIds {
    pub fn new(prefix: u64) -> Self {
        Self { prefix: hexadecimal(prefix), next: AtomicU64::new(0) }
    }

    /// The id of a request: the one it has, or a new one that it gets.
    pub fn assign(&self, headers: &mut HeaderMap) -> HeaderValue {
        let entry = headers.entry(X_REQUEST_ID);
        if let Entry::Occupied(present) = &entry
            && present.get().len() <= 128
        {
            return present.get().clone();
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut text = [0; 32];
        text[..16].copy_from_slice(&self.prefix);
        text[16..].copy_from_slice(&hexadecimal(number));
        let id = HeaderValue::from_bytes(&text).expect("hexadecimal digits are visible characters");
        match entry {
            Entry::Vacant(vacant) => {
                vacant.insert(id.clone());
            }
            Entry::Occupied(mut present) => {
                present.insert(id.clone());
            }
        }
        id
    }
}

fn hexadecimal(number: u64) -> [u8; 16] {
    let mut digits = number;
    std::array::from_fn(|_| {
        digits = digits.rotate_left(4);
        b"0123456789abcdef"[(digits & 15) as usize]
    })
}
