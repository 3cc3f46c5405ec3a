//! A collector, by OTLP over HTTP with JSON (OpenTelemetry protocol, 1.x): how logs, metrics and spans are posted, and what they have in common.

pub mod logs;
pub mod metrics;
pub mod spans;

use std::time::Duration;

use hyper::StatusCode;
use serde_json::{Value, json};

use super::outgoing::{OutgoingError, Poster};
use super::outlet::Untaken;

/// What one request may take: a collector answers when it has queued what it gets.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    Logs,
    Metrics,
    Traces,
}

impl Signal {
    /// The path of the protocol for it.
    fn path(self) -> &'static str {
        match self {
            Self::Logs => "v1/logs",
            Self::Metrics => "v1/metrics",
            Self::Traces => "v1/traces",
        }
    }
}

/// Why something was not taken. No variant holds an address or what was posted.
#[derive(Debug, thiserror::Error)]
pub enum CollectorError {
    /// The collector does not answer.
    #[error(transparent)]
    Unanswered(#[from] OutgoingError),
    /// It wants to be asked again.
    #[error("the collector answered {0}")]
    Busy(StatusCode),
    /// It does not take this, now or later.
    #[error("the collector refused them: {0}")]
    Refused(StatusCode),
    /// It took too long.
    #[error("the collector took longer than {0:?}")]
    TooSlow(Duration),
}

impl Untaken for CollectorError {
    fn is_passing(&self) -> bool {
        !matches!(self, Self::Refused(_))
    }
}

/// Posts to one collector.
pub struct Collector {
    url: String,
    poster: Poster,
}

impl Collector {
    /// Posts to the address of the config.
    pub fn new(url: &str, signal: Signal) -> Self {
        Self { url: endpoint(url, signal), poster: Poster::default() }
    }

    /// Posts `body`.
    ///
    /// # Errors
    /// The collector did not take it.
    pub async fn send(&mut self, body: &Value) -> Result<(), CollectorError> {
        let body = serde_json::to_vec(body).expect("a value is JSON");
        let posted = tokio::time::timeout(PATIENCE, self.poster.post(&self.url, body)).await;
        judge(posted.map_err(|_| CollectorError::TooSlow(PATIENCE))??)
    }
}

/// The protocol's rules: these answers ask for the same again, all others do not.
fn judge(status: StatusCode) -> Result<(), CollectorError> {
    let asks_again = [
        StatusCode::TOO_MANY_REQUESTS,
        StatusCode::BAD_GATEWAY,
        StatusCode::SERVICE_UNAVAILABLE,
        StatusCode::GATEWAY_TIMEOUT,
        StatusCode::REQUEST_TIMEOUT,
    ];
    match status {
        status if status.is_success() => Ok(()),
        status if asks_again.contains(&status) => Err(CollectorError::Busy(status)),
        status => Err(CollectorError::Refused(status)),
    }
}

/// The path of the protocol behind an address that has none.
fn endpoint(url: &str, signal: Signal) -> String {
    let (rest, path) = (url.split_once("://").map_or(url, |(_, rest)| rest), signal.path());
    match rest.split_once('/') {
        None => format!("{url}/{path}"),
        Some((_, "")) => format!("{url}{path}"),
        Some(_) => url.to_owned(),
    }
}

/// Who sends: an application or a role of weal's, in which pool, and which process of it.
fn resource(service: &str, pool: &str, instance: Option<&str>) -> Value {
    let known = [("service.name", service), ("service.namespace", pool)];
    let known = known.into_iter().chain(instance.map(|instance| ("service.instance.id", instance)));
    json!({ "attributes": known.map(|(key, value)| text_attribute(key, value)).collect::<Vec<_>>() })
}

/// Whose words these are.
fn scope() -> Value {
    json!({ "name": "weal", "version": env!("CARGO_PKG_VERSION") })
}

fn text_attribute(key: &str, value: &str) -> Value {
    attribute(key, json!({ "stringValue": value }))
}

fn number_attribute(key: &str, value: u64) -> Value {
    // 64-bit numbers are texts in the protocol's JSON.
    attribute(key, json!({ "intValue": value.to_string() }))
}

fn attribute(key: &str, value: Value) -> Value {
    json!({ "key": key, "value": value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_a_path_gets_that_of_the_protocol() {
        assert_eq!(endpoint("http://127.0.0.1:4318", Signal::Logs), "http://127.0.0.1:4318/v1/logs");
        assert_eq!(endpoint("http://127.0.0.1:4318/", Signal::Traces), "http://127.0.0.1:4318/v1/traces");
        assert_eq!(endpoint("https://otlp.example/own/logs", Signal::Metrics), "https://otlp.example/own/logs");
    }

    #[test]
    fn only_answers_that_ask_for_it_have_the_same_sent_again() {
        assert!(judge(StatusCode::OK).is_ok());
        for (status, again) in [(429, true), (503, true), (502, true), (400, false), (401, false), (500, false)] {
            assert_eq!(judge(StatusCode::from_u16(status).unwrap()).unwrap_err().is_passing(), again, "{status}");
        }
    }
}
