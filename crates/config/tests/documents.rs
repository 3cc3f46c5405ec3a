//! The schema accepts what `parse` accepts and refuses unknown keys; docs/ says what the code does.
//! `UPDATE_DOCS=1 cargo test -p weal-config` writes the documents anew.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use weal_config::{documentation, schema};

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn configs(kind: &str) -> Vec<(String, Value)> {
    let mut files: Vec<PathBuf> = fs::read_dir(here("tests").join(kind)).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let name = |file: &PathBuf| file.file_stem().unwrap().to_string_lossy().into_owned();
    let read = |file: PathBuf| Some((name(&file), toml::from_str(&fs::read_to_string(&file).unwrap()).ok()?));
    files.into_iter().filter_map(read).collect()
}

#[test]
fn the_schema_accepts_every_good_config() {
    for (name, config) in configs("good") {
        assert_eq!(violation(&schema(), &config, "$"), None, "{name}");
    }
}

#[test]
fn the_schema_refuses_what_it_can_know() {
    let refused: Vec<String> = configs("bad")
        .into_iter()
        .filter(|(_, config)| violation(&schema(), config, "$").is_some())
        .map(|(name, _)| name)
        .collect();
    for name in
        ["key-unknown-at-top", "key-unknown-in-app", "key-unknown-in-pool", "health-twice", "app-run-missing", "memory-unit"]
    {
        assert!(refused.iter().any(|refused| refused == name), "{name} was accepted");
    }
    assert!(refused.len() >= 20, "{refused:?}");
    assert!(!refused.iter().any(|name| name.ends_with("-warning")), "{refused:?}");
}

#[test]
fn the_documents_say_what_the_code_does() {
    let update = std::env::var_os("UPDATE_DOCS").is_some();
    let compare = |path: &str, right: &str| {
        if update {
            fs::write(here(path), right).unwrap();
        }
        let stored = fs::read_to_string(here(path)).unwrap();
        assert!(stored == right, "{path} is out of date: run `UPDATE_DOCS=1 cargo test -p weal-config`");
    };
    compare("../../docs/weal.schema.json", &(serde_json::to_string_pretty(&schema()).unwrap() + "\n"));
    let mut page = fs::read_to_string(here("../../docs/config.md")).unwrap();
    for (name, table) in documentation() {
        let (start, end) = (format!("<!-- keys: {name} -->\n"), format!("<!-- end: {name} -->"));
        let from = page.find(&start).unwrap_or_else(|| panic!("docs/config.md has no {start}")) + start.len();
        let to = from + page[from..].find(&end).unwrap();
        page.replace_range(from..to, &format!("{table}\n"));
    }
    compare("../../docs/config.md", &page);
}

/// The first violation of `schema` by `value`. Knows the keywords that the schema uses; of patterns, only that units are
/// there, since a whole regular expression engine would be needed for the rest.
fn violation(schema: &Value, value: &Value, at: &str) -> Option<String> {
    let known =
        ["$schema", "title", "description", "type", "additionalProperties", "required", "properties", "items", "anyOf", "enum"];
    let more = ["const", "minimum", "maximum", "minLength", "maxLength", "minItems", "uniqueItems", "pattern", "propertyNames"];
    for keyword in schema.as_object().unwrap().keys() {
        assert!(known.contains(&keyword.as_str()) || more.contains(&keyword.as_str()), "{at}: unknown keyword {keyword}");
    }
    let wrong = |what: &str| Some(format!("{at}: {what}: {value}"));
    if let Some(options) = schema["anyOf"].as_array()
        && options.iter().all(|option| violation(option, value, at).is_some())
    {
        return wrong("matches none");
    }
    if schema["enum"].as_array().is_some_and(|words| !words.contains(value))
        || schema.get("const").is_some_and(|only| only != value)
    {
        return wrong("not one of the words");
    }
    let fits = match schema["type"].as_str() {
        None => true,
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64(),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        Some(other) => panic!("unknown type {other}"),
    };
    if !fits {
        return wrong("wrong type");
    }
    if let Some(number) = value.as_f64() {
        let (least, most) = (schema["minimum"].as_f64().unwrap_or(f64::MIN), schema["maximum"].as_f64().unwrap_or(f64::MAX));
        return if (least..=most).contains(&number) { None } else { wrong("out of range") };
    }
    if let Some(text) = value.as_str() {
        let pattern = schema["pattern"].as_str().unwrap_or_default();
        let unit_missing = pattern.contains("MiB") && !text.ends_with('B') || pattern == "^/" && !text.starts_with('/');
        return if unit_missing { wrong("does not match") } else { None };
    }
    if let Some(list) = value.as_array() {
        if list.len() < schema["minItems"].as_u64().unwrap_or(0) as usize {
            return wrong("too short");
        }
        // Without `items` one of `anyOf` has looked at them.
        let items = schema.get("items")?;
        return list.iter().enumerate().find_map(|(index, item)| violation(items, item, &format!("{at}[{index}]")));
    }
    let map = value.as_object()?;
    for key in schema["required"].as_array().into_iter().flatten() {
        if !map.contains_key(key.as_str().unwrap()) {
            return wrong(&format!("{key} is missing"));
        }
    }
    map.iter().find_map(|(key, value)| {
        let at = format!("{at}.{key}");
        match (schema["properties"].get(key), &schema["additionalProperties"]) {
            (Some(property), _) => violation(property, value, &at),
            (None, Value::Bool(false)) => Some(format!("{at}: unknown key")),
            (None, Value::Object(_)) => violation(&schema["additionalProperties"], value, &at),
            (None, _) => None,
        }
    })
}
