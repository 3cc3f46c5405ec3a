//! As much of Markdown as the checks need: prose, names in backticks, links.

/// A document's parts.
#[derive(Default)]
pub struct Document {
    /// Paragraphs and list items, each on one line. Names in backticks are left as they are.
    pub prose: Vec<String>,
    /// What stands in backticks, with its line; not what stands in blocks of code.
    pub names: Vec<(String, usize)>,
    /// Where links lead, with their line.
    pub links: Vec<(String, usize)>,
}

/// Reads a document.
pub fn read(text: &str) -> Document {
    let mut document = Document::default();
    let mut fenced = false;
    let mut paragraph = String::new();
    let mut in_list = false;
    for (number, line) in text.lines().enumerate() {
        let content = line.trim();
        if content.starts_with("```") {
            fenced = !fenced;
            document.end(&mut paragraph);
            continue;
        }
        let item = list_item(content);
        // Four spaces are code, but not below a list item or within a paragraph.
        let indented = line.starts_with("    ") && paragraph.is_empty() && !in_list && item.is_none();
        if fenced || indented {
            continue;
        }
        document.add_names_and_links(content, number + 1);
        let other = content.is_empty() || ["|", "#", "<", "---"].iter().any(|begin| content.starts_with(begin));
        if other || item.is_some() {
            document.end(&mut paragraph);
        }
        if !content.is_empty() {
            in_list = item.is_some() || (in_list && line.starts_with(' '));
        }
        if !other {
            paragraph += item.unwrap_or(content).trim_start_matches("> ");
            paragraph.push(' ');
        }
    }
    document.end(&mut paragraph);
    document
}

/// What follows `- `, `* ` or `1. `.
fn list_item(content: &str) -> Option<&str> {
    let number = content.trim_start_matches(|letter: char| letter.is_ascii_digit());
    let numbered = (number.len() < content.len()).then(|| number.strip_prefix(". ")).flatten();
    content.strip_prefix("- ").or(content.strip_prefix("* ")).or(numbered)
}

impl Document {
    fn end(&mut self, paragraph: &mut String) {
        if !paragraph.trim().is_empty() {
            self.prose.push(paragraph.trim().to_owned());
        }
        paragraph.clear();
    }

    fn add_names_and_links(&mut self, line: &str, number: usize) {
        for name in line.split('`').skip(1).step_by(2) {
            self.names.push((name.to_owned(), number));
        }
        let plain: String = line.split('`').step_by(2).collect();
        for target in plain.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            self.links.push((target.to_owned(), number));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_is_told_from_code_tables_and_headings() {
        let text = "# Title\n\nOne\ntwo `a`.\n\n    code `b`\n\n```\ncode `c`\n```\n| cell `d` | x |\n- item\n  goes on\n1. second [l](m.md#n)\n";
        let document = read(text);
        assert_eq!(document.prose, ["One two `a`.", "item goes on", "second [l](m.md#n)"]);
        assert_eq!(document.names, [("a".to_owned(), 4), ("d".to_owned(), 11)]);
        assert_eq!(document.links, [("m.md#n".to_owned(), 14)]);
    }
}
