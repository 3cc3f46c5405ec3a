//! Sizes of files, words that do not belong in finished code, and what only one file may do.

use super::files::Files;
use super::finding::Finding;

/// A file longer than this does not read in one go.
const LONGEST_FILE: usize = 608;

// Spelled in pieces, so that this file does not find itself.
const UNFINISHED: [&str; 4] =
    [concat!("todo", "!("), concat!("unimplemented", "!("), concat!("#[ign", "ore"), concat!("#[all", "ow(")];

/// What only one file may do, so that it is done in one way: the words, the file, and what they do.
const ONLY_IN: [(&str, &str, &str); 5] = [
    (concat!("rsplit_once(", "'-')"), "crates/model/src/naming.rs", "takes a name such as `APP-NUMBER` apart"),
    (concat!("}-", "{number}"), "crates/model/src/naming.rs", "makes a name such as `APP-NUMBER`"),
    (concat!("}_", "ADDR\""), "crates/model/src/naming.rs", "makes a variable such as `NAME_ADDR`"),
    (concat!("\"_", "ADDR\""), "crates/model/src/naming.rs", "makes a variable such as `NAME_ADDR`"),
    // The test runner hides what a test prints that passes.
    (concat!("\"skip", "ped: "), "crates/testing/src/lib.rs", "says that a test is left out, so that it is seen"),
];

/// Checks the sources of all languages.
pub fn check(files: &Files) -> Vec<Finding> {
    let sources = files.iter().filter(|(path, _)| [".rs", ".ts", ".svelte", ".java"].iter().any(|ending| path.ends_with(ending)));
    sources.flat_map(|(path, text)| check_file(path, text)).collect()
}

fn check_file(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let lines = text.lines().count();
    if lines > LONGEST_FILE {
        let text = format!("{path}: {lines} lines; find the seam (at most {LONGEST_FILE})");
        findings.push(Finding::new(format!("size {path}"), text));
    }
    for (number, line) in text.lines().enumerate() {
        for word in UNFINISHED.iter().filter(|word| line.contains(**word)) {
            let text = format!("{path}:{}: `{word}` does not belong in finished code", number + 1);
            findings.push(Finding::new(format!("unfinished {path} {word}"), text));
        }
        for (words, only, what) in ONLY_IN.iter().filter(|(words, only, _)| path != *only && line.contains(words)) {
            let text = format!("{path}:{}: `{words}` {what}, which only {only} does", number + 1);
            findings.push(Finding::new(format!("only {path} {words}"), text));
        }
    }
    findings.extend(examples(path, text));
    findings
}

/// Blocks of code in documentation comments that rustdoc would take for Rust. No command runs them, and what does not run goes stale: an example
/// belongs in a test, or in `examples/`.
fn examples(path: &str, text: &str) -> Vec<Finding> {
    let mut is_open = false;
    let mut findings = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let comment = line.trim_start().strip_prefix("///").or_else(|| line.trim_start().strip_prefix("//!"));
        let Some(language) = comment.and_then(|comment| comment.trim_start().strip_prefix("```")) else { continue };
        is_open = !is_open;
        if is_open && ["", "rust", "no_run", "should_panic"].iter().any(|rust| language.split(',').next() == Some(rust)) {
            let text = format!("{path}:{}: an example in a comment is run by nothing; say ```text if it is none", number + 1);
            findings.push(Finding::new(format!("example {path}"), text));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_in_comments_are_found_and_other_blocks_are_not() {
        let code =
            "/// ```\n/// f();\n/// ```\nfn f() {}\n\n    //! ```text\n    //! a = b\n    //! ```\n/// ```rust,no_run\n/// ```\n";
        let found: Vec<String> = check(&Files::fixture(&[("a.rs", code)])).into_iter().map(|one| one.text).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("a.rs:1: ") && found[1].starts_with("a.rs:9: "), "{found:?}");
    }

    #[test]
    fn long_files_and_unfinished_code_are_found() {
        let unfinished = format!("fn f() {{\n    {}) }}", UNFINISHED[0]);
        let long = "\n".repeat(LONGEST_FILE + 1);
        let files = Files::fixture(&[("a.rs", &unfinished), ("b.ts", &long), ("c.md", &long)]);
        let found: Vec<String> = check(&files).into_iter().map(|finding| finding.text).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("a.rs:2: ") && found[1].starts_with("b.ts: 609 lines"), "{found:?}");
    }

    #[test]
    fn what_only_one_file_may_do_is_found_elsewhere() {
        for (words, only, _) in ONLY_IN {
            let code = format!("f({words}x);");
            let found: Vec<String> =
                check(&Files::fixture(&[("a.rs", &code), (only, &code)])).into_iter().map(|one| one.text).collect();
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].starts_with("a.rs:1: ") && found[0].ends_with(&format!("only {only} does")), "{found:?}");
        }
    }

    #[test]
    fn finished_code_passes() {
        assert_eq!(check(&Files::fixture(&[("a.rs", "fn main() {}\n")])), []);
    }
}
