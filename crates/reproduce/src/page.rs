//! All cases on one self-contained page, and the files of each case's folder.

use std::fmt::Write;

use super::plot::{gnuplot, svg};
use super::record::{Measure, Reproduction};
use weal_scenario::report::escape;

const STYLE: &str = ":root{color-scheme:light dark;--back:#fff;--fore:#1b1b1b;--soft:#666;--grid:#ddd;--bad:#b00020}\
    @media(prefers-color-scheme:dark){:root{--back:#16181b;--fore:#ececec;--soft:#a5a5a5;--grid:#34383d;--bad:#ff8a80}}\
    body{margin:0;background:var(--back);color:var(--fore);font:15px/1.5 system-ui,sans-serif}\
    main{max-width:56rem;margin:0 auto;padding:1.5rem 1rem 4rem}h2{margin-top:2.5rem}\
    table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;font-size:.93em}\
    th,td{text-align:left;padding:.2rem .6rem .2rem 0;border-bottom:1px solid var(--grid);vertical-align:top}\
    .wide{overflow-x:auto}.differs{font-weight:700;color:var(--bad)}.soft{color:var(--soft)}\
    svg{width:100%;max-width:44rem;height:auto;display:block}svg text{font:11px system-ui,sans-serif;fill:var(--fore)}\
    .grid{stroke:var(--grid)}@media print{svg,tr{break-inside:avoid}}";

/// What a measure's verdict is called.
pub fn verdict(measure: &Measure) -> &'static str {
    match (measure.is_judged(), measure.pass) {
        (false, _) => "told",
        (true, true) => "holds",
        (true, false) => "differs",
    }
}

/// One page with a table of all numbers, and each case with its assumptions and figures.
pub fn page(cases: &[Reproduction]) -> String {
    let told = "Means over seeds stand with the half width of their 95% confidence interval.";
    page_of("The papers' cases, run again", told, cases)
}

/// The same with another heading, and with what a reader must know of how the numbers came about.
pub fn page_of(title: &str, told: &str, cases: &[Reproduction]) -> String {
    let mut body = format!("<h1>{}</h1>", escape(title));
    let judged = cases.iter().flat_map(|case| &case.measures).filter(|measure| measure.is_judged());
    let (holds, differs): (Vec<&Measure>, Vec<&Measure>) = judged.partition(|measure| measure.pass);
    let _ = write!(body, "<p>{} numbers hold, {} differ. {}</p>", holds.len(), differs.len(), escape(told));
    let rows =
        cases.iter().flat_map(|case| case.measures.iter().filter(|measure| measure.is_judged()).map(|one| (&case.case, one)));
    table(rows.map(|(case, measure)| (Some(case.as_str()), measure)), &mut body);
    for case in cases {
        section(case, &mut body);
    }
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>weal reproduce</title><style>{STYLE}</style></head><body><main>\n{body}\n</main></body></html>\n"
    )
}

fn section(case: &Reproduction, body: &mut String) {
    let _ = write!(body, "<h2 id=\"{0}\">{0}</h2><p>{1}</p>", escape(&case.case), escape(&case.claim));
    let _ = write!(body, "<p class=\"soft\">{}<br>Inputs: {}</p>", escape(&case.source), escape(&case.inputs));
    if !case.assumptions.is_empty() {
        body.push_str("<p>Assumed:</p><ul>");
        case.assumptions.iter().for_each(|text| {
            let _ = write!(body, "<li>{}</li>", escape(text));
        });
        body.push_str("</ul>");
    }
    table(case.measures.iter().map(|measure| (None, measure)), body);
    for figure in &case.figures {
        let _ = write!(body, "<h3>{}</h3>{}", escape(&figure.title), svg(figure));
    }
}

fn table<'a>(rows: impl Iterator<Item = (Option<&'a str>, &'a Measure)>, body: &mut String) {
    body.push_str("<div class=\"wide\"><table><tr><th></th><th>what</th><th>paper</th><th>weal</th><th>tolerance</th></tr>");
    for (case, measure) in rows {
        let verdict = verdict(measure);
        let case = case.map(|case| format!("<a href=\"#{0}\">{0}</a> ", escape(case))).unwrap_or_default();
        let _ = write!(body, "<tr><td>{case}<span class=\"{verdict}\">{verdict}</span></td>");
        for text in [&measure.what, &measure.expected, &measure.got, &measure.tolerance] {
            let _ = write!(body, "<td>{}</td>", escape(text));
        }
        body.push_str("</tr>");
    }
    body.push_str("</table></div>");
}

/// The files that a case's folder gets: (name, content).
pub fn files(case: &Reproduction) -> Vec<(String, String)> {
    let curves = case.figures.iter().map(|figure| (format!("{}.csv", figure.name), figure.to_csv()));
    let numbers = ("numbers.csv".to_owned(), case.to_csv());
    let script = ("plot.gp".to_owned(), gnuplot(&case.case, &case.figures));
    [numbers, script].into_iter().chain(curves).collect()
}
