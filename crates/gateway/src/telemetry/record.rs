//! One request, as the access log and a span tell of it.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::HeaderMap;
use http::header::{self, HeaderName, HeaderValue};
use weal_model::{AccessLog, Time};

use super::date::{common, rfc3339};
use crate::http::trace::TraceContext;

/// The most bytes that a line has of one thing that a client has sent.
const LONGEST: usize = 2048;

/// What is said of one request at its end.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    format: AccessLog,
    /// What its span says besides; `None` keeps none.
    pub traced: Option<Traced>,
    pub(super) client: IpAddr,
    pub(super) method: http::Method,
    pub(super) host: Vec<u8>,
    /// With the query.
    pub(super) target: Vec<u8>,
    pub(super) version: http::Version,
    referer: Vec<u8>,
    pub(super) agent: Vec<u8>,
    pub(super) id: Vec<u8>,
    /// `app/class`; `None` when no route matched.
    pub flow: Option<Arc<str>>,
    pub status: u16,
    /// Why the gateway answered itself, in a word; `None` for an instance's answer.
    pub reason: Option<&'static str>,
    /// Bytes of the answer's body.
    pub sent: u64,
    pub(super) begun: Time,
    pub ended: Time,
}

/// What a span says that a line of the access log does not.
#[derive(Debug, Clone)]
pub(crate) struct Traced {
    pub context: TraceContext,
    /// Who connected.
    pub peer: SocketAddr,
    /// True when its client used TLS.
    pub is_secure: bool,
}

impl Record {
    pub fn new<B>(format: AccessLog, request: &http::Request<B>, client: IpAddr, begun: Time, id: &HeaderValue) -> Self {
        let (headers, uri) = (request.headers(), request.uri());
        let host = uri.authority().map(|authority| bounded(authority.as_str().as_bytes()));
        Self {
            format,
            traced: None,
            client,
            method: request.method().clone(),
            host: host.unwrap_or_else(|| field(headers, &header::HOST)),
            target: bounded(uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str).as_bytes()),
            version: request.version(),
            referer: field(headers, &header::REFERER),
            agent: field(headers, &header::USER_AGENT),
            id: bounded(id.as_bytes()),
            flow: None,
            status: 0,
            reason: None,
            sent: 0,
            begun,
            ended: begun,
        }
    }

    /// Whether it is for the access log.
    pub fn is_logged(&self) -> bool {
        self.format != AccessLog::Off
    }

    /// Bytes that it holds.
    pub fn size(&self) -> usize {
        let texts = [&self.host, &self.target, &self.referer, &self.agent, &self.id];
        size_of::<Self>() + texts.iter().map(|text| text.capacity()).sum::<usize>()
    }

    /// Its line, with its end. Nothing that a client has sent can end the line or reach a terminal as more than text.
    pub fn line(&self) -> String {
        match self.format {
            AccessLog::Json => self.json(),
            AccessLog::Off | AccessLog::Combined => self.combined(),
        }
    }

    fn combined(&self) -> String {
        let Self { client, method, target, version, status, sent, .. } = self;
        let mut line = format!("{client} - - [{}] \"{method} ", common(self.ended));
        escape_quoted(&mut line, target);
        let _ = write!(line, " {version:?}\" {status} {sent} \"");
        escape_quoted(&mut line, if self.referer.is_empty() { b"-" } else { &self.referer });
        line.push_str("\" \"");
        escape_quoted(&mut line, if self.agent.is_empty() { b"-" } else { &self.agent });
        line.push_str("\"\n");
        line
    }

    fn json(&self) -> String {
        let mut line = format!("{{\"time\":\"{}\",\"client\":\"{}\"", rfc3339(self.ended), self.client);
        let version = format!("{:?}", self.version);
        let flow = self.flow.as_deref().unwrap_or("-");
        let texts: [(&str, &[u8]); 8] = [
            ("method", self.method.as_str().as_bytes()),
            ("host", &self.host),
            ("target", &self.target),
            ("version", version.as_bytes()),
            ("flow", flow.as_bytes()),
            ("id", &self.id),
            ("referer", &self.referer),
            ("user_agent", &self.agent),
        ];
        for (name, text) in texts {
            let _ = write!(line, ",\"{name}\":\"");
            escape_json(&mut line, text);
            line.push('"');
        }
        let seconds = self.ended.since(self.begun).as_secs_f64();
        let _ = write!(line, ",\"status\":{},\"bytes\":{},\"seconds\":{seconds:.6}", self.status, self.sent);
        if let Some(reason) = self.reason {
            let _ = write!(line, ",\"reason\":\"{reason}\"");
        }
        line.push_str("}\n");
        line
    }
}

fn field(headers: &HeaderMap, name: &HeaderName) -> Vec<u8> {
    headers.get(name).map_or_else(Vec::new, |value| bounded(value.as_bytes()))
}

fn bounded(text: &[u8]) -> Vec<u8> {
    text[..text.len().min(LONGEST)].to_vec()
}

/// As nginx does: `\xHH` for everything that is not visible ASCII, for quotes and for backslashes.
fn escape_quoted(line: &mut String, text: &[u8]) {
    for byte in text {
        match byte {
            b' '..=b'~' if !matches!(byte, b'"' | b'\\') => line.push(char::from(*byte)),
            _ => {
                let _ = write!(line, "\\x{byte:02X}");
            }
        }
    }
}

/// Everything that is not visible ASCII as `\uXXXX` (RFC 8259 section 7); what is no UTF-8 as the replacement character.
fn escape_json(line: &mut String, text: &[u8]) {
    for unit in String::from_utf8_lossy(text).encode_utf16() {
        match u8::try_from(unit) {
            Ok(byte @ b' '..=b'~') if !matches!(byte, b'"' | b'\\') => line.push(char::from(byte)),
            _ => {
                let _ = write!(line, "\\u{unit:04x}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(format: AccessLog) -> Record {
        let request = http::Request::get("/a?b=%22c")
            .header("host", "shop.example")
            .header("user-agent", http::HeaderValue::from_bytes("x\u{9b}31m\t\"\\ \u{1f600}".as_bytes()).unwrap())
            .body(())
            .unwrap();
        let mut record =
            Record::new(format, &request, [192, 0, 2, 1].into(), Time(1_795_656_003_000_000_000), &HeaderValue::from_static("7"));
        record.ended = Time(1_795_656_004_500_000_000);
        (record.status, record.sent, record.flow) = (200, 5, Some("shop/gold".into()));
        record
    }

    #[test]
    fn a_combined_line_has_only_visible_characters_and_its_quotes() {
        assert_eq!(
            record(AccessLog::Combined).line(),
            "192.0.2.1 - - [26/Nov/2026:01:20:04 +0000] \"GET /a?b=%22c HTTP/1.1\" 200 5 \"-\" \
             \"x\\xC2\\x9B31m\\x09\\x22\\x5C \\xF0\\x9F\\x98\\x80\"\n"
        );
    }

    #[test]
    fn a_json_line_is_one_object_of_ascii_that_reads_back() {
        let line = record(AccessLog::Json).line();
        assert!(line.ends_with("}\n") && line.trim_end().bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{line}");
        let read: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(read["user_agent"], "x\u{9b}31m\t\"\\ \u{1f600}");
        assert_eq!((&read["target"], &read["seconds"], &read["flow"]), (&"/a?b=%22c".into(), &1.5.into(), &"shop/gold".into()));
        assert!(read.get("reason").is_none(), "an instance answered");
        let own = Record { reason: Some("instance-refused"), ..record(AccessLog::Json) };
        assert_eq!(serde_json::from_str::<serde_json::Value>(&own.line()).unwrap()["reason"], "instance-refused");
    }
}
