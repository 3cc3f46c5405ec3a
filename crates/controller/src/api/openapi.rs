//! The OpenAPI 3.1 document, from the table of routes and the types' JSON Schemas.

use std::collections::BTreeMap;

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::access::Access;
use super::routes::{Content, Parameter, Route, routes};
use weal_protocol::controller::ApiError;

/// The document, as served at `/openapi.json` and kept in `openapi/weal.json`.
pub fn openapi() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut generator = settings.into_generator();
    let mut paths = BTreeMap::<&str, Map<String, Value>>::new();
    let routes = routes();
    for route in &routes {
        let mut operation = json!({
            "summary": route.summary,
            "operationId": operation_id(route, &routes),
            "parameters": route.parameters.iter().map(parameter).collect::<Vec<_>>(),
            "security": security(route.access),
        });
        if let Some(body) = route.body {
            let schema = body(&mut generator);
            operation["requestBody"] = json!({ "required": true, "content": { "application/json": { "schema": schema } } });
        }
        let mut answers = Map::new();
        for (status, text, content) in &route.answers {
            let content = match content {
                Content::Json(schema) => json!({ "application/json": { "schema": schema(&mut generator) } }),
                Content::Text(kind) => json!({ (*kind): { "schema": { "type": "string" } } }),
            };
            answers.insert(status.to_string(), json!({ "description": text, "content": content }));
        }
        let error = generator.subschema_for::<ApiError>();
        let refused =
            json!({ "description": "Refused, with the reason.", "content": { "application/json": { "schema": error } } });
        answers.insert("default".into(), refused);
        operation["responses"] = Value::Object(answers);
        paths.entry(route.path).or_default().insert(route.method.into(), operation);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "weal",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "How a pool is, what is decided about it and why, and what it is to be.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": "http://127.0.0.1:8081", "description": "The default; over run/controller.sock no token is needed." }],
        "paths": paths,
        "components": {
            "schemas": generator.take_definitions(true),
            "securitySchemes": {
                "token": { "type": "http", "scheme": "bearer", "description": "The content of controller/token in the state directory, or the secret of a token that was made since. A role is the scope that the token must have at least: `read`, `jobs`, `all`; `operator` is the first token itself." },
            },
        },
    })
}

/// The scope that a token must have, as OpenAPI 3.1 names roles. What only tells how the pool is may be open.
fn security(access: Access) -> Value {
    match access {
        Access::Open => json!([{}]),
        Access::Read => json!([{}, { "token": ["read"] }]),
        Access::Jobs => json!([{ "token": ["jobs"] }]),
        Access::Order => json!([{ "token": ["all"] }]),
        Access::Keys => json!([{ "token": ["operator"] }]),
    }
}

fn operation_id(route: &Route, routes: &[Route]) -> String {
    let is_word = |word: &&str| !word.is_empty() && *word != "v1" && !word.starts_with('{');
    let mut words: Vec<&str> = route.path.split(['/', '.']).filter(is_word).collect();
    // One of many is told from all of them: `get-jobs`, `get-jobs-job`.
    words.extend(route.path.rsplit('/').next().and_then(|last| last.strip_prefix('{')?.strip_suffix('}')));
    // `/metrics` has the same words as `/v1/metrics`.
    let bare = route.path.strip_prefix("/v1").unwrap_or_default();
    if routes.iter().any(|other| other.path == bare) {
        words.insert(0, "v1");
    }
    let name = words.join("-");
    format!("{}-{}", route.method, if name.is_empty() { "dashboard" } else { &name })
}

fn parameter(parameter: &Parameter) -> Value {
    json!({
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.place == "path",
        "description": parameter.text,
        "schema": { "type": parameter.kind },
    })
}
