//! Benchmarks: weal beside a peer in the same run, quoted as ratios. They are never timed assertions in tests.
//!
//! Each benchmark is a module with `run(&Arguments) -> Result<Table>`; it says what it needs and installs it.

mod al_qudah;
mod arguments;
mod autobahn;
mod build;
mod control;
mod dispatch;
mod fidelity;
mod flash_crowd;
mod flows;
mod gateway;
mod h2spec;
mod house;
mod idle;
mod instructions;
mod jobs;
mod jobs_policies;
mod locality;
mod logs;
mod profiles;
mod real;
mod sim;
mod sleep;
mod slow_attacks;
mod slow_clients;
mod testssl;
mod threads;
mod tls_overload;

use anyhow::Result;
use clap::ValueEnum as _;

use crate::report;
use crate::table::Table;

pub use arguments::Arguments;
use arguments::{Name, Output};
pub use real::machine::spin;

/// Runs one; false when `--check` was given and a target is missed.
pub fn run(arguments: &Arguments) -> Result<bool> {
    let tables: Vec<Table> = match arguments.name {
        Name::AlQudah => al_qudah::run(arguments)?,
        Name::Autobahn => vec![autobahn::run(arguments)?],
        Name::Build => vec![build::run(arguments)?],
        Name::Control => control::run(arguments)?,
        Name::Dispatch => vec![dispatch::run(arguments)?],
        Name::Flows => flows::run(arguments)?,
        Name::Gateway => vec![gateway::run(arguments)?],
        Name::H2spec => vec![h2spec::run(arguments)?],
        Name::Sim => vec![sim::run(arguments)?],
        Name::Fidelity => vec![fidelity::run(arguments)?],
        Name::FlashCrowd => vec![flash_crowd::run()?],
        Name::House => house::run(arguments)?,
        Name::Idle => vec![idle::run(arguments)?],
        Name::Instructions => vec![instructions::run(arguments)?],
        Name::Jobs => vec![jobs::run(arguments)?],
        Name::JobsPolicies => jobs_policies::run(arguments)?,
        Name::Locality => locality::run(arguments)?,
        Name::Logs => logs::run(arguments)?,
        Name::Sleep => sleep::run(arguments)?,
        Name::SlowClients => vec![slow_clients::run(arguments)?],
        Name::Testssl => vec![testssl::run(arguments)?],
        Name::Threads => threads::run(arguments)?,
        Name::TlsOverload => tls_overload::run(arguments)?,
        Name::Profiles => vec![profiles::run(arguments)?],
    };
    for (at, table) in tables.iter().enumerate() {
        if at > 0 && arguments.output == Output::Table {
            println!();
        }
        table.print(arguments.output == Output::Json);
    }
    if arguments.write {
        write(arguments.name, &tables, arguments.case.is_some())?;
    }
    Ok(!arguments.check || tables.iter().all(Table::all_met))
}

/// With `some` of a benchmark's tables only, the others stay as they stand.
fn write(name: Name, tables: &[Table], some: bool) -> Result<()> {
    let name = name.to_possible_value().expect("every benchmark has a name").get_name().to_owned();
    let file = crate::programs::root().join(format!("docs/benchmarks/{name}.md"));
    let (_, stands) = report::halves(&file)?;
    let mut sections = if some { sections(&stands) } else { Vec::new() };
    for printed in tables.iter().map(Table::to_markdown) {
        match sections.iter_mut().find(|section| about(section) == about(&printed)) {
            Some(section) => *section = printed,
            None => sections.push(printed),
        }
    }
    report::replace(&file, &sections.join("\n"))
}

/// Tables as they were printed, each with its title and notes: a title is the paragraph before a table.
fn sections(printed: &str) -> Vec<String> {
    let mut paragraphs = printed.split("\n\n").map(str::trim).filter(|text| !text.is_empty()).peekable();
    let mut sections: Vec<String> = Vec::new();
    while let Some(paragraph) = paragraphs.next() {
        let is_title = paragraphs.peek().is_some_and(|next| next.starts_with('|'));
        match sections.last_mut().filter(|_| !is_title) {
            Some(section) => *section += &format!("\n{paragraph}\n"),
            None => sections.push(format!("{paragraph}\n")),
        }
    }
    sections
}

/// What a table is about: its title's beginning, without the figures that follow a colon.
fn about(section: &str) -> &str {
    section.split(['\n', ':']).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_that_stand_are_taken_apart_and_put_together_as_they_were() {
        let table = |title: &str, note: Option<&str>| {
            let mut table = Table::new(title, &["what"]);
            table.row(["1".to_owned()], None);
            table.notes.extend(note.map(str::to_owned));
            table.to_markdown()
        };
        let printed = [table("one: 3 of 4", Some("a note")), table("two: 5", None)];
        assert_eq!(sections(&printed.join("\n")), printed);
        assert_eq!(about(&printed[1]), "two");
    }
}
