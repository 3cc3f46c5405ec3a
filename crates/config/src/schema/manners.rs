//! The keys of `[pool]` and of routes that say how gateways treat requests and clients.

use serde_json::{Value, json};
use weal_model::{AccessLog, ClientPolicy, ListenScheme};

use super::parts::{describe, quoted, size, table};

pub(super) fn pool_keys() -> Vec<(&'static str, Value)> {
    let list = || json!({ "type": "array", "items": { "type": "string" } });
    let flag = || json!({ "type": "boolean" });
    let count = |most: u32| json!({ "type": "integer", "minimum": 0, "maximum": most });
    vec![
        (
            "trusted-proxies",
            describe(
                list(),
                "Networks of proxies in front, which say who their clients are (`Forwarded`, `X-Forwarded-*`). What others say is replaced.",
                "[]",
            ),
        ),
        (
            "accept-proxy",
            describe(
                json!({ "type": "array", "uniqueItems": true, "items": { "enum": ListenScheme::ALL } }),
                "Addresses of `listen`, `\"http\"` or `\"https\"`, at which each connection of a trusted proxy begins with a header of the PROXY protocol.",
                "[]",
            ),
        ),
        (
            "compression",
            describe(
                flag(),
                "Whether answers of a compressible type are compressed for clients that accept it, where the route does not say.",
                "false",
            ),
        ),
        (
            "access-log",
            describe(
                json!({ "enum": AccessLog::ALL }),
                "Whether each request is written to `gateway/access.log` in the state folder, and how.",
                &quoted(AccessLog::default().as_str()),
            ),
        ),
        (
            "traceparent",
            describe(
                flag(),
                "Whether each request gets a `traceparent` (W3C Trace Context), of the client's trace if it has a valid one.",
                "false",
            ),
        ),
        (
            "trace-ratio",
            describe(
                json!({ "type": "number", "minimum": 0, "maximum": 1 }),
                "The share of requests without a valid `traceparent` whose trace is sampled. A client's `traceparent` says it itself.",
                &ClientPolicy::default().trace_ratio.to_string(),
            ),
        ),
        (
            "unlimited-clients",
            describe(
                list(),
                "Networks whose addresses `client-connections`, `client-rate` and `client-seats` do not limit.",
                "[\"127.0.0.0/8\", \"::1/128\"]",
            ),
        ),
        (
            "client-connections",
            describe(
                count(65_536),
                "Connections that one address may have open; 0 is any number. Trusted proxies may have any number.",
                &ClientPolicy::CONNECTIONS.to_string(),
            ),
        ),
        (
            "client-rate",
            describe(
                count(1_000_000),
                "Requests per second that one address may send, twice as many at once; 0 is any number. Those beyond are answered 429.",
                &ClientPolicy::RATE.to_string(),
            ),
        ),
        (
            "client-seats",
            describe(
                json!({ "type": "integer", "minimum": 1, "maximum": 100 }),
                "Percent of an application's seats that requests of one address may hold, one seat at least; 100 are all. Those beyond wait without a seat.",
                &ClientPolicy::SEATS.to_string(),
            ),
        ),
        (
            "client-min-rate",
            describe(
                count(1_000_000),
                "Bytes per second that a client sends of a request's body, and takes of an answer, at least; 0 is any rate. One that is slower is cut off after some seconds.",
                &ClientPolicy::MIN_RATE.to_string(),
            ),
        ),
    ]
}

pub(super) fn route_keys() -> Vec<(&'static str, Value)> {
    let text = || json!({ "type": "string", "minLength": 1 });
    let flag = || json!({ "type": "boolean" });
    vec![
        (
            "strip-prefix",
            describe(
                json!({ "type": "string", "pattern": "^/" }),
                "Removed from the start of the path before an instance gets it.",
                "nothing",
            ),
        ),
        (
            "redirect",
            describe(
                json!({ "anyOf": [text(), redirect()] }),
                "Where clients are sent instead: a URL with `$host` and `$path`, or `{ to = .., status = 308 }`.",
                "none, and status 307",
            ),
        ),
        (
            "request-headers",
            describe(edits(), "What is changed in a request's head, after all that the gateway says itself.", "nothing"),
        ),
        (
            "response-headers",
            describe(edits(), "What is changed in the head of an answer, also of the gateway's own.", "nothing"),
        ),
        ("body-limit", describe(size(), "The longest body of a request. Longer ones are answered 413.", "no limit")),
        ("maintenance", describe(flag(), "Whether requests are answered 503 instead of being passed on.", "false")),
        (
            "error-pages",
            describe(
                json!({ "type": "object", "additionalProperties": text() }),
                "Files with what the gateway says instead of its own errors: `{ 404 = \"none.html\", 5xx = \"sorry.html\" }`. At most 64 KiB each, readable for the gateway.",
                "one line of text",
            ),
        ),
        (
            "accept-proxy",
            describe(
                flag(),
                "With `tcp`: whether each connection of a trusted proxy begins with a header of the PROXY protocol.",
                "false",
            ),
        ),
        ("compression", describe(flag(), "Whether its answers are compressed.", "as `[pool]` says")),
        (
            "client-min-rate",
            describe(
                json!({ "type": "integer", "minimum": 0, "maximum": 1_000_000 }),
                "Bytes per second that its clients send and take at least. With 0 their requests may take a seat before the body has come.",
                "as `[pool]` says; 0 with `protocol = \"h2c\"`",
            ),
        ),
    ]
}

fn redirect() -> Value {
    let keys = vec![
        ("to", describe(json!({ "type": "string", "minLength": 1 }), "The URL.", "")),
        ("status", describe(json!({ "enum": [301, 302, 303, 307, 308] }), "How.", "307")),
    ];
    table("Where clients are sent.", &["to"], keys)
}

fn edits() -> Value {
    let keys = vec![
        (
            "set",
            describe(
                json!({ "type": "object", "additionalProperties": { "type": "string" } }),
                "Headers and their only values.",
                "none",
            ),
        ),
        ("remove", describe(json!({ "type": "array", "items": { "type": "string" } }), "Headers that go.", "none")),
    ];
    table("First what is removed, then what is set.", &[], keys)
}
