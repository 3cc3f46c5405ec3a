//! The paths and links in documents lead somewhere, and the map names every crate.

use super::files::Files;
use super::finding::Finding;
use super::markdown;

/// Folders of the repository: a name in backticks that begins with one is a path.
const FOLDERS: [&str; 12] = [
    "crates/",
    "xtask/",
    "docs/",
    "deploy/",
    "packaging/",
    "examples/",
    "scenarios/",
    "experiments/",
    "dashboard/",
    "openapi/",
    "tests/",
    "scripts/",
];

/// Checks all documents but those that print what benchmarks said.
pub fn check(files: &Files) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, text) in files.iter().filter(|(path, _)| path.ends_with(".md") && !path.starts_with("docs/benchmarks/")) {
        let document = markdown::read(text);
        for (path, line) in document.names.iter().filter(|(name, _)| is_path(name)).filter(|(path, _)| !files.exists(path)) {
            findings.push(Finding::new(
                format!("documents {file} {path}"),
                format!("{file}:{line} names `{path}`, which does not exist"),
            ));
        }
        for (link, line) in &document.links {
            let Some(target) = local(file, link).filter(|target| !target.is_empty() && !files.exists(target)) else { continue };
            findings.push(Finding::new(
                format!("documents {file} {target}"),
                format!("{file}:{line} links to {link}, which does not exist"),
            ));
        }
    }
    let map = files.text("ARCHITECTURE.md").unwrap_or_default();
    for name in files.list("crates").filter(|name| !map.contains(&format!("`crates/{name}`"))) {
        findings.push(Finding::new(format!("documents map {name}"), format!("ARCHITECTURE.md does not name crates/{name}")));
    }
    findings
}

fn is_path(name: &str) -> bool {
    let pattern = name.contains(['*', ' ', '<', '{', '…']) || name.contains("NAME");
    !pattern && FOLDERS.iter().any(|folder| name.starts_with(folder))
}

/// The path from the root of a link in `file`; `None` if it leads out of the repository.
pub fn local(file: &str, link: &str) -> Option<String> {
    let path = link.split('#').next().unwrap_or(link);
    if path.contains("://") || path.starts_with("mailto:") {
        return None;
    }
    if path.is_empty() {
        return Some(String::new());
    }
    let mut parts: Vec<&str> = file.split('/').collect();
    parts.pop();
    for part in path.trim_end_matches('/').split('/') {
        match part {
            "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: (&str, &str) = ("ARCHITECTURE.md", "| 0 | `crates/model` | nouns |");
    const CODE: (&str, &str) = ("crates/model/src/lib.rs", "");

    #[test]
    fn paths_and_links_that_lead_nowhere_are_found() {
        let page = ("docs/a/page.md", "See `crates/gone/src` and [this](../b.md#c),\n[that](../../ARCHITECTURE.md).");
        let found: Vec<String> = check(&Files::fixture(&[MAP, CODE, page])).into_iter().map(|finding| finding.text).collect();
        let expected = [
            "docs/a/page.md:1 names `crates/gone/src`, which does not exist",
            "docs/a/page.md:1 links to ../b.md#c, which does not exist",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn what_exists_passes_and_patterns_are_no_paths() {
        let page = (
            "docs/page.md",
            "`crates/model/`, `crates/*/src`, [out](https://example.org), [here](#below), [map](../ARCHITECTURE.md)",
        );
        assert_eq!(check(&Files::fixture(&[MAP, CODE, page])), []);
    }

    #[test]
    fn the_map_names_every_crate() {
        let found = check(&Files::fixture(&[MAP, CODE, ("crates/odd/src/lib.rs", "")]));
        assert_eq!(found, [Finding::new("documents map odd", "ARCHITECTURE.md does not name crates/odd")]);
    }
}
