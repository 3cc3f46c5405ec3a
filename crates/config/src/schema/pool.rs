//! The keys of `[pool]`, and of `[tls.NAME]`.

use serde_json::{Value, json};
use weal_model::{AcmeChallenge, Algorithm, Enactment, OverloadLimit};

use super::manners;
use super::parts::{describe, quoted, span, text};
use crate::defaults;

pub(super) fn keys() -> Vec<(&'static str, Value)> {
    vec![
        (
            "listen",
            describe(
                json!({ "anyOf": [{ "type": "string" }, { "type": "array", "items": { "type": "string", "pattern": "^https?://" } }] }),
                "Where clients connect: one address without TLS, or a list such as `[\"http://127.0.0.1:8080\", \"https://127.0.0.1:8443\"]`.",
                &quoted(defaults::LISTEN),
            ),
        ),
        (
            "https-redirect",
            describe(
                json!({ "type": "boolean" }),
                "Requests without TLS are sent on to the address for https with 308.",
                "false",
            ),
        ),
        (
            "tls-min-version",
            describe(json!({ "enum": ["1.2", "1.3"] }), "The oldest version of TLS that is spoken.", "`\"1.2\"`"),
        ),
        ("api", text("Where the API and the dashboard are.", defaults::API)),
        (
            "api-tls",
            describe(
                json!({
                    "type": "object",
                    "properties": {
                        "certificate": { "type": "string" },
                        "key": { "type": "string" },
                        "client-ca": { "type": "string" },
                    },
                    "required": ["certificate", "key"],
                    "additionalProperties": false,
                }),
                "TLS at the API: files in PEM. With `client-ca`, whoever connects has to show a certificate from it, and may then look without a token.",
                "none: plain HTTP",
            ),
        ),
        (
            "api-insecure",
            describe(
                json!({ "type": "boolean" }),
                "Whether the API may speak plain HTTP to other machines. Tokens cross the network as they are then.",
                "false",
            ),
        ),
        (
            "name",
            describe(
                json!({ "type": "string", "minLength": 1, "maxLength": 80 }),
                "The pool's name, for people.",
                "the folder's name",
            ),
        ),
        (
            "user",
            describe(
                json!({ "type": "string" }),
                "Does nothing any more: the gateway and the controller have users of their own.",
                "none",
            ),
        ),
        (
            "watch",
            describe(
                json!({ "type": "boolean" }),
                "Whether a change of this file is deployed by itself, within a second. Otherwise `weal deploy` does it.",
                "false",
            ),
        ),
        (
            "logs-to",
            describe(
                json!({ "type": "string", "pattern": "^(journald$|https?://)" }),
                "Where each line of applications and jobs is sent too: `journald`, or a collector's address for OTLP over HTTP.",
                "nobody else",
            ),
        ),
        (
            "metrics-to",
            describe(
                json!({ "type": "string", "pattern": "^https?://" }),
                "Where the metrics are pushed every 15 s: a collector's address for OTLP over HTTP.",
                "nobody",
            ),
        ),
        (
            "traces-to",
            describe(
                json!({ "type": "string", "pattern": "^https?://" }),
                "Where a span of each sampled request is pushed: a collector's address for OTLP over HTTP. It turns `traceparent` on.",
                "nobody",
            ),
        ),
        (
            "control",
            describe(
                json!({ "enum": ["on", "off"] }),
                "`off` only watches: no seats are limited and no instance is moved.",
                "\"on\"",
            ),
        ),
        (
            "placement",
            describe(
                json!({ "enum": Algorithm::WORDS.map(|(word, _)| word) }),
                "Which algorithm places instances: weal's own, or one to compare it with. `static` and `autoscaler` know no goals: they share CPU equally, without seats.",
                "\"weal\"",
            ),
        ),
        (
            "autoscaler-speed",
            describe(
                json!({ "type": "number", "minimum": 0.1, "maximum": 1000 }),
                "How many times as fast as Kubernetes' defaults the `autoscaler` acts, for rehearsals that compress time.",
                &defaults::AUTOSCALER_SPEED.to_string(),
            ),
        ),
        (
            "enactment",
            describe(
                json!({ "enum": Enactment::ALL }),
                "What becomes of instances that are not needed now: they sleep on the rung that pays (`ladder`), sleep frozen until memory is wanted, run on, or stop.",
                &quoted(Enactment::default().as_str()),
            ),
        ),
        (
            "overload-limit",
            describe(
                json!({ "enum": OverloadLimit::ALL }),
                "What a request takes of an application's limit on outstanding requests: one of its `seats`, or as many as the `power` that it uses is worth.",
                &quoted(OverloadLimit::default().as_str()),
            ),
        ),
        ("flow-cycle", span("How often seats and weights are decided.", defaults::FLOW_CYCLE_S)),
        ("placement-cycle", span("How often placement is decided, besides when something happens.", defaults::PLACEMENT_CYCLE_S)),
    ]
    .into_iter()
    .chain(manners::pool_keys())
    .collect()
}

pub(super) fn tls_keys() -> Vec<(&'static str, Value)> {
    let file = |what: &str| describe(json!({ "type": "string" }), what, "");
    vec![
        (
            "certificate",
            file("PEM file with the certificate, and those that lead from it to a root. Taken anew when it changes."),
        ),
        ("key", file("PEM file with its private key. Nobody but its owner and group may read it.")),
        (
            "self-signed",
            describe(
                json!({ "type": "boolean" }),
                "weal makes a certificate, for tests: clients have to be told to trust it.",
                "false",
            ),
        ),
        (
            "hosts",
            describe(
                json!({ "type": "array", "items": { "type": "string" } }),
                "The hosts of a certificate that weal makes or asks for.",
                "self-signed: `localhost`, `*.localhost` and the routes' hosts below it; `acme`: all hosts of routes",
            ),
        ),
        (
            "acme",
            describe(
                json!({ "anyOf": [{ "const": true }, { "type": "string", "pattern": "^https://" }] }),
                "An authority gives the certificate, and the next one in time: `true` is Let's Encrypt, a URL the directory of another. By this you agree to its terms.",
                "none",
            ),
        ),
        (
            "challenge",
            describe(
                json!({ "enum": AcmeChallenge::ALL }),
                "How the authority is shown that the hosts are yours: by a file on port 80 or by a handshake on port 443.",
                "\"http-01\"",
            ),
        ),
        ("email", describe(json!({ "type": "string" }), "To whom the authority writes.", "nobody")),
        (
            "acme-ca",
            describe(
                json!({ "type": "string" }),
                "PEM file with the certificates by which the authority's own address is trusted.",
                "the system's",
            ),
        ),
    ]
}
