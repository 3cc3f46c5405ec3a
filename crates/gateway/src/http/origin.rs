//! What instances are told about a request's way: who its client is, through whom it came, and its id.
//!
//! All of this is announced after the hop-by-hop fields were removed. Otherwise a client could name one of these fields in `Connection`
//! and have it removed again (CVE-2024-45410).

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::Version;
use http::header::{self, Entry, HeaderMap, HeaderName, HeaderValue};
use weal_model::ListenScheme;

use super::forged::remove_forged;
use super::present::Present;
use super::remarks::{Remarks, write_field};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED: HeaderName = HeaderName::from_static("forwarded");
const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// What is told to instances about one client connection, written once.
#[derive(Debug)]
pub(crate) struct Origin {
    scheme: ListenScheme,
    /// True when the client is a proxy in front whose word about its own clients counts.
    trusted: bool,
    address: HeaderValue,
    /// `for=192.0.2.1;proto=http;host=`.
    forwarded_start: String,
    /// The last `Host` seen, and the whole `Forwarded` for it.
    last: Option<(HeaderValue, HeaderValue)>,
    /// What was said of the last request, which came for that host in that version.
    remarks: Option<(HeaderValue, Version, Bytes)>,
}

impl Origin {
    pub fn new(peer: SocketAddr, scheme: ListenScheme, trusted: bool) -> Self {
        let ip = peer.ip().to_canonical();
        let node = match ip {
            IpAddr::V4(v4) => v4.to_string(),
            IpAddr::V6(v6) => format!("\"[{v6}]\""),
        };
        let address = HeaderValue::from_str(&ip.to_string()).expect("an address is made of visible characters");
        let forwarded_start = format!("for={node};proto={};host=", scheme.as_str());
        Self { scheme, trusted, address, forwarded_start, last: None, remarks: None }
    }

    /// Sets `X-Forwarded-*`, `Forwarded`, `Via` and the request's id. A trusted client's own values are kept and added to. Anybody else's are
    /// replaced, and the client says nothing in other fields of proxies either. Where the head has none of these fields, they are returned instead.
    pub fn announce(&mut self, headers: &mut HeaderMap, present: Present, received: Version, id: HeaderValue) -> Remarks {
        remove_forged(headers, self.trusted);
        if !present.has(Present::REMARK)
            && let Some(host) = headers.get(header::HOST)
        {
            return Remarks::new(self.lines(host, received), (X_REQUEST_ID, id));
        }
        headers.insert(X_REQUEST_ID, id);
        self.say(headers, received);
        Remarks::default()
    }

    /// What is said of a request for `host` whose client says nothing of it, but for its id.
    fn lines(&mut self, host: &HeaderValue, received: Version) -> Bytes {
        if let Some((last, version, lines)) = &self.remarks
            && last == host
            && *version == received
        {
            return lines.clone();
        }
        let (mut fields, mut lines) = (HeaderMap::from_iter([(header::HOST, host.clone())]), Vec::new());
        self.say(&mut fields, received);
        fields.remove(header::HOST);
        fields.iter().for_each(|(name, value)| write_field(name, value, &mut lines));
        let lines = Bytes::from(lines);
        self.remarks = Some((detached(host), received, lines.clone()));
        lines
    }

    fn say(&mut self, headers: &mut HeaderMap, received: Version) {
        append(headers, header::VIA, HeaderValue::from_static(via(received)));
        let host = headers.get(header::HOST).cloned();
        let forwarded = host.as_ref().and_then(|host| self.forwarded(host));
        let scheme = HeaderValue::from_static(self.scheme.as_str());
        if self.trusted {
            append(headers, X_FORWARDED_FOR, self.address.clone());
            if let Some(forwarded) = forwarded {
                append(headers, FORWARDED, forwarded);
            }
            headers.entry(X_FORWARDED_PROTO).or_insert(scheme);
            if let Some(host) = host {
                headers.entry(X_FORWARDED_HOST).or_insert(host);
            }
        } else {
            headers.insert(X_FORWARDED_FOR, self.address.clone());
            headers.insert(X_FORWARDED_PROTO, scheme);
            set_or_remove(headers, FORWARDED, forwarded);
            set_or_remove(headers, X_FORWARDED_HOST, host);
        }
    }

    /// Frees what was written for the last request.
    pub fn forget(&mut self) {
        (self.last, self.remarks) = (None, None);
    }

    pub fn is_trusted(&self) -> bool {
        self.trusted
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
        self.last = Some((detached(host), value.clone()));
        Some(value)
    }
}

/// The same value in memory of its own. A field's value is a part of the buffer that its head was read into, and whoever keeps the value keeps all of
/// the buffer.
pub(super) fn detached(value: &HeaderValue) -> HeaderValue {
    HeaderValue::from_bytes(value.as_bytes()).expect("it is a value already")
}

/// The version in which a request was received, and by whom (RFC 9110 section 7.6.3).
fn via(received: Version) -> &'static str {
    match received {
        Version::HTTP_10 => "1.0 weal",
        Version::HTTP_2 => "2.0 weal",
        _ => "1.1 weal",
    }
}

/// True when a proxy says that its own client used TLS.
pub(crate) fn came_over_tls(headers: &HeaderMap) -> bool {
    headers.get(X_FORWARDED_PROTO).is_some_and(|proto| proto.as_bytes().eq_ignore_ascii_case(b"https"))
}

/// The client that trusted proxies name: the last address of `X-Forwarded-For` that is not one of theirs. `None` when they name none.
pub(crate) fn forwarded_client(headers: &HeaderMap, is_trusted: impl Fn(IpAddr) -> bool) -> Option<IpAddr> {
    let mut client = None;
    for value in headers.get_all(X_FORWARDED_FOR).iter().rev() {
        for text in value.to_str().ok()?.rsplit(',') {
            let address: IpAddr = text.trim_matches([' ', '\t']).parse().ok()?;
            client = Some(address.to_canonical());
            if !is_trusted(address) {
                return client;
            }
        }
    }
    client
}

/// Removes every field by which a gateway says something, or another proxy would.
pub(crate) fn remove_announced(headers: &mut HeaderMap) {
    for name in [X_REQUEST_ID, header::VIA] {
        headers.remove(name);
    }
    remove_forged(headers, false);
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

    /// The digits of a trace that no other has, and of a span of it.
    pub fn trace(&self) -> ([u8; 32], [u8; 16]) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut trace = [0; 32];
        trace[..16].copy_from_slice(&self.prefix);
        trace[16..].copy_from_slice(&hexadecimal(mix(number)));
        (trace, hexadecimal(mix(!number) | 1))
    }

    /// The id of a request: the one it has, or a new one.
    pub fn choose(&self, headers: &HeaderMap, present: Present) -> HeaderValue {
        let known = if present.has(Present::REMARK) { headers.get(X_REQUEST_ID).filter(|id| id.len() <= 128) } else { None };
        let mut id = known.cloned().unwrap_or_else(|| self.make());
        mark_unique(&mut id);
        id
    }

    fn make(&self) -> HeaderValue {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut text = [0; 32];
        text[..16].copy_from_slice(&self.prefix);
        text[16..].copy_from_slice(&hexadecimal(number));
        HeaderValue::from_bytes(&text).expect("hexadecimal digits are visible characters")
    }
}

/// Keeps a value that no other message has out of the tables of HPACK (RFC 7541 section 6.2.3), where it would displace fields that come again and
/// be compared with each one like it.
pub(crate) fn mark_unique(value: &mut HeaderValue) {
    value.set_sensitive(true);
}

/// Numbers that follow each other become numbers that do not look so (Steele, Lea and Flood, splitmix64): samplers take traces by their digits.
fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

fn hexadecimal(number: u64) -> [u8; 16] {
    let mut digits = number;
    std::array::from_fn(|_| {
        digits = digits.rotate_left(4);
        b"0123456789abcdef"[(digits & 15) as usize]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_table_of_hpack_keeps_the_id_of_a_request() {
        let ids = RequestIds::new(7);
        let known = HeaderMap::from_iter([(X_REQUEST_ID, HeaderValue::from_static("mine"))]);
        let [given, made] = [&known, &HeaderMap::new()].map(|headers| ids.choose(headers, Present::of(headers)));
        assert!(given == "mine" && made != given);
        assert!(given.is_sensitive() && made.is_sensitive(), "h2 writes them as never indexed");
    }

    #[test]
    fn fuzz_forwarded_clients() {
        weal_fuzz::target("forwarded-for", |bytes| {
            let values = bytes.split(|byte| *byte == b'\n').filter_map(|line| HeaderValue::from_bytes(line).ok());
            let headers: HeaderMap = values.map(|value| (X_FORWARDED_FOR, value)).collect();
            let is_trusted = |address: IpAddr| address.is_loopback();
            let last = forwarded_client(&headers, |_| false);
            let named = forwarded_client(&headers, is_trusted);
            assert!(named.is_none_or(|client| client == client.to_canonical()));
            if let Some(last) = last.filter(|last| !is_trusted(*last)) {
                assert_eq!(named, Some(last), "nobody before the last one that is not trusted is believed");
            }
        });
    }
}
