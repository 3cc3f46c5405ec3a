//! Every command line that a document shows is one that weal takes.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser;
use clap::error::ErrorKind;

use super::Cli;

/// How a page says that any command may stand there.
const PATTERN: &str = "weal COMMAND [OPTIONS]";

/// The README and the pages of `docs` and `examples`; pages of results show what benchmarks printed.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let files = |folder: PathBuf| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let examples = files(root.join("examples")).map(|folder| folder.join("README.md")).filter(|page| page.exists());
    let pages = files(root.join("docs")).chain(examples).chain([root.join("README.md")]);
    pages.filter(|page| page.extension().is_some_and(|ending| ending == "md")).collect()
}

/// The calls of weal in the blocks of code of `text`, as their words.
fn calls(text: &str) -> Vec<Vec<String>> {
    let code = text.lines().filter(|line| line.starts_with("    "));
    let commands = code.flat_map(|line| without_remark(line.trim()).split(" && "));
    commands.filter_map(call).collect()
}

/// A remark stands behind `#`, or behind three spaces.
fn without_remark(line: &str) -> &str {
    let end = [" #", "   "].iter().filter_map(|begin| line.find(begin)).min().unwrap_or(line.len());
    &line[..end]
}

/// The words of `command` if it is a call of weal, up to where another program or a file takes its output.
fn call(command: &str) -> Option<Vec<String>> {
    let command = command.trim();
    let command = command.strip_prefix("$ ").unwrap_or(command);
    let command = command.strip_prefix("sudo ").unwrap_or(command);
    if !command.starts_with("weal ") || command.starts_with(PATTERN) {
        return None;
    }
    let words = shlex::split(command).unwrap_or_else(|| panic!("quotes that do not end: {command}"));
    Some(words.into_iter().take_while(|word| !["|", ">", "<"].contains(&word.as_str())).collect())
}

/// What clap says against `words`; nothing when it takes them or answers them itself.
fn refusal(words: &[String]) -> Option<String> {
    let error = Cli::try_parse_from(words).err()?;
    let is_answer = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    (!is_answer).then(|| format!("{}: {error}", words.join(" ")))
}

#[test]
fn every_command_line_of_a_document_is_one_that_weal_takes() {
    let mut wrong = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        wrong.extend(calls(&text).iter().filter_map(|words| refusal(words)).map(|why| format!("{}: {why}", page.display())));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_commands_of_readme_and_tutorial_are_found() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (page, expected) in [("README.md", "weal load shop --rate 20/s"), ("docs/tutorial.md", "weal history")] {
        let found = calls(&fs::read_to_string(root.join(page)).unwrap());
        assert!(found.iter().any(|words| words.join(" ") == expected), "{page}: {found:?}");
    }
}

#[test]
fn calls_are_told_from_what_stands_around_them() {
    let page = "weal is a word here\n\n    $ weal status   in words\n    cd /srv && sudo weal init -- ./x && weal top  # live\n    weal logs a | jq .\n";
    let joined: Vec<String> = calls(page).iter().map(|words| words.join(" ")).collect();
    assert_eq!(joined, ["weal status", "weal init -- ./x", "weal top", "weal logs a"]);
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    assert!(refusal(&words("weal statsu")).is_some() && refusal(&words("weal status --wrong")).is_some());
    assert_eq!(refusal(&words("weal status --watch")), None);
}
