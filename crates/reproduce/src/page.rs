//! All cases on one self-contained page, and the files of each case's folder.

use maud::{Markup, html};
use weal_scenario::report::document;

use super::plot::{gnuplot, svg};
use super::record::{Measure, Reproduction};

const STYLE: &str = ":root{color-scheme:light dark;--back:#fff;--fore:#1b1b1b;--soft:#666;--grid:#ddd;--bad:#b00020}\
    @media(prefers-color-scheme:dark){:root{--back:#16181b;--fore:#ececec;--soft:#a5a5a5;--grid:#34383d;--bad:#ff8a80}}\
    body{margin:0;background:var(--back);color:var(--fore);font:15px/1.5 system-ui,sans-serif}\
    main{max-width:56rem;margin:0 auto;padding:1.5rem 1rem 4rem}h2{margin-top:2.5rem}\
    table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;font-size:.93em}\
    th,td{text-align:left;padding:.2rem .6rem .2rem 0;border-bottom:1px solid var(--grid);vertical-align:top}\
    .wide{overflow-x:auto}.differs{font-weight:700;color:var(--bad)}.soft,.holds{color:var(--soft)}\
    svg{width:100%;max-width:44rem;height:auto;display:block}svg text{font:11px system-ui,sans-serif;fill:var(--fore)}\
    .grid{stroke:var(--grid)}@media print{svg,tr{break-inside:avoid}}";

/// What stands above the tables of a page.
#[derive(Debug, Clone, Copy)]
pub struct Heading<'a> {
    /// The title.
    pub title: &'a str,
    /// What a reader must know of how the numbers came about.
    pub told: &'a str,
    /// What the column beside the paper's is.
    pub own: &'a str,
}

/// One page with a table of all numbers, and each case with its assumptions and figures.
pub fn page(cases: &[Reproduction]) -> String {
    let told = "Paper: what the paper prints, or \"not stated\". Recalculated: what its inputs give in our own arithmetic, or what must hold \
                whatever they are. Means over seeds stand with the half width of their 95% confidence interval.";
    page_of(Heading { title: "The papers' cases, run again", told, own: "recalculated" }, cases)
}

/// The same with another heading.
pub fn page_of(heading: Heading, cases: &[Reproduction]) -> String {
    let (holds, differs): (Vec<_>, Vec<_>) =
        cases.iter().flat_map(|case| &case.measures).flat_map(Measure::judged).partition(|judged| judged.holds);
    let judged = cases
        .iter()
        .flat_map(|case| case.measures.iter().filter(|measure| measure.is_judged()).map(|one| (Some(&*case.case), one)));
    let body = html! {
        h1 { (heading.title) }
        p { (holds.len()) " expectations hold, " (differs.len()) " differ. " (heading.told) }
        (table(heading.own, judged))
        @for case in cases { (section(heading.own, case)) }
    };
    document("weal reproduce", STYLE, &body)
}

fn section(own: &str, case: &Reproduction) -> Markup {
    html! {
        h2 id=(case.case) { (case.case) }
        p { (case.claim) }
        p.soft { (case.source) br; "Inputs: " (case.inputs) }
        @if !case.assumptions.is_empty() {
            p { "Assumed:" }
            ul { @for text in &case.assumptions { li { (text) } } }
        }
        (table(own, case.measures.iter().map(|measure| (None, measure))))
        @for figure in &case.figures {
            h3 { (figure.title) }
            (svg(figure))
        }
    }
}

fn table<'a>(own: &str, rows: impl Iterator<Item = (Option<&'a str>, &'a Measure)>) -> Markup {
    let judged = |expected: &str, verdict: &str| html! { td { (expected) " " span class=(verdict) { (verdict) } } };
    html! {
        div.wide {
            table {
                tr { th {} th { "what" } th { "paper" } th { (own) } th { "weal" } }
                @for (case, measure) in rows {
                    @let [what, paper, papers_verdict, recalculated, recalculateds_verdict, got] = measure.cells();
                    tr {
                        td { @if let Some(case) = case { a href={ "#" (case) } { (case) } } }
                        td { (what) }
                        (judged(paper, papers_verdict))
                        (judged(recalculated, recalculateds_verdict))
                        td { (got) }
                    }
                }
            }
        }
    }
}

/// The files that a case's folder gets: (name, content).
pub fn files(case: &Reproduction) -> Vec<(String, String)> {
    let curves = case.figures.iter().map(|figure| (format!("{}.csv", figure.name), figure.to_csv()));
    let numbers = ("numbers.csv".to_owned(), case.to_csv());
    let script = ("plot.gp".to_owned(), gnuplot(&case.case, &case.figures));
    [numbers, script].into_iter().chain(curves).collect()
}
