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
    let words = shlex::split(line).filter(|_| !has_operators(line))?;
    let assigns = words.first().is_some_and(|first| first.contains('='));
    (!assigns).then_some(words)
}

/// True when a character outside quotes means something to a shell; a backtick does so inside double quotes too.
fn has_operators(line: &str) -> bool {
    const OPERATORS: [char; 12] = ['&', ';', '|', '<', '>', '(', ')', '*', '?', '~', '#', '\n'];
    // With one kind of quotation mark and no backslash, every second part is quoted. Otherwise all parts count: a shell is never wrong.
    let mixed = line.contains('\\') || line.contains('"') && line.contains('\'');
    let mut outside = line.split(['"', '\'']).step_by(if mixed { 1 } else { 2 });
    line.contains('`') || outside.any(|part| part.contains(OPERATORS))
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
        assert_eq!(argv("gunicorn \"shop:app(debug=0)\" -b :$PORT"), "gunicorn|shop:app(debug=0)|-b|:$PORT");
        assert_eq!(argv("echo \"it's\" & b 'c'"), "/bin/sh|-c|echo \"it's\" & b 'c'");
        assert_eq!(argv("echo a\\ b \"\""), "echo|a b|");
    }
}
