//! What a line of a log says: when, who, and where it is JSON, how bad and what.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::{Map, Value};
use weal_model::{InstanceId, naming};
use weal_protocol::controller::LogLine;

use crate::level::Level;
use crate::output::{self, Stream, Tone, paint};

/// How programs name the severity of a line, its message and its time, in the order in which they are looked for.
const LEVELS: [&str; 5] = ["level", "severity", "lvl", "levelname", "log.level"];
const MESSAGES: [&str; 4] = ["message", "msg", "event", "body"];
const TIMES: [&str; 5] = ["time", "timestamp", "ts", "@timestamp", "datetime"];
/// The numbers that pino and bunyan write for severities.
const NUMBERED: [(u64, &str); 6] = [(10, "trace"), (20, "debug"), (30, "info"), (40, "warn"), (50, "error"), (60, "fatal")];

/// A line, understood.
#[derive(Debug, PartialEq, Serialize)]
pub struct Entry<'l> {
    #[serde(flatten)]
    line: &'l LogLine,
    /// What it says when it is a JSON object with a message.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    said: Option<Said>,
}

/// What a JSON line says.
#[derive(Debug, PartialEq, Serialize)]
struct Said {
    /// In lower case, as the program names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    level: Option<String>,
    message: String,
    /// All others but the time, which weal has itself.
    fields: Map<String, Value>,
}

impl<'l> Entry<'l> {
    /// Reads `line`.
    pub fn of(line: &'l LogLine) -> Self {
        Self { line, said: said(&line.line) }
    }

    /// How bad it is, in lower case, as the program names it; `None` where it does not say.
    pub fn level(&self) -> Option<&str> {
        self.said.as_ref()?.level.as_deref()
    }

    /// What it says, without the level and the fields of a JSON object.
    pub fn message(&self) -> &str {
        self.said.as_ref().map_or(&self.line.line, |said| &said.message)
    }

    /// The fields of a JSON object, but its time, its level and its message.
    pub fn fields(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.said.iter().flat_map(|said| &said.fields)
    }

    /// For a person, with all that was written as `shown` shows it.
    pub fn text(&self, shown: fn(&str) -> Cow<'_, str>) -> String {
        let time = self.line.time.map_or_else(|| " ".repeat(23), output::moment_ms);
        let head = paint(&format!("{time} {} |", self.line.instance), Tone::Dim, Stream::Out);
        let pieces = self.pieces(shown).into_iter();
        let said: String = pieces.map(|(text, tone)| tone.map_or(text.clone(), |tone| paint(&text, tone, Stream::Out))).collect();
        format!("{head} {said}")
    }

    /// What it says, in pieces with what their colours say: the level, the message, the fields.
    pub fn pieces(&self, shown: fn(&str) -> Cow<'_, str>) -> Vec<(String, Option<Tone>)> {
        let Some(said) = &self.said else { return vec![(shown(&self.line.line).into_owned(), None)] };
        let mut pieces = Vec::new();
        if let Some(level) = &said.level {
            pieces.push((shown(&level.to_uppercase()).into_owned(), Some(Level::of(Some(level.as_str())).tone)));
            pieces.push((" ".to_owned(), None));
        }
        pieces.push((shown(&said.message).into_owned(), None));
        let fields: String = said.fields.iter().map(|(name, value)| format!(" {name}={}", plain(value))).collect();
        if !fields.is_empty() {
            pieces.push((shown(&fields).into_owned(), Some(Tone::Dim)));
        }
        pieces
    }
}

/// Whose lines an instance writes: its application's, or those of a job, whose runs have names of their own.
pub fn writer_of(instance: &InstanceId) -> String {
    naming::parts(instance).map_or_else(|| instance.to_string(), |(app, _)| app.to_string())
}

/// What a line says that is a JSON object with a message.
fn said(line: &str) -> Option<Said> {
    let text = line.trim();
    if !text.starts_with('{') {
        return None;
    }
    let mut fields: Map<String, Value> = serde_json::from_str(text).ok()?;
    let name =
        |names: &[&'static str], fields: &Map<String, Value>| names.iter().copied().find(|name| fields.contains_key(*name));
    let message = fields.remove(name(&MESSAGES, &fields)?)?;
    let level = name(&LEVELS, &fields).and_then(|level| fields.remove(level)).and_then(|value| level_word(&value));
    if let Some(time) = name(&TIMES, &fields) {
        fields.remove(time);
    }
    Some(Said { level, message: plain(&message), fields })
}

fn level_word(value: &Value) -> Option<String> {
    match value {
        Value::String(word) => Some(word.to_lowercase()),
        Value::Number(number) => {
            let word = NUMBERED.iter().find(|(known, _)| number.as_u64() == Some(*known)).map(|(_, word)| (*word).to_owned());
            Some(word.unwrap_or_else(|| number.to_string()))
        }
        _ => None,
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(line: &str) -> String {
        let line = LogLine { time: None, instance: "shop-1".into(), line: line.to_owned() };
        Entry::of(&line).text(crate::terminal::unchanged).trim_start().to_owned()
    }

    #[test]
    fn a_json_line_shows_its_level_its_message_and_its_fields() {
        let slog = r#"{"time":"2026-11-26T18:00:00Z","level":"WARN","msg":"slow query","ms":912,"db":"main"}"#;
        assert_eq!(shown(slog), "shop-1 | WARN slow query db=main ms=912");
        assert_eq!(shown(r#"{"level":50,"time":1,"msg":"no table"}"#), "shop-1 | ERROR no table");
        assert_eq!(shown(r#"{"message":{"a":1}}"#), r#"shop-1 | {"a":1}"#);
    }

    #[test]
    fn what_is_no_json_with_a_message_stays_as_it_is() {
        for line in ["plain", r#"{"level":"info"}"#, r#"{"msg": broken"#, "[1]", "{}", ""] {
            assert_eq!(shown(line), format!("shop-1 | {line}"));
        }
    }

    #[test]
    fn a_program_gets_the_line_and_what_it_says() {
        let line = LogLine { time: None, instance: "shop-1".into(), line: r#"{"lvl":"info","event":"paid","n":3}"#.into() };
        let entry = serde_json::to_value(Entry::of(&line)).unwrap();
        assert_eq!((&entry["level"], &entry["message"], &entry["fields"]["n"]), (&"info".into(), &"paid".into(), &3.into()));
        assert_eq!((&entry["instance"], &entry["line"]), (&"shop-1".into(), &line.line.as_str().into()));
        let plain = LogLine { line: "x".into(), ..line };
        assert!(serde_json::to_value(Entry::of(&plain)).unwrap().get("message").is_none());
    }

    #[test]
    fn fuzz_lines() {
        weal_fuzz::target("log-line", |bytes| {
            let line = LogLine { time: None, instance: "shop-1".into(), line: String::from_utf8_lossy(bytes).into_owned() };
            let entry = Entry::of(&line);
            let text = entry.text(crate::terminal::visible);
            assert_eq!(crate::terminal::colored(&text), text, "nothing in it commands a terminal");
            assert!(serde_json::to_string(&entry).is_ok());
        });
    }
}
