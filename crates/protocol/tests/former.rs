//! What a role of the version before says is understood. `former/` has one JSON document for the request and one for the response of each call,
//! without the fields that have a default: such a field may be one that the former version did not know.
//!
//! A document is never changed within a version of its call: a change that it does not survive needs a new name of the call.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use weal_protocol::{Method, gateway, node, tls};

/// Where calls are named.
const SOURCES: [&str; 3] = [include_str!("../src/gateway.rs"), include_str!("../src/node.rs"), include_str!("../src/tls.rs")];

/// Reads the documents of one call, and names it.
fn understood<Request, Response>(method: Method<Request, Response>) -> String
where
    Request: DeserializeOwned + Serialize,
    Response: DeserializeOwned + Serialize,
{
    let name = method.name().replace('/', ".");
    survives::<Request>(&format!("{name}.request.json"));
    survives::<Response>(&format!("{name}.response.json"));
    method.name().to_owned()
}

/// What a former version said is read, and says the same when it is sent on.
fn survives<T: DeserializeOwned + Serialize>(file: &str) {
    let text = std::fs::read_to_string(folder().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
    let former: Value = serde_json::from_str(&text).unwrap();
    let read: T = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{file}: {error}"));
    let sent = serde_json::to_value(&read).unwrap();
    assert!(keeps(&former, &sent), "{file} loses something when it is read: {sent:#}");
}

/// Whether all that `former` says is in `now`.
fn keeps(former: &Value, now: &Value) -> bool {
    match (former, now) {
        (Value::Object(former), Value::Object(now)) => {
            former.iter().all(|(key, value)| now.get(key).is_some_and(|now| keeps(value, now)))
        }
        (Value::Array(former), Value::Array(now)) => {
            former.len() == now.len() && former.iter().zip(now).all(|(former, now)| keeps(former, now))
        }
        _ => former == now,
    }
}

fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/former"))
}

#[test]
fn all_that_a_role_of_the_version_before_says_is_understood() {
    let read = BTreeSet::from([
        understood(gateway::CONFIGURE),
        understood(gateway::OBSERVE),
        understood(gateway::REFUSED),
        understood(tls::CERTIFY),
        understood(node::CONFIGURE),
        understood(node::RESERVE),
        understood(node::APPLY),
        understood(node::OBSERVE),
        understood(node::EVENTS),
        understood(node::LOGS),
        understood(node::LOG_SOURCES),
        understood(node::OUTPUT),
        understood(node::PREFER),
        understood(node::WAKE),
    ]);
    let names = SOURCES.iter().flat_map(|source| source.split("Method::new(\"").skip(1));
    let names: BTreeSet<String> = names.filter_map(|rest| rest.split('"').next()).map(str::to_owned).collect();
    assert_eq!(read, names, "each call has its documents");
    assert_eq!(std::fs::read_dir(folder()).unwrap().count(), 2 * names.len(), "each document is read");
}

#[test]
fn what_a_field_says_that_was_renamed_is_lost() {
    let former = serde_json::json!({ "list": [{ "old": 1 }] });
    assert!(keeps(&former, &serde_json::json!({ "list": [{ "old": 1, "new": 2 }], "more": null })));
    for now in [serde_json::json!({ "list": [{ "new": 1 }] }), serde_json::json!({ "list": [] }), serde_json::json!({})] {
        assert!(!keeps(&former, &now), "{now}");
    }
}
