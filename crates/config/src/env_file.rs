//! Files of variables, as `env-file` names them: `NAME=value` a line.

/// Why a file of variables cannot be read. What stands there may be secret and is not told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line} {what}")]
pub struct EnvFileError {
    /// From 1.
    pub line: usize,
    /// What is wrong with it.
    pub what: &'static str,
}

/// The variables of `text`, in its order. Empty lines and those that begin with `#` say nothing; `export` before a name is allowed; quotes
/// around a value are taken off, and within double ones `\n`, `\"` and `\\` mean what they mean in a shell. Nothing is filled in.
///
/// # Errors
/// A line that is none of these.
pub fn parse(text: &str) -> Result<Vec<(String, String)>, EnvFileError> {
    let mut variables = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let wrong = |what| EnvFileError { line: index + 1, what };
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let line = line.strip_prefix("export ").unwrap_or(line);
        let (name, value) = line.split_once('=').ok_or_else(|| wrong("is not NAME=value"))?;
        let name = name.trim();
        if !is_variable(name) {
            return Err(wrong("does not begin with a variable's name"));
        }
        if value.contains('\0') {
            return Err(wrong("holds a zero byte"));
        }
        variables
            .push((name.to_owned(), unquoted(value.trim()).ok_or_else(|| wrong("has a quotation mark without its other half"))?));
    }
    Ok(variables)
}

/// What to do about a variable that is weal's own.
pub(crate) const RESERVED: &str = "take another name: `WEAL_*` and systemd's `LISTEN_*` are what weal tells a process";

/// Whether a variable can be called so.
pub fn is_variable(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit()) && name.chars().all(fits)
}

fn unquoted(value: &str) -> Option<String> {
    if let Some(rest) = value.strip_prefix('\'') {
        return rest.strip_suffix('\'').map(str::to_owned);
    }
    let Some(rest) = value.strip_prefix('"') else {
        // A remark begins after a space, so that passwords may hold a `#`.
        return Some(value.split(" #").next().unwrap_or_default().trim_end().to_owned());
    };
    let mut text = String::new();
    let mut characters = rest.chars();
    loop {
        match characters.next()? {
            '"' => return characters.as_str().trim().is_empty().then_some(text),
            '\\' => match characters.next()? {
                'n' => text.push('\n'),
                't' => text.push('\t'),
                other => text.push(other),
            },
            other => text.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_other_tools_read_them() {
        let text = "# the shop\n\nexport A=1\nB = two words # a remark\nC='$x # y'\nD=\"a\\n\\\"b\\\"\"\nE=\nF=p#ss=w\n";
        let expected = [("A", "1"), ("B", "two words"), ("C", "$x # y"), ("D", "a\n\"b\""), ("E", ""), ("F", "p#ss=w")];
        assert_eq!(parse(text).unwrap(), expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn a_wrong_line_is_told_by_its_number_and_without_what_it_says() {
        for (text, line, what) in [
            ("A=1\nhunter2\n", 2, "is not NAME=value"),
            ("9A=1", 1, "does not begin with a variable's name"),
            ("A=\"x", 1, "has a quotation mark without its other half"),
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!((error.line, error.what), (line, what));
            assert!(!error.to_string().contains("hunter2"));
        }
    }
}
