//! Lines of logs, as a collector takes them.

use serde_json::{Value, json};
use weal_model::InstanceId;
use weal_protocol::controller::LogLine;

use super::{attribute, resource, scope};
use crate::level::Level;
use crate::log_entry::{Entry, writer_of};

/// What is posted: lines of one instance, which is the resource.
pub fn request(pool: &str, lines: &[LogLine], now: u64) -> Value {
    let instance = lines.first().map(|line| &line.instance);
    let (name, app) = (instance.map_or("", InstanceId::as_str), instance.map_or_else(String::new, writer_of));
    let records: Vec<Value> = lines.iter().map(|line| record(line, now)).collect();
    json!({ "resourceLogs": [{
        "resource": resource(&app, pool, Some(name)),
        "scopeLogs": [{ "scope": scope(), "logRecords": records }],
    }] })
}

fn record(line: &LogLine, now: u64) -> Value {
    let entry = Entry::of(line);
    let attributes: Vec<Value> = entry.fields().map(|(key, field)| attribute(key, value(field))).collect();
    let mut record = json!({
        // 64-bit numbers are texts in the protocol's JSON.
        "observedTimeUnixNano": now.to_string(),
        "body": { "stringValue": entry.message() },
        "attributes": attributes,
    });
    if let Some(time) = line.time {
        record["timeUnixNano"] = time.0.to_string().into();
    }
    if let Some(level) = entry.level() {
        record["severityText"] = level.to_uppercase().into();
        record["severityNumber"] = Level::of(Some(level)).number.into();
    }
    record
}

/// A value of the protocol. What is nested stays JSON, as a text.
fn value(field: &Value) -> Value {
    match field {
        Value::String(text) => json!({ "stringValue": text }),
        Value::Bool(flag) => json!({ "boolValue": flag }),
        Value::Number(number) if number.is_i64() => json!({ "intValue": number.to_string() }),
        Value::Number(number) => json!({ "doubleValue": number }),
        other => json!({ "stringValue": other.to_string() }),
    }
}

#[cfg(test)]
mod tests {
    use weal_model::Time;

    use super::*;

    #[test]
    fn a_record_has_what_the_line_says_and_whose_it_is() {
        let line = |time, text: &str| LogLine { time, instance: "my-shop-2".into(), line: text.to_owned() };
        let said = r#"{"level":"error","msg":"no table","ms":912,"share":0.5,"ok":false,"of":{"a":1}}"#;
        let sent = request("demo", &[line(Some(Time(5)), said), line(None, "plain")], 9);
        let resource = &sent["resourceLogs"][0]["resource"]["attributes"];
        let of = |key: &str| {
            resource.as_array().unwrap().iter().find(|one| one["key"] == key).unwrap()["value"]["stringValue"].clone()
        };
        assert_eq!([of("service.name"), of("service.namespace"), of("service.instance.id")], ["my-shop", "demo", "my-shop-2"]);
        let records = &sent["resourceLogs"][0]["scopeLogs"][0]["logRecords"];
        assert_eq!(
            records[0],
            json!({
                "timeUnixNano": "5", "observedTimeUnixNano": "9", "severityText": "ERROR", "severityNumber": 17,
                "body": { "stringValue": "no table" },
                "attributes": [
                    { "key": "ms", "value": { "intValue": "912" } },
                    { "key": "of", "value": { "stringValue": "{\"a\":1}" } },
                    { "key": "ok", "value": { "boolValue": false } },
                    { "key": "share", "value": { "doubleValue": 0.5 } },
                ],
            })
        );
        assert_eq!(records[1], json!({ "observedTimeUnixNano": "9", "body": { "stringValue": "plain" }, "attributes": [] }));
    }
}
