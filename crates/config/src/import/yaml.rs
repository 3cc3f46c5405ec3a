//! YAML as JSON values, with aliases and merge keys (`<<: *common`) resolved.

use saphyr::{LoadableYamlNode, Mapping, Scalar, Yaml};
use serde_json::{Map, Value};

use super::imported::ImportError;

/// Reads the first document in `text`.
///
/// # Errors
/// `text` is not YAML.
pub(super) fn parse(text: &str) -> Result<Value, ImportError> {
    let documents = Yaml::load_from_str(text).map_err(|error| ImportError::Yaml(error.to_string()))?;
    Ok(documents.first().map_or(Value::Null, to_value))
}

fn to_value(yaml: &Yaml) -> Value {
    match yaml {
        Yaml::Value(Scalar::Boolean(flag)) => Value::Bool(*flag),
        Yaml::Value(Scalar::Integer(number)) => Value::from(*number),
        Yaml::Value(Scalar::FloatingPoint(number)) => Value::from(number.into_inner()),
        Yaml::Value(Scalar::String(text)) | Yaml::Representation(text, ..) => Value::String(text.to_string()),
        Yaml::Sequence(items) => items.iter().map(to_value).collect(),
        Yaml::Mapping(mapping) => Value::Object(to_object(mapping)),
        Yaml::Tagged(_, inner) => to_value(inner),
        Yaml::Value(Scalar::Null) | Yaml::Alias(_) | Yaml::BadValue => Value::Null,
    }
}

/// A mapping's own keys count more than merged ones; of several merged mappings, the first counts most.
fn to_object(mapping: &Mapping) -> Map<String, Value> {
    let mut object = Map::new();
    for (key, value) in mapping {
        match (to_key(key), to_value(value)) {
            (Some(key), Value::Object(merged)) if key == "<<" => merge(&mut object, merged),
            (Some(key), Value::Array(sources)) if key == "<<" => {
                for source in sources {
                    if let Value::Object(merged) = source {
                        merge(&mut object, merged);
                    }
                }
            }
            (Some(key), value) => {
                object.insert(key, value);
            }
            (None, _) => {}
        }
    }
    object
}

fn merge(object: &mut Map<String, Value>, merged: Map<String, Value>) {
    for (key, value) in merged {
        object.entry(key).or_insert(value);
    }
}

/// A key as text; lists and mappings have no counterpart as keys.
fn to_key(key: &Yaml) -> Option<String> {
    match to_value(key) {
        Value::String(text) => Some(text),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn merged_mappings_fill_in_what_a_mapping_does_not_say_itself() {
        let text = "a: &a { x: 1, y: 2 }\nb: &b { y: 3, z: 4.5 }\nc:\n  x: true\n  <<: [*a, *b]\n";
        assert_eq!(parse(text).unwrap()["c"], json!({ "x": true, "y": 2, "z": 4.5 }));
        let first = "a: &a { x: 1 }\nc:\n  <<: *a\n  x: '2'\n  7: ~\n";
        assert_eq!(parse(first).unwrap()["c"], json!({ "x": "2", "7": null }));
    }

    #[test]
    fn text_that_is_not_yaml_is_refused() {
        assert!(matches!(parse("a: [1, 2"), Err(ImportError::Yaml(_))));
        assert_eq!(parse(""), Ok(Value::Null));
    }
}
