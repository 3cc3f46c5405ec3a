//! What the compiler does not check: floors, purity, sizes, and that the documents name things that exist.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use cargo_metadata::{DependencyKind, MetadataCommand};

/// The floor of each crate. A crate uses only crates on lower floors.
const FLOORS: [(&str, u32); 17] = [
    ("weal-model", 0),
    ("weal-protocol", 0),
    ("weal-rng", 0),
    ("weal-control", 1),
    ("weal-config", 1),
    ("weal-host", 1),
    ("weal-scenario", 2),
    ("weal-rpc", 2),
    ("weal-gateway", 3),
    ("weal-node", 3),
    ("weal-engine", 2),
    ("weal-engine-local", 3),
    ("weal-load", 3),
    ("weal-sim", 3),
    ("weal-controller", 4),
    ("weal-reproduce", 4),
    ("weal", 5),
];

/// Edges within a floor: messages are made of the nouns.
const EXCEPTIONS: [(&str, &str); 1] = [("weal-protocol", "weal-model")];

/// Crates that know no sockets, no async runtime, no wall clock and no entropy.
const PURE: [&str; 8] =
    ["weal-model", "weal-protocol", "weal-rng", "weal-control", "weal-config", "weal-scenario", "weal-sim", "weal-reproduce"];

/// What a pure crate must not depend on.
const IMPURE: [&str; 9] = ["tokio", "hyper", "axum", "rustix", "nix", "socket2", "mio", "rusqlite", "tracing-subscriber"];

/// A file longer than this does not read in one go.
const LONGEST_FILE: usize = 800;

/// Runs all checks and prints every finding; false when there is one.
pub fn run() -> Result<bool> {
    let root = crate::root();
    let mut findings = Vec::new();
    check_floors(&root, &mut findings)?;
    let files = tracked_files(&root)?;
    check_sources(&root, &files, &mut findings)?;
    check_documents(&root, &files, &mut findings)?;
    for finding in &findings {
        println!("tidy: {finding}");
    }
    if findings.is_empty() {
        println!("tidy: {} files, no findings", files.len());
    }
    Ok(findings.is_empty())
}

fn check_floors(root: &Path, findings: &mut Vec<String>) -> Result<()> {
    let metadata = MetadataCommand::new().current_dir(root).no_deps().exec().context("failed to read cargo metadata")?;
    let floors: BTreeMap<&str, u32> = FLOORS.into_iter().collect();
    for package in &metadata.packages {
        let name = package.name.as_str();
        if !package.manifest_path.starts_with(metadata.workspace_root.join("crates")) {
            continue;
        }
        let Some(&floor) = floors.get(name) else {
            findings.push(format!("{name} has no floor: give it one in xtask/src/tidy.rs and in ARCHITECTURE.md"));
            continue;
        };
        let normal = package.dependencies.iter().filter(|dependency| dependency.kind != DependencyKind::Development);
        for dependency in normal {
            if let Some(&below) = floors.get(dependency.name.as_str())
                && below >= floor
                && !EXCEPTIONS.contains(&(name, dependency.name.as_str()))
            {
                findings.push(format!(
                    "{name} (floor {floor}) uses {} (floor {below}): only lower floors may be used",
                    dependency.name
                ));
            }
            if PURE.contains(&name) && IMPURE.contains(&dependency.name.as_str()) {
                findings.push(format!("{name} is pure but depends on {}", dependency.name));
            }
        }
        let folder = package.manifest_path.parent().context("a manifest lies in a folder")?;
        if PURE.contains(&name) && !folder.join("clippy.toml").exists() {
            findings.push(format!("{name} is pure but has no clippy.toml with its bans"));
        }
    }
    Ok(())
}

fn tracked_files(root: &Path) -> Result<Vec<String>> {
    let output = Command::new("git").args(["ls-files"]).current_dir(root).output().context("failed to run git ls-files")?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).filter(|file| root.join(file).is_file()).collect())
}

fn check_sources(root: &Path, files: &[String], findings: &mut Vec<String>) -> Result<()> {
    // Spelled in pieces, so that this file does not find itself.
    let unfinished = [concat!("todo", "!("), concat!("unimplemented", "!("), concat!("#[ign", "ore"), concat!("#[all", "ow(")];
    for file in files {
        let is_source = [".rs", ".ts", ".svelte", ".java"].iter().any(|ending| file.ends_with(ending));
        if !is_source {
            continue;
        }
        let text = fs::read_to_string(root.join(file)).with_context(|| format!("failed to read {file}"))?;
        let lines = text.lines().count();
        if lines > LONGEST_FILE {
            findings.push(format!("{file}: {lines} lines; find the seam (at most {LONGEST_FILE})"));
        }
        for (number, line) in text.lines().enumerate() {
            for word in unfinished {
                if line.contains(word) {
                    findings.push(format!("{file}:{}: `{word}` does not belong in finished code", number + 1));
                }
            }
        }
    }
    Ok(())
}

fn check_documents(root: &Path, files: &[String], findings: &mut Vec<String>) -> Result<()> {
    let documents = files.iter().filter(|file| file.ends_with(".md") && !file.starts_with("docs/benchmarks/"));
    for file in documents {
        let text = fs::read_to_string(root.join(file)).with_context(|| format!("failed to read {file}"))?;
        for path in named_paths(&text) {
            if !root.join(path).exists() {
                findings.push(format!("{file} names `{path}`, which does not exist"));
            }
        }
        let folder = root.join(file).parent().map(Path::to_owned).unwrap_or_default();
        for target in linked_paths(&text) {
            if !folder.join(target).exists() {
                findings.push(format!("{file} links to {target}, which does not exist"));
            }
        }
    }
    let architecture = fs::read_to_string(root.join("ARCHITECTURE.md")).context("failed to read ARCHITECTURE.md")?;
    for entry in fs::read_dir(root.join("crates")).context("failed to list crates/")? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !architecture.contains(&format!("crates/{name}")) {
            findings.push(format!("ARCHITECTURE.md does not name crates/{name}"));
        }
    }
    Ok(())
}

/// Paths in backticks that begin with a folder of the repository.
fn named_paths(text: &str) -> impl Iterator<Item = &str> {
    const FOLDERS: [&str; 10] =
        ["crates/", "xtask/", "docs/", "examples/", "scenarios/", "experiments/", "dashboard/", "openapi/", "tests/", "scripts/"];
    text.split('`')
        .skip(1)
        .step_by(2)
        .filter(|word| FOLDERS.iter().any(|folder| word.starts_with(folder)))
        .filter(|word| !word.contains(['*', ' ', '<', '{', '…']) && !word.contains("NAME"))
}

/// Targets of Markdown links to files.
fn linked_paths(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split(')').next()).filter_map(|target| {
        let path = target.split('#').next().unwrap_or(target);
        (!path.is_empty() && !path.contains("://") && !path.starts_with("mailto:")).then_some(path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_searched_for_paths_and_links() {
        let text = "see `crates/model/src/lib.rs`, `weal up`, [the house](ARCHITECTURE.md#floors) and `crates/*/src`";
        assert_eq!(named_paths(text).collect::<Vec<_>>(), ["crates/model/src/lib.rs"]);
        assert_eq!(linked_paths(text).collect::<Vec<_>>(), ["ARCHITECTURE.md"]);
    }
}
