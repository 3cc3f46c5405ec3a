//! Fields in which only a proxy speaks, when a client sends them.
//!
//! Instances believe what a proxy tells them: who the client is, and which scheme, host, port and path it asked for. There are many such fields
//! besides those that the gateway sets itself. From a client that is not a trusted proxy, all of them are removed.
//!
//! CGI, WSGI, Rack and PHP make `HTTP_X_FORWARDED_FOR` of `X-Forwarded-For` and of `X_Forwarded_For` alike, and take either. No proxy sends the
//! second form, so it is removed whoever sends it. `Proxy` becomes `HTTP_PROXY`, which programs take for the proxy to use (CVE-2016-5385 and its
//! kin): it is removed in any case too.

use http::header::{HeaderMap, HeaderName};

/// Every field that begins so, as `X-Forwarded-Port`; also `X-Forwarded` itself.
const PREFIX: &str = "x-forwarded";
/// Others whose names begin with `x-`. The last two say where a server keeps files (CVE-2025-61780).
const EXTENSIONS: [&str; 15] = [
    "x-real-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-scheme",
    "x-url-scheme",
    "x-host",
    "x-original-url",
    "x-original-uri",
    "x-original-host",
    "x-original-method",
    "x-original-forwarded-for",
    "x-rewrite-url",
    "x-sendfile-type",
    "x-accel-mapping",
    "x-weal-class",
];
/// Those whose names do not. A proxy that ends TLS has to remove the last two (RFC 9440 section 4).
const OTHERS: [&str; 9] = [
    "forwarded",
    "client-ip",
    "true-client-ip",
    "fastly-client-ip",
    "cf-connecting-ip",
    "cf-connecting-ipv6",
    "front-end-https",
    "client-cert",
    "client-cert-chain",
];
/// A client may say it, but not in two forms.
const ID: &str = "x-request-id";

/// Removes what only a proxy says.
pub(crate) fn remove_forged(headers: &mut HeaderMap, is_trusted: bool) {
    remove_where(headers, |name| is_forged(name, is_trusted));
}

/// Removes what some servers would take for one of `names`: the same with an underscore in place of a hyphen.
pub(crate) fn remove_twins<'n>(headers: &mut HeaderMap, names: impl Iterator<Item = &'n HeaderName> + Clone) {
    remove_where(headers, |name| name.contains('_') && names.clone().any(|meant| reads_as(name, meant.as_str())));
}

fn remove_where(headers: &mut HeaderMap, is_meant: impl Fn(&str) -> bool) {
    // Hardly any head has one.
    while let Some(name) = headers.keys().find(|name| is_meant(name.as_str())).cloned() {
        headers.remove(name);
    }
}

fn is_forged(name: &str, is_trusted: bool) -> bool {
    // Their first letters tell most names apart from all of these.
    let is_known = match name.as_bytes() {
        [b'x', b'-' | b'_', ..] => {
            let begins = name.get(..PREFIX.len()).is_some_and(|start| reads_as(start, PREFIX));
            begins || EXTENSIONS.iter().any(|known| reads_as(name, known)) || reads_as(name, ID) && name.contains('_')
        }
        [b'c' | b'f' | b't', ..] => OTHERS.iter().any(|known| reads_as(name, known)),
        b"proxy" => return true,
        _ => false,
    };
    is_known && (!is_trusted || name.contains('_'))
}

/// Whether a server that makes no difference between `_` and `-` reads `name` as `known`, which has hyphens only. Both are in small letters.
fn reads_as(name: &str, known: &str) -> bool {
    let is_same = |(byte, known): (u8, u8)| byte == known || (byte == b'_' && known == b'-');
    name.len() == known.len() && name.bytes().zip(known.bytes()).all(is_same)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_underscores_is_the_one_with_hyphens_and_no_other() {
        for name in
            ["x_forwarded_for", "x-forwarded_for", "x_real_ip", "client_ip", "x_request_id", "x_weal_class", "x_forwarded"]
        {
            assert!(is_forged(name, false) && is_forged(name, true), "{name}");
        }
        for name in ["x-forwarded-for", "x-forwarded-groups", "x-real-ip", "true-client-ip", "forwarded", "client-cert"] {
            assert!(is_forged(name, false) && !is_forged(name, true), "{name}");
        }
        assert!(is_forged("proxy", false) && is_forged("proxy", true));
        for name in
            ["x-request-id", "api_key", "x_api_key", "x-original-filename", "cookie", "from", "proxy-status", "x", "x-for"]
        {
            assert!(!is_forged(name, false), "{name}");
        }
    }

    #[test]
    fn every_name_is_found_by_its_first_letter() {
        for name in EXTENSIONS.iter().chain(&OTHERS) {
            assert!(is_forged(name, false), "{name}");
        }
    }
}
