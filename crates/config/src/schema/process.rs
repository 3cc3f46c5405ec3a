//! What processes get besides their command.

use serde_json::{Value, json};
use weal_model::{ProcessSignal, ResourceLimit};

use super::parts::{describe, table};

pub(super) fn app_keys() -> Vec<(&'static str, Value)> {
    let text = || json!({ "type": "string", "minLength": 1 });
    let files = json!({ "anyOf": [text(), { "type": "array", "items": text() }] });
    let signals = ProcessSignal::ALL.map(ProcessSignal::as_str);
    vec![
        (
            "env-file",
            describe(
                files,
                "Files with lines `NAME=value`, for the application only; `env` wins, and a dash before a path allows that it is missing.",
                "none",
            ),
        ),
        ("secrets", describe(secrets(), "Variables whose values stand elsewhere: `{ DB_PASSWORD = \"file:db.txt\" }`.", "none")),
        ("group", describe(text(), "The group of its processes, where root runs weal.", "the user's main group")),
        (
            "umask",
            describe(
                json!({ "type": "string", "pattern": "^[0-7]{1,4}$" }),
                "What files of its making do not allow: `\"027\"`.",
                "\"022\"",
            ),
        ),
        ("limits", describe(limits(), "Limits of setrlimit(2), called as in systemd.", "those of weal itself")),
        ("stop-signal", describe(json!({ "enum": signals }), "The signal that asks it to end.", "\"SIGTERM\"")),
        (
            "reload-signal",
            describe(json!({ "enum": signals }), "The signal by which `weal reload` has it read its own config anew.", "none"),
        ),
        ("time-zone", describe(text(), "`TZ` in its environment, such as `Europe/Berlin`.", "that of weal's own environment")),
        ("stdin", describe(text(), "A file that it reads from its standard input.", "empty")),
    ]
}

fn secrets() -> Value {
    let source = || json!({ "type": "string", "pattern": "^(file|variable|credential):." });
    let keys = vec![
        ("from", describe(source(), "`file:PATH`, `variable:NAME` of whoever runs weal, or `credential:NAME` of systemd.", "")),
        (
            "as",
            describe(
                json!({ "enum": ["variable", "file"] }),
                "Whether the variable holds the value, or the path of a file with it.",
                "\"variable\"",
            ),
        ),
    ];
    json!({ "type": "object", "additionalProperties": { "anyOf": [source(), table("A secret.", &["from"], keys)] } })
}

fn limits() -> Value {
    let value = json!({ "anyOf": [{ "type": "integer", "minimum": 0 }, { "type": "string" }] });
    let properties: serde_json::Map<String, Value> =
        ResourceLimit::ALL.iter().map(|limit| (limit.as_str().to_owned(), value.clone())).collect();
    json!({ "type": "object", "additionalProperties": false, "properties": properties })
}
