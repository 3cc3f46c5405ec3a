//! Sizes of files, and words that do not belong in finished code.

use super::files::Files;
use super::finding::Finding;

/// A file longer than this does not read in one go.
const LONGEST_FILE: usize = 800;

// Spelled in pieces, so that this file does not find itself.
const UNFINISHED: [&str; 4] =
    [concat!("todo", "!("), concat!("unimplemented", "!("), concat!("#[ign", "ore"), concat!("#[all", "ow(")];

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
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_files_and_unfinished_code_are_found() {
        let unfinished = format!("fn f() {{\n    {}) }}", UNFINISHED[0]);
        let long = "\n".repeat(LONGEST_FILE + 1);
        let files = Files::fixture(&[("a.rs", &unfinished), ("b.ts", &long), ("c.md", &long)]);
        let found: Vec<String> = check(&files).into_iter().map(|finding| finding.text).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("a.rs:2: ") && found[1].starts_with("b.ts: 801 lines"), "{found:?}");
    }

    #[test]
    fn finished_code_passes() {
        assert_eq!(check(&Files::fixture(&[("a.rs", "fn main() {}\n")])), []);
    }
}
