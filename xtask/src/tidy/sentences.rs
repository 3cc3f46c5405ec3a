//! Documents are easy to read: half of a document's sentences have 22 words at most.

use super::files::Files;
use super::finding::Finding;
use super::markdown;

/// The median of the words of a document's sentences at most.
const MEDIAN: usize = 22;
/// A document with fewer sentences has no median worth the name.
const FEWEST: usize = 5;

/// Checks all documents but the changelog, which is a list.
pub fn check(files: &Files) -> Vec<Finding> {
    let documents = files.iter().filter(|(path, _)| path.ends_with(".md") && *path != "CHANGELOG.md");
    let mut findings = Vec::new();
    for (file, text) in documents {
        let mut lengths: Vec<usize> = markdown::read(text).prose.iter().flat_map(|paragraph| sentences(paragraph)).collect();
        lengths.sort_unstable();
        let median = lengths.get(lengths.len() / 2).copied().unwrap_or(0);
        if lengths.len() >= FEWEST && median > MEDIAN {
            let text = format!("{file}: half of its {} sentences have {median} words or more (at most {MEDIAN})", lengths.len());
            findings.push(Finding::new(format!("sentences {file}"), text));
        }
    }
    findings
}

/// The number of words of each sentence.
fn sentences(paragraph: &str) -> Vec<usize> {
    let mut lengths = Vec::new();
    let mut words = 0;
    let mut code = false;
    for word in paragraph.split_whitespace() {
        // What stands in backticks is one word, and its dots end nothing.
        let within = code;
        code ^= word.matches('`').count() % 2 == 1;
        words += usize::from(!within && word.contains(char::is_alphanumeric));
        let last = word.trim_end_matches(['"', ')', '*', '_', '\'', '”']);
        if !code && last.ends_with(['.', '!', '?']) && !["e.g.", "i.e.", "etc."].contains(&last) && words > 0 {
            lengths.push(std::mem::take(&mut words));
        }
    }
    lengths.extend((words > 0).then_some(words));
    lengths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_counted_by_sentence() {
        assert_eq!(sentences("One two `weal up -f x. y` three. Four (five). Six: seven - eight"), [4, 2, 3]);
    }

    #[test]
    fn a_document_of_long_sentences_is_found() {
        let text = "word ".repeat(30) + ".\n\n";
        let files = [("page/a.md", text.repeat(5)), ("CHANGELOG.md", text.repeat(5)), ("docs/few.md", text.repeat(4))];
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
        let found = check(&Files::fixture(&files));
        assert_eq!(
            found,
            [Finding::new("sentences page/a.md", "page/a.md: half of its 5 sentences have 30 words or more (at most 22)")]
        );
    }

    #[test]
    fn short_sentences_and_printed_output_pass() {
        let text =
            "Weal decides. It says why. You read it. It is short. Good.\n\n```\n".to_owned() + &"word ".repeat(900) + "\n```\n";
        assert_eq!(check(&Files::fixture(&[("README.md", &text)])), []);
    }
}
