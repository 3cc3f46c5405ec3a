//! Curves or points over one axis, as data.

use serde::{Deserialize, Serialize};

use crate::number::number;

/// Curves or points over one axis.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// `figure-5.22`: the name of its files.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// What the lower axis counts.
    pub x: String,
    /// What the left axis counts.
    pub y: String,
    /// One name per curve.
    pub curves: Vec<String>,
    /// The x of a row, then one value per curve; `None` is a gap.
    pub rows: Vec<(f64, Vec<Option<f64>>)>,
    /// True: points instead of lines.
    pub points: bool,
}

impl Figure {
    /// Without rows.
    pub fn new(name: &str, title: &str, [x, y]: [&str; 2], curves: &[&str]) -> Self {
        let text = str::to_owned;
        let curves = curves.iter().copied().map(text).collect();
        Self { name: text(name), title: text(title), x: text(x), y: text(y), curves, rows: Vec::new(), points: false }
    }

    /// Adds a row with a value for every curve; what is not finite is a gap.
    pub fn row(&mut self, x: f64, values: &[f64]) {
        self.rows.push((x, values.iter().map(|&value| value.is_finite().then_some(value)).collect()));
    }

    /// Adds a point to one curve.
    pub fn point(&mut self, x: f64, curve: usize, value: f64) {
        let values = (0..self.curves.len()).map(|i| (i == curve && value.is_finite()).then_some(value)).collect();
        self.rows.push((x, values));
        self.points = true;
    }

    /// The header of its file, then one record per row.
    pub(crate) fn records(&self) -> Vec<Vec<String>> {
        let header = std::iter::once(&self.x).chain(&self.curves).cloned().collect();
        let row = |(x, values): &(f64, Vec<Option<f64>>)| {
            let cells = values.iter().map(|value| value.map(number).unwrap_or_default());
            std::iter::once(number(*x)).chain(cells).collect()
        };
        std::iter::once(header).chain(self.rows.iter().map(row)).collect()
    }

    /// Comma-separated, with a heading.
    pub fn to_csv(&self) -> String {
        weal_scenario::report::comma_separated(self.records())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_becomes_comma_separated_with_gaps() {
        let mut figure = Figure::new("a", "b", ["time, s", "y"], &["one", "two"]);
        figure.row(0.5, &[1.0, f64::NAN]);
        assert_eq!(figure.to_csv(), "\"time, s\",one,two\n0.5,1,\n");
    }
}
