//! `cargo xtask bench dispatch`: what the choice of an instance costs, by policy and by hash (Tsai section 3.5.2, Table 3.2).

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use serde::Deserialize;

use super::Arguments;
use super::real::median;
use crate::programs::{json_of, release};
use crate::table::Table;

/// Microseconds and pages of 4 KiB, as the thesis measured them.
type Thesis = Option<(f64, u32)>;

/// What is measured, and what the thesis measured in its place.
const CASES: [(&str, &str, Thesis); 12] = [
    ("round-robin", "a choice", Some((0.25, 6))),
    ("least-loaded", "a choice", None),
    ("power-of-two", "a choice", None),
    ("url-hash", "a choice", None),
    ("url-hash/charsum", "a choice", Some((0.28, 6))),
    ("bounded-load", "a choice", None),
    ("lard", "a choice", Some((1.86, 1413))),
    ("lard-r", "a choice", None),
    ("fnv", "the hash alone", None),
    ("charsum", "the hash alone", None),
    ("md5", "the hash alone", Some((1.79, 20))),
    ("sha-1", "the hash alone", Some((2.39, 21))),
];

#[derive(Deserialize)]
struct Measured {
    ns: Vec<f64>,
    pages: u64,
}

/// Runs the benchmark.
pub fn run(arguments: &Arguments) -> Result<Table> {
    let program = release(&["--package", "weal-gateway", "--example", "dispatch-bench"])?.join("examples/dispatch-bench");
    let rounds = if arguments.quick { 2 } else { 25 };
    let title = format!("the cost of a choice among four instances for 90,000 URLs: median of {rounds} rounds");
    let mut table = Table::new(title, &["case", "what", "ns", "rounds", "pages", "thesis, us", "thesis, pages"]);
    for (case, what, thesis) in CASES {
        let Measured { ns, pages } = measure(&program, case, rounds)?;
        let (least, most) = ns.iter().fold((f64::MAX, 0.0_f64), |(least, most), &round| (least.min(round), most.max(round)));
        let cells = [
            case.to_owned(),
            what.to_owned(),
            format!("{:.0}", median(&ns)),
            format!("{least:.0} to {most:.0}"),
            pages.to_string(),
            thesis.map_or_else(|| "-".to_owned(), |(us, _)| us.to_string()),
            thesis.map_or_else(|| "-".to_owned(), |(_, pages)| pages.to_string()),
        ];
        table.row(cells, None);
    }
    table.notes.push(
        "A choice is hashing the URL where the policy does, choosing, and noting the end of the request. The thesis' round robin only loads \
         the URLs; its other figures include that. Pages are what the process grew by."
            .to_owned(),
    );
    Ok(table)
}

fn measure(program: &Path, case: &str, rounds: u32) -> Result<Measured> {
    json_of(Command::new(program).args([case, &rounds.to_string()]))
}
