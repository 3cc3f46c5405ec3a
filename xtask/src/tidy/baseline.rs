//! Known findings: they are not reported, and the list only shrinks.

use std::collections::BTreeSet;

use super::finding::Finding;

/// One key a line; `#` begins a comment.
pub const FILE: &str = "xtask/src/tidy/baseline.txt";

/// The findings that `baseline` does not list, and its entries that nothing was found for.
pub fn apply(findings: Vec<Finding>, baseline: &str) -> Vec<Finding> {
    let entries: BTreeSet<&str> =
        baseline.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    let found: BTreeSet<String> = findings.iter().map(|finding| finding.key.clone()).collect();
    let stale = entries
        .iter()
        .filter(|entry| !found.contains(**entry))
        .map(|entry| Finding::new(*entry, format!("{FILE} lists `{entry}`, which is not found any more: remove the line")));
    let mut reported: Vec<Finding> =
        findings.into_iter().filter(|finding| !entries.contains(finding.key.as_str())).chain(stale).collect();
    reported.sort();
    reported.dedup();
    reported
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listed_findings_are_silent_and_new_ones_are_not() {
        let found = || vec![Finding::new("circle a b", "a and b"), Finding::new("names c", "c is gone")];
        assert_eq!(apply(found(), "# known\ncircle a b\n\nnames c\n"), []);
        assert_eq!(apply(found(), "circle a b"), [Finding::new("names c", "c is gone")]);
    }

    #[test]
    fn an_entry_that_is_not_found_any_more_is_a_finding() {
        let stale = apply(vec![], "circle a b");
        assert_eq!(stale.len(), 1);
        assert!(stale[0].text.contains("remove the line"), "{}", stale[0].text);
    }
}
