//! `$NAME` in commands.

use std::collections::BTreeMap;

/// A name that is no variable of the instance.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`${name}` is no variable of this instance: set it in `env`, or write `$${name}`")]
pub struct UnknownVariable {
    /// The name. What it stands in may hold a secret and is not told.
    pub name: String,
}

/// Fills `$NAME` and `${NAME}` in from `variables`; `$$` is a dollar sign, and so is one before anything else.
pub fn fill_in(text: &str, variables: &BTreeMap<String, String>) -> Result<String, UnknownVariable> {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        filled.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            filled.push('$');
            rest = after;
            continue;
        }
        let (name, after) = match rest.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
            Some((name, after)) if is_name(name) => (name, after),
            _ => rest.split_at(rest.find(|c: char| !is_name_character(c)).unwrap_or(rest.len())),
        };
        if !is_name(name) {
            filled.push('$');
            continue;
        }
        let unknown = || UnknownVariable { name: name.to_owned() };
        let value = variables.get(name).ok_or_else(unknown)?;
        filled.push_str(value);
        rest = after;
    }
    filled.push_str(rest);
    Ok(filled)
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && text.chars().all(is_name_character)
}

fn is_name_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_filled_in_and_dollar_signs_can_be_kept() {
        let variables = BTreeMap::from([("PORT".to_owned(), "80".to_owned()), ("DATA".to_owned(), "/d".to_owned())]);
        for (text, expected) in [
            ("--port=$PORT", "--port=80"),
            ("${DATA}base:$PORT", "/dbase:80"),
            ("a$$PORT$", "a$PORT$"),
            ("^x$ $1 ${", "^x$ $1 ${"),
            ("plain", "plain"),
        ] {
            assert_eq!(fill_in(text, &variables).unwrap(), expected);
        }
        let error = fill_in("secret:$PROT", &variables).unwrap_err().to_string();
        assert!(error.starts_with("`$PROT` is no variable") && !error.contains("secret"), "{error}");
    }

    #[test]
    fn fuzz_variables() {
        let known = BTreeMap::from([("PORT".to_owned(), "7".to_owned()), ("DATA".to_owned(), "$PORT".to_owned())]);
        weal_fuzz::target("variables", |bytes| {
            let text = String::from_utf8_lossy(bytes);
            if let Ok(filled) = fill_in(&text, &known) {
                assert!(filled.len() <= text.len() * 5, "what is filled in is not filled in again");
            }
        });
    }
}
