//! Typed access to the tables of a parsed text. Every access that fails leaves a finding and answers `None`, so that one
//! reading finds all mistakes; every access remembers where its value stands, so that later checks can point at it.

use std::collections::BTreeMap;
use std::ops::Range;

use toml::de::{DeTable, DeValue};
use weal_model::Bytes;
use weal_model::written::{self, UnitError};

use crate::diagnostic::Findings;
use crate::suggest;

/// What reading needs all along.
pub(crate) struct Reading<'t> {
    pub(crate) findings: Findings<'t>,
    pub(crate) places: Spans,
}

/// Where each value and each key stands, by its dotted path: `app.shop.instances.min`, `app.shop.routes.0.host`.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Spans {
    keys: BTreeMap<String, Range<usize>>,
    values: BTreeMap<String, Range<usize>>,
}

impl Spans {
    /// The value at `path`; the key of the nearest table around it when nothing is written there.
    pub(crate) fn value(&self, path: &str) -> Range<usize> {
        self.values.get(path).cloned().unwrap_or_else(|| self.key(path))
    }

    /// The key at `path`, or that of the nearest table around it.
    pub(crate) fn key(&self, path: &str) -> Range<usize> {
        let mut path = path;
        loop {
            match (self.keys.get(path), path.rfind('.')) {
                (Some(span), _) => return span.clone(),
                (None, Some(dot)) => path = &path[..dot],
                (None, None) => return 0..0,
            }
        }
    }

    /// True when the text says something at `path`.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.values.contains_key(path)
    }

    pub(crate) fn remember(&mut self, path: String, key: Range<usize>, value: Range<usize>) {
        self.keys.insert(path.clone(), key);
        self.values.insert(path, value);
    }
}

/// One value with its place.
#[derive(Clone)]
pub(crate) struct Item<'a> {
    pub(crate) path: String,
    pub(crate) span: Range<usize>,
    pub(crate) value: &'a DeValue<'a>,
}

/// One table whose keys are known.
pub(crate) struct Section<'a> {
    pub(crate) path: String,
    entries: &'a DeTable<'a>,
}

impl<'a> Section<'a> {
    /// Reports every key that is not `known`.
    pub(crate) fn open(reading: &mut Reading, path: &str, entries: &'a DeTable<'a>, known: &[&str]) -> Self {
        for (key, value) in entries {
            let name: &str = key.get_ref();
            reading.places.remember(join(path, name), key.span(), value.span());
            if !known.contains(&name) {
                let place = if path.is_empty() { "at the top".to_owned() } else { format!("in `{path}`") };
                reading.findings.error(
                    key.span(),
                    format!("unknown key `{name}` {place}"),
                    suggest::help(name, known.iter().copied(), "keys here"),
                );
            }
        }
        Self { path: path.to_owned(), entries }
    }

    /// The dotted path of `key`.
    pub(crate) fn at(&self, key: &str) -> String {
        join(&self.path, key)
    }

    pub(crate) fn item(&self, key: &str) -> Option<Item<'a>> {
        let (_, value) = self.entries.iter().find(|(name, _)| name.get_ref() == key)?;
        Some(Item { path: self.at(key), span: value.span(), value: value.get_ref() })
    }

    pub(crate) fn text(&self, reading: &mut Reading, key: &str) -> Option<String> {
        self.item(key)?.text(reading)
    }

    /// One of `all`, written as `as_str` says; `kind` is what they are, in the plural.
    pub(crate) fn word<T: Copy, const N: usize>(
        &self,
        reading: &mut Reading,
        key: &str,
        all: [T; N],
        as_str: fn(T) -> &'static str,
        kind: &str,
    ) -> Option<T> {
        let word = self.text(reading, key)?;
        let found = all.into_iter().find(|value| as_str(*value) == word);
        if found.is_none() {
            let help = suggest::help(&word, all.map(as_str), kind);
            reading.findings.error(reading.places.value(&self.at(key)), format!("`{key}` cannot be `{word}`"), help);
        }
        found
    }

    pub(crate) fn flag(&self, reading: &mut Reading, key: &str) -> Option<bool> {
        let item = self.item(key)?;
        match item.value {
            DeValue::Boolean(flag) => Some(*flag),
            _ => item.wrong_type(reading, "true or false", "write `true` or `false`, without quotes"),
        }
    }

    /// A whole number within `range`.
    pub(crate) fn count(&self, reading: &mut Reading, key: &str, range: Range<u32>) -> Option<u32> {
        self.item(key)?.count(reading, range)
    }

    pub(crate) fn number(&self, reading: &mut Reading, key: &str) -> Option<f64> {
        self.item(key)?.number(reading)
    }

    /// A duration in seconds within `range`, both ends included.
    pub(crate) fn span(&self, reading: &mut Reading, key: &str, (least, most): (f64, f64)) -> Option<f64> {
        let item = self.item(key)?;
        let seconds = item.with_unit(reading, "a duration", "10s", written::parse_span)?;
        if !(least..=most).contains(&seconds) {
            let bounds = format!("write something from `{}` to `{}`", written::show_span(least), written::show_span(most));
            reading.findings.error(item.span, format!("`{key}` is out of range"), bounds);
            return None;
        }
        Some(seconds)
    }

    pub(crate) fn size(&self, reading: &mut Reading, key: &str) -> Option<Bytes> {
        self.item(key)?.with_unit(reading, "a size", "300MiB", written::parse_size)
    }

    /// A list of texts.
    pub(crate) fn texts(&self, reading: &mut Reading, key: &str) -> Option<Vec<String>> {
        let item = self.item(key)?;
        if let DeValue::String(text) = item.value {
            let words: Vec<String> = text.split_whitespace().map(|word| format!("{word:?}")).collect();
            let help = format!("write `{key} = [{}]`", words.join(", "));
            reading.findings.error(item.span, format!("`{key}` must be a list, not one string"), help);
            return None;
        }
        Some(item.list(reading)?.iter().filter_map(|entry| entry.text(reading)).collect())
    }

    /// A list of names; each one's place is remembered under `PATH.NAME`.
    pub(crate) fn names(&self, reading: &mut Reading, key: &str) -> Option<Vec<String>> {
        let item = self.item(key)?;
        if let DeValue::String(text) = item.value {
            let help = format!("write `{key} = [\"{text}\"]`");
            reading.findings.error(item.span, format!("`{key}` must be a list, not one string"), help);
            return None;
        }
        let mut names = Vec::new();
        for entry in item.list(reading)? {
            let Some(name) = entry.text(reading) else { continue };
            if names.contains(&name) {
                reading.findings.error(entry.span, format!("`{name}` is listed twice"), "leave one of them out");
                continue;
            }
            reading.places.remember(join(&item.path, &name), entry.span.clone(), entry.span);
            names.push(name);
        }
        Some(names)
    }

    /// A table below this one.
    pub(crate) fn table(&self, reading: &mut Reading, key: &str) -> Option<&'a DeTable<'a>> {
        self.item(key)?.table(reading)
    }
}

impl<'a> Item<'a> {
    pub(crate) fn text(&self, reading: &mut Reading) -> Option<String> {
        match self.value {
            DeValue::String(text) => Some(text.clone().into_owned()),
            DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_) => {
                let source = reading.findings.source(&self.span);
                self.wrong_type(reading, "a string", &format!("put it in quotes: `\"{source}\"`"))
            }
            _ => self.wrong_type(reading, "a string", ""),
        }
    }

    pub(crate) fn count(&self, reading: &mut Reading, range: Range<u32>) -> Option<u32> {
        let DeValue::Integer(written) = self.value else {
            return self.wrong_type(reading, "a whole number", "write it without quotes and without a point");
        };
        let value = i64::from_str_radix(written.as_str(), written.radix()).ok();
        match value.and_then(|value| u32::try_from(value).ok()).filter(|value| range.contains(value)) {
            Some(value) => Some(value),
            None => {
                let bounds = format!("write a number from {} to {}", range.start, range.end - 1);
                reading.findings.error(self.span.clone(), format!("`{}` is out of range", self.key()), bounds);
                None
            }
        }
    }

    pub(crate) fn number(&self, reading: &mut Reading) -> Option<f64> {
        let value = match self.value {
            DeValue::Integer(written) => i64::from_str_radix(written.as_str(), written.radix()).ok().map(|value| value as f64),
            DeValue::Float(written) => written.as_str().replace('_', "").parse().ok(),
            _ => return self.wrong_type(reading, "a number", "write it without quotes, e.g. `0.5`"),
        };
        match value.filter(|value: &f64| value.is_finite()) {
            Some(value) => Some(value),
            None => self.wrong_type(reading, "a finite number", ""),
        }
    }

    pub(crate) fn list(&self, reading: &mut Reading) -> Option<Vec<Item<'a>>> {
        let DeValue::Array(entries) = self.value else {
            return self.wrong_type(reading, "a list", "put it in brackets: `[ .. ]`");
        };
        let item = |(index, entry): (usize, &'a toml::Spanned<DeValue<'a>>)| Item {
            path: join(&self.path, &index.to_string()),
            span: entry.span(),
            value: entry.get_ref(),
        };
        let items: Vec<_> = entries.iter().enumerate().map(item).collect();
        for item in &items {
            reading.places.remember(item.path.clone(), item.span.clone(), item.span.clone());
        }
        Some(items)
    }

    pub(crate) fn table(&self, reading: &mut Reading) -> Option<&'a DeTable<'a>> {
        match self.value {
            DeValue::Table(table) => Some(table),
            DeValue::Array(entries) if entries.iter().all(|entry| matches!(entry.get_ref(), DeValue::Table(_))) => {
                let (path, key) = (&self.path, self.key());
                let name = if path.contains('.') { "" } else { ".NAME" };
                let help = format!("write `[{path}{name}]`, with single brackets");
                reading.findings.error(reading.places.key(path), format!("`{key}` must be a table, not a list of tables"), help);
                None
            }
            _ => self.wrong_type(reading, "a table", &format!("write `[{}]` or `{{ .. }}`", self.path)),
        }
    }

    /// Reports that this should be `right`.
    pub(crate) fn wrong_type<T>(&self, reading: &mut Reading, right: &str, help: &str) -> Option<T> {
        let is = match self.value {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) => "a number",
            DeValue::Float(_) => "a decimal fraction",
            DeValue::Boolean(_) => "true or false",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        reading.findings.error(self.span.clone(), format!("`{}` must be {right}, not {is}", self.key()), help);
        None
    }

    pub(crate) fn with_unit<T>(
        &self,
        reading: &mut Reading,
        what: &str,
        example: &str,
        parse: impl FnOnce(&str) -> Result<T, UnitError>,
    ) -> Option<T> {
        if let DeValue::Integer(_) | DeValue::Float(_) = self.value {
            let source = reading.findings.source(&self.span);
            let unit = example.trim_start_matches(|c: char| c.is_ascii_digit());
            return self.wrong_type(reading, &format!("{what} with its unit"), &format!("did you mean `\"{source}{unit}\"`?"));
        }
        let DeValue::String(text) = self.value else {
            return self.wrong_type(reading, what, &format!("write `\"{example}\"`"));
        };
        match parse(text) {
            Ok(value) => Some(value),
            Err(error) => {
                let span = within(reading.findings.source(&self.span), &self.span, &error.part);
                reading.findings.error(span, error.message, error.help);
                None
            }
        }
    }

    /// The last key of the path; of the list, for an entry of a list.
    fn key(&self) -> &str {
        let mut keys = self.path.rsplit('.');
        keys.find(|key| !key.bytes().all(|byte| byte.is_ascii_digit())).unwrap_or(&self.path)
    }
}

/// The place of `part` in the `source` that stands at `span`; all of it when it cannot be found.
pub(crate) fn within(source: &str, span: &Range<usize>, part: &str) -> Range<usize> {
    match source.rfind(part) {
        Some(at) if !part.is_empty() => span.start + at..span.start + at + part.len(),
        _ => span.clone(),
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}
