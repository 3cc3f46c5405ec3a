//! Commands as other tools write them.

/// A command line as a list of arguments: split into words when that means the same, else given to a shell.
///
/// `filled_in` are the variables that weal itself fills in, so that they need no shell.
pub(super) fn to_argv(line: &str, filled_in: &[&str]) -> Vec<String> {
    let line = line.trim();
    match words(line) {
        Some(words) if !words.is_empty() && !needs_shell(line, filled_in) => words,
        _ => {
            let simple = !line.contains(['&', ';', '|', '(', '\n', '=']);
            let script = if simple { format!("exec {line}") } else { line.to_owned() };
            vec!["/bin/sh".to_owned(), "-c".to_owned(), escape(&script)]
        }
    }
}

/// Doubles every dollar sign: weal fills nothing in, and what is left is what was written.
pub(super) fn escape(text: &str) -> String {
    text.replace('$', "$$")
}

/// True when a dollar sign in `line` means something that weal does not know: `$HOME`, `${X:-1}`, `$(..)`, or one in quotes
/// that keep it.
fn needs_shell(line: &str, filled_in: &[&str]) -> bool {
    let is_ours = |after: &str| {
        let end = after.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(after.len());
        filled_in.contains(&&after[..end])
    };
    line.contains('$') && line.contains('\'') || line.split('$').skip(1).any(|after| !is_ours(after))
}

/// The words of a line that means the same without a shell; `None` when it needs one.
fn words(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some('\''), c) => word.get_or_insert_default().push(c),
            (_, '\\') => word.get_or_insert_default().push(chars.next()?),
            (_, '`') => return None,
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '&' | ';' | '|' | '<' | '>' | '(' | ')' | '*' | '?' | '~' | '#' | '\n') => return None,
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    let assigns = words.first().is_some_and(|first| first.contains('='));
    (quote.is_none() && !assigns).then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_line_is_split_and_any_other_goes_to_a_shell() {
        let argv = |line| to_argv(line, &["PORT"]).join("|");
        assert_eq!(argv("bundle exec 'puma -x' -p $PORT"), "/bin/sh|-c|exec bundle exec 'puma -x' -p $$PORT");
        assert_eq!(argv("node \"my app.js\" --port=$PORT"), "node|my app.js|--port=$PORT");
        assert_eq!(argv("RAILS_ENV=prod rails s -p ${PORT:-3000}"), "/bin/sh|-c|RAILS_ENV=prod rails s -p $${PORT:-3000}");
        assert_eq!(argv("a && b $HOME"), "/bin/sh|-c|a && b $$HOME");
        assert_eq!(argv("echo $PORTAL"), "/bin/sh|-c|exec echo $$PORTAL");
        assert_eq!(argv("echo 'unfinished"), "/bin/sh|-c|exec echo 'unfinished");
    }
}
