//! Which crate may use which, and what pure crates may not use at all.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};
use cargo_metadata::{DependencyKind, MetadataCommand};

use super::files::Files;
use super::finding::Finding;

/// The floor of each crate. A crate uses only crates on lower floors.
const FLOORS: [(&str, u32); 22] = [
    ("weal-model", 0),
    ("weal-protocol", 0),
    ("weal-rng", 0),
    ("weal-testing", 0),
    ("weal-config", 1),
    ("weal-control", 1),
    ("weal-emulated", 0),
    ("weal-fuzz", 1),
    ("weal-host", 1),
    ("weal-image", 1),
    ("weal-reproduce", 2),
    ("weal-rpc", 2),
    ("weal-sandbox", 1),
    ("weal-scenario", 2),
    ("weal-sim", 2),
    ("weal-engine", 3),
    ("weal-gateway", 3),
    ("weal-load", 3),
    ("weal-node", 3),
    ("weal-controller", 4),
    ("weal-engine-local", 4),
    ("weal", 5),
];

/// Uses within a floor, each with its reason.
const WITHIN: [(&str, &str, &str); 5] = [
    ("weal-protocol", "weal-model", "messages are made of the nouns"),
    ("weal-sim", "weal-scenario", "what is simulated is a scenario"),
    ("weal-reproduce", "weal-scenario", "the papers' cases are scenarios"),
    ("weal-reproduce", "weal-sim", "the papers' cases are simulated"),
    ("weal-controller", "weal-engine-local", "the controller opens the engine that the config names"),
];

/// Crates that know no sockets, no async runtime, no wall clock and no entropy.
const PURE: [&str; 8] =
    ["weal-model", "weal-protocol", "weal-rng", "weal-control", "weal-config", "weal-scenario", "weal-sim", "weal-reproduce"];

/// What a pure crate must not depend on.
const IMPURE: [&str; 9] = ["tokio", "hyper", "axum", "rustix", "nix", "socket2", "mio", "rusqlite", "tracing-subscriber"];

/// Checks the manifests of `crates/`, and that ARCHITECTURE.md shows the same floors.
pub fn check(root: &Path, files: &Files) -> Result<Vec<Finding>> {
    let metadata = MetadataCommand::new().current_dir(root).no_deps().exec().context("failed to read cargo metadata")?;
    let mut uses = BTreeMap::new();
    let mut folders = BTreeMap::new();
    for package in &metadata.packages {
        let Ok(manifest) = package.manifest_path.strip_prefix(&metadata.workspace_root) else { continue };
        if let Some(folder) = manifest.parent().filter(|folder| folder.starts_with("crates")) {
            let normal = package.dependencies.iter().filter(|dependency| dependency.kind != DependencyKind::Development);
            uses.insert(package.name.to_string(), normal.map(|dependency| dependency.name.clone()).collect());
            folders.insert(package.name.to_string(), folder.to_string());
        }
    }
    let mut findings = check_uses(&uses);
    for name in PURE {
        let bans = folders.get(name).map(|folder| format!("{folder}/clippy.toml"));
        if bans.is_some_and(|bans| !files.exists(&bans)) {
            findings.push(Finding::new(
                format!("floors {name} bans"),
                format!("{name} is pure but has no clippy.toml with its bans"),
            ));
        }
    }
    findings.extend(check_map(&folders, files.text("ARCHITECTURE.md").unwrap_or_default()));
    Ok(findings)
}

fn check_uses(uses: &BTreeMap<String, BTreeSet<String>>) -> Vec<Finding> {
    let floors = BTreeMap::from(FLOORS);
    let mut findings = Vec::new();
    let mut find = |key: String, text: String| findings.push(Finding::new(format!("floors {key}"), text));
    for (name, used) in uses {
        let Some(&floor) = floors.get(name.as_str()) else {
            find(name.clone(), format!("{name} has no floor: give it one in xtask/src/tidy/floors.rs and in ARCHITECTURE.md"));
            continue;
        };
        for other in used {
            let within = WITHIN.iter().any(|&(user, used, _)| user == name && used == other);
            if let Some(&below) = floors.get(other.as_str())
                && below >= floor
                && !within
            {
                let text = format!("{name} (floor {floor}) uses {other} (floor {below}): only lower floors may be used");
                find(format!("{name} {other}"), text);
            }
            if PURE.contains(&name.as_str()) && IMPURE.contains(&other.as_str()) {
                find(format!("{name} {other}"), format!("{name} is pure but depends on {other}"));
            }
        }
    }
    for (name, other, _) in WITHIN {
        if uses.get(name).is_some_and(|used| !used.contains(other)) {
            find(format!("{name} {other}"), format!("xtask/src/tidy/floors.rs lets {name} use {other}, which it does not"));
        }
    }
    findings
}

/// The table of floors in the map has a row `| 1 | `crates/control` | … |` for each crate.
fn check_map(folders: &BTreeMap<String, String>, map: &str) -> Vec<Finding> {
    let floors = BTreeMap::from(FLOORS);
    let shown: BTreeMap<&str, &str> = map
        .lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix("| ")?.split(" | ");
            let (floor, folder) = (cells.next()?, cells.next()?);
            Some((folder.strip_prefix('`')?.strip_suffix('`')?, floor))
        })
        .collect();
    let mut findings = Vec::new();
    for (name, folder) in folders {
        let Some(floor) = floors.get(name.as_str()) else { continue };
        let text = match shown.get(folder.as_str()) {
            None => format!("ARCHITECTURE.md shows no floor for {folder}: it is on floor {floor}"),
            Some(shown) if **shown != floor.to_string() => {
                format!("ARCHITECTURE.md shows {folder} on floor {shown}: it is on {floor}")
            }
            Some(_) => continue,
        };
        findings.push(Finding::new(format!("floors map {folder}"), text));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uses(edges: &[(&str, &[&str])]) -> BTreeMap<String, BTreeSet<String>> {
        let set = |used: &[&str]| used.iter().map(|&name| name.to_owned()).collect();
        edges.iter().map(|&(name, used)| (name.to_owned(), set(used))).collect()
    }

    fn texts(findings: &[Finding]) -> Vec<&str> {
        findings.iter().map(|finding| finding.text.as_str()).collect()
    }

    #[test]
    fn a_crate_above_its_floor_and_an_impure_one_are_found() {
        let found = check_uses(&uses(&[("weal-control", &["weal-rpc", "tokio", "serde"]), ("weal-odd", &[])]));
        let expected = [
            "weal-control is pure but depends on tokio",
            "weal-control (floor 1) uses weal-rpc (floor 2): only lower floors may be used",
            "weal-odd has no floor: give it one in xtask/src/tidy/floors.rs and in ARCHITECTURE.md",
        ];
        assert_eq!(texts(&found), expected);
    }

    #[test]
    fn lower_floors_and_listed_neighbours_may_be_used() {
        assert_eq!(
            check_uses(&uses(&[("weal-protocol", &["weal-model", "serde"]), ("weal", &["weal-controller", "tokio"])])),
            []
        );
    }

    #[test]
    fn a_listed_neighbour_that_is_not_used_is_stale() {
        assert_eq!(
            texts(&check_uses(&uses(&[("weal-protocol", &[])]))),
            ["xtask/src/tidy/floors.rs lets weal-protocol use weal-model, which it does not"]
        );
    }

    #[test]
    fn the_map_shows_the_floors_that_are_checked() {
        let folders = BTreeMap::from([("weal-control".to_owned(), "crates/control".to_owned())]);
        assert_eq!(check_map(&folders, "| 1 | `crates/control` | every decision |"), []);
        assert_eq!(
            texts(&check_map(&folders, "| 2 | `crates/control` | it |")),
            ["ARCHITECTURE.md shows crates/control on floor 2: it is on 1"]
        );
        assert_eq!(texts(&check_map(&folders, "")), ["ARCHITECTURE.md shows no floor for crates/control: it is on floor 1"]);
    }
}
