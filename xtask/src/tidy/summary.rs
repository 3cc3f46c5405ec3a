//! The list of all pages is complete: a page that is not in it is not found.

use super::documents::local;
use super::files::Files;
use super::finding::Finding;
use super::markdown;
use crate::site::SUMMARY;

/// Checks that each page is listed once. That each listed page exists is the documents' own check.
pub fn check(files: &Files) -> Vec<Finding> {
    let Some(summary) = files.text(SUMMARY) else { return Vec::new() };
    let listed: Vec<String> = markdown::read(summary).links.iter().filter_map(|(link, _)| local(SUMMARY, link)).collect();
    let pages = files.iter().map(|(path, _)| path).filter(|path| path.ends_with(".md") && *path != SUMMARY);
    let wrong = pages.filter_map(|page| match listed.iter().filter(|path| *path == page).count() {
        0 => Some(Finding::new(format!("summary {page}"), format!("{SUMMARY} does not list {page}"))),
        1 => None,
        times => Some(Finding::new(format!("summary {page}"), format!("{SUMMARY} lists {page} {times} times"))),
    });
    wrong.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_are_not_listed_or_twice_are_found() {
        let summary = (SUMMARY, "[weal](../README.md)\n- [a](a.md)\n- [again](a.md)\n");
        let files = Files::fixture(&[summary, ("README.md", ""), ("docs/a.md", ""), ("docs/b.md", "")]);
        let found: Vec<String> = check(&files).into_iter().map(|finding| finding.text).collect();
        assert_eq!(found, ["docs/SUMMARY.md lists docs/a.md 2 times", "docs/SUMMARY.md does not list docs/b.md"]);
    }
}
