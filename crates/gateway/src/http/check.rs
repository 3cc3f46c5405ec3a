//! Which requests are refused before anybody sees them: what could be read in two ways, and what asks for what a gateway has not.

use std::borrow::Cow;

use http::header::{self, HeaderMap, HeaderValue};
use http::uri::Authority;
use http::{Method, Request, StatusCode, Version};
use weal_model::host::{self, HostError};

use super::origin::detached;
use super::present::Present;

/// Why a request is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    #[error("a request needs exactly one Host header, or `:authority` in its place over HTTP/2")]
    Hosts,
    #[error("Host is not valid: {0}")]
    Host(#[from] HostError),
    #[error("Host and the request's target name different hosts")]
    HostsDiffer,
    #[error("the end of the request's body cannot be told: it needs one Content-Length or one `Transfer-Encoding: chunked`")]
    Framing,
    #[error("only `Transfer-Encoding: chunked` is understood")]
    TransferEncoding,
    #[error("the request's body is malformed or was cut short")]
    Body,
    #[error("CONNECT is for forward proxies")]
    Connect,
    #[error("the request's target is neither a path nor an http URL")]
    Target,
    #[error("only OPTIONS may have the target `*`")]
    Asterisk,
    #[error("only the expectation 100-continue is understood")]
    Expectation,
    #[error("the request has too many header fields")]
    Fields,
}

impl Malformed {
    pub fn status(&self) -> StatusCode {
        match self {
            Self::TransferEncoding => StatusCode::NOT_IMPLEMENTED,
            Self::Connect => StatusCode::METHOD_NOT_ALLOWED,
            Self::Expectation => StatusCode::EXPECTATION_FAILED,
            Self::Fields => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            _ => StatusCode::BAD_REQUEST,
        }
    }
}

/// Refuses what hyper takes although it should not. `is_framed` says that another reader has read the head and is sure where its body
/// ends: of a Content-Length beside a Transfer-Encoding hyper drops the former without a word. What is returned is the host that the request
/// is for, as [`host::read_host`] spells it; it is empty when the request names none.
pub(crate) fn check<'a, B>(
    request: &'a Request<B>,
    present: Present,
    is_framed: bool,
    most_fields: usize,
    known: &mut KnownHost,
) -> Result<Cow<'a, str>, Malformed> {
    let headers = request.headers();
    // hyper has looked at this over HTTP/1.
    if headers.len() > most_fields {
        return Err(Malformed::Fields);
    }
    if request.method() == Method::CONNECT {
        return Err(Malformed::Connect);
    }
    if present.has(Present::TRANSFER_ENCODING) {
        let mut values = headers.get_all(header::TRANSFER_ENCODING).iter();
        let chunked = values.next().is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"chunked"));
        if !chunked || values.next().is_some() {
            return Err(Malformed::TransferEncoding);
        }
    }
    if !is_framed {
        return Err(Malformed::Framing);
    }
    check_target(request)?;
    if present.has(Present::EXPECT) {
        check_expectation(request)?;
    }
    host_of(headers, request.uri().authority(), request.version(), known)
}

/// RFC 9112 section 3.2: a path, an http URL without user information (RFC 9110 section 4.2.4), or `*` for OPTIONS.
fn check_target<B>(request: &Request<B>) -> Result<(), Malformed> {
    let uri = request.uri();
    match (uri.authority(), uri.scheme_str()) {
        _ if uri.path() == "*" && request.method() == Method::OPTIONS => Ok(()),
        _ if uri.path() == "*" => Err(Malformed::Asterisk),
        _ if !uri.path().starts_with('/') => Err(Malformed::Target),
        (None, _) => Ok(()),
        (Some(_), Some("http" | "https")) => Ok(()),
        // Without a scheme it is CONNECT's form of target.
        _ => Err(Malformed::Target),
    }
}

/// RFC 9110 section 10.1.1: an expectation that is not understood may be answered 417.
fn check_expectation<B>(request: &Request<B>) -> Result<(), Malformed> {
    let mut expected = request.headers().get_all(header::EXPECT).iter();
    if request.version() >= Version::HTTP_11 && !expected.all(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue")) {
        return Err(Malformed::Expectation);
    }
    Ok(())
}

/// RFC 9112 section 3.2: exactly one Host, though HTTP/1.0 may leave it out, by the grammar of RFC 9110 section 7.2. That of the
/// target counts more, but two that differ are no honest client's. Over HTTP/2 the target's own is enough, and need not be there
/// beside a Host (RFC 9113 section 8.3.1).
fn host_of<'a>(
    headers: &'a HeaderMap,
    authority: Option<&'a Authority>,
    version: Version,
    known: &mut KnownHost,
) -> Result<Cow<'a, str>, Malformed> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (first, second) = (hosts.next(), hosts.next());
    let needs_host = version == Version::HTTP_11 || (version == Version::HTTP_2 && authority.is_none());
    if second.is_some() || (first.is_none() && needs_host) {
        return Err(Malformed::Hosts);
    }
    let host = match first.filter(|host| !host.is_empty()) {
        // Where the field is empty, the target's URI has no authority (RFC 9110 section 7.2).
        None => None,
        Some(host) => Some(known.read(host)?),
    };
    let named = authority.map(|authority| host::read_authority(authority.as_str())).transpose()?;
    match (host, named) {
        (Some(host), Some(named)) if host != named => Err(Malformed::HostsDiffer),
        (_, Some((host, _))) | (Some((host, _)), None) => Ok(host),
        (None, None) => Ok(Cow::Borrowed("")),
    }
}

/// The host of a connection's last request. Nearly all that follow are for the same, and then it is not read again.
#[derive(Debug, Default)]
pub(crate) struct KnownHost {
    field: Option<HeaderValue>,
    /// How much of the field is the host, and what follows that.
    end: usize,
    port: Option<u16>,
}

impl KnownHost {
    fn read<'a>(&mut self, field: &'a HeaderValue) -> Result<(Cow<'a, str>, Option<u16>), HostError> {
        let text = field.to_str().map_err(|_| HostError::Character)?;
        if self.field.as_ref() == Some(field) {
            return Ok((Cow::Borrowed(&text[..self.end]), self.port));
        }
        let (host, port) = host::read_authority(text)?;
        // One that is spelt otherwise than it came is rare.
        if let Cow::Borrowed(host) = host {
            (self.field, self.end, self.port) = (Some(detached(field)), host.len(), port);
        }
        Ok((host, port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_comes_again_reads_as_before() {
        let mut known = KnownHost::default();
        for (field, host, port) in [
            ("shop.example:8080", "shop.example", Some(8080)),
            ("shop.example:8080", "shop.example", Some(8080)),
            ("Shop.example", "shop.example", None),
            ("shop.example.", "shop.example", None),
            ("shop.example.", "shop.example", None),
            ("shop.example:8080", "shop.example", Some(8080)),
        ] {
            let field = HeaderValue::from_static(field);
            assert_eq!(known.read(&field), Ok((Cow::Borrowed(host), port)), "{field:?}");
        }
        assert!(known.read(&HeaderValue::from_static("a..b")).is_err());
    }

    #[test]
    fn fuzz_hosts() {
        weal_fuzz::target("host", |bytes| {
            let text = String::from_utf8_lossy(bytes);
            let Ok((host, port)) = host::read_authority(&text) else { return };
            assert_eq!(host::read_host(&host).as_deref(), Ok(&*host), "it has one spelling");
            let again = port.map_or_else(|| host.to_string(), |port| format!("{host}:{port}"));
            assert_eq!(host::read_authority(&again), Ok((host.clone(), port)));
            assert!(!host.contains(['/', '@', '\\', '%']) && host.is_ascii());
        });
    }
}
