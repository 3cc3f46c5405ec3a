//! No decision reads prose: a message of ours is never searched for words of ours. What a program has to know goes over in a type.
//!
//! Found are the places that search a text (`contains`, `strip_prefix`, `==`, a `match`) for words that occur in one of our own messages:
//! two words anywhere, one word where the searched text is called an error, a reason or the like. What the kernel or another program
//! writes may be read, since its words are not in our messages.

use std::collections::BTreeSet;

use super::finding::Finding;
use super::modules::Crate;
use super::tokens::{Token, spelled};

/// Methods that search a text for another.
const SEARCHES: [&str; 14] = [
    "contains",
    "ends_with",
    "eq",
    "find",
    "matches",
    "rfind",
    "rsplit_once",
    "split",
    "split_once",
    "starts_with",
    "strip_prefix",
    "strip_suffix",
    "trim_end_matches",
    "trim_start_matches",
];

/// What a text of ours is called where it is searched.
const SAID: [&str; 15] = [
    "cause",
    "complaint",
    "description",
    "detail",
    "error",
    "message",
    "note",
    "problem",
    "reason",
    "refusal",
    "refused",
    "sentence",
    "text",
    "to_string",
    "why",
];

/// Places that may, by file and words, each with its reason.
const ALLOWED: [(&str, &str, &str); 1] = [(
    "crates/config/src/schema.rs",
    " Default: ",
    "the reference of the keys is printed from their descriptions, which end with the default",
)];

/// Finds the places that read a message.
pub fn check(crates: &[Crate]) -> Vec<Finding> {
    let reads: Vec<Read> =
        crates.iter().flat_map(|of| of.modules.values()).flat_map(|module| reads(&module.file, &module.tokens)).collect();
    let messages = messages(crates, &reads);
    let mut findings: Vec<Finding> =
        reads.iter().filter(|read| read.is_of(&messages) && !allowed(read)).map(Read::finding).collect();
    let files: BTreeSet<&str> = reads.iter().map(|read| read.file).collect();
    for (file, words, _) in ALLOWED.into_iter().filter(|(file, ..)| files.contains(file)) {
        if !reads.iter().any(|read| read.file == file && read.words == words && read.is_of(&messages)) {
            findings.push(Finding::new(
                format!("prose {file} {words}"),
                format!("xtask/src/tidy/prose.rs lets {file} read \"{words}\", which it does not"),
            ));
        }
    }
    findings.sort();
    findings.dedup();
    findings
}

fn allowed(read: &Read) -> bool {
    ALLOWED.iter().any(|&(file, words, _)| read.file == file && read.words == words)
}

/// A place that searches a text for words.
struct Read<'c> {
    file: &'c str,
    line: usize,
    words: &'c str,
    /// Whether the searched text has a name of ours for messages.
    said: bool,
}

impl Read<'_> {
    /// Whether the words are prose and stand in one of our messages.
    fn is_of(&self, messages: &BTreeSet<&str>) -> bool {
        let words = count_words(self.words);
        (words > 1 || (words == 1 && self.said)) && messages.iter().any(|message| message.contains(self.words.trim()))
    }

    fn finding(&self) -> Finding {
        let text = format!("{}:{} reads \"{}\", words of a message of ours: give it a type", self.file, self.line, self.words);
        Finding::new(format!("prose {} {}", self.file, self.words.trim()), text)
    }
}

/// How many words of two letters at least.
fn count_words(text: &str) -> usize {
    let is_word = |word: &&str| word.len() > 1 && word.chars().all(char::is_alphabetic);
    text.split_whitespace().map(|word| word.trim_matches(|letter: char| !letter.is_alphanumeric())).filter(is_word).count()
}

fn reads<'c>(file: &'c str, tokens: &'c [Token]) -> Vec<Read<'c>> {
    let mut reads = Vec::new();
    for (at, token) in tokens.iter().enumerate().skip(2) {
        let Some(words) = token.text() else { continue };
        let compared = (tokens[at - 1].is("=") && (tokens[at - 2].is("=") || tokens[at - 2].is("!"))) || is_arm(tokens, at);
        let search = (2..5).find(|back| at > *back && is_search(tokens, at - back));
        if compared || search.is_some() {
            let said = search.is_some_and(|back| said(&tokens[..at - back]));
            reads.push(Read { file, line: token.line, words, said });
        }
    }
    reads
}

/// A text in a pattern of a `match`: `"text" =>`, `"text" | …`, `Some("text") =>`.
fn is_arm(tokens: &[Token], at: usize) -> bool {
    let after = tokens[at + 1..].iter().position(|token| !token.is(")")).map_or(tokens.len(), |closing| at + 1 + closing);
    spelled(tokens, after, &["=", ">"]) || (tokens[at - 1].is("|") && spelled(tokens, after, &["|"]))
}

/// `.method(`, with `&` or `[` before the text, perhaps.
fn is_search(tokens: &[Token], at: usize) -> bool {
    tokens[at].word().is_some_and(|method| SEARCHES.contains(&method))
        && tokens[at - 1].is(".")
        && spelled(tokens, at + 1, &["("])
}

/// Whether what stands before `.method` is called like a message: `error.`, `self.reason.`, `error.to_string().`.
fn said(before: &[Token]) -> bool {
    let names = before.iter().rev().skip(1).filter(|token| !token.is("(") && !token.is(")") && !token.is(".") && !token.is("?"));
    names.take(1).any(|token| token.word().is_some_and(|word| SAID.contains(&word)))
}

/// All texts of two words or more but those that are searched for.
fn messages<'c>(crates: &'c [Crate], reads: &[Read]) -> BTreeSet<&'c str> {
    let searched: BTreeSet<(&str, usize, &str)> = reads.iter().map(|read| (read.file, read.line, read.words)).collect();
    let mut messages = BTreeSet::new();
    for module in crates.iter().flat_map(|of| of.modules.values()) {
        let texts = module.tokens.iter().filter_map(|token| Some((token.text()?, token.line)));
        let said = texts.filter(|&(text, line)| count_words(text) > 1 && !searched.contains(&(module.file.as_str(), line, text)));
        messages.extend(said.map(|(text, _)| text));
    }
    messages
}

#[cfg(test)]
mod tests {
    use super::super::modules::fixtures::crate_of;
    use super::*;

    const ERRORS: (&str, &str) =
        ("errors.rs", "#[error(\"{0} is suspended but not parked\")] struct E; fn f() { format!(\"asked {ago} ago\") }");

    fn found(code: &str) -> Vec<String> {
        let crates = crate_of(&[("lib.rs", "mod errors; mod reader;"), ERRORS, ("reader.rs", code)]);
        check(&crates).into_iter().map(|finding| finding.key).collect()
    }

    #[test]
    fn words_of_a_message_that_are_searched_for_are_found() {
        assert_eq!(
            found("fn f(text: &str) { text.contains(\"but not parked\"); }"),
            ["prose crates/a/src/reader.rs but not parked"]
        );
        assert_eq!(
            found("fn f(text: &str) { text == \"is suspended but\"; }"),
            ["prose crates/a/src/reader.rs is suspended but"]
        );
        assert_eq!(
            found("fn f(t: &str) { match t { \"but not parked\" => 1, _ => 2 } }"),
            ["prose crates/a/src/reader.rs but not parked"]
        );
        assert_eq!(found("fn f(e: E) { e.reason.strip_prefix(\"asked \"); }"), ["prose crates/a/src/reader.rs asked"]);
        assert_eq!(found("fn f(e: E) { e.to_string().contains(\"parked\"); }"), ["prose crates/a/src/reader.rs parked"]);
    }

    #[test]
    fn words_of_others_names_and_tests_pass() {
        assert_eq!(found("fn f(line: &str) { line.starts_with(\"some avg10=\"); line.contains(\"parked\"); }"), [""; 0]);
        assert_eq!(found("fn f() { say(\"it is suspended but not parked\") }"), [""; 0]);
        assert_eq!(found("#[cfg(test)] fn f(text: &str) { text.contains(\"but not parked\"); }"), [""; 0]);
    }
}
