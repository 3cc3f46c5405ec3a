//! Spans of requests, as a collector takes them: by OpenTelemetry's conventions for servers of HTTP.

use std::borrow::Cow;

use hyper::http::uri::Authority;
use serde_json::{Value, json};
use weal_protocol::spans::{RequestSpan, SpansTaken};

use super::{number_attribute, resource, scope, text_attribute};

/// `SPAN_KIND_SERVER`.
const SERVER: u8 = 2;
/// `STATUS_CODE_ERROR`.
const ERROR: u8 = 2;
/// Bits of a span's flags: its trace is sampled; whether its parent is in another process is known; it is.
const SAMPLED: u32 = 1;
const KNOWS_PARENT: u32 = 0x100;
const PARENT_IS_REMOTE: u32 = 0x200;

/// The methods that the conventions name. Clients may send any other word, and no name of a span may be a client's to choose.
const METHODS: [&str; 9] = ["CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"];
/// Keys of a query whose values sign it. The conventions ask for them to be hidden.
const SIGNING: [&str; 4] = ["AWSAccessKeyId", "Signature", "sig", "X-Goog-Signature"];

/// What is posted: spans of one gateway, which is the resource.
pub fn request(pool: &str, taken: &SpansTaken) -> Value {
    let spans: Vec<Value> = taken.spans.iter().map(span).collect();
    json!({ "resourceSpans": [{
        "resource": resource("weal-gateway", pool, Some(taken.gateway.as_str())),
        "scopeSpans": [{ "scope": scope(), "spans": spans }],
    }] })
}

fn span(span: &RequestSpan) -> Value {
    let remote = if span.parent.is_some() { PARENT_IS_REMOTE } else { 0 };
    let is_known = METHODS.contains(&span.method.as_str());
    let name = if is_known { span.method.as_str() } else { "HTTP" };
    let mut value = json!({
        "traceId": span.trace,
        "spanId": span.id,
        "flags": SAMPLED | KNOWS_PARENT | remote,
        "name": name,
        "kind": SERVER,
        "startTimeUnixNano": span.begun.0.to_string(),
        "endTimeUnixNano": span.ended.0.to_string(),
        "attributes": attributes(span, is_known),
        "status": {},
    });
    if let Some(parent) = &span.parent {
        value["parentSpanId"] = parent.as_str().into();
    }
    // What a client did wrong is no error of the server's.
    if has_failed(span) {
        value["status"]["code"] = ERROR.into();
    }
    value
}

fn has_failed(span: &RequestSpan) -> bool {
    span.status == 0 || span.status >= 500
}

fn attributes(span: &RequestSpan, is_known: bool) -> Vec<Value> {
    let (path, query) = span.target.split_once('?').map_or((span.target.as_str(), None), |(path, query)| (path, Some(query)));
    let (address, port) = server(&span.host);
    let (client, peer) = (span.client.to_string(), span.peer.ip().to_canonical().to_string());
    let texts: [(&str, Option<Cow<'_, str>>); 15] = [
        ("http.request.method", Some(Cow::from(if is_known { span.method.as_str() } else { "_OTHER" }))),
        ("http.request.method_original", (!is_known).then(|| Cow::from(&span.method))),
        ("url.scheme", Some(Cow::from(if span.secure { "https" } else { "http" }))),
        ("url.path", Some(Cow::from(path))),
        ("url.query", query.map(without_signatures)),
        ("network.protocol.version", Some(Cow::from(&span.version))),
        ("server.address", Some(Cow::from(address)).filter(|address| !address.is_empty())),
        ("client.address", Some(Cow::from(client))),
        ("network.peer.address", Some(Cow::from(peer))),
        ("user_agent.original", Some(Cow::from(&span.agent)).filter(|agent| !agent.is_empty())),
        ("error.type", has_failed(span).then(|| error_type(span))),
        ("weal.app", span.app.as_ref().map(|app| Cow::from(app.as_str()))),
        ("weal.class", span.class.as_ref().map(|class| Cow::from(class.as_str()))),
        ("weal.reason", span.reason.as_deref().map(Cow::from)),
        ("weal.request_id", Some(Cow::from(&span.request_id))),
    ];
    let numbers = [
        ("http.response.status_code", Some(u64::from(span.status)).filter(|status| *status > 0)),
        ("http.response.body.size", Some(span.sent)),
        ("server.port", port.map(u64::from)),
        ("network.peer.port", Some(u64::from(span.peer.port()))),
    ];
    let texts = texts.iter().filter_map(|(key, value)| Some(text_attribute(key, value.as_deref()?)));
    let numbers = numbers.iter().filter_map(|(key, value)| Some(number_attribute(key, (*value)?)));
    texts.chain(numbers).collect()
}

/// The gateway's own word, or the status.
fn error_type(span: &RequestSpan) -> Cow<'_, str> {
    match (&span.reason, span.status) {
        (Some(reason), _) => Cow::from(reason),
        (None, 0) => Cow::from("not-answered"),
        (None, status) => Cow::from(status.to_string()),
    }
}

/// The host that a client named and its port, if it did.
fn server(host: &str) -> (&str, Option<u16>) {
    let Ok(authority) = host.parse::<Authority>() else { return (host, None) };
    let port = authority.port_u16();
    let address = host.rsplit_once(':').filter(|_| authority.port().is_some()).map_or(host, |(address, _)| address);
    (address.trim_matches(['[', ']']), port)
}

/// A query whose signatures are hidden.
fn without_signatures(query: &str) -> Cow<'_, str> {
    let is_signature = |pair: &str| pair.split_once('=').is_some_and(|(key, _)| SIGNING.contains(&key));
    if !query.split('&').any(is_signature) {
        return Cow::from(query);
    }
    let hidden = query.split('&').map(|pair| match pair.split_once('=') {
        Some((key, _)) if is_signature(pair) => Cow::from(format!("{key}=REDACTED")),
        _ => Cow::from(pair),
    });
    Cow::from(hidden.collect::<Vec<_>>().join("&"))
}

#[cfg(test)]
mod tests {
    use weal_model::Time;

    use super::*;

    fn example() -> RequestSpan {
        RequestSpan {
            trace: "4bf92f3577b34da6a3ce929d0e0e4736".to_owned(),
            id: "00f067aa0ba902b7".to_owned(),
            parent: None,
            begun: Time(5),
            ended: Time(9),
            app: Some("shop".into()),
            class: Some("gold".into()),
            method: "GET".to_owned(),
            secure: true,
            host: "shop.example:8443".to_owned(),
            target: "/a?b=c".to_owned(),
            version: "2".to_owned(),
            status: 200,
            reason: None,
            sent: 12,
            client: [192, 0, 2, 1].into(),
            peer: ([192, 0, 2, 9], 4000).into(),
            agent: "curl/8".to_owned(),
            request_id: "7".to_owned(),
        }
    }

    /// The value of an attribute, as it is written.
    fn said(span: &Value, key: &str) -> Option<Value> {
        let attributes = span["attributes"].as_array().unwrap();
        let value = attributes.iter().find(|one| one["key"] == key)?["value"].as_object().unwrap();
        value.values().next().cloned()
    }

    #[test]
    fn a_span_follows_the_conventions_for_servers() {
        let taken = SpansTaken { gateway: "gw".into(), spans: vec![example()], has_more: false };
        let posted = request("demo", &taken);
        let of_gateway = &posted["resourceSpans"][0];
        assert_eq!(of_gateway["resource"]["attributes"][0], text_attribute("service.name", "weal-gateway"));
        let span = &of_gateway["scopeSpans"][0]["spans"][0];
        assert_eq!((&span["traceId"], &span["spanId"]), (&"4bf92f3577b34da6a3ce929d0e0e4736".into(), &"00f067aa0ba902b7".into()));
        assert_eq!((&span["name"], &span["kind"], &span["flags"]), (&"GET".into(), &2.into(), &0x101.into()));
        assert_eq!((&span["startTimeUnixNano"], &span["endTimeUnixNano"]), (&"5".into(), &"9".into()));
        assert_eq!((span.get("parentSpanId"), &span["status"]), (None, &json!({})));
        for (key, value) in [
            ("http.request.method", "GET"),
            ("url.scheme", "https"),
            ("url.path", "/a"),
            ("url.query", "b=c"),
            ("network.protocol.version", "2"),
            ("server.address", "shop.example"),
            ("server.port", "8443"),
            ("client.address", "192.0.2.1"),
            ("network.peer.address", "192.0.2.9"),
            ("network.peer.port", "4000"),
            ("user_agent.original", "curl/8"),
            ("http.response.status_code", "200"),
            ("http.response.body.size", "12"),
            ("weal.app", "shop"),
            ("weal.class", "gold"),
        ] {
            assert_eq!(said(span, key), Some(value.into()), "{key}");
        }
        for key in ["error.type", "weal.reason", "http.request.method_original"] {
            assert_eq!(said(span, key), None, "{key}");
        }
    }

    #[test]
    fn errors_are_those_of_the_server_and_have_a_type() {
        for (status, reason, kind) in [
            (404, None, None),
            (429, Some("too-many"), None),
            (500, None, Some("500")),
            (503, Some("queue-full"), Some("queue-full")),
            (0, None, Some("not-answered")),
        ] {
            let one = span(&RequestSpan { status, reason: reason.map(str::to_owned), ..example() });
            assert_eq!(one["status"]["code"].as_u64(), kind.map(|_| 2), "{status}");
            assert_eq!(said(&one, "error.type"), kind.map(Value::from), "{status}");
        }
    }

    #[test]
    fn a_client_chooses_no_name_and_its_parent_is_told() {
        let sent = RequestSpan { method: "BREW".to_owned(), parent: Some("00f067aa0ba902b8".to_owned()), ..example() };
        let one = span(&sent);
        assert_eq!((&one["name"], &one["flags"]), (&"HTTP".into(), &0x301.into()));
        assert_eq!(one["parentSpanId"], "00f067aa0ba902b8");
        assert_eq!(said(&one, "http.request.method"), Some("_OTHER".into()));
        assert_eq!(said(&one, "http.request.method_original"), Some("BREW".into()));
    }

    #[test]
    fn hosts_have_ports_or_none_and_signatures_are_hidden() {
        for (host, expected) in [
            ("shop.example", ("shop.example", None)),
            ("[::1]:8080", ("::1", Some(8080))),
            ("[::1]", ("::1", None)),
            ("not a host", ("not a host", None)),
            ("", ("", None)),
        ] {
            assert_eq!(server(host), expected);
        }
        assert_eq!(without_signatures("a=1&sig=s3cret&sig2=x"), "a=1&sig=REDACTED&sig2=x");
        assert_eq!(without_signatures("sig"), "sig");
    }
}
