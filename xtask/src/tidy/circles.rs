//! No two files of a crate need each other: a reader can begin with one of them.
//!
//! A file needs another where it names something that is defined there, by an import or by a path; a re-export leads to the file
//! that defines. A module that declares its children, or hands their names on, does not need them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::finding::Finding;
use super::modules::{Crate, Path};

/// Files that may need each other, each set with its reason.
const ALLOWED: [(&[&str], &str); 1] = [(
    &[
        "crates/node/src/instance/ending.rs",
        "crates/node/src/instance/launch.rs",
        "crates/node/src/instance/mod.rs",
        "crates/node/src/instance/pages.rs",
        "crates/node/src/instance/running.rs",
        "crates/node/src/instance/sleep.rs",
    ],
    "the states of an instance hand it over to each other",
)];

/// For each file the files that it needs, with one place where.
type Needs<'c> = BTreeMap<&'c str, BTreeMap<&'c str, usize>>;

/// Finds the circles in each crate, and files that are allowed to be in one and are in none.
pub fn check(crates: &[Crate]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = crates.iter().flat_map(|of| check_needs(of, &all_needs(of))).collect();
    for of in crates {
        let all = all_needs(of);
        for file in ALLOWED.iter().flat_map(|(files, _)| files.iter()).filter(|file| file.starts_with(&format!("{}/", of.folder)))
        {
            if !reachable(&all, file).contains(file) {
                let text = format!("xtask/src/tidy/circles.rs lets {file} be in a circle, which it is not");
                findings.push(Finding::new(format!("circle {file}"), text));
            }
        }
    }
    findings
}

fn check_needs(of: &Crate, needs: &Needs) -> Vec<Finding> {
    let reached: BTreeMap<&str, BTreeSet<&str>> = needs.keys().map(|&file| (file, reachable(needs, file))).collect();
    let mut findings = Vec::new();
    let mut seen = BTreeSet::new();
    for (&file, others) in &reached {
        let circle: Vec<&str> =
            others.iter().copied().filter(|other| reached.get(other).is_some_and(|back| back.contains(file))).collect();
        if circle.is_empty() || allowed(&circle) || !seen.insert(circle.clone()) {
            continue;
        }
        let source = format!("{}/src/", of.folder);
        let short = |file: &str| file.strip_prefix(&source).unwrap_or(file).to_owned();
        let names: Vec<String> = circle.iter().map(|file| short(file)).collect();
        let round: Vec<String> = shortest(needs, &circle)
            .windows(2)
            .map(|pair| format!("{}:{} needs {}", pair[0], needs[pair[0]][pair[1]], short(pair[1])))
            .collect();
        let text = format!("{} files of {} need each other ({}): {}", circle.len(), of.folder, names.join(" "), round.join(", "));
        findings.push(Finding::new(format!("circle {} {}", of.folder, names.join(" ")), text));
    }
    findings
}

fn all_needs(of: &Crate) -> Needs<'_> {
    let mut needs = Needs::new();
    for (path, module) in &of.modules {
        let imports = module
            .imports
            .iter()
            .filter(|import| !hands_on(of, path, import.public, &import.path))
            .map(|import| (&import.path, import.line));
        for (named, line) in imports.chain(module.paths.iter().map(|(named, line)| (named, *line))) {
            let Some((target, _)) = of.resolve(path, named) else { continue };
            let other = of.modules[&target].file.as_str();
            if other != module.file {
                needs.entry(&module.file).or_default().entry(other).or_insert(line);
            }
        }
    }
    needs
}

/// Whether a module only hands on the name of a descendant of its own.
fn hands_on(of: &Crate, path: &Path, public: bool, named: &Path) -> bool {
    public && of.resolve(path, named).is_some_and(|(target, _)| target.len() > path.len() && target.starts_with(path))
}

/// One file more than may be in a circle makes it another one.
fn allowed(circle: &[&str]) -> bool {
    ALLOWED.iter().any(|(files, _)| circle.iter().all(|file| files.contains(file)))
}

fn reachable<'c>(needs: &Needs<'c>, from: &str) -> BTreeSet<&'c str> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&str> = vec![from];
    while let Some(file) = open.pop() {
        for &next in needs.get(file).into_iter().flat_map(BTreeMap::keys) {
            if reached.insert(next) {
                open.push(next);
            }
        }
    }
    reached
}

/// A shortest way round from any of these files back to it.
fn shortest<'c>(needs: &Needs<'c>, circle: &[&'c str]) -> Vec<&'c str> {
    circle.iter().filter_map(|file| way_back(needs, file)).min_by_key(Vec::len).unwrap_or_default()
}

fn way_back<'c>(needs: &Needs<'c>, from: &'c str) -> Option<Vec<&'c str>> {
    let mut ways = VecDeque::from([vec![from]]);
    let mut seen = BTreeSet::new();
    while let Some(way) = ways.pop_front() {
        for &next in needs.get(way[way.len() - 1]).into_iter().flat_map(BTreeMap::keys) {
            let longer: Vec<&str> = way.iter().copied().chain([next]).collect();
            if next == from {
                return Some(longer);
            }
            if seen.insert(next) {
                ways.push_back(longer);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::modules::fixtures::crate_of;
    use super::*;

    #[test]
    fn files_that_need_each_other_are_found_with_the_way_round() {
        let crates = crate_of(&[
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a.rs", "use crate::b::B;\npub struct A;"),
            ("b.rs", "\nuse super::c;\npub struct B;"),
            ("c.rs", "pub fn f() -> crate::a::A { todo }"),
        ]);
        let found = check(&crates);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].key, "circle crates/a a.rs b.rs c.rs");
        assert!(
            found[0]
                .text
                .ends_with("crates/a/src/a.rs:1 needs b.rs, crates/a/src/b.rs:2 needs c.rs, crates/a/src/c.rs:1 needs a.rs")
        );
    }

    #[test]
    fn a_parent_that_uses_its_child_is_not_used_by_it() {
        let circle = [("lib.rs", "mod a; use a::A; pub fn f() {}"), ("a.rs", "use super::f; pub struct A;")];
        assert_eq!(check(&crate_of(&circle)).len(), 1);
    }

    #[test]
    fn declaring_and_handing_on_are_no_need() {
        let crates = crate_of(&[
            ("lib.rs", "mod a; mod b; pub use a::A; pub use b::*;"),
            ("a.rs", "use super::B; pub struct A; #[cfg(test)] mod tests { use super::super::b; }"),
            ("b.rs", "pub struct B; #[cfg(test)] use crate::A;"),
        ]);
        assert_eq!(check(&crates), []);
    }
}
