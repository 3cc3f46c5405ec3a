//! What a request says about the coding of its answer, and what that changes in the head.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, StatusCode};

use super::accepted::accepted;
use super::coding::Coding;
use crate::http::forward::{declared_length, tokens};

/// Shorter answers fit into one packet anyway, and the coding's own bytes eat what is saved.
const SHORTEST: u64 = 512;

/// Fields that describe the very bytes of an answer: compressed, they would be wrong (RFC 9530, RFC 3230, RFC 1864).
const DIGESTS: [HeaderName; 4] = [
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("content-md5"),
];

/// What a request says about the coding of its answer.
#[derive(Debug)]
pub(crate) struct Wish {
    /// `None` takes no coding.
    coding: Option<Coding>,
    /// It asks for a part only, of which the bytes are counted uncoded.
    is_range: bool,
    is_head: bool,
    /// The tags of answers that the client has.
    known: Vec<HeaderValue>,
}

impl Wish {
    pub fn of<B>(request: &Request<B>) -> Self {
        let headers = request.headers();
        Self {
            coding: accepted(headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok())),
            is_range: headers.contains_key(header::RANGE),
            is_head: request.method() == Method::HEAD,
            known: headers.get_all(header::IF_NONE_MATCH).iter().cloned().collect(),
        }
    }

    /// Changes the head of an answer, of which the body has `length` bytes if that is known: the coding that its body gets. `room` is asked
    /// for only where it would get one, and gives `None` where too many are coded already.
    pub fn apply<P>(
        &self,
        parts: &mut http::response::Parts,
        is_empty: bool,
        length: Option<u64>,
        room: impl FnOnce() -> Option<P>,
    ) -> Option<(Coding, P)> {
        let headers = &mut parts.headers;
        if parts.status == StatusCode::NOT_MODIFIED {
            self.apply_to_unmodified(headers);
            return None;
        }
        let is_whole = !matches!(parts.status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT | StatusCode::PARTIAL_CONTENT);
        let length = if self.is_head { declared_length(headers) } else { length };
        let is_short = length.is_some_and(|length| length < SHORTEST);
        if !is_whole || is_short || !is_compressible(headers) || (is_empty && !self.is_head) {
            return None;
        }
        // Caches keep one for each kind of client, also where this one gets it as it is.
        vary(headers);
        let coding = self.coding.filter(|_| !self.is_range)?;
        let permit = room()?;
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(coding.name()));
        headers.remove(header::CONTENT_LENGTH);
        // Parts of what is coded cannot be asked for: it is made anew each time.
        headers.remove(header::ACCEPT_RANGES);
        if let Some(weak) = headers.get(header::ETAG).and_then(weakened) {
            headers.insert(header::ETAG, weak);
        }
        Some((coding, permit))
    }

    /// A client that asks about the tag of a coded answer gets that one, or it would not know which of its answers is meant (RFC 9111 section
    /// 4.3.4).
    fn apply_to_unmodified(&self, headers: &mut HeaderMap) {
        let Some(weak) = headers.get(header::ETAG).and_then(weakened) else { return };
        let asks_for = |known: &HeaderValue| known.as_bytes().windows(weak.len()).any(|part| part == weak.as_bytes());
        if self.known.iter().any(asks_for) {
            headers.insert(header::ETAG, weak);
            vary(headers);
        }
    }
}

/// The tag of what is the same but not byte by byte (RFC 9110 section 8.8.1). `None` for one that says so already.
fn weakened(tag: &HeaderValue) -> Option<HeaderValue> {
    let is_strong = tag.as_bytes().first() == Some(&b'"');
    is_strong.then(|| HeaderValue::from_bytes(&[b"W/", tag.as_bytes()].concat()).ok()).flatten()
}

fn vary(headers: &mut HeaderMap) {
    if !tokens(headers, &header::VARY).any(|name| name == b"*" || name.eq_ignore_ascii_case(b"accept-encoding")) {
        headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    }
}

fn is_compressible(headers: &HeaderMap) -> bool {
    let has = |name: &HeaderName| headers.contains_key(name);
    if has(&header::CONTENT_ENCODING) || has(&header::CONTENT_RANGE) || DIGESTS.iter().any(has) {
        return false;
    }
    let may_change = !tokens(headers, &header::CACHE_CONTROL).any(|directive| directive.eq_ignore_ascii_case(b"no-transform"));
    may_change && headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).is_some_and(is_compressible_type)
}

/// Text, and what is made of text. Images, films and archives are compressed already.
fn is_compressible_type(kind: &str) -> bool {
    const OTHERS: [&str; 14] = [
        "application/json",
        "application/javascript",
        "application/x-javascript",
        "application/ecmascript",
        "application/xml",
        "application/wasm",
        "application/x-ndjson",
        "application/graphql",
        "application/rtf",
        "application/vnd.ms-fontobject",
        "font/ttf",
        "font/otf",
        "image/bmp",
        "image/x-icon",
    ];
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind.starts_with("text/") || kind.ends_with("+json") || kind.ends_with("+xml") || OTHERS.contains(&kind.as_str())
}

#[cfg(test)]
mod tests {
    use http::Response;

    use super::*;

    fn wish(fields: &[(&str, &str)]) -> Wish {
        let mut request = Request::get("/");
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        Wish::of(&request.body(()).unwrap())
    }

    fn applied(wish: &Wish, status: u16, fields: &[(&str, &str)]) -> (Option<Coding>, HeaderMap) {
        let mut response = Response::builder().status(status);
        for (name, value) in fields {
            response = response.header(*name, *value);
        }
        let mut parts = response.body(()).unwrap().into_parts().0;
        let coding = wish.apply(&mut parts, false, Some(10_000), || Some(()));
        (coding.map(|(coding, ())| coding), parts.headers)
    }

    const TEXT: (&str, &str) = ("content-type", "text/html; charset=utf-8");

    #[test]
    fn a_coded_answer_says_so_and_its_tag_is_weak() {
        let (coding, head) = applied(
            &wish(&[("accept-encoding", "gzip")]),
            200,
            &[TEXT, ("etag", "\"a\""), ("content-length", "10000"), ("accept-ranges", "bytes"), ("vary", "cookie")],
        );
        assert_eq!(coding, Some(Coding::Gzip));
        assert_eq!(
            (&head["content-encoding"], &head["etag"]),
            (&HeaderValue::from_static("gzip"), &HeaderValue::from_static("W/\"a\""))
        );
        assert!(!head.contains_key("content-length") && !head.contains_key("accept-ranges"), "{head:?}");
        let varies: Vec<_> = head.get_all("vary").iter().collect();
        assert_eq!(varies, ["cookie", "Accept-Encoding"]);
    }

    #[test]
    fn what_must_not_change_does_not() {
        let gzip = wish(&[("accept-encoding", "gzip")]);
        for more in [
            ("content-encoding", "identity"),
            ("content-range", "bytes 0-1/2"),
            ("cache-control", "public, No-Transform"),
            ("repr-digest", "sha-256=:x:"),
        ] {
            let (coding, head) = applied(&gzip, 200, &[TEXT, more, ("etag", "\"a\"")]);
            assert_eq!((coding, &head["etag"]), (None, &HeaderValue::from_static("\"a\"")), "{more:?}");
            assert!(!head.contains_key("vary"), "{more:?}");
        }
        for (status, kind) in [(206, TEXT.1), (204, TEXT.1), (200, "image/png"), (200, "application/grpc")] {
            assert_eq!(applied(&gzip, status, &[("content-type", kind)]).0, None, "{status} {kind}");
        }
        let (coding, head) = applied(&wish(&[("accept-encoding", "gzip"), ("range", "bytes=0-")]), 200, &[TEXT]);
        assert_eq!((coding, &head["vary"]), (None, &HeaderValue::from_static("Accept-Encoding")), "it could have been coded");
    }

    #[test]
    fn without_room_an_answer_goes_as_it_is_and_caches_are_told_all_the_same() {
        let mut parts = Response::builder().header(TEXT.0, TEXT.1).header("etag", "\"a\"").body(()).unwrap().into_parts().0;
        let gzip = wish(&[("accept-encoding", "gzip")]);
        assert_eq!(gzip.apply(&mut parts, false, Some(10_000), || None::<()>), None);
        assert_eq!(
            (&parts.headers["vary"], &parts.headers["etag"]),
            (&HeaderValue::from_static("Accept-Encoding"), &HeaderValue::from_static("\"a\""))
        );
        let asks = || -> Option<()> { unreachable!("nothing would be coded") };
        let mut film = Response::builder().header("content-type", "video/mp4").body(()).unwrap().into_parts().0;
        assert_eq!(gzip.apply(&mut film, false, Some(10_000), asks), None);
        let known = wish(&[("accept-encoding", "gzip"), ("if-none-match", "W/\"a\"")]);
        let mut unmodified = Response::builder().status(304).header("etag", "\"a\"").body(()).unwrap().into_parts().0;
        assert_eq!(known.apply(&mut unmodified, true, None, asks), None);
        assert_eq!(unmodified.headers["etag"], "W/\"a\"");
    }

    #[test]
    fn a_client_that_has_the_coded_answer_is_told_that_this_one_is_as_it_was() {
        let tag = |known: &str| applied(&wish(&[("if-none-match", known)]), 304, &[("etag", "\"a\"")]).1["etag"].clone();
        assert_eq!(tag("\"b\", W/\"a\""), "W/\"a\"");
        assert_eq!(tag("\"a\""), "\"a\"");
        assert_eq!(tag("W/\"ab\""), "\"a\"");
    }
}
