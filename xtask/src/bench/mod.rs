//! Benchmarks: weal beside a peer in the same run, quoted as ratios. They are never timed assertions in tests.
//!
//! Each benchmark is a module with `run(&Arguments) -> Result<Table>`; it says what it needs and installs it.

mod al_qudah;
mod control;
mod fidelity;
mod flash_crowd;
mod gateway;
mod logs;
mod profiles;
mod real;
mod sim;
mod sleep;

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use crate::table::Table;

pub use real::machine::spin;

/// What every benchmark takes.
#[derive(Args)]
pub struct Arguments {
    /// Which one
    pub name: Name,
    /// Print `table` or `json`
    #[arg(short, long, default_value = "table")]
    pub output: Output,
    /// Exit with 1 when a target is missed
    #[arg(long)]
    pub check: bool,
    /// Fewer and shorter rounds: shows that it runs, not what is true
    #[arg(long)]
    pub quick: bool,
    /// Put what is printed into docs/benchmarks/NAME.md, in place of what stands there below the mark
    #[arg(long)]
    pub write: bool,
    /// Only one case of a benchmark that has several
    #[arg(long, value_name = "CASE")]
    pub case: Option<String>,
    /// Show what was measured before under target/ or docs/ instead of measuring it again, where it was (fidelity, al-qudah)
    #[arg(long)]
    pub kept: bool,
    /// What `sleep` measures
    #[command(flatten)]
    pub sleep: sleep::Choice,
    /// Seconds that a solver or an older algorithm may take for one problem (control)
    #[arg(long, default_value_t = 60)]
    pub oracle_seconds: u32,
    /// Write the picture of cost against size to this file (control)
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
}

/// How results are printed.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Table,
    /// For programs.
    Json,
}

/// The benchmarks.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// The experiments of Al-Qudah et al. with real servers: starts and resumes under load, idle servers, a flash crowd
    AlQudah,
    /// The planner on generated problems, the thesis' algorithm, CP-SAT and HiGHS: time and optimality
    Control,
    /// This gateway, HAProxy and nginx: requests per CPU-second
    Gateway,
    /// The simulator's engine, a bare binary heap, NeXosim and SimPy: events per second
    Sim,
    /// Crowds under an autoscaler and under weal, simulated: seconds of missed goals
    FlashCrowd,
    /// Scenarios with real processes and simulated: how far the two are apart
    Fidelity,
    /// Recorded job logs beside a recorded web load, policy by policy: goals met and distance of utilities
    Logs,
    /// A server that is put to sleep and woken: milliseconds, CPU-seconds and memory of each rung
    Sleep,
    /// Work factors as learnt online, beside the kernel's count
    Profiles,
}

/// Runs one; false when `--check` was given and a target is missed.
pub fn run(arguments: &Arguments) -> Result<bool> {
    let tables: Vec<Table> = match arguments.name {
        Name::AlQudah => al_qudah::run(arguments)?,
        Name::Control => control::run(arguments)?,
        Name::Gateway => vec![gateway::run(arguments)?],
        Name::Sim => vec![sim::run(arguments)?],
        Name::Fidelity => vec![fidelity::run(arguments)?],
        Name::FlashCrowd => vec![flash_crowd::run()?],
        Name::Logs => logs::run(arguments)?,
        Name::Sleep => sleep::run(arguments)?,
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

/// Above it stands what people have written, below it what the command printed last.
const MARK: &str = "<!-- Below stands what the command printed, as it printed it. -->\n";

/// With `some` of a benchmark's tables only, the others stay as they stand.
fn write(name: Name, tables: &[Table], some: bool) -> Result<()> {
    let name = name.to_possible_value().expect("every benchmark has a name").get_name().to_owned();
    let file = crate::root().join(format!("docs/benchmarks/{name}.md"));
    let before = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let (head, stands) = before.split_once(MARK).with_context(|| format!("{} has no line `{}`", file.display(), MARK.trim()))?;
    let mut sections = if some { sections(stands) } else { Vec::new() };
    for printed in tables.iter().map(Table::to_markdown) {
        match sections.iter_mut().find(|section| about(section) == about(&printed)) {
            Some(section) => *section = printed,
            None => sections.push(printed),
        }
    }
    std::fs::write(&file, format!("{head}{MARK}\n{}", sections.join("\n")))?;
    Ok(())
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
