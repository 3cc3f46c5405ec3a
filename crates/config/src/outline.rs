//! What everybody is told of a finding: events and states need no token, and a finding quotes what is wrong, which may be a secret.
//!
//! A config that cannot be read has no keys and values yet. So this takes more of its text for values than there are: of what a message quotes,
//! only what stands nowhere in these is shown, which leaves keys and weal's own words.

use crate::diagnostic::Diagnostic;

/// What is shown in place of what may be a value.
const HIDDEN: &str = "`…`";

impl Diagnostic {
    /// Its place and what is wrong, without any value of `text`, which was parsed, and without the help, which quotes more.
    pub fn outline(&self, text: &str) -> String {
        format!("{}:{}:{}: {}", self.path, self.line, self.column, without_values(&self.message, &values(text)))
    }
}

fn without_values(message: &str, values: &str) -> String {
    // Nobody could tell where such a value ends in the message.
    if values.contains('`') {
        return "the config has a mistake here".to_owned();
    }
    let pieces = message.split('`').enumerate();
    // A value with an escape is quoted as what it means, which stands nowhere in the text.
    let is_told = |piece: &str| !piece.contains(char::is_alphanumeric) || !(values.contains(piece) || values.contains('\\'));
    let shown = pieces.map(|(number, piece)| match number % 2 {
        0 => piece.to_owned(),
        _ if is_told(piece) => format!("`{piece}`"),
        _ => HIDDEN.to_owned(),
    });
    shown.collect()
}

/// All of `text` that may be in a value: what follows a key and its `=`, and every line that is none of `key = value`, `[header]` and `# comment`.
fn values(text: &str) -> String {
    // Within a string of several lines, a line may look like anything.
    if text.contains("\"\"\"") || text.contains("'''") {
        return text.to_owned();
    }
    text.lines().map(value).collect::<Vec<_>>().join("\n")
}

fn value(line: &str) -> &str {
    let is_path = |path: &str| path.chars().all(|c| c.is_ascii_alphanumeric() || "_-. ".contains(c));
    let bare = line.trim();
    let is_header = bare.strip_prefix('[').and_then(|bare| bare.strip_suffix(']')).is_some_and(|inner| {
        let inner = inner.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(inner);
        is_path(inner)
    });
    match line.split_once('=') {
        _ if bare.starts_with('#') || is_header => "",
        Some((key, value)) if is_path(key) => value,
        _ => line,
    }
}

#[cfg(test)]
mod tests {
    use crate::{MachineSize, parse};
    use weal_model::Bytes;

    fn outlines(text: &str) -> Vec<String> {
        let found = parse(text, "weal.toml", &MachineSize { cpus: 4.0, memory: Bytes::gib(8) }).unwrap_err();
        found.iter().map(|found| found.outline(text)).collect()
    }

    #[test]
    fn no_value_is_told_wherever_it_stands() {
        for line in [
            "env = { PASSWORD = hunter2 }",
            "env = { PASSWORD = \"hunter2 }",
            "env = { \"hunter2=\" = \"x\" }",
            "run = \"./web --password=hunter2\"",
            "restart = \"`hunter2`\"",
            "restart = \"hunter2\"",
            "restart = \"hunt\\u0065r2\"",
            "restart = \"\"\"\nhunter2\"\"\"",
            "restart = \"\"\"a\nhunter2 = 1\"\"\"",
            "needs = [\n\"hunter2\",\n]",
            "user = \"hunter2 = \"",
            "memory = hunter2",
            "hunter2",
            "routes = [{ host = \"a b hunter2\" }]",
        ] {
            let text = format!("[app.web]\nrun = [\"./web\"]\n{line}\n");
            let told = outlines(&text);
            assert!(!told.is_empty() && !told.iter().any(|told| told.contains("hunter2")), "{line}: {told:?}");
        }
    }

    #[test]
    fn keys_and_places_are_told() {
        let told = outlines("[app.web]\nrun = [\"./web\"]\nmemry = \"1GiB\"\nrestart = \"daily\"\n");
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].starts_with("weal.toml:3:1: unknown key `memry`"), "{told:?}");
        assert_eq!(told[1], "weal.toml:4:11: `restart` cannot be `…`");
    }
}
