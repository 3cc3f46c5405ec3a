//! Each dependency of a manifest is named in the crate's sources. `cargo machete` does not see those that only tests have.

use std::path::Path;

use anyhow::{Context, Result};
use cargo_metadata::{DependencyKind, MetadataCommand};

use super::files::Files;
use super::finding::Finding;

/// Packages whose library has another name.
const LIBRARIES: [(&str, &str); 1] = [("md-5", "md5")];

/// Checks the manifests of the workspace.
pub fn check(root: &Path, files: &Files) -> Result<Vec<Finding>> {
    let metadata = MetadataCommand::new().current_dir(root).no_deps().exec().context("failed to read cargo metadata")?;
    let mut findings = Vec::new();
    for package in &metadata.packages {
        let Ok(manifest) = package.manifest_path.strip_prefix(&metadata.workspace_root) else { continue };
        let Some(folder) = manifest.parent() else { continue };
        for dependency in &package.dependencies {
            let name = dependency.rename.as_ref().unwrap_or(&dependency.name);
            let is_for_tests = dependency.kind == DependencyKind::Development;
            findings.extend(check_one(files, folder.as_str(), name, is_for_tests));
        }
    }
    Ok(findings)
}

/// Looks for a dependency in the crate's program, or also in its tests, examples and benchmarks.
fn check_one(files: &Files, folder: &str, name: &str, is_for_tests: bool) -> Option<Finding> {
    let (all, program, build) = (format!("{folder}/"), format!("{folder}/src/"), format!("{folder}/build.rs"));
    let is_asked = |path: &str| if is_for_tests { path.starts_with(&all) } else { path.starts_with(&program) || path == build };
    let mut sources = files.iter().filter(|(path, _)| path.ends_with(".rs") && is_asked(path));
    let library = LIBRARIES.iter().find(|(package, _)| *package == name).map_or(name, |(_, library)| library);
    let word = library.replace('-', "_");
    if sources.any(|(_, text)| names(text, &word)) {
        return None;
    }
    let text = format!("{folder}/Cargo.toml: `{name}` is named in no source of the crate");
    Some(Finding::new(format!("dependencies {folder} {name}"), text))
}

/// Whether code, and not only a comment, has this word.
fn names(text: &str, word: &str) -> bool {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.flat_map(|line| line.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')).any(|part| part == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files() -> Files {
        Files::fixture(&[
            ("crates/a/src/lib.rs", "// proptest would find more\nuse serde_json::Value;\n"),
            ("crates/a/tests/a.rs", "fn f() { tempfile::tempdir(); }"),
            ("crates/ab/src/lib.rs", "use insta;"),
        ])
    }

    #[test]
    fn a_dependency_that_no_source_names_is_found() {
        let found = check_one(&files(), "crates/a", "proptest", true).map(|finding| finding.text);
        assert_eq!(found.as_deref(), Some("crates/a/Cargo.toml: `proptest` is named in no source of the crate"));
        assert!(check_one(&files(), "crates/a", "insta", true).is_some(), "another crate names it");
        assert!(check_one(&files(), "crates/a", "tempfile", false).is_some(), "only tests name it");
    }

    #[test]
    fn dependencies_that_are_named_pass() {
        assert_eq!(check_one(&files(), "crates/a", "serde-json", false), None);
        assert_eq!(check_one(&files(), "crates/a", "tempfile", true), None);
    }
}
