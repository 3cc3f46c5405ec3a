//! A download that breaks in the middle goes on from another instance (Tsai 4.3.3, the end).
//!
//! It does where a strong validator says that the other instance has the very same bytes (RFC 9110 sections 8.8.1, 13.1.5 and 14.2). All of
//! this has to hold:
//!
//! - the request is a `GET` without a body;
//! - the response is 200 with a length of at least [`LEAST_BYTES`], or 206 with one range whose bounds are known, and has a strong `ETag`;
//! - the other instance answers `Range` and `If-Range` with 206, the same `ETag`, the same coding, and exactly the bytes that are missing. Where
//!   its answer ends is as sure as any answer's has to be.
//!
//! The client sees one response. The request keeps its seat and is counted once, as answered by the instance that answered last; the gateway counts what
//! it sent again as a retry. Where the other instance answers anything else, the response breaks off as it would have without this.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Response, StatusCode};
use weal_control::dispatch::{Attempt, InstanceIndex};

use super::forward;
use super::interim::Interim;
use crate::limits::Limits;
use crate::routing::cluster::{Seat, Target};
use crate::upstream::attempt::{Meanwhile, Outbound};
use crate::upstream::lease::Lease;
use crate::upstream::pool::Upstream;
use crate::upstream::speech::Speech;

/// A shorter response mostly comes whole with its head: keeping its request would cost more than it saves.
const LEAST_BYTES: u64 = 16 << 10;

/// How to go on with a response that breaks.
pub(crate) struct Resume {
    /// What was asked, without any range.
    request: Outbound,
    speech: Speech,
    etag: HeaderValue,
    encoding: Option<HeaderValue>,
    /// Bytes of the representation: the next to come, the last of the response, and how many there are, where that is known.
    next: u64,
    last: u64,
    total: Option<u64>,
    /// The instance that answers now, and those that broke off.
    at: InstanceIndex,
    failed: Vec<InstanceIndex>,
    fetching: Option<Fetching>,
}

/// What another instance is asked, and how that attempt ended where it has not the rest.
type Fetching = Pin<Box<dyn Future<Output = Result<Resumed, Attempt>> + Send>>;

/// The rest of a response, from another instance.
pub(crate) struct Resumed {
    pub lease: Lease,
    pub upstream: Arc<Upstream>,
}

impl Resume {
    /// `None` when the response of the instance `at` may not be put together from two. `again` is its request, when that may be sent
    /// twice.
    pub fn of(again: Option<&Outbound>, response: &Response<()>, at: InstanceIndex, speech: Speech) -> Option<Box<Self>> {
        let headers = response.headers();
        let etag = headers.get(header::ETAG).filter(|etag| is_strong(etag))?.clone();
        let again = again.filter(|again| again.request.method() == Method::GET)?;
        // A length beside a coding says nothing (RFC 9112 section 6.3, item 3).
        let length = forward::declared_length(headers).filter(|_| !headers.contains_key(header::TRANSFER_ENCODING))?;
        if length < LEAST_BYTES {
            return None;
        }
        let (first, total) = match response.status() {
            StatusCode::OK => (0, Some(length)),
            StatusCode::PARTIAL_CONTENT => {
                let (first, last, total) = content_range(headers)?;
                (last - first + 1 == length).then_some((first, total))?
            }
            _ => return None,
        };
        let last = first.checked_add(length.checked_sub(1)?)?;
        let mut request = again.replay()?;
        [header::RANGE, header::IF_RANGE].into_iter().for_each(|field| drop(request.request.headers_mut().remove(field)));
        let encoding = headers.get(header::CONTENT_ENCODING).cloned();
        let (failed, fetching) = (Vec::new(), None);
        Some(Box::new(Self { request, speech, etag, encoding, next: first, last, total, at, failed, fetching }))
    }

    /// So many bytes of the response have come. False when that is more than belongs to it.
    pub fn note(&mut self, bytes: usize) -> bool {
        self.next = self.next.saturating_add(bytes as u64);
        self.next.saturating_sub(1) <= self.last
    }

    /// True when bytes of the response are still to come.
    pub fn is_short(&self) -> bool {
        self.next <= self.last
    }

    pub fn is_fetching(&self) -> bool {
        self.fetching.is_some()
    }

    /// The instance has failed: asks another for the rest. False when there is none, or nothing is missing.
    pub fn begin(&mut self, seat: &Seat, attempt: Attempt, worker: usize, limits: &Arc<Limits>) -> bool {
        self.fetching = None;
        if !self.is_short() {
            return false;
        }
        self.failed.push(self.at);
        let Some(target) = seat.retry(attempt, &self.failed) else { return false };
        let Some(request) = self.request_for_rest() else { return false };
        self.at = target.index;
        let wanted =
            Wanted { etag: self.etag.clone(), encoding: self.encoding.clone(), range: (self.next, self.last), total: self.total };
        self.fetching = Some(Box::pin(fetch(target, request, wanted, worker, self.speech, Arc::clone(limits))));
        true
    }

    /// What the other instance answers: the rest, or how that attempt ended.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Resumed, Attempt>> {
        let Some(fetching) = &mut self.fetching else { return Poll::Pending };
        let fetched = ready!(fetching.as_mut().poll(cx));
        self.fetching = None;
        Poll::Ready(fetched)
    }

    fn request_for_rest(&self) -> Option<Outbound> {
        let mut again = self.request.replay()?;
        let headers = again.request.headers_mut();
        let range = HeaderValue::try_from(format!("bytes={}-{}", self.next, self.last)).ok()?;
        headers.insert(header::RANGE, range);
        headers.insert(header::IF_RANGE, self.etag.clone());
        Some(again)
    }
}

impl fmt::Debug for Resume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resume").field("next", &self.next).field("last", &self.last).field("failed", &self.failed).finish()
    }
}

/// What the rest of a response has to be.
struct Wanted {
    etag: HeaderValue,
    encoding: Option<HeaderValue>,
    range: (u64, u64),
    total: Option<u64>,
}

impl Wanted {
    fn fits(&self, response: &Response<()>) -> bool {
        let headers = response.headers();
        let fits_range = |(first, last, total): (u64, u64, Option<u64>)| {
            (first, last) == self.range && (self.total.is_none() || total.is_none() || self.total == total)
        };
        response.status() == StatusCode::PARTIAL_CONTENT
            && headers.get(header::ETAG) == Some(&self.etag)
            && headers.get(header::CONTENT_ENCODING) == self.encoding.as_ref()
            && content_range(headers).is_some_and(fits_range)
    }
}

async fn fetch(
    target: Target,
    request: Outbound,
    wanted: Wanted,
    worker: usize,
    speech: Speech,
    limits: Arc<Limits>,
) -> Result<Resumed, Attempt> {
    // A new connection: one that is kept may be closing just now, as whatever made the first instance break off may have made this one.
    let mut lease = target.upstream.connect(worker, speech, &limits).await.map_err(|_| Attempt::Refused)?;
    let response = lease.exchange(&mut Some(request), &mut Quietly).await.map_err(|_| Attempt::Broken)?;
    if !wanted.fits(&response) {
        return Err(Attempt::Answered);
    }
    let (mut parts, ()) = response.into_parts();
    if !forward::incoming_head(&mut parts).map_err(|_| Attempt::Broken)? {
        lease.note_doubt();
    }
    let (first, last) = wanted.range;
    if lease.size_hint().exact().is_some_and(|length| length != last - first + 1) {
        return Err(Attempt::Broken);
    }
    Ok(Resumed { lease, upstream: target.upstream })
}

/// The client has its head already: nothing that comes before the rest concerns it.
struct Quietly;

impl Meanwhile for Quietly {
    fn handle_interim(&mut self, _: Interim) {}

    fn poll_change(&mut self, _: &mut Context<'_>) -> bool {
        false
    }
}

fn is_strong(etag: &HeaderValue) -> bool {
    let bytes = etag.as_bytes();
    bytes.len() >= 2 && bytes.starts_with(b"\"") && bytes.ends_with(b"\"")
}

/// First and last byte, and the whole length where it is said (RFC 9110 section 14.4). `None` for anything else, such as several ranges.
fn content_range(headers: &HeaderMap) -> Option<(u64, u64, Option<u64>)> {
    let text = headers.get(header::CONTENT_RANGE)?.to_str().ok()?.strip_prefix("bytes ")?;
    let (range, total) = text.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
    let total = if total == "*" { None } else { Some(total.parse().ok()?) };
    (first <= last && total.is_none_or(|total| last < total)).then_some((first, last, total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_range_with_sane_bounds_counts() {
        let of = |text: &str| content_range(&HeaderMap::from_iter([(header::CONTENT_RANGE, text.parse().unwrap())]));
        assert_eq!(of("bytes 5-9/20"), Some((5, 9, Some(20))));
        assert_eq!(of("bytes 5-9/*"), Some((5, 9, None)));
        for bad in ["bytes 9-5/20", "bytes 5-20/20", "bytes */20", "items 5-9/20", "bytes 5-9", "bytes 5-9/x"] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }

    #[test]
    fn weak_validators_do_not_count() {
        let strong = |text: &'static str| is_strong(&HeaderValue::from_static(text));
        assert!(strong("\"a\"") && strong("\"\"") && !strong("W/\"a\"") && !strong("a") && !strong("\""));
    }

    #[test]
    fn fuzz_content_ranges() {
        weal_fuzz::target("content-range", |bytes| {
            let Ok(value) = bytes.try_into() else { return };
            let found = content_range(&HeaderMap::from_iter([(header::CONTENT_RANGE, value)]));
            if let Some((first, last, total)) = found {
                assert!(first <= last && total.is_none_or(|total| last < total), "{found:?}");
            }
        });
    }
}
