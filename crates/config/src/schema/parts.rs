//! What every part of the schema is made of.

use serde_json::{Map, Value, json};
use weal_model::written::show_span;

/// How a duration is written.
pub(super) const SPAN: &str = r"^\s*[0-9][0-9_.]*\s*(us|ms|s|m|min|h)\s*$";
const SIZE: &str = r"^\s*[0-9][0-9_.]*\s*(B|KiB|MiB|GiB|TiB|kB|KB|MB|GB|TB)\s*$";

/// `default` is shown to people: it is a value only where the schema's `default` is one too.
pub(super) fn describe(mut value: Value, description: &str, default: &str) -> Value {
    if let Some(map) = value.as_object_mut() {
        let suffix = if default.is_empty() { String::new() } else { format!(" Default: {default}.") };
        map.insert("description".to_owned(), json!(format!("{description}{suffix}")));
    }
    value
}

pub(super) fn table(description: &str, required: &[&str], keys: Vec<(&'static str, Value)>) -> Value {
    let properties: Map<String, Value> = keys.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    let mut table =
        json!({ "description": description, "type": "object", "additionalProperties": false, "properties": properties });
    if !required.is_empty() {
        table["required"] = json!(required);
    }
    table
}

/// Program and arguments.
pub(super) fn argv() -> Value {
    json!({ "type": "array", "minItems": 1, "items": { "type": "string" } })
}

pub(super) fn size() -> Value {
    json!({ "type": "string", "pattern": SIZE })
}

pub(super) fn quoted(text: &str) -> String {
    format!("\"{text}\"")
}

pub(super) fn text(description: &str, default: &str) -> Value {
    describe(json!({ "type": "string" }), description, &quoted(default))
}

pub(super) fn span(description: &str, default_s: f64) -> Value {
    describe(json!({ "type": "string", "pattern": SPAN }), description, &quoted(&show_span(default_s)))
}
