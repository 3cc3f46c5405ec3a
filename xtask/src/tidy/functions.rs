//! How long functions are: the number by which a stranger sees whether code reads in small steps. Nothing is refused for it.

use super::modules::Crate;
use super::tokens::Token;

/// How many functions the product has, and the length in lines that half of them do not exceed, signature and braces included.
pub fn median(crates: &[Crate]) -> (usize, usize) {
    let mut lengths: Vec<usize> =
        crates.iter().flat_map(|of| of.modules.values()).flat_map(|module| lengths(&module.tokens)).collect();
    lengths.sort_unstable();
    (lengths.len(), lengths.get(lengths.len().saturating_sub(1) / 2).copied().unwrap_or(0))
}

/// Lines of each function that has a body.
fn lengths(tokens: &[Token]) -> Vec<usize> {
    let begins =
        (0..tokens.len()).filter(|&at| tokens[at].is("fn") && tokens.get(at + 1).is_some_and(|name| name.word().is_some()));
    begins.filter_map(|at| Some(end_of(&tokens[at..])? + 1 - tokens[at].line)).collect()
}

/// The last line of the function that begins here; `None` where it has no body.
fn end_of(tokens: &[Token]) -> Option<usize> {
    let (mut open, mut depth) = (0usize, 0usize);
    let body = tokens.iter().position(|token| {
        open += usize::from(token.is("(") || token.is("["));
        open -= usize::from(token.is(")") || token.is("]"));
        open == 0 && (token.is("{") || token.is(";"))
    });
    let body = body.filter(|&at| tokens[at].is("{"))?;
    for token in &tokens[body..] {
        if token.is("{") {
            depth += 1;
        } else if token.is("}") {
            depth -= 1;
            if depth == 0 {
                return Some(token.line);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::tokens::read;
    use super::*;

    #[test]
    fn a_function_is_as_long_as_from_its_name_to_its_last_brace() {
        let code = "trait A { fn a(&self); fn b() {} }\nfn c(call: fn([u8; 4])) -> u8 {\n    if x {\n        1\n    } else { 2 }\n}\n#[cfg(test)]\nmod tests { fn d() {\n} }\n";
        assert_eq!(lengths(&read(code).unwrap().tokens), [1, 5]);
    }
}
