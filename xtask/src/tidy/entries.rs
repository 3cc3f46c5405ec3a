//! The map's tables lead to code: what stands under "begin at" is defined in a file that its row names.

use super::files::Files;
use super::finding::Finding;
use super::tokens::{Token, read};

const MAP: &str = "ARCHITECTURE.md";
/// The last column of the tables that are checked.
const COLUMN: &str = "begin at";
const KINDS: [&str; 7] = ["fn", "struct", "enum", "trait", "const", "static", "type"];

/// Checks the map. That the paths in it exist is checked with the paths of all documents.
pub fn check(files: &Files) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, row) in rows(files.text(MAP).unwrap_or_default()) {
        let (paths, _) = split(row);
        let (_, names) = split(row.rsplit('|').next().unwrap_or_default());
        let sources: Vec<Vec<Token>> = paths.iter().flat_map(|path| tokens(files, path)).collect();
        for name in names.iter().filter(|name| !sources.iter().any(|source| defines(source, name))) {
            let text = format!("{MAP}:{number} says to begin at `{name}`, which no file of its row defines");
            findings.push(Finding::new(format!("entries `{name}`"), text));
        }
    }
    findings
}

/// The rows of the tables whose last column is [`COLUMN`], with their line and without the closing bar.
fn rows(map: &str) -> Vec<(usize, &str)> {
    let mut is_checked = false;
    let mut rows = Vec::new();
    for (number, line) in map.lines().enumerate() {
        let Some(row) = line.strip_prefix('|').and_then(|row| row.trim_end().strip_suffix('|')) else {
            is_checked = false;
            continue;
        };
        if row.trim_end().ends_with(COLUMN) {
            is_checked = true;
        } else if is_checked && !row.starts_with(" ---") {
            rows.push((number + 1, row));
        }
    }
    rows
}

/// What stands in backticks: paths, and names.
fn split(cell: &str) -> (Vec<&str>, Vec<&str>) {
    cell.split('`').skip(1).step_by(2).partition(|name| name.contains('/'))
}

/// The sources that a path names: itself, or what lies in the folder.
fn tokens(files: &Files, path: &str) -> Vec<Vec<Token>> {
    let folder = format!("{}/", path.trim_end_matches('/'));
    let named = files.iter().filter(|(file, _)| file.ends_with(".rs") && (*file == path || file.starts_with(&folder)));
    named.filter_map(|(_, text)| read(text).ok()).map(|source| source.tokens).collect()
}

/// Whether a file defines an item, and where a type stands before it (`Cycle::handle_timeout`), has that type.
fn defines(source: &[Token], name: &str) -> bool {
    let (before, item) = name.rsplit_once("::").map_or((None, name), |(before, item)| (Some(before), item));
    let owner = before.filter(|before| before.starts_with(|letter: char| letter.is_ascii_uppercase()));
    let is_item = |pair: &[Token]| pair[1].is(item) && KINDS.iter().any(|kind| pair[0].is(kind));
    source.windows(2).any(is_item) && owner.is_none_or(|owner| source.iter().any(|token| token.is(owner)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(row: &str) -> Vec<String> {
        let map = format!("| `gone` | other table |\n\n| question | file | begin at |\n| --- | --- | --- |\n{row}\n\n`gone`\n");
        let files = Files::fixture(&[
            (MAP, &map),
            ("crates/a/src/queue.rs", "impl Entry { pub fn conclude(&self) {} } #[cfg(test)] mod tests { fn only_a_test() {} }"),
            ("crates/a/src/names/one.rs", "pub struct Policy; fn parse() { conclude() }"),
        ]);
        check(&files).into_iter().map(|finding| finding.text).collect()
    }

    #[test]
    fn an_entry_that_is_defined_elsewhere_is_found() {
        let missing = |name: &str| vec![format!("ARCHITECTURE.md:5 says to begin at `{name}`, which no file of its row defines")];
        assert_eq!(found("| when it ends | `crates/a/src/names/one.rs` | `Entry::conclude` |"), missing("Entry::conclude"));
        assert_eq!(found("| when it ends | `crates/a/src/queue.rs` | `Other::conclude` |"), missing("Other::conclude"));
        assert_eq!(found("| when it ends | `crates/a/src/queue.rs` | `only_a_test` |"), missing("only_a_test"));
    }

    #[test]
    fn entries_in_a_file_or_a_folder_of_the_row_pass() {
        for row in [
            "| when `Gone` ends | `crates/a/src/queue.rs` ([why](docs/a.md)) | `Entry::conclude` |",
            "| when it ends | `crates/a/src/names` | `Policy`, `a::parse` |",
            "| when it ends | `crates/a/src/names` | `Policy`; `Entry::conclude` in `crates/a/src/queue.rs` |",
            "| when it ends | `crates/a/src/names` | module docs |",
        ] {
            assert_eq!(found(row), [""; 0]);
        }
    }
}
