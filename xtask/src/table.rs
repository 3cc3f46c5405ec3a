//! Results as a table: for people, as JSON, and against their targets.

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
        let mut widths: Vec<usize> = self.columns.iter().map(|name| name.chars().count()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(&row.cells) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let line = |cells: &[String], last: &str| {
            let padded: Vec<String> = cells.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}")).collect();
            format!("| {} | {last:<6} |\n", padded.join(" | "))
        };
        let mut text = format!("{}\n\n", self.title);
        text += &line(&self.columns, "target");
        text += &line(&widths.iter().map(|&width| "-".repeat(width)).collect::<Vec<_>>(), "------");
        text.extend(self.rows.iter().map(|row| line(&row.cells, verdict(row))));
        text.extend(self.notes.iter().map(|note| format!("\n{note}\n")));
        text
    }
}
