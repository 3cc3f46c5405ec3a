//! A collector, by OTLP over HTTP with JSON (OpenTelemetry protocol, 1.x).

use std::time::Duration;

use hyper::StatusCode;
use serde_json::{Value, json};
use weal_model::InstanceId;
use weal_protocol::controller::LogLine;

use super::error::ShipError;
use crate::level::Level;
use crate::log_entry::{Entry, writer_of};
use crate::output;
use crate::supervisor::outgoing::Poster;

/// What one request may take: a collector answers when it has queued the lines.
const PATIENCE: Duration = Duration::from_secs(10);

/// Posts lines.
pub struct Collector {
    url: String,
    pool: String,
    poster: Poster,
}

impl Collector {
    /// Posts to the address of the config.
    pub fn new(url: &str, pool: &str) -> Self {
        Self { url: endpoint(url), pool: pool.to_owned(), poster: Poster::default() }
    }

    /// Sends lines of one instance.
    ///
    /// # Errors
    /// The collector did not take them.
    pub async fn send(&mut self, lines: &[LogLine]) -> Result<(), ShipError> {
        let body = serde_json::to_vec(&records(&self.pool, lines, output::now().0)).expect("texts are JSON");
        tokio::time::timeout(PATIENCE, self.post(body)).await.unwrap_or(Err(ShipError::TooSlow(PATIENCE)))
    }

    async fn post(&mut self, body: Vec<u8>) -> Result<(), ShipError> {
        judge(self.poster.post(&self.url, body).await?)
    }
}

/// The protocol's rules: these answers ask for the same lines again, all others do not.
fn judge(status: StatusCode) -> Result<(), ShipError> {
    let asks_again = [
        StatusCode::TOO_MANY_REQUESTS,
        StatusCode::BAD_GATEWAY,
        StatusCode::SERVICE_UNAVAILABLE,
        StatusCode::GATEWAY_TIMEOUT,
        StatusCode::REQUEST_TIMEOUT,
    ];
    match status {
        status if status.is_success() => Ok(()),
        status if asks_again.contains(&status) => Err(ShipError::Busy(status)),
        status => Err(ShipError::Refused(status)),
    }
}

/// The path of the protocol behind an address that has none.
fn endpoint(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    match rest.split_once('/') {
        None => format!("{url}/v1/logs"),
        Some((_, "")) => format!("{url}v1/logs"),
        Some(_) => url.to_owned(),
    }
}

/// What is posted: lines of one instance, which is the resource.
fn records(pool: &str, lines: &[LogLine], now: u64) -> Value {
    let instance = lines.first().map(|line| &line.instance);
    let (name, app) = (instance.map_or("", InstanceId::as_str), instance.map_or_else(String::new, writer_of));
    let resource = [("service.name", app.as_str()), ("service.namespace", pool), ("service.instance.id", name)];
    let attributes: Vec<Value> =
        resource.iter().map(|(key, value)| json!({ "key": key, "value": { "stringValue": value } })).collect();
    let records: Vec<Value> = lines.iter().map(|line| record(line, now)).collect();
    json!({ "resourceLogs": [{
        "resource": { "attributes": attributes },
        "scopeLogs": [{ "scope": { "name": "weal", "version": env!("CARGO_PKG_VERSION") }, "logRecords": records }],
    }] })
}

fn record(line: &LogLine, now: u64) -> Value {
    let entry = Entry::of(line);
    let attributes: Vec<Value> = entry.fields().map(|(key, field)| json!({ "key": key, "value": value(field) })).collect();
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
        let sent = records("demo", &[line(Some(Time(5)), said), line(None, "plain")], 9);
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

    #[test]
    fn an_address_without_a_path_gets_that_of_the_protocol() {
        assert_eq!(endpoint("http://127.0.0.1:4318"), "http://127.0.0.1:4318/v1/logs");
        assert_eq!(endpoint("http://127.0.0.1:4318/"), "http://127.0.0.1:4318/v1/logs");
        assert_eq!(endpoint("https://otlp.example/own/logs"), "https://otlp.example/own/logs");
    }

    #[test]
    fn only_answers_that_ask_for_it_have_lines_sent_again() {
        assert!(judge(StatusCode::OK).is_ok());
        for (status, again) in [(429, true), (503, true), (502, true), (400, false), (401, false), (500, false)] {
            assert_eq!(judge(StatusCode::from_u16(status).unwrap()).unwrap_err().is_passing(), again, "{status}");
        }
    }
}
