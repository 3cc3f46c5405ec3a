//! What a case gives: numbers beside the paper's, curves, and what had to be assumed.

use serde::{Deserialize, Serialize};

/// One number of a case, beside what the paper says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measure {
    /// What it is.
    pub what: String,
    /// What the paper, or its inputs recalculated, gives; `-` where it says nothing and weal's is only told.
    pub expected: String,
    /// What weal gives; with `±`, the half width of the mean's 95% confidence interval over the seeds.
    pub got: String,
    /// How far apart they may be.
    pub tolerance: String,
    /// True when they are no further apart than that.
    pub pass: bool,
}

impl Measure {
    /// False when the number is only told.
    pub fn is_judged(&self) -> bool {
        self.expected != "-"
    }
}

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

    /// Adds a row with a value for every curve.
    pub fn row(&mut self, x: f64, values: &[f64]) {
        self.rows.push((x, values.iter().map(|&value| value.is_finite().then_some(value)).collect()));
    }

    /// Adds a point to one curve.
    pub fn point(&mut self, x: f64, curve: usize, value: f64) {
        let values = (0..self.curves.len()).map(|i| (i == curve && value.is_finite()).then_some(value)).collect();
        self.rows.push((x, values));
        self.points = true;
    }

    /// Comma-separated, with a heading.
    pub fn to_csv(&self) -> String {
        let quoted = |text: &String| if text.contains(',') { format!("\"{text}\"") } else { text.clone() };
        let heading: Vec<String> = std::iter::once(&self.x).chain(&self.curves).map(quoted).collect();
        let mut text = heading.join(",") + "\n";
        for (x, values) in &self.rows {
            let cells = values.iter().map(|value| value.map(number).unwrap_or_default());
            let row: Vec<String> = std::iter::once(number(*x)).chain(cells).collect();
            text += &(row.join(",") + "\n");
        }
        text
    }
}

/// One case, run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reproduction {
    /// `C1`, as in `experiments/`.
    pub case: String,
    /// What the paper claims.
    pub claim: String,
    /// Paper and section.
    pub source: String,
    /// What went in.
    pub inputs: String,
    /// What the paper does not say and was assumed.
    pub assumptions: Vec<String>,
    /// The numbers.
    pub measures: Vec<Measure>,
    /// The curves.
    pub figures: Vec<Figure>,
    /// True when all numbers are within their tolerances.
    pub pass: bool,
}

impl Reproduction {
    /// The numbers, comma-separated with a heading.
    pub fn to_csv(&self) -> String {
        let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
        let mut text = "what,paper,weal,tolerance,verdict\n".to_owned();
        for measure in &self.measures {
            let verdict = if !measure.is_judged() { "told" } else { ["differs", "holds"][usize::from(measure.pass)] };
            let cells = [&measure.what, &measure.expected, &measure.got, &measure.tolerance].map(|cell| quoted(cell));
            text += &format!("{},{verdict}\n", cells.join(","));
        }
        text
    }
}

/// Collects what one case gives.
#[derive(Debug)]
pub struct Record {
    reproduction: Reproduction,
    /// The paper's number and weal's, where both are one.
    pairs: Vec<[f64; 2]>,
}

impl Record {
    /// A case without numbers: its name, where the claim stands, the claim, what goes in.
    pub fn new(case: &str, source: &str, claim: &str, inputs: &str) -> Self {
        let text = str::to_owned;
        Self {
            reproduction: Reproduction {
                case: text(case),
                claim: text(claim),
                source: text(source),
                inputs: text(inputs),
                assumptions: Vec::new(),
                measures: Vec::new(),
                figures: Vec::new(),
                pass: true,
            },
            pairs: Vec::new(),
        }
    }

    /// Something that the paper does not say and the outcome depends on.
    pub fn assume(&mut self, what: &str) {
        self.reproduction.assumptions.push(what.to_owned());
    }

    /// An input that the paper leaves open and that was chosen when results with another one had been seen. What holds then is no
    /// independent evidence, which whoever reads the table must know.
    pub fn chose_late(&mut self, what: &str) {
        self.assume(&format!("chosen after results were seen: {what}"));
    }

    /// Curves.
    pub fn figure(&mut self, figure: Figure) {
        self.reproduction.figures.push(figure);
    }

    /// A number that has to be within `tolerance` of the expected one.
    pub fn near(&mut self, what: &str, expected: f64, got: f64, tolerance: f64) {
        let pass = (got - expected).abs() <= tolerance;
        self.pairs.push([expected, got]);
        self.push(what, number(expected), number(got), margin(tolerance), pass);
    }

    /// The mean over seeds, which has to be within `tolerance` of the expected one. Chance gets no room: the interval is told,
    /// the mean is judged.
    pub fn near_mean(&mut self, what: &str, expected: f64, values: &[f64], tolerance: f64) {
        let pass = (mean(values) - expected).abs() <= tolerance;
        self.pairs.push([expected, mean(values)]);
        self.push(what, number(expected), interval(values), margin(tolerance), pass);
    }

    /// A number that has to lie in a range.
    pub fn within(&mut self, what: &str, expected: std::ops::RangeInclusive<f64>, got: f64) {
        let (low, high) = (*expected.start(), *expected.end());
        let range = match (low.is_finite(), high.is_finite()) {
            (true, true) => format!("{}..={}", number(low), number(high)),
            (true, false) => format!(">= {}", number(low)),
            _ => format!("<= {}", number(high)),
        };
        self.push(what, range, number(got), "range".to_owned(), expected.contains(&got));
    }

    /// Pairs of the same seeds: the first of each has to be at least the second on average, `slack` aside.
    pub fn at_least(&mut self, what: &str, values: &[f64], other: &str, others: &[f64], slack: f64) {
        let pass = mean(values) >= mean(others) - slack;
        let tolerance = if slack > 0.0 { number(slack) } else { "order".to_owned() };
        self.push(what, format!(">= {} ({other})", interval(others)), interval(values), tolerance, pass);
    }

    /// Something that has to be just so.
    pub fn same<T: PartialEq + std::fmt::Debug>(&mut self, what: &str, expected: T, got: T) {
        let pass = expected == got;
        self.push(what, format!("{expected:?}"), format!("{got:?}"), "exact".to_owned(), pass);
    }

    /// A claim in words.
    pub fn claim(&mut self, what: &str, holds: bool) {
        let word = |holds: bool| if holds { "yes" } else { "no" }.to_owned();
        self.push(what, word(true), word(holds), "exact".to_owned(), holds);
    }

    /// A number to be told, not judged.
    pub fn tell(&mut self, what: &str, got: f64) {
        self.push(what, "-".to_owned(), number(got), "told only".to_owned(), true);
    }

    /// A mean over seeds to be told, not judged.
    pub fn tell_mean(&mut self, what: &str, values: &[f64]) {
        self.push(what, "-".to_owned(), interval(values), "told only".to_owned(), true);
    }

    fn push(&mut self, what: &str, expected: String, got: String, tolerance: String, pass: bool) {
        self.reproduction.pass &= pass;
        self.reproduction.measures.push(Measure { what: what.to_owned(), expected, got, tolerance, pass });
    }

    /// The case. One without curves gets a figure of its numbers beside the paper's.
    pub fn done(mut self) -> Reproduction {
        if self.reproduction.figures.is_empty() && !self.pairs.is_empty() {
            let mut figure = Figure::new("pairs", "numbers, in the order of the table", ["number", "value"], &["paper", "weal"]);
            self.pairs.iter().enumerate().for_each(|(i, pair)| figure.row(i as f64 + 1.0, pair));
            figure.points = true;
            self.reproduction.figures.push(figure);
        }
        self.reproduction
    }
}

pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// The mean with the half width of its 95% confidence interval (Student's t); without one for a single value.
fn interval(values: &[f64]) -> String {
    let half = half_width(values);
    if half > 0.0 { format!("{} ± {}", number(mean(values)), number(half)) } else { number(mean(values)) }
}

fn half_width(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let n = values.len() as f64;
    let centre = mean(values);
    let variance = values.iter().map(|value| (value - centre).powi(2)).sum::<f64>() / (n - 1.0);
    student_975(n - 1.0) * (variance / n).sqrt()
}

/// The 0.975 quantile of Student's t by its expansion in 1/n around the normal one (Abramowitz and Stegun 26.7.5).
fn student_975(freedom: f64) -> f64 {
    let z: f64 = 1.959_964;
    let (z3, z5, z7) = (z.powi(3), z.powi(5), z.powi(7));
    z + (z3 + z) / (4.0 * freedom)
        + (5.0 * z5 + 16.0 * z3 + 3.0 * z) / (96.0 * freedom.powi(2))
        + (3.0 * z7 + 19.0 * z5 + 17.0 * z3 - 15.0 * z) / (384.0 * freedom.powi(3))
}

/// A tolerance; those for rounding keep their power of ten.
fn margin(tolerance: f64) -> String {
    if tolerance > 0.0 && tolerance < 1e-4 { format!("±{tolerance:e}") } else { format!("±{}", number(tolerance)) }
}

/// A number with the digits that matter.
pub(super) fn number(value: f64) -> String {
    let text = if value.abs() >= 1000.0 { format!("{value:.0}") } else { format!("{value:.4}") };
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text };
    if text == "-0" { "0".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_those_of_student() {
        assert!((student_975(19.0) - 2.093).abs() < 1e-3);
        assert!((student_975(4.0) - 2.776).abs() < 0.02);
        assert_eq!(interval(&[2.0]), "2");
        assert_eq!(interval(&[1.0, 2.0, 3.0, 4.0, 5.0]), format!("3 ± {}", number(student_975(4.0) * 0.5f64.sqrt())));
    }

    #[test]
    fn tables_and_figures_become_comma_separated() {
        let mut figure = Figure::new("a", "b", ["time, s", "y"], &["one", "two"]);
        figure.row(0.5, &[1.0, f64::NAN]);
        assert_eq!(figure.to_csv(), "\"time, s\",one,two\n0.5,1,\n");
        let mut record = Record::new("X", "", "", "");
        record.near("a \"b\"", 1.0, 1.5, 0.1);
        record.tell("c", 2.0);
        let done = record.done();
        assert!(!done.pass);
        assert_eq!(
            done.to_csv(),
            "what,paper,weal,tolerance,verdict\n\"a \"\"b\"\"\",\"1\",\"1.5\",\"±0.1\",differs\n\"c\",\"-\",\"2\",\"told only\",told\n"
        );
    }
}
