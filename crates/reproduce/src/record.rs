//! What a case gives: its numbers, each beside what the paper prints and beside what the paper's inputs give in our own arithmetic.
//!
//! The two are kept apart. A paper may print a rounded number, another one than follows from its inputs, an order in words, or nothing;
//! each is judged for what it is. A paper's number may be missed by the case's tolerance or by half a unit of its last printed digit,
//! whichever is more.

use std::fmt::Display;
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::Figure;
use crate::number::{interval, mean, number, with_tolerance};

/// What stands in the paper's column where the paper says nothing.
pub const NOT_STATED: &str = "not stated";

/// One number of a case. Without both expectations it is only told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measure {
    /// What it is.
    pub what: String,
    /// What weal gives; with `±`, the half width of the mean's 95% confidence interval over the seeds.
    pub got: String,
    /// What the paper prints; `None` where it says nothing.
    pub paper: Option<Judged>,
    /// What the paper's inputs give in our own arithmetic, or what must hold whatever they are; `None` where nothing was recalculated.
    pub recalculated: Option<Judged>,
}

/// Something that a number was held to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judged {
    /// The number with its tolerance, a range, an order or a word.
    pub expected: String,
    /// True when weal's is as expected.
    pub holds: bool,
}

impl Judged {
    /// `holds` or `differs`.
    pub fn verdict(&self) -> &'static str {
        if self.holds { "holds" } else { "differs" }
    }

    fn cells<'a>(judged: Option<&'a Self>, absent: &'a str) -> (&'a str, &'a str) {
        judged.map_or((absent, ""), |one| (&one.expected, one.verdict()))
    }
}

impl Measure {
    /// What it was held to.
    pub fn judged(&self) -> impl Iterator<Item = &Judged> {
        self.paper.iter().chain(&self.recalculated)
    }

    /// False when the number is only told.
    pub fn is_judged(&self) -> bool {
        self.judged().next().is_some()
    }

    /// True unless it differs from something that it was held to.
    pub fn holds(&self) -> bool {
        self.judged().all(|one| one.holds)
    }

    /// The cells of a table's row: what, the paper's and its verdict, the recalculated and its verdict, weal's.
    pub fn cells(&self) -> [&str; 6] {
        let paper = Judged::cells(self.paper.as_ref(), if self.is_judged() { NOT_STATED } else { "-" });
        let recalculated = Judged::cells(self.recalculated.as_ref(), "-");
        [&self.what, paper.0, paper.1, recalculated.0, recalculated.1, &self.got]
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
}

impl Reproduction {
    /// True when no number differs from what it was held to.
    pub fn holds(&self) -> bool {
        self.measures.iter().all(Measure::holds)
    }

    /// The numbers, comma-separated with a heading.
    pub fn to_csv(&self) -> String {
        let heading = ["what", "paper", "paper's verdict", "recalculated", "recalculated's verdict", "weal"];
        let rows = self.measures.iter().map(Measure::cells);
        let records: Vec<_> = std::iter::once(heading).chain(rows).collect();
        weal_scenario::report::comma_separated(&records)
    }
}

/// What a number is held to.
#[derive(Debug, Clone)]
pub enum Expected<'a> {
    /// No further from the first than the second.
    Near(f64, f64),
    /// In this range.
    Within(RangeInclusive<f64>),
    /// At least the mean of these values, which belong to who is named, less a slack. The paper gives the order, we the value.
    AtLeast(&'a str, &'a [f64], f64),
    /// At most the mean of these values, which belong to who is named. The paper gives the order, we the value.
    AtMost(&'a str, &'a [f64]),
    /// The paper's words, which give no number; what they are taken for here.
    Said(&'a str, Box<Expected<'a>>),
    /// Written just so.
    Word(String),
}

/// A number has to be within `tolerance` of this one. Chance gets no room: of a mean over seeds the interval is told, the mean is judged.
pub fn near(expected: f64, tolerance: f64) -> Expected<'static> {
    Expected::Near(expected, tolerance)
}

/// A number has to lie in this range.
pub fn within(range: RangeInclusive<f64>) -> Expected<'static> {
    Expected::Within(range)
}

/// Values of the same seeds have to be at least these of `who` on average, `slack` aside.
pub fn at_least<'a>(who: &'a str, values: &'a [f64], slack: f64) -> Expected<'a> {
    Expected::AtLeast(who, values, slack)
}

/// Values of the same seeds have to be at most these of `who` on average.
pub fn at_most<'a>(who: &'a str, values: &'a [f64]) -> Expected<'a> {
    Expected::AtMost(who, values)
}

/// The paper says this in words alone, and it is judged by `bound`, which is ours.
pub fn said<'a>(words: &'a str, bound: Expected<'a>) -> Expected<'a> {
    Expected::Said(words, Box::new(bound))
}

/// It has to be written just so.
pub fn exactly(word: impl Display) -> Expected<'static> {
    Expected::Word(word.to_string())
}

impl Expected<'_> {
    fn judge(&self, got: &Got) -> Judged {
        let (expected, holds) = match self {
            Self::Near(expected, tolerance) => {
                (with_tolerance(*expected, *tolerance), (got.value - expected).abs() <= *tolerance)
            }
            Self::Within(range) => (range_text(range), range.contains(&got.value)),
            Self::AtLeast(who, values, slack) => {
                let less = if *slack > 0.0 { format!(" less {}", number(*slack)) } else { String::new() };
                (format!(">= {who}: {}{less}", interval(values)), got.value >= mean(values) - slack)
            }
            Self::AtMost(who, values) => (format!("<= {who}: {}", number(mean(values))), got.value <= mean(values)),
            Self::Said(words, bound) => ((*words).to_owned(), bound.judge(got).holds),
            Self::Word(word) => (word.clone(), *word == got.text),
        };
        Judged { expected, holds }
    }
}

fn range_text(range: &RangeInclusive<f64>) -> String {
    let (low, high) = (*range.start(), *range.end());
    match (low.is_finite(), high.is_finite()) {
        (true, true) => format!("{}..={}", number(low), number(high)),
        (true, false) => format!(">= {}", number(low)),
        _ => format!("<= {}", number(high)),
    }
}

/// What weal gives.
#[derive(Debug)]
struct Got {
    text: String,
    /// NaN for a word.
    value: f64,
}

/// Collects what one case gives.
#[derive(Debug)]
pub struct Record {
    reproduction: Reproduction,
    /// The paper's number, the recalculated one and weal's, where they are numbers.
    triples: Vec<[f64; 3]>,
}

/// A number of a record, to be held to something.
#[derive(Debug)]
pub struct Row<'a> {
    record: &'a mut Record,
    got: Got,
}

impl Row<'_> {
    /// The paper prints this.
    pub fn paper(self, expected: Expected) -> Self {
        let judged = expected.judge(&self.got);
        let mut row = self.with_value(0, &expected);
        row.measure().paper = Some(judged);
        row
    }

    /// The paper's inputs give this in our own arithmetic, or it must hold whatever they are.
    pub fn recalculated(self, expected: Expected) -> Self {
        let judged = expected.judge(&self.got);
        let mut row = self.with_value(1, &expected);
        row.measure().recalculated = Some(judged);
        row
    }

    fn measure(&mut self) -> &mut Measure {
        self.record.reproduction.measures.last_mut().expect("a row is made when its measure was pushed")
    }

    /// Keeps the expected number for the figure of those cases that have no other.
    fn with_value(self, column: usize, expected: &Expected) -> Self {
        if let (Expected::Near(value, _), Some(triple)) = (expected, self.record.triples.last_mut()) {
            triple[column] = *value;
        }
        self
    }
}

impl Record {
    /// A case without numbers: its name, where the claim stands, the claim, what goes in.
    pub fn new(case: &str, source: &str, claim: &str, inputs: &str) -> Self {
        let text = str::to_owned;
        let reproduction = Reproduction {
            case: text(case),
            claim: text(claim),
            source: text(source),
            inputs: text(inputs),
            assumptions: Vec::new(),
            measures: Vec::new(),
            figures: Vec::new(),
        };
        Self { reproduction, triples: Vec::new() }
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

    /// A number; only told unless it is held to something.
    pub fn number(&mut self, what: &str, got: f64) -> Row<'_> {
        self.push(what, Got { text: number(got), value: got })
    }

    /// The mean over seeds.
    pub fn mean(&mut self, what: &str, values: &[f64]) -> Row<'_> {
        self.push(what, Got { text: interval(values), value: mean(values) })
    }

    /// What was chosen, when something happened, or how often.
    pub fn word(&mut self, what: &str, got: impl Display) -> Row<'_> {
        self.push(what, Got { text: got.to_string(), value: f64::NAN })
    }

    /// A claim that the paper makes in words.
    pub fn claim(&mut self, what: &str, holds: bool) {
        self.word(what, yes(holds)).paper(exactly("yes"));
    }

    /// Something that must hold by the inputs and that the paper does not say.
    pub fn property(&mut self, what: &str, holds: bool) {
        self.word(what, yes(holds)).recalculated(exactly("yes"));
    }

    fn push(&mut self, what: &str, got: Got) -> Row<'_> {
        let measure = Measure { what: what.to_owned(), got: got.text.clone(), paper: None, recalculated: None };
        self.reproduction.measures.push(measure);
        self.triples.push([f64::NAN, f64::NAN, got.value]);
        Row { record: self, got }
    }

    /// The case. One without curves gets a figure of its numbers beside the expected ones.
    pub fn done(mut self) -> Reproduction {
        let compared = |triple: &&[f64; 3]| triple[0].is_finite() || triple[1].is_finite();
        let triples: Vec<&[f64; 3]> = self.triples.iter().filter(compared).collect();
        if self.reproduction.figures.is_empty() && !triples.is_empty() {
            let title = "numbers, in the order of the table";
            let mut figure = Figure::new("pairs", title, ["number", "value"], &["paper", "recalculated", "weal"]);
            triples.iter().enumerate().for_each(|(i, triple)| figure.row(i as f64 + 1.0, *triple));
            figure.points = true;
            self.reproduction.figures.push(figure);
        }
        self.reproduction
    }
}

fn yes(holds: bool) -> &'static str {
    if holds { "yes" } else { "no" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_number_and_the_recalculated_one_are_judged_apart() {
        let mut record = Record::new("X", "", "", "");
        record.number("a \"b\"", 0.6581).paper(near(0.65, 0.005)).recalculated(near(0.6581, 1e-3));
        record.number("only ours", 1.0).recalculated(within(0.0..=2.0));
        record.number("told", 2.0);
        let done = record.done();
        assert!(!done.holds() && !done.measures[0].holds() && done.measures[1].holds() && !done.measures[2].is_judged());
        assert_eq!(
            done.to_csv(),
            "what,paper,paper's verdict,recalculated,recalculated's verdict,weal\n\
             \"a \"\"b\"\"\",0.65 ±0.005,differs,0.6581 ±0.001,holds,0.6581\n\
             only ours,not stated,,0..=2,holds,1\n\
             told,-,,-,,2\n"
        );
        assert_eq!(done.figures[0].rows, [(1.0, vec![Some(0.65), Some(0.6581), Some(0.6581)])]);
    }

    #[test]
    fn an_order_names_whose_value_it_is_above() {
        let mut record = Record::new("X", "", "", "");
        record.mean("lowest", &[1.0, 1.0]).paper(at_least("satisfied demand", &[1.05, 1.05], 0.1));
        record.word("chosen", "P2").paper(exactly("P1"));
        let done = record.done();
        assert_eq!(done.measures[0].cells(), ["lowest", ">= satisfied demand: 1.05 less 0.1", "holds", "-", "", "1"]);
        assert!(!done.measures[1].holds());
    }

    #[test]
    fn words_of_a_paper_stand_in_its_column_without_our_number() {
        let mut record = Record::new("X", "", "", "");
        record.number("utility", 0.45).paper(said("close to its best", near(0.5, 0.1))).recalculated(near(0.5, 0.1));
        record.number("gain", 8.0).paper(said("slightly", within(0.0..=7.0)));
        record.number("changes", 7.0).paper(at_most("EDF", &[6.0]));
        let done = record.done();
        assert_eq!(done.measures[0].cells(), ["utility", "close to its best", "holds", "0.5 ±0.1", "holds", "0.45"]);
        assert_eq!(done.measures[1].cells(), ["gain", "slightly", "differs", "-", "", "8"]);
        assert_eq!(done.measures[2].cells(), ["changes", "<= EDF: 6", "differs", "-", "", "7"]);
    }
}
