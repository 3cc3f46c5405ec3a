//! `cargo xtask bench al-qudah`: the experiments of Al-Qudah et al. (WWW 2009) with real servers.
//!
//! Each case is one figure or table of the paper. What it gives is kept as data in `docs/benchmarks/al-qudah/`, so that cases can be
//! run one at a time, and the page and the tables are written from all of them.

mod activation;
mod agility;
mod course;
mod factors;
mod idle;
mod memory;
mod others;
mod site;
mod ways;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use weal_reproduce::{Heading, Reproduction, page_of};

use super::Arguments;
use super::real::machine::{self, Swap, SwapOn};
use crate::table::Table;
use site::Site;

/// One figure or table of the paper.
struct Case {
    name: &'static str,
    run: fn(&Site) -> Result<Reproduction>,
}

/// The one that all others are for comes first, then they are in the paper's order.
const CASES: [Case; 10] = [
    Case { name: "figure-11", run: agility::run },
    Case { name: "figure-2", run: activation::starts },
    Case { name: "figures-3-and-7", run: course::run },
    Case { name: "figures-4-and-5", run: idle::run },
    Case { name: "figure-6", run: activation::resumes },
    Case { name: "figure-8", run: memory::run },
    Case { name: "figure-9", run: factors::run },
    Case { name: "figure-10", run: activation::repeated },
    Case { name: "table-1", run: factors::areas },
    Case { name: "other-applications", run: others::run },
];

/// The column beside the paper's: what weal's own ladder is held to, of which the paper knows nothing.
const OWN: &str = "weal's aim";

/// Swap for all servers that sleep at once.
const SWAP_GIB: u64 = 6;

/// Runs one case, or all.
pub fn run(arguments: &Arguments) -> Result<Vec<Table>> {
    let wanted: Vec<&Case> = CASES.iter().filter(|case| arguments.case.as_ref().is_none_or(|name| name == case.name)).collect();
    let names = || CASES.iter().map(|case| case.name).collect::<Vec<_>>().join(", ");
    ensure!(!wanted.is_empty(), "there is no case {}: the cases are {}", arguments.case.as_deref().unwrap_or_default(), names());
    let done = if arguments.kept { vec![] } else { measure(arguments, &wanted)? };
    if arguments.write {
        for reproduction in &done {
            let file = data_file(&reproduction.case);
            fs::create_dir_all(file.parent().context("it lies in a folder")?)?;
            fs::write(&file, serde_json::to_string(reproduction)? + "\n")?;
        }
    }
    if arguments.write {
        let heading = Heading {
            title: "Al-Qudah et al. 2009 with real servers",
            told: "Real processes; each case says on which machine.",
            own: OWN,
        };
        let page = page_of(heading, &kept(CASES.iter())?);
        fs::write(crate::programs::root().join("docs/reports/al-qudah.html"), page)?;
    }
    let shown = if arguments.kept { kept(wanted.iter().copied())? } else { done };
    Ok(shown.iter().map(table).collect())
}

fn measure(arguments: &Arguments, wanted: &[&Case]) -> Result<Vec<Reproduction>> {
    let folder = crate::programs::root().join(format!("target/bench/al-qudah-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let result = Swap::make(SwapOn::Disk, SWAP_GIB, &folder).and_then(|_swap| {
        let site = Site::prepare(&folder, arguments.quick, &machine::describe()?)?;
        let run = |case: &&Case| (case.run)(&site).with_context(|| case.name.to_owned());
        wanted.iter().map(run).collect()
    });
    fs::remove_dir_all(&folder)?;
    result
}

fn data_file(case: &str) -> PathBuf {
    crate::programs::root().join(format!("docs/benchmarks/al-qudah/{case}.json"))
}

/// What was measured before of these.
fn kept<'a>(cases: impl Iterator<Item = &'a Case>) -> Result<Vec<Reproduction>> {
    let files = cases.map(|case| data_file(case.name)).filter(|file| file.is_file());
    files.map(|file| serde_json::from_str(&fs::read_to_string(&file)?).with_context(|| file.display().to_string())).collect()
}

/// A case for the terminal and the document; its curves are on the page.
fn table(reproduction: &Reproduction) -> Table {
    let title = format!("{}: {}", reproduction.case, reproduction.claim);
    let mut table = Table::new(title, &["what", "paper", OWN, "weal"]);
    for measure in &reproduction.measures {
        let [what, paper, _, own, _, got] = measure.cells();
        table.row([what, paper, own, got].map(str::to_owned), measure.is_judged().then(|| measure.holds()));
    }
    table.notes.push(format!("{}. {}", reproduction.source, reproduction.inputs));
    table.notes.extend(reproduction.assumptions.iter().map(|text| format!("Assumed: {text}.")));
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_can_be_read_and_belongs_to_a_case() {
        for entry in fs::read_dir(data_file("any").parent().unwrap()).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().replace(".json", "");
            assert!(CASES.iter().any(|case| case.name == name), "{name} belongs to no case");
        }
        assert!(kept(CASES.iter()).unwrap().iter().all(|one| !one.measures.is_empty()));
    }
}
