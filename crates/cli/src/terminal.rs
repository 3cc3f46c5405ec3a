//! What a terminal may be sent. Text of applications, clients and files passes through weal; none of it may move the cursor, set the title,
//! write to the clipboard or hide a line (ECMA-48; xterm's operating system commands).

use std::borrow::Cow;
use std::fmt::Write as _;

/// `text` with every control character but the line feed and the tab escaped, as `\x1b`.
pub fn visible(text: &str) -> Cow<'_, str> {
    escaped(text, |_| 0)
}

/// The same, but colours pass: what weal prints is coloured.
pub fn colored(text: &str) -> Cow<'_, str> {
    escaped(text, color)
}

/// `text` as it is: for a file or another program, which a terminal's commands do no harm.
pub fn unchanged(text: &str) -> Cow<'_, str> {
    Cow::Borrowed(text)
}

/// JSON with the control characters escaped that JSON itself lets through: DEL, C1, and what reorders text.
pub fn json(text: &str) -> Cow<'_, str> {
    let is_raw = |c: char| is_dangerous(c) && !c.is_ascii_control() || c == '\x7f';
    if !text.contains(is_raw) {
        return Cow::Borrowed(text);
    }
    let mut written = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_raw(c) {
            // They all lie below U+10000, so one unit of UTF-16 is enough. Writing to a string does not fail.
            let _ = write!(written, "\\u{:04x}", u32::from(c));
        } else {
            written.push(c);
        }
    }
    Cow::Owned(written)
}

/// Escapes what is dangerous in `text`, except for as many bytes as `passing` says at each place.
fn escaped(text: &str, passing: impl Fn(&str) -> usize) -> Cow<'_, str> {
    if !text.contains(is_dangerous) {
        return Cow::Borrowed(text);
    }
    let mut written = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let passes = passing(rest);
        let length = if passes > 0 { passes } else { c.len_utf8() };
        if passes > 0 || !is_dangerous(c) {
            written.push_str(&rest[..length]);
        } else if u32::from(c) < 0x100 {
            // Writing to a string does not fail.
            let _ = write!(written, "\\x{:02x}", u32::from(c));
        } else {
            let _ = write!(written, "\\u{{{:x}}}", u32::from(c));
        }
        rest = &rest[length..];
    }
    Cow::Owned(written)
}

/// C0 but the line feed and the tab, DEL, C1, and what makes a reader see text in another order (CVE-2021-42574).
fn is_dangerous(c: char) -> bool {
    c.is_control() && c != '\n' && c != '\t' || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The length of the colour (select graphic rendition, `ESC [ numbers m`) with which `text` begins; 0 if it begins otherwise, and where nobody
/// could read what follows.
fn color(text: &str) -> usize {
    let Some(parameters) = text.strip_prefix("\x1b[") else { return 0 };
    let end = parameters.find(|c: char| !c.is_ascii_digit() && c != ';').unwrap_or(parameters.len());
    let is_readable = parameters[..end].split(';').all(is_readable);
    if parameters[end..].starts_with('m') && is_readable { 2 + end + 1 } else { 0 }
}

/// Bold, dim, or a colour of its own, and the end of that. Not the colours of what is behind it, nor concealed.
fn is_readable(number: &str) -> bool {
    number.is_empty() || number.parse().is_ok_and(|number| matches!(number, 0..=4 | 22..=24 | 31..=36 | 39 | 91..=96u8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_command_the_terminal_is_shown_instead() {
        for (text, expected) in [
            ("plain, tab\tand\nlines: é日", "plain, tab\tand\nlines: é日"),
            ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
            ("\x1b]52;c;cm0gLXJm\x1b\\", "\\x1b]52;c;cm0gLXJm\\x1b\\"),
            ("over\rwritten\x08\x7f", "over\\x0dwritten\\x08\\x7f"),
            ("c1 \u{9b}2J \u{9d}0;x\u{9c}", "c1 \\x9b2J \\x9d0;x\\x9c"),
            ("user\u{202e}nimda", "user\\u{202e}nimda"),
            ("\x1b[2J\x1b[31mred", "\\x1b[2J\\x1b[31mred"),
        ] {
            assert_eq!(visible(text), expected);
        }
    }

    #[test]
    fn colours_pass_where_weal_prints_and_nothing_else_does() {
        for text in ["\x1b[31mred\x1b[0m", "\x1b[1;32mgood\x1b[m", "plain"] {
            assert_eq!(colored(text), text);
        }
        for (text, expected) in [
            ("\x1b[31mred\x1b[2J", "\x1b[31mred\\x1b[2J"),
            ("\x1b[8mhidden", "\\x1b[8mhidden"),
            ("\x1b[1;30;40mblack", "\\x1b[1;30;40mblack"),
            ("\x1b[?25l", "\\x1b[?25l"),
            ("\x1b[31", "\\x1b[31"),
            ("\x1b", "\\x1b"),
            ("\u{9b}31m", "\\x9b31m"),
        ] {
            assert_eq!(colored(text), expected);
        }
    }

    #[test]
    fn json_keeps_its_meaning() {
        let value = serde_json::json!({ "line": "\u{9b}2J\x7f\x1b[2J\u{202e}é" });
        let text = value.to_string();
        let written = json(&text);
        assert!(!written.contains(is_dangerous), "{written}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&written).unwrap(), value);
    }
}
