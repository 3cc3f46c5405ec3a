//! `weal reproduce`: the papers' cases, run again, with what was expected beside what came out.

use weal_sim::reproduce::{Case, Effort, Measure, Reproduction, cases};

use crate::args::Reproduce;
use crate::failure::{Exit, Failure};
use crate::output::{self, Stream, Table, Tone, cell, paint, toned};

/// Runs it. Each case is printed as soon as it is done, as JSON all of them at the end.
///
/// # Errors
/// There is no case of that name (exit code 2); with `--check`, a case differs from its paper (1).
pub fn run(order: &Reproduce, json: bool) -> anyhow::Result<()> {
    let wanted = wanted(&order.cases)?;
    let effort = if order.quick { Effort::Quick } else { Effort::Full };
    let mut done = Vec::new();
    for case in &wanted {
        let reproduction = (case.run)(effort);
        if !json {
            output::line(&told(case.title, &reproduction));
        }
        done.push(reproduction);
    }
    let differing: Vec<_> = done.iter().filter(|one| !one.pass).map(|one| one.case.as_str()).collect();
    if json {
        output::json(&done, false)?;
    } else {
        output::line(&summary(done.len(), &differing));
    }
    if order.check && !differing.is_empty() {
        return Err(Failure::new(Exit::Failed, format!("{} differs from its paper", differing.join(", "))).into());
    }
    Ok(())
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
            let known: Vec<_> = all.iter().map(|case| case.name).collect();
            Failure::new(Exit::Usage, format!("there is no case {name}: the cases are {}", known.join(", ")))
        })
    };
    names.iter().map(find).collect()
}

/// A case in words: its claim, where it stands, and its numbers.
fn told(title: &str, reproduction: &Reproduction) -> String {
    let mut table = Table::new(&["", "WHAT", "EXPECTED", "GOT", "TOLERANCE"]);
    for measure in &reproduction.measures {
        table.row(vec![
            verdict(measure),
            cell(&measure.what),
            cell(&measure.expected),
            cell(&measure.got),
            cell(&measure.tolerance),
        ]);
    }
    let head = paint(&format!("{} {title}", reproduction.case), Tone::Strong, Stream::Out);
    let source = paint(&reproduction.source, Tone::Dim, Stream::Out);
    format!("{head}  {source}\n{}", table.render())
}

fn verdict(measure: &Measure) -> (String, Option<Tone>) {
    match (measure.pass, measure.expected.as_str()) {
        (true, "-") => cell("told"),
        (true, _) => toned("met", Tone::Good),
        (false, _) => toned("differs", Tone::Bad),
    }
}

fn summary(count: usize, differing: &[&str]) -> String {
    let cases = if count == 1 { "1 case".to_owned() } else { format!("{count} cases") };
    if differing.is_empty() {
        return paint(&format!("{cases}: every number is within its tolerance"), Tone::Good, Stream::Out);
    }
    paint(&format!("{cases}: {} differs; its folder in experiments/ says why", differing.join(", ")), Tone::Bad, Stream::Out)
}
