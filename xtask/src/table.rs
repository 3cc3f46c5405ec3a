//! Results as a table: for people, as JSON, and against their targets.

use comfy_table::presets;
use serde::Serialize;

/// A table of measured values.
#[derive(Debug, Serialize)]
pub struct Table {
    /// What was measured, on what.
    pub title: String,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// The rows.
    pub rows: Vec<Row>,
    /// What a reader must know to judge the numbers.
    pub notes: Vec<String>,
}

/// One row.
#[derive(Debug, Serialize)]
pub struct Row {
    /// One cell per column.
    pub cells: Vec<String>,
    /// Whether the row's target is met; `None` when it has none.
    pub met: Option<bool>,
}

impl Table {
    /// An empty table.
    pub fn new(title: impl Into<String>, columns: &[&str]) -> Self {
        Self { title: title.into(), columns: columns.iter().map(|&name| name.to_owned()).collect(), rows: vec![], notes: vec![] }
    }

    /// Adds a row. `met` says whether its target is met, if it has one.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>, met: Option<bool>) {
        let cells: Vec<String> = cells.into_iter().collect();
        assert_eq!(cells.len(), self.columns.len(), "a row has one cell per column");
        self.rows.push(Row { cells, met });
    }

    /// False when a target is missed.
    pub fn all_met(&self) -> bool {
        self.rows.iter().all(|row| row.met != Some(false))
    }

    /// Prints the table as Markdown, which reads well in a terminal too, or as JSON.
    pub fn print(&self, json: bool) {
        match json {
            true => println!("{}", serde_json::to_string_pretty(self).expect("a table is plain data")),
            false => print!("{}", self.to_markdown()),
        }
    }

    /// The table as Markdown.
    pub fn to_markdown(&self) -> String {
        let verdict = |row: &Row| match row.met {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "",
        };
        let mut table = comfy_table::Table::new();
        table.load_style(presets::ASCII_MARKDOWN);
        table.set_header(self.columns.iter().map(String::as_str).chain(["target"]));
        table.add_rows(self.rows.iter().map(|row| row.cells.iter().map(String::as_str).chain([verdict(row)])));
        let mut text = format!("{}\n\n{table}\n", self.title);
        text.extend(self.notes.iter().map(|note| format!("\n{note}\n")));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_markdown_that_lines_up() {
        let mut table = Table::new("Bytes, at rest", &["what", "bytes"]);
        table.row(["größer".to_owned(), "1".to_owned()], Some(true));
        table.row(["b".to_owned(), "20".to_owned()], None);
        table.notes.push("A note.".to_owned());
        let expected = "Bytes, at rest\n\n\
                        | what   | bytes | target |\n\
                        |--------|-------|--------|\n\
                        | größer | 1     | met    |\n\
                        | b      | 20    |        |\n\n\
                        A note.\n";
        assert_eq!(table.to_markdown(), expected);
    }
}
