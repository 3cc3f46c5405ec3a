//! Several ways of running one scenario, each with several seeds, on one page.

use serde::{Deserialize, Serialize};

use super::chart::Points;
use super::run::{FlowSummary, Run};

/// Runs of one scenario, grouped by what differs between them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// In the order in which they are shown; the first is the one that the others are beside. Each has the same flows and checks.
    pub variants: Vec<Variant>,
}

/// One way of running it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Variant {
    /// What is special about it, such as `control=off`.
    pub name: String,
    /// One per seed; never empty.
    pub runs: Vec<Run>,
}

/// A number of interest, for each variant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// What it is, with its unit.
    pub what: String,
    /// The range that the scenario expects; empty where it expects nothing.
    pub expected: String,
    /// One per variant, in their order; `None` where it was not measured.
    pub spreads: Vec<Option<SeedRange>>,
}

/// A number over the seeds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SeedRange {
    /// The median.
    pub median: f64,
    /// The lowest.
    pub low: f64,
    /// The highest.
    pub high: f64,
}

impl SeedRange {
    fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let (low, high) = (*values.first()?, *values.last()?);
        Some(Self { median: median(&values), low, high })
    }
}

impl std::fmt::Display for SeedRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let digits = if self.median.abs() < 10.0 { 2 } else { 0 };
        write!(f, "{:.digits$}", self.median)?;
        if self.low < self.high { write!(f, " ({:.digits$} to {:.digits$})", self.low, self.high) } else { Ok(()) }
    }
}

/// Of sorted values, at least one.
fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { 0.5 * (sorted[middle - 1] + sorted[middle]) }
}

impl Comparison {
    /// What the scenario expects, what each flow's clients saw, and how often instances were moved.
    pub fn figures(&self) -> Vec<Figure> {
        let Some(first) = self.first() else { return Vec::new() };
        let mut figures = Vec::new();
        for (i, check) in first.checks.iter().enumerate() {
            figures.push(self.figure(&check.what, &check.expected, |run| run.checks.get(i)?.got));
        }
        type Seen = fn(&FlowSummary) -> Option<f64>;
        let seen: [(&str, Seen); 5] = [
            ("mean response, ms", |s| Some(s.mean_ms)),
            ("p95 response, ms", |s| Some(s.p95_ms)),
            ("within goal, %", |s| Some(s.within_goal? * 100.0)),
            ("worst minute within goal, %", |s| Some(s.worst_minute_within_goal? * 100.0)),
            ("rejected or failed", |s| Some((s.rejected + s.failed) as f64)),
        ];
        for flow in &first.flows {
            for (what, value) in seen {
                let of = |run: &Run| value(&run.flows.iter().find(|other| other.name == flow.name)?.summary);
                figures.push(self.figure(&format!("{}: {what}", flow.name), "", of));
            }
        }
        let changes = |run: &Run| Some(run.changes.iter().filter(|change| change.placement).count() as f64);
        figures.push(self.figure("placement changes", "", changes));
        figures
    }

    /// False when the first variant misses an expectation with some seed. The others are there to be compared with.
    pub fn all_met(&self) -> bool {
        self.variants.first().is_none_or(|variant| variant.runs.iter().all(Run::all_met))
    }

    /// The run that stands for what all have in common.
    pub(super) fn first(&self) -> Option<&Run> {
        self.variants.first()?.runs.first()
    }

    fn figure(&self, what: &str, expected: &str, value: impl Fn(&Run) -> Option<f64>) -> Figure {
        let spread = |variant: &Variant| SeedRange::of(variant.runs.iter().filter_map(&value));
        Figure { what: what.to_owned(), expected: expected.to_owned(), spreads: self.variants.iter().map(spread).collect() }
    }
}

impl Variant {
    /// The median over the seeds of a series, second by second: (seconds, value), `None` where no run has a value.
    pub(super) fn median_of(&self, duration_s: f64, series: impl Fn(&Run) -> Points) -> Points {
        let seconds = duration_s.ceil().clamp(0.0, 86_400.0) as usize;
        let mut values: Vec<Vec<f64>> = vec![Vec::new(); seconds];
        for (t_s, value) in self.runs.iter().flat_map(series) {
            let (Some(value), true) = (value, t_s >= 0.0) else { continue };
            values.get_mut(t_s as usize).into_iter().for_each(|values| values.push(value));
        }
        let at = |(second, mut values): (usize, Vec<f64>)| {
            values.sort_by(f64::total_cmp);
            (second as f64, (!values.is_empty()).then(|| median(&values)))
        };
        values.into_iter().enumerate().map(at).filter(|(_, value)| value.is_some()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Check, FlowPoint, FlowSeries};

    fn run(response_ms: f64, met: bool) -> Run {
        let point = |t: usize| FlowPoint { t_s: t as f64 + 0.4, response_ms: Some(response_ms), ..FlowPoint::default() };
        Run {
            title: "two ways".into(),
            duration_s: 3.0,
            flows: vec![FlowSeries {
                name: "shop/gold".into(),
                summary: FlowSummary { mean_ms: response_ms, within_goal: Some(0.5), ..FlowSummary::default() },
                points: (0..3).map(point).collect(),
                ..FlowSeries::default()
            }],
            checks: vec![Check { what: "gap".into(), expected: "at most 1".into(), got: Some(response_ms / 100.0), met }],
            ..Run::default()
        }
    }

    fn comparison() -> Comparison {
        let variant = |name: &str, runs: Vec<Run>| Variant { name: name.into(), runs };
        Comparison {
            variants: vec![
                variant("weal", vec![run(100.0, true), run(300.0, true), run(140.0, true)]),
                variant("control=<off>", vec![run(900.0, false)]),
            ],
        }
    }

    #[test]
    fn figures_are_medians_over_the_seeds_of_each_variant() {
        let figures = comparison().figures();
        let of = |what: &str| &figures.iter().find(|figure| figure.what == what).unwrap().spreads;
        assert_eq!(of("gap")[0], Some(SeedRange { median: 1.4, low: 1.0, high: 3.0 }));
        assert_eq!(of("shop/gold: mean response, ms")[1].unwrap().to_string(), "900");
        assert_eq!(of("gap")[0].unwrap().to_string(), "1.40 (1.00 to 3.00)");
        assert_eq!(of("shop/gold: worst minute within goal, %"), &[None, None]);
        assert_eq!(of("placement changes")[0].unwrap().median, 0.0);
    }

    #[test]
    fn only_the_first_variant_must_meet_what_is_expected() {
        let mut comparison = comparison();
        assert!(comparison.all_met());
        comparison.variants.reverse();
        assert!(!comparison.all_met());
        assert!(Comparison::default().all_met() && Comparison::default().figures().is_empty());
    }

    #[test]
    fn the_page_shows_every_variant_and_trusts_no_name() {
        let page = comparison().to_html();
        assert!(page.contains("control=&lt;off&gt;") && !page.contains("<off>"), "{page}");
        assert!(page.contains("1.40 (1.00 to 3.00)"));
        assert!(!page.contains("http://") && !page.contains("https://"));
    }

    #[test]
    fn series_are_medians_second_by_second() {
        let series = comparison().variants[0]
            .median_of(3.0, |run| run.flows[0].points.iter().map(|point| (point.t_s, point.response_ms)).collect());
        assert_eq!(series, [(0.0, Some(140.0)), (1.0, Some(140.0)), (2.0, Some(140.0))]);
    }
}
