//! The names in backticks exist: commands of `weal` with their options, crates, files and paths of Rust.

use std::collections::BTreeSet;

use super::files::Files;
use super::finding::Finding;
use super::markdown;
use super::modules::{Crate, Path};
use super::tokens::{Token, read, spelled};

/// Where the command line is declared.
const COMMANDS: &str = "crates/cli/src/args.rs";
/// Where the options of families of commands are.
const MORE_COMMANDS: &str = "crates/cli/src/args/";
/// Crates of others whose paths documents may name.
const OTHERS: [&str; 6] = ["std", "core", "alloc", "tokio", "hyper", "serde"];

/// Checks all documents but the changelog, which names what was, and what benchmarks printed.
pub fn check(files: &Files, crates: &[Crate]) -> Vec<Finding> {
    let documents = files.iter().filter(|(path, _)| path.ends_with(".md"));
    let words = Words::new(files, crates);
    let mut findings = Vec::new();
    for (file, text) in documents.filter(|(path, _)| *path != "CHANGELOG.md" && !path.starts_with("docs/benchmarks/")) {
        for (name, line) in markdown::read(text).names {
            if let Some(missing) = words.missing(&name) {
                let text = format!("{file}:{line} names `{name}`: {missing}");
                findings.push(Finding::new(format!("names {file} `{name}`"), text));
            }
        }
    }
    findings
}

/// What there is to name.
struct Words<'c> {
    commands: BTreeSet<String>,
    options: BTreeSet<String>,
    packages: BTreeSet<String>,
    files: &'c Files,
    crates: &'c [Crate],
}

impl<'c> Words<'c> {
    fn new(files: &'c Files, crates: &'c [Crate]) -> Self {
        let manifests = files.iter().filter(|(path, _)| path.ends_with("Cargo.toml"));
        let named = manifests.flat_map(|(_, text)| text.lines()).filter_map(|line| line.strip_prefix("name = "));
        let packages = named.map(|name| name.trim_matches('"').to_owned()).collect();
        let sources = files.iter().filter(|(path, _)| *path == COMMANDS || path.starts_with(MORE_COMMANDS));
        let arguments: Vec<Token> = sources.filter_map(|(_, text)| read(text).ok()).flat_map(|source| source.tokens).collect();
        let fields = arguments.windows(2).filter(|pair| pair[1].is(":")).filter_map(|pair| pair[0].word());
        let renamed = (0..arguments.len())
            .filter(|&at| spelled(&arguments, at, &["long", "="]))
            .filter_map(|at| arguments.get(at + 2)?.text());
        let options = fields.chain(renamed).map(|word| word.replace('_', "-")).chain(["help".to_owned(), "version".to_owned()]);
        Self { commands: variants(&arguments, "Command"), options: options.collect(), packages, files, crates }
    }

    /// What does not exist of a name; `None` for what exists, and for what is no name of ours.
    fn missing(&self, name: &str) -> Option<String> {
        if let Some(command) = name.strip_prefix("weal ") {
            return self.missing_command(command);
        }
        let plain = name.chars().all(|letter| letter.is_ascii_alphanumeric() || "_-:./()".contains(letter));
        if !plain {
            return None;
        }
        if name.starts_with("weal-") && !name.contains(['.', '/', ':']) {
            return (!self.packages.contains(name)).then(|| "there is no such crate or program".to_owned());
        }
        if let Some(path) = name.strip_suffix("()").or(Some(name)).filter(|path| path.contains("::")) {
            let path: Path = path.split("::").map(str::to_owned).collect();
            let known = OTHERS.contains(&path[0].as_str()) || self.exists(&path);
            return (!known).then(|| "there is no such module or item".to_owned());
        }
        // A path from the root is looked for with the other paths.
        let rooted = name.split_once('/').is_some_and(|(folder, _)| self.files.exists(folder));
        if name.ends_with(".rs")
            && !rooted
            && !self.files.iter().any(|(path, _)| path == name || path.ends_with(&format!("/{name}")))
        {
            return Some("there is no such file".to_owned());
        }
        None
    }

    fn missing_command(&self, line: &str) -> Option<String> {
        let mut words = line.split_whitespace();
        let command = words.next().filter(|word| word.starts_with(|letter: char| letter.is_ascii_lowercase()))?;
        if !self.commands.contains(command) {
            return Some(format!("there is no command `{command}`"));
        }
        let options = words.filter_map(|word| word.trim_start_matches('[').strip_prefix("--"));
        let unknown = options
            .map(|word| word.split(|letter: char| !letter.is_ascii_lowercase() && letter != '-').next().unwrap_or(word))
            .find(|option| !option.is_empty() && !self.options.contains(*option))?;
        Some(format!("there is no option `--{unknown}`"))
    }

    /// Whether a path begins with a crate, a module or a type, and what follows is in it.
    fn exists(&self, path: &Path) -> bool {
        self.crates.iter().any(|of| {
            let short = of.folder.rsplit('/').next().unwrap_or_default().replace('-', "_");
            let from_root = (path[0] == short || path[0] == of.name).then(Path::new);
            let mut starts = from_root.into_iter().map(|module| (module, &path[1..])).collect::<Vec<_>>();
            for module in of.modules.keys() {
                if module.last() == Some(&path[0]) {
                    starts.push((module.clone(), &path[1..]));
                } else if of.defines(module, &path[0]) {
                    starts.push((module.clone(), &path[..]));
                }
            }
            starts.iter().any(|(module, rest)| leads_somewhere(of, module, rest))
        })
    }
}

fn leads_somewhere(of: &Crate, module: &Path, rest: &[String]) -> bool {
    let from_here: Path = ["self".to_owned()].iter().chain(rest).cloned().collect();
    match of.resolve(module, &from_here) {
        None => false,
        Some((_, None)) => true,
        Some((module, Some(item))) => {
            let after = rest.iter().skip_while(|word| **word != item).skip(1);
            let tokens = &of.modules[&module].tokens;
            of.defines(&module, &item) && after.into_iter().all(|word| tokens.iter().any(|token| token.is(word)))
        }
    }
}

/// The variants of an enum as clap spells them: `WhatIf` is `what-if`.
fn variants(tokens: &[Token], name: &str) -> BTreeSet<String> {
    let Some(start) = (0..tokens.len()).find(|&at| spelled(tokens, at, &["enum", name, "{"])) else { return BTreeSet::new() };
    let mut variants = BTreeSet::new();
    let mut depth = 0_usize;
    for at in start + 3..tokens.len() {
        let begins = tokens[at - 1].is("{") || tokens[at - 1].is(",") || tokens[at - 1].is("]");
        match tokens[at].word() {
            Some(word) if depth == 0 && begins => {
                variants.insert(kebab(word));
            }
            _ if ["{", "(", "["].iter().any(|mark| tokens[at].is(mark)) => depth += 1,
            _ if ["}", ")", "]"].iter().any(|mark| tokens[at].is(mark)) => match depth.checked_sub(1) {
                Some(less) => depth = less,
                None => break,
            },
            _ => {}
        }
    }
    variants
}

fn kebab(word: &str) -> String {
    let mut spelled = String::new();
    for letter in word.chars() {
        if letter.is_uppercase() && !spelled.is_empty() {
            spelled.push('-');
        }
        spelled.extend(letter.to_lowercase());
    }
    spelled
}

#[cfg(test)]
mod tests {
    use super::super::modules::crates;
    use super::*;

    const ARGUMENTS: &str = "enum Command { /// Starts.\n Up(Up), #[command(hide = true)] WhatIf { #[arg(long)] goal: String } } struct Up { #[arg(long = \"detached\")] d: bool }";

    fn found(page: &str) -> Vec<String> {
        let files = Files::fixture(&[
            ("crates/cli/Cargo.toml", "[package]\nname = \"weal\"\n"),
            ("crates/cli/src/main.rs", "mod args;"),
            (COMMANDS, ARGUMENTS),
            ("crates/cli/src/args/token.rs", "pub enum TokenAction { Create { read_only: bool } }"),
            ("crates/control/Cargo.toml", "[package]\nname = \"weal-control\"\n"),
            ("crates/control/src/lib.rs", "pub mod cycle;"),
            ("crates/control/src/cycle/mod.rs", "mod timers; pub use timers::Timers; pub enum Effect { Wait }"),
            ("crates/control/src/cycle/timers.rs", "pub struct Timers { next: u64 }"),
            ("docs/page.md", page),
            ("CHANGELOG.md", "`weal gone`"),
        ]);
        check(&files, &crates(&files).unwrap()).into_iter().map(|finding| finding.text).collect()
    }

    #[test]
    fn names_that_do_not_exist_are_found() {
        let cases = [
            ("weal dance", "there is no command `dance`"),
            ("weal up --loud", "there is no option `--loud`"),
            ("weal-gone", "there is no such crate or program"),
            ("control::gone", "there is no such module or item"),
            ("cycle::Effect::Gone", "there is no such module or item"),
            ("gone.rs", "there is no such file"),
        ];
        for (name, missing) in cases {
            assert_eq!(found(&format!("See `{name}`.")), [format!("docs/page.md:1 names `{name}`: {missing}")]);
        }
    }

    #[test]
    fn names_that_exist_and_names_of_others_pass() {
        let names = [
            "weal up --detached",
            "weal up --read-only",
            "weal what-if FILE [--goal CLASS=GOAL]",
            "weal-control",
            "control::cycle",
            "weal_control::cycle::Effect::Wait",
            "cycle::Timers::next",
            "Effect::Wait",
            "timers.rs",
            "cycle/mod.rs",
            "std::fmt",
            "weal.toml",
            "p95 < 250ms",
        ];
        assert_eq!(found(&names.map(|name| format!("`{name}` ")).concat()), [""; 0]);
    }
}
