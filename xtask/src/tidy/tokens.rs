//! Rust as a flat list of tokens: without comments, documentation and code that only tests compile.

use std::iter::Peekable;
use std::str::FromStr;

use anyhow::{Result, anyhow};
use proc_macro2::token_stream::IntoIter;
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// What a token is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A name or keyword.
    Word(String),
    /// One character of punctuation, or the beginning or end of a group.
    Mark(char),
    /// The value of a string.
    Text(String),
    /// A number or character.
    Other,
}

/// A token and its line.
#[derive(Debug, Clone)]
pub struct Token {
    /// What it is.
    pub kind: Kind,
    /// From 1.
    pub line: usize,
}

impl Token {
    /// The name, if it is one.
    pub fn word(&self) -> Option<&str> {
        if let Kind::Word(word) = &self.kind { Some(word) } else { None }
    }

    /// The string, if it is one.
    pub fn text(&self) -> Option<&str> {
        if let Kind::Text(text) = &self.kind { Some(text) } else { None }
    }

    /// Whether it is this name or this punctuation.
    pub fn is(&self, spelled: &str) -> bool {
        match &self.kind {
            Kind::Word(word) => word == spelled,
            Kind::Mark(mark) => spelled.chars().eq([*mark]),
            _ => false,
        }
    }
}

/// Whether the tokens at `at` are spelled like this, one string each.
pub fn spelled(tokens: &[Token], at: usize, words: &[&str]) -> bool {
    tokens.get(at..at + words.len()).is_some_and(|tokens| tokens.iter().zip(words).all(|(token, word)| token.is(word)))
}

/// A file's tokens, and the modules that it declares for tests only (`#[cfg(test)] mod tests;`).
#[derive(Default)]
pub struct Source {
    /// What the product compiles.
    pub tokens: Vec<Token>,
    /// Names of modules in other files that only tests compile.
    pub test_modules: Vec<String>,
}

/// Reads Rust.
///
/// # Errors
/// Brackets that do not match, strings that do not end.
pub fn read(text: &str) -> Result<Source> {
    let stream = TokenStream::from_str(text).map_err(|error| anyhow!("line {}: {error}", error.span().start().line))?;
    let mut source = Source::default();
    source.add(stream);
    Ok(source)
}

impl Source {
    fn add(&mut self, stream: TokenStream) {
        let mut trees = stream.into_iter().peekable();
        while let Some(tree) = trees.next() {
            match tree {
                TokenTree::Punct(mark) if mark.as_char() == '#' => {
                    let inner = trees.next_if(|next| matches!(next, TokenTree::Punct(mark) if mark.as_char() == '!')).is_some();
                    match trees.next_if(|next| matches!(next, TokenTree::Group(_))) {
                        Some(TokenTree::Group(attribute)) if is_for_tests(&attribute) && !inner => self.skip_item(&mut trees),
                        Some(TokenTree::Group(attribute)) if !is_documentation(&attribute) => self.add_group(&attribute),
                        _ => {}
                    }
                }
                TokenTree::Group(group) => self.add_group(&group),
                TokenTree::Ident(word) => self.push(Kind::Word(word.to_string()), word.span().start().line),
                TokenTree::Punct(mark) => self.push(Kind::Mark(mark.as_char()), mark.span().start().line),
                TokenTree::Literal(literal) => {
                    let kind = string_value(&literal.to_string()).map_or(Kind::Other, Kind::Text);
                    self.push(kind, literal.span().start().line);
                }
            }
        }
    }

    fn add_group(&mut self, group: &Group) {
        let marks = match group.delimiter() {
            Delimiter::Parenthesis => Some(('(', ')')),
            Delimiter::Brace => Some(('{', '}')),
            Delimiter::Bracket => Some(('[', ']')),
            Delimiter::None => None,
        };
        if let Some((open, _)) = marks {
            self.push(Kind::Mark(open), group.span_open().start().line);
        }
        self.add(group.stream());
        if let Some((_, close)) = marks {
            self.push(Kind::Mark(close), group.span_close().start().line);
        }
    }

    fn push(&mut self, kind: Kind, line: usize) {
        self.tokens.push(Token { kind, line });
    }

    /// Skips what an attribute belongs to: up to its body, or to the semicolon where it has none or is an import.
    fn skip_item(&mut self, trees: &mut Peekable<IntoIter>) {
        let (mut import, mut module) = (false, false);
        for tree in trees.by_ref() {
            match tree {
                TokenTree::Ident(word) if word == "use" => import = true,
                TokenTree::Ident(word) if word == "mod" => module = true,
                TokenTree::Ident(word) if module => {
                    self.test_modules.push(word.to_string());
                    module = false;
                }
                TokenTree::Group(group) if group.delimiter() == Delimiter::Brace && !import => return,
                TokenTree::Punct(mark) if mark.as_char() == ';' => return,
                _ => {}
            }
        }
    }
}

/// `[cfg(test)]`, `[cfg(all(test, …))]`, `[test]`.
fn is_for_tests(attribute: &Group) -> bool {
    let text: String = attribute.stream().to_string().split_whitespace().collect();
    text == "test" || text == "cfg(test)" || text.starts_with("cfg(all(test,")
}

fn is_documentation(attribute: &Group) -> bool {
    matches!(attribute.stream().into_iter().next(), Some(TokenTree::Ident(word)) if word == "doc")
}

/// The value of a string literal as it is written, raw or not.
fn string_value(literal: &str) -> Option<String> {
    let body = literal.trim_start_matches(['b', 'c']);
    if let Some(raw) = body.strip_prefix('r') {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        return Some(raw[hashes..raw.len() - hashes].strip_prefix('"')?.strip_suffix('"')?.to_owned());
    }
    let body = body.strip_prefix('"')?.strip_suffix('"')?;
    let mut value = String::new();
    let mut letters = body.chars().peekable();
    while let Some(letter) = letters.next() {
        match (letter, letter == '\\').1.then(|| letters.next()).flatten() {
            None => value.push(letter),
            Some('n') => value.push('\n'),
            Some('t') => value.push('\t'),
            Some('\n') => while letters.next_if(|next| next.is_whitespace()).is_some() {},
            Some(escaped) => value.push(escaped),
        }
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let words = |token: &Token| token.word().or(token.text()).map(str::to_owned);
        read(text).unwrap().tokens.iter().filter_map(words).collect()
    }

    #[test]
    fn comments_documentation_and_tests_are_left_out() {
        let text = "//! about\n/// more\nfn a() { /* b */ c(\"d\\n\") }\n#[cfg(test)]\nuse x::{y};\n#[cfg(test)]\nmod tests;\n#[cfg(test)] mod t { fn z() {} }\nfn e() {}";
        assert_eq!(words(text), ["fn", "a", "c", "d\n", "fn", "e"]);
        assert_eq!(read(text).unwrap().test_modules, ["tests", "t"]);
    }

    #[test]
    fn strings_have_their_values() {
        assert_eq!(
            words(
                r##"f("a \"b\" \
            c", r#"d "e""#, b"f", 'g', 1)"##
            ),
            ["f", "a \"b\" c", "d \"e\"", "f"]
        );
    }

    #[test]
    fn a_token_knows_its_line() {
        let tokens = read("fn a() {\n\n    b()\n}").unwrap().tokens;
        assert_eq!(tokens.iter().find(|token| token.is("b")).map(|token| token.line), Some(3));
        assert!(spelled(&tokens, 0, &["fn", "a", "(", ")", "{"]));
        assert!(read("fn a() {").is_err());
    }
}
