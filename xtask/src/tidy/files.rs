//! The repository as the checks see it: its tracked files.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

/// Endings of the files whose text is read.
const TEXTS: [&str; 7] = [".rs", ".ts", ".svelte", ".java", ".md", ".txt", ".toml"];

/// Files by their path from the root, with `/`; the text is empty where no check reads it.
pub struct Files(BTreeMap<String, String>);

impl Files {
    /// What git tracks at `root` and what is there.
    pub fn tracked(root: &Path) -> Result<Self> {
        let output = Command::new("git").args(["ls-files"]).current_dir(root).output().context("failed to run git ls-files")?;
        let mut files = BTreeMap::new();
        for path in String::from_utf8_lossy(&output.stdout).lines().filter(|path| root.join(path).is_file()) {
            let read = TEXTS.iter().any(|ending| path.ends_with(ending));
            let text = if read {
                std::fs::read_to_string(root.join(path)).with_context(|| format!("failed to read {path}"))?
            } else {
                String::new()
            };
            files.insert(path.to_owned(), text);
        }
        Ok(Self(files))
    }

    /// Files for a test.
    #[cfg(test)]
    pub fn fixture(files: &[(&str, &str)]) -> Self {
        Self(files.iter().map(|&(path, text)| (path.to_owned(), text.to_owned())).collect())
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// All, in the order of their paths.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// A file's text, if it is there.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.0.get(path).map(String::as_str)
    }

    /// Whether `path` is a file or a folder.
    pub fn exists(&self, path: &str) -> bool {
        let folder = format!("{}/", path.trim_end_matches('/'));
        self.0.contains_key(path) || self.0.range(folder.clone()..).next().is_some_and(|(path, _)| path.starts_with(&folder))
    }

    /// The names in a folder, without what is below it.
    pub fn list<'f>(&'f self, folder: &str) -> impl Iterator<Item = &'f str> {
        let folder = format!("{}/", folder.trim_end_matches('/'));
        let mut names: Vec<&str> =
            self.0.keys().filter_map(|path| path.strip_prefix(&folder)).filter_map(|rest| rest.split('/').next()).collect();
        names.dedup();
        names.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_exist_when_a_file_lies_in_them() {
        let files = Files::fixture(&[("crates/model/src/lib.rs", ""), ("crates/model/Cargo.toml", "")]);
        assert!(["crates", "crates/model/", "crates/model/src/lib.rs"].iter().all(|path| files.exists(path)));
        assert!(!files.exists("crates/mod") && !files.exists("crates/model/src/lib"));
        assert_eq!(files.list("crates/model").collect::<Vec<_>>(), ["Cargo.toml", "src"]);
    }
}
