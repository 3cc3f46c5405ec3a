//! `weal reproduce`: the papers' cases, run again, with what the papers say beside what came out.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context;
use weal_reproduce::{Case, Effort, Judged, Measure, Reproduction, Setting, Workers, cases, files, page};

use crate::args::Reproduce;
use crate::failure::{Exit, Failure};
use crate::output::{self, Stream, Table, Tone, cell, paint, remark, toned};

/// Cases with real servers begin so. They are measured, not computed, and live with the benchmarks.
const REAL: &str = "al-qudah-";

/// Runs it. Named cases are printed as soon as they are done, all of them as one table at the end.
///
/// # Errors
/// There is no case of that name (exit code 2); a file cannot be written; with `--check`, a case differs from its paper (1).
pub fn run(order: &Reproduce, json: bool) -> anyhow::Result<()> {
    let wanted = wanted(&order.cases)?;
    let in_one_table = order.all || order.cases.is_empty();
    let effort = if order.quick { Effort::Quick } else { Effort::Full };
    let mut done = Vec::new();
    for case in &wanted {
        if in_one_table && output::is_terminal(Stream::Err) {
            remark(&format!("\r\x1b[K{} of {}: {} {}", done.len() + 1, wanted.len(), case.name, case.title));
        }
        let reproduction = (case.run)(&Setting { effort, workers: &Threads });
        if !json && !in_one_table {
            output::line(&told(case.title, &reproduction));
        }
        done.push(reproduction);
    }
    if in_one_table && output::is_terminal(Stream::Err) {
        remark("\r\x1b[K");
    }
    write_files(order, &done)?;
    let differing: Vec<_> = done.iter().filter(|one| !one.holds()).map(|one| one.case.as_str()).collect();
    if json {
        output::json(&done, false)?;
    } else {
        if in_one_table {
            output::line(&compared(&done));
        }
        output::line(&summary(&done, &differing));
    }
    if order.check && !differing.is_empty() {
        return Err(Failure::new(Exit::Failed, format!("{} differs from its paper", differing.join(", "))).into());
    }
    Ok(())
}

/// As many threads as there are cores; each takes the next piece of work when it is done with its last.
struct Threads;

impl Workers for Threads {
    fn each(&self, count: usize, work: &(dyn Fn(usize) + Sync)) {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(count);
        let next = AtomicUsize::new(0);
        let take = || {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= count {
                    break;
                }
                work(index);
            }
        };
        std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(take))));
    }
}

/// The cases of these names, in the given order; all of them when none is named.
fn wanted(names: &[String]) -> Result<Vec<Case>, Failure> {
    let all = cases();
    if names.is_empty() {
        return Ok(all);
    }
    let find = |name: &String| {
        let found = all.iter().find(|case| case.name.eq_ignore_ascii_case(name)).copied();
        found.ok_or_else(|| {
            if let Some(figure) = name.to_lowercase().strip_prefix(REAL) {
                let text = format!("{name} needs root, swap and real servers: in weal's repository, run `cargo xtask bench al-qudah --case {figure}`");
                return Failure::new(Exit::Usage, text);
            }
            let known: Vec<_> = all.iter().map(|case| case.name).collect();
            Failure::new(Exit::Usage, format!("there is no case {name}: the cases are {}", known.join(", ")))
        })
    };
    names.iter().map(find).collect()
}

fn write_files(order: &Reproduce, done: &[Reproduction]) -> anyhow::Result<()> {
    let write = |path: &Path, text: &str| std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()));
    if let Some(path) = &order.report {
        write(path, &page(done))?;
    }
    if let Some(folder) = &order.save {
        for case in done {
            let folder = folder.join(&case.case);
            std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
            for (name, text) in files(case) {
                write(&folder.join(name), &text)?;
            }
        }
    }
    Ok(())
}

/// The columns: the paper's and the recalculated expectation, each followed by its verdict.
const COLUMNS: [&str; 6] = ["WHAT", "PAPER", "", "RECALCULATED", "", "WEAL"];

/// A case in words: its claim, where it stands, what was assumed, and its numbers.
fn told(title: &str, reproduction: &Reproduction) -> String {
    let mut table = Table::new(&COLUMNS);
    reproduction.measures.iter().for_each(|measure| table.row(cells(measure).collect()));
    let head = paint(&format!("{} {title}", reproduction.case), Tone::Strong, Stream::Out);
    let source = paint(&reproduction.source, Tone::Dim, Stream::Out);
    let assumed: String = reproduction.assumptions.iter().map(|text| format!("assumed: {text}\n")).collect();
    format!("{head}  {source}\ninputs: {}\n{assumed}{}", reproduction.inputs, table.render())
}

/// All judged numbers of all cases in one table, then what was assumed.
fn compared(done: &[Reproduction]) -> String {
    let mut table = Table::new(&["CASE"].into_iter().chain(COLUMNS).collect::<Vec<_>>());
    let mut assumed = String::new();
    for reproduction in done {
        for measure in reproduction.measures.iter().filter(|measure| measure.is_judged()) {
            table.row(std::iter::once(cell(&reproduction.case)).chain(cells(measure)).collect());
        }
        for text in &reproduction.assumptions {
            assumed += &format!("{}: {text}\n", reproduction.case);
        }
    }
    format!("{}\n{}\n{assumed}", table.render(), paint("Assumed where the papers are silent", Tone::Strong, Stream::Out))
}

fn cells(measure: &Measure) -> impl Iterator<Item = (String, Option<Tone>)> + '_ {
    measure.cells().into_iter().map(|text| match text {
        "differs" => toned(text, Tone::Bad),
        "holds" => toned(text, Tone::Good),
        other => cell(other),
    })
}

fn summary(done: &[Reproduction], differing: &[&str]) -> String {
    let cases = if done.len() == 1 { "1 case".to_owned() } else { format!("{} cases", done.len()) };
    if differing.is_empty() {
        return paint(
            &format!("{cases}: every number is as the paper prints it and as it was recalculated"),
            Tone::Good,
            Stream::Out,
        );
    }
    let count = |of: fn(&Measure) -> &Option<Judged>| {
        let judged = done.iter().flat_map(|case| &case.measures).filter_map(|measure| of(measure).as_ref());
        let (holds, differs): (Vec<_>, Vec<_>) = judged.partition(|judged| judged.holds);
        (holds.len(), differs.len())
    };
    let (of_paper, recalculated) = (count(|measure| &measure.paper), count(|measure| &measure.recalculated));
    let text = format!(
        "{cases} ran. Of the papers' own numbers and claims, {} hold and {} differ. Of the recalculated ones, {} hold and {} differ. \
         Those that differ are in {}. The folders in experiments/ say why.",
        of_paper.0,
        of_paper.1,
        recalculated.0,
        recalculated.1,
        differing.join(", ")
    );
    paint(&text, Tone::Bad, Stream::Out)
}
