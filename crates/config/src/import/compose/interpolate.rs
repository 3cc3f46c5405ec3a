//! Compose's own variables: `$NAME`, `${NAME:-default}` and what else the specification has; `$$` is a dollar sign.

use std::collections::BTreeMap;

/// The variables of the `.env` beside a compose file, and what came of filling them in.
pub(super) struct Variables<'v> {
    known: &'v BTreeMap<String, String>,
    /// What somebody should look at, in fragments.
    pub(super) notes: Vec<String>,
}

impl<'v> Variables<'v> {
    pub(super) fn new(known: &'v BTreeMap<String, String>) -> Self {
        Self { known, notes: Vec::new() }
    }

    /// `text` with all variables filled in.
    pub(super) fn fill_in(&mut self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            out.push_str(&rest[..at]);
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix('$') {
                out.push('$');
                rest = after;
            } else if let Some((inner, after)) = rest.strip_prefix('{').and_then(braced) {
                let value = self.expand(inner);
                out.push_str(&value);
                rest = after;
            } else {
                let (name, after) = rest.split_at(name_length(rest));
                if name.is_empty() {
                    out.push('$');
                } else {
                    out.push_str(&self.value(name));
                }
                rest = after;
            }
        }
        out + rest
    }

    /// What stands between braces: a name, and perhaps an operator with a text that may itself have variables.
    fn expand(&mut self, inner: &str) -> String {
        let (name, operation) = inner.split_at(name_length(inner));
        let (counts_empty, operation) = match operation.strip_prefix(':') {
            Some(operation) => (false, operation),
            None => (true, operation),
        };
        let set = self.known.get(name).filter(|value| counts_empty || !value.is_empty()).cloned();
        match (operation.chars().next(), set) {
            (Some('-'), Some(_)) | (Some('?'), Some(_)) | (None, _) => self.value(name),
            (Some('-'), None) => {
                let default = self.fill_in(&operation[1..]);
                self.note(format!("`{name}` is `{default}` unless it is set, and set to that here"));
                default
            }
            (Some('+'), Some(_)) => self.fill_in(&operation[1..]),
            (Some('+'), None) => String::new(),
            _ => self.value(name),
        }
    }

    fn value(&mut self, name: &str) -> String {
        match self.known.get(name).cloned() {
            Some(value) => {
                let advice = if is_delicate(name) { ": a secret belongs into `secrets`" } else { "" };
                self.note(format!("took `{name}` from .env{advice}"));
                value
            }
            None => {
                self.note(format!("used `{name}` from the environment of compose, which is empty here: write its value"));
                String::new()
            }
        }
    }

    fn note(&mut self, text: String) {
        if !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }
}

fn is_delicate(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    ["PASS", "SECRET", "TOKEN", "KEY"].iter().any(|word| name.contains(word))
}

fn name_length(text: &str) -> usize {
    text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(text.len())
}

/// Splits after the brace that closes the one before `text`.
fn braced(text: &str) -> Option<(&str, &str)> {
    let mut depth = 1_u32;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some((&text[..at], &text[at + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_and_defaults_are_filled_in_also_within_each_other() {
        let known = BTreeMap::from([("A".to_owned(), "a".to_owned()), ("EMPTY".to_owned(), String::new())]);
        for (text, expected) in [
            ("$A-${A}", "a-a"),
            ("$$A and 5$", "$A and 5$"),
            ("${X:-x${Y:-y}z}!", "xyz!"),
            ("${EMPTY:-full}${EMPTY-full}|", "full|"),
            ("${A:+set}${X:+set}", "set"),
            ("${A:?must be there}", "a"),
            ("${A:-", "${A:-"),
        ] {
            assert_eq!(Variables::new(&known).fill_in(text), expected, "{text}");
        }
    }
}
