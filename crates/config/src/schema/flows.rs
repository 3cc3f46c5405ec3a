//! The keys of `[class.NAME]` and `[app.NAME]` that say how requests wait and which instance they go to.

use serde_json::{Value, json};
use weal_model::{DispatchPolicy, DispatchRules, LatePolicy, NameHash};

use super::parts::{describe, quoted};

const RATE: &str = r"^\s*[0-9][0-9_.]*\s*/\s*(s|min|h)\s*$";

pub(super) fn class_keys() -> Vec<(&'static str, Value)> {
    let late = json!({ "enum": LatePolicy::ALL.map(LatePolicy::as_str) });
    vec![
        (
            "late",
            describe(
                late,
                "What becomes of a request that has waited until it can no longer meet the goal: it is served all the same, or refused.",
                &quoted(LatePolicy::default().as_str()),
            ),
        ),
        (
            "rate-limit",
            describe(
                json!({ "type": "string", "pattern": RATE }),
                "How many requests each application of this class sends to its instances: `\"100/s\"`. Others wait.",
                "no limit",
            ),
        ),
        (
            "session-cookie",
            describe(
                json!({ "type": "string", "minLength": 1 }),
                "The cookie of a session that is under way, such as `JSESSIONID`: requests with it wait before those without.",
                "all wait in order of arrival",
            ),
        ),
    ]
}

pub(super) fn app_keys() -> Vec<(&'static str, Value)> {
    let default = DispatchRules::default();
    let policies = DispatchPolicy::ALL.map(DispatchPolicy::as_str);
    let hashes = NameHash::ALL.map(NameHash::as_str);
    vec![
        (
            "dispatch",
            describe(
                json!({ "enum": policies }),
                "How one of several instances is chosen for a request.",
                &quoted(default.policy.as_str()),
            ),
        ),
        (
            "replication",
            describe(
                json!({ "type": "integer", "minimum": 1, "maximum": DispatchRules::MOST_REPLICAS }),
                "Instances that serve the same URL: with `url-hash` so many, with `lard-r` at most so many.",
                &default.replication.to_string(),
            ),
        ),
        (
            "hash",
            describe(
                json!({ "enum": hashes }),
                "How a URL becomes a number. `charsum` is the sum of its characters.",
                &quoted(default.hash.as_str()),
            ),
        ),
        (
            "hash-query",
            describe(json!({ "type": "boolean" }), "Whether URLs that differ in their query are different ones.", "false"),
        ),
        (
            "affinity",
            describe(
                json!({ "type": "string", "minLength": 1 }),
                "The name of a cookie that keeps a client with its instance while that takes requests.",
                "no cookie",
            ),
        ),
    ]
}
