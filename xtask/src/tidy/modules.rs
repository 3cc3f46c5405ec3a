//! A crate's modules: in which file each is, what it imports, which paths it names.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};

use super::files::Files;
use super::tokens::{Kind, Token, read, spelled};

/// A path of names, `["crate", "placement", "Plan"]`.
pub type Path = Vec<String>;

/// A crate as the product compiles it.
pub struct Crate {
    /// Its name in paths of other crates, `weal_control`.
    pub name: String,
    /// Its folder, `crates/control`.
    pub folder: String,
    /// By their paths from the root, which is the empty path.
    pub modules: BTreeMap<Path, Module>,
}

/// A module, inline or in a file of its own.
pub struct Module {
    /// Its file.
    pub file: String,
    /// Its tokens, those of inline modules included.
    pub tokens: Vec<Token>,
    /// What it imports and re-exports.
    pub imports: Vec<Import>,
    /// Paths that it names otherwise, from `crate`, `self` or `super` or with two names at least.
    pub paths: Vec<(Path, usize)>,
}

/// One name that a `use` brings in.
pub struct Import {
    /// As it is written.
    pub path: Path,
    /// The name that it gets here; `*` for all names.
    pub name: String,
    /// Whether others may take it from here.
    pub public: bool,
    /// From 1.
    pub line: usize,
}

/// The workspace's crates.
///
/// # Errors
/// A file that is not Rust.
pub fn crates(files: &Files) -> Result<Vec<Crate>> {
    let mut crates = Vec::new();
    for (manifest, text) in files.iter().filter(|(path, _)| path.ends_with("Cargo.toml")) {
        let Some(name) = text.lines().skip_while(|line| *line != "[package]").find_map(|line| line.strip_prefix("name = "))
        else {
            continue;
        };
        let folder = manifest.trim_end_matches("Cargo.toml").trim_end_matches('/');
        let roots = [format!("{folder}/src/lib.rs"), format!("{folder}/src/main.rs")];
        if let Some(root) = roots.iter().find(|root| files.exists(root)) {
            let mut modules = BTreeMap::new();
            add_file(files, root, vec![], &mut modules)?;
            crates.push(Crate { name: name.trim_matches('"').replace('-', "_"), folder: folder.to_owned(), modules });
        }
    }
    Ok(crates)
}

fn add_file(files: &Files, file: &str, path: Path, modules: &mut BTreeMap<Path, Module>) -> Result<()> {
    let Some(text) = files.text(file) else { return Ok(()) };
    let source = read(text).with_context(|| format!("{file} is not Rust"))?;
    let (folder, name) = file.rsplit_once('/').unwrap_or(("", file));
    let stem = name.trim_end_matches(".rs");
    let below = if ["lib", "main", "mod"].contains(&stem) { folder.to_owned() } else { format!("{folder}/{stem}") };
    let declared = add_module(file, source.tokens, path, modules);
    for path in declared {
        let name = path.last().map_or("", String::as_str);
        let places = [format!("{below}/{name}.rs"), format!("{below}/{name}/mod.rs")];
        if let Some(place) = places.iter().find(|place| files.exists(place)) {
            add_file(files, place, path, modules)?;
        }
    }
    Ok(())
}

/// Adds a module with its inline modules; returns the modules that it declares in files of their own.
fn add_module(file: &str, tokens: Vec<Token>, path: Path, modules: &mut BTreeMap<Path, Module>) -> Vec<Path> {
    let mut declared = Vec::new();
    let mut module = Module { file: file.to_owned(), tokens: vec![], imports: vec![], paths: vec![] };
    let mut at = 0;
    while at < tokens.len() {
        if tokens[at].is("mod") && tokens.get(at + 1).is_some_and(|token| token.word().is_some()) {
            let inner: Path = path.iter().cloned().chain(tokens[at + 1].word().map(str::to_owned)).collect();
            if spelled(&tokens, at + 2, &[";"]) {
                declared.push(inner);
            } else if spelled(&tokens, at + 2, &["{"]) {
                let end = closing(&tokens, at + 2);
                declared.extend(add_module(file, tokens[at + 3..end].to_vec(), inner, modules));
                at = end;
            }
            at += 1;
        } else if tokens[at].is("use") {
            let end = (at..tokens.len()).find(|&at| tokens[at].is(";")).unwrap_or(tokens.len());
            let public = at > 0 && (tokens[at - 1].is("pub") || tokens[at - 1].is(")"));
            let mut tree = &tokens[at + 1..end];
            read_use(&mut tree, &vec![], public, &mut module.imports);
            at = end;
        } else if let Some((named, next)) = read_path(&tokens, at) {
            module.paths.push((named, tokens[at].line));
            at = next;
        } else {
            at += 1;
        }
    }
    module.tokens = tokens;
    modules.insert(path, module);
    declared
}

/// Where the group that begins at `open` ends.
fn closing(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token.kind {
            Kind::Mark('{' | '(' | '[') => depth += 1,
            Kind::Mark('}' | ')' | ']') => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    tokens.len()
}

/// Reads one branch of a `use` and all below it: `a::b`, `a as b`, `a::{b, c}`, `a::*`.
fn read_use(tree: &mut &[Token], before: &Path, public: bool, imports: &mut Vec<Import>) {
    let mut path = before.clone();
    while let Some((first, rest)) = tree.split_first() {
        *tree = rest;
        match &first.kind {
            Kind::Word(word) if word == "as" => {
                let Some((name, rest)) = tree.split_first() else { return };
                *tree = rest;
                imports.push(Import { path, name: name.word().unwrap_or("_").to_owned(), public, line: first.line });
                return;
            }
            Kind::Word(word) => {
                path.push(word.clone());
                if tree.first().is_none_or(|next| next.is(",") || next.is("}")) {
                    if path.last().is_some_and(|last| last == "self") && path.len() > 1 {
                        path.pop();
                    }
                    imports.push(Import { name: path.last().cloned().unwrap_or_default(), path, public, line: first.line });
                    return;
                }
            }
            Kind::Mark('*') => {
                imports.push(Import { path, name: "*".to_owned(), public, line: first.line });
                return;
            }
            Kind::Mark('{') => {
                while tree.first().is_some_and(|next| !next.is("}")) {
                    read_use(tree, &path, public, imports);
                    if tree.first().is_some_and(|next| next.is(",")) {
                        *tree = &tree[1..];
                    }
                }
                *tree = tree.get(1..).unwrap_or_default();
                return;
            }
            _ => {}
        }
    }
}

/// A path of two names at least that begins at `at`, and where it ends. Not what follows a dot, `$` or another path.
fn read_path(tokens: &[Token], at: usize) -> Option<(Path, usize)> {
    let before = at.checked_sub(1).map(|before| &tokens[before]);
    if before.is_some_and(|before| ["$", ".", ":", "in"].iter().any(|mark| before.is(mark)) && !is_single_colon(tokens, at)) {
        return None;
    }
    let mut path = vec![tokens[at].word()?.to_owned()];
    let mut next = at + 1;
    while spelled(tokens, next, &[":", ":"])
        && let Some(word) = tokens.get(next + 2).and_then(Token::word)
    {
        path.push(word.to_owned());
        next += 3;
    }
    (path.len() > 1).then_some((path, next))
}

/// Whether what stands before `at` is the colon between a name and its type, not a path's.
fn is_single_colon(tokens: &[Token], at: usize) -> bool {
    tokens[at - 1].is(":") && !(at > 1 && tokens[at - 2].is(":"))
}

impl Crate {
    /// The module in which a path ends that `module` names, and the name of an item in it. Follows re-exports. `None` for paths into other crates.
    pub fn resolve(&self, module: &Path, path: &[String]) -> Option<(Path, Option<String>)> {
        let (start, rest) = self.start(module, path)?;
        self.walk(start, rest, &mut BTreeSet::new())
    }

    fn start<'p>(&self, module: &Path, path: &'p [String]) -> Option<(Path, &'p [String])> {
        let first = path.first()?;
        match first.as_str() {
            "crate" => Some((vec![], &path[1..])),
            "self" => Some((module.clone(), &path[1..])),
            "super" => {
                let mut start = module.clone();
                let ups = path.iter().take_while(|word| *word == "super").count();
                (0..ups).for_each(|_| {
                    start.pop();
                });
                Some((start, &path[ups..]))
            }
            _ => {
                let child: Path = module.iter().chain([first]).cloned().collect();
                self.modules.contains_key(&child).then_some((child, &path[1..]))
            }
        }
    }

    fn walk(&self, mut module: Path, path: &[String], seen: &mut BTreeSet<(Path, String)>) -> Option<(Path, Option<String>)> {
        for (at, word) in path.iter().enumerate() {
            module.push(word.clone());
            if self.modules.contains_key(&module) {
                continue;
            }
            module.pop();
            if !seen.insert((module.clone(), word.clone())) {
                return None;
            }
            let imports = &self.modules.get(&module)?.imports;
            if let Some(import) =
                imports.iter().find(|import| import.name == *word && import.path.last() != Some(&"_".to_owned()))
            {
                let (start, rest) = self.start(&module, &import.path)?;
                let whole: Path = rest.iter().chain(&path[at + 1..]).cloned().collect();
                return self.walk(start, &whole, seen);
            }
            for import in imports.iter().filter(|import| import.name == "*") {
                let Some((inside, None)) =
                    self.start(&module, &import.path).and_then(|(start, rest)| self.walk(start, rest, seen))
                else {
                    continue;
                };
                if self.defines(&inside, word) {
                    return Some((inside, Some(word.clone())));
                }
            }
            return Some((module, Some(word.clone())));
        }
        Some((module, None))
    }

    /// Whether a module defines an item of that name.
    pub fn defines(&self, module: &Path, name: &str) -> bool {
        const KINDS: [&str; 8] = ["fn", "struct", "enum", "trait", "const", "static", "type", "macro_rules"];
        let Some(module) = self.modules.get(module) else { return false };
        let named =
            |at: usize| module.tokens[at].is(name) || (module.tokens[at].is("!") && spelled(&module.tokens, at + 1, &[name]));
        (1..module.tokens.len()).any(|at| named(at) && KINDS.iter().any(|kind| module.tokens[at - 1].is(kind)))
    }
}

#[cfg(test)]
pub mod fixtures {
    use super::*;

    /// A crate `weal-a` in `crates/a` with these files below its `src`.
    pub fn crate_of(files: &[(&str, &str)]) -> Vec<Crate> {
        let mut all = vec![("crates/a/Cargo.toml".to_owned(), "[package]\nname = \"weal-a\"\n")];
        all.extend(files.iter().map(|&(path, text)| (format!("crates/a/src/{path}"), text)));
        let all: Vec<(&str, &str)> = all.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        crates(&Files::fixture(&all)).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::fixtures::crate_of;
    use super::*;

    fn path(text: &str) -> Path {
        text.split("::").filter(|word| !word.is_empty()).map(str::to_owned).collect()
    }

    #[test]
    fn modules_are_found_in_files_folders_and_inline() {
        let crates = crate_of(&[
            ("lib.rs", "mod a; pub mod b { pub mod c {} } #[cfg(test)] mod tests;"),
            ("a/mod.rs", "mod d;"),
            ("a/d.rs", ""),
            ("tests.rs", "mod e {}"),
        ]);
        let found: Vec<String> = crates[0].modules.keys().map(|path| path.join("::")).collect();
        assert_eq!(found, ["", "a", "a::d", "b", "b::c"]);
        assert_eq!(crates[0].modules[&path("a::d")].file, "crates/a/src/a/d.rs");
    }

    #[test]
    fn imports_are_read_with_braces_names_and_stars() {
        let crates = crate_of(&[("lib.rs", "pub use a::{b, c::{self, d as e}, f::*};")]);
        let imports: Vec<(String, &str)> =
            crates[0].modules[&path("")].imports.iter().map(|import| (import.path.join("::"), import.name.as_str())).collect();
        let expected = [("a::b", "b"), ("a::c", "c"), ("a::c::d", "e"), ("a::f", "*")];
        assert_eq!(imports, expected.map(|(path, name)| (path.to_owned(), name)));
    }

    #[test]
    fn paths_lead_to_the_module_that_defines_through_re_exports() {
        let crates = crate_of(&[
            ("lib.rs", "mod a; mod b; pub use a::Thing;"),
            ("a.rs", "mod inner; pub use inner::*; pub use inner::Thing;"),
            ("a/inner.rs", "pub struct Thing; pub struct Other;"),
            ("b.rs", "fn f() { let x: crate::Thing = crate::a::Other; Vec::new() }"),
        ]);
        let resolve = |from: &str, to: &str| {
            crates[0].resolve(&path(from), &path(to)).map(|(module, item)| (module.join("::"), item.unwrap_or_default()))
        };
        let inner = |item: &str| Some(("a::inner".to_owned(), item.to_owned()));
        assert_eq!(resolve("b", "crate::Thing"), inner("Thing"));
        assert_eq!(resolve("b", "super::a::Other"), inner("Other"));
        assert_eq!(resolve("a", "inner::Thing::new"), inner("Thing"));
        assert_eq!(resolve("b", "std::fmt"), None);
        let named: Vec<String> = crates[0].modules[&path("b")].paths.iter().map(|(path, _)| path.join("::")).collect();
        assert_eq!(named, ["crate::Thing", "crate::a::Other", "Vec::new"]);
    }
}
