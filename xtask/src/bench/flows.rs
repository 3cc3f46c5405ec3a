//! `cargo xtask bench flows`: shares of few clients beside many, goodput under overload, and what a refusal takes.
//!
//! One process has the gateway, its instance and the clients. Requests take time and no CPU, so what is measured is whom the gateway gives
//! its eight seats.

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use serde::Deserialize;

use super::Arguments;
use crate::programs::{json_of, release};
use crate::table::Table;

/// How far a share may be from that of its weight.
const SHARE_TARGET: f64 = 0.02;
/// Goodput relative to what the seats can answer.
const GOODPUT_TARGET: f64 = 0.97;
/// Times of what the seats can answer that are offered.
const OVERLOADS: [f64; 3] = [0.9, 2.0, 5.0];
/// The median of a refusal.
const REFUSAL_TARGET_US: f64 = 1000.0;

#[derive(Deserialize)]
struct Shares {
    per_s: [f64; 2],
}

#[derive(Deserialize)]
struct Overload {
    offered: f64,
    good: u64,
    late: u64,
    refused: u64,
    failed: u64,
}

#[derive(Deserialize)]
struct Refusal {
    p50_us: f64,
    p99_us: f64,
    worst_us: f64,
}

/// Runs the benchmark.
pub fn run(arguments: &Arguments) -> Result<Vec<Table>> {
    let program = release(&["--package", "weal-gateway", "--example", "flows-bench"])?.join("examples/flows-bench");
    let seconds = if arguments.quick { 2 } else { 10 };
    let (shares, most_per_s) = shares(&program, seconds)?;
    Ok(vec![shares, overload(&program, seconds, most_per_s)?, refusal(&program, if arguments.quick { 500 } else { 5000 })?])
}

/// The table, and how many requests of 20 ms the seats answer per second while there are always some.
fn shares(program: &Path, seconds: u64) -> Result<(Table, f64)> {
    let mut most_per_s = f64::NAN;
    let title = format!("16 clients beside 200 on eight seats: shares of answers over {seconds} s");
    let mut table =
        Table::new(title, &["weights", "lengths, ms", "of the few, /s", "of the many, /s", "share of the few", "of its weight"]);
    for weights in [[1, 1], [3, 1], [1, 3]] {
        for lengths_ms in [[20, 20], [50, 5], [5, 50]] {
            let words = [weights[0], weights[1], lengths_ms[0], lengths_ms[1]].map(|number| number.to_string());
            let Shares { per_s } = ask(program, &["shares"], &[&words[..], &[seconds.to_string()]].concat())?;
            let share = per_s[0] / (per_s[0] + per_s[1]);
            if (weights, lengths_ms) == ([1, 1], [20, 20]) {
                most_per_s = per_s[0] + per_s[1];
            }
            let wanted = f64::from(weights[0]) / f64::from(weights[0] + weights[1]);
            let cells = [
                format!("{}:{}", weights[0], weights[1]),
                format!("{} beside {}", lengths_ms[0], lengths_ms[1]),
                format!("{:.1}", per_s[0]),
                format!("{:.1}", per_s[1]),
                format!("{:.1}%", share * 100.0),
                format!("{:+.1}%", (share / wanted - 1.0) * 100.0),
            ];
            table.row(cells, Some((share / wanted - 1.0).abs() <= SHARE_TARGET));
        }
    }
    table.notes.push(format!(
        "Lengths spread evenly from half to one and a half of the mean. Target: within {:.0}%.",
        SHARE_TARGET * 100.0
    ));
    Ok((table, most_per_s))
}

fn overload(program: &Path, seconds: u64, most_per_s: f64) -> Result<Table> {
    let title = format!("goodput with a goal of 200 ms and `late = \"drop\"` over {seconds} s");
    let mut table = Table::new(title, &["offered", "within the goal", "late", "refused", "failed", "goodput"]);
    for times in OVERLOADS {
        let seen: Overload = ask(program, &["overload"], &[times.to_string(), seconds.to_string()])?;
        let goodput = seen.good as f64 / seconds as f64 / most_per_s;
        let cells = [
            format!("{:.2} x", seen.offered),
            seen.good.to_string(),
            seen.late.to_string(),
            seen.refused.to_string(),
            seen.failed.to_string(),
            format!("{:.1}%", goodput * 100.0),
        ];
        table.row(cells, (times > 1.0).then_some(goodput >= GOODPUT_TARGET));
    }
    table.notes.push(format!(
        "Offered is relative to 400/s: eight seats, 20 ms for each request. Goodput is relative to what the seats answered in the first \
         line above, where requests always wait: {most_per_s:.0}/s. Clients send when a request is due, whatever came of the last. \
         Target: {:.0}%.",
        GOODPUT_TARGET * 100.0
    ));
    Ok(table)
}

fn refusal(program: &Path, count: usize) -> Result<Table> {
    let mut table = Table::new(format!("a refusal by a full queue, {count} times"), &["median, us", "p99, us", "worst, us"]);
    let seen: Refusal = ask(program, &["refusal"], &[count.to_string()])?;
    let cells = [seen.p50_us, seen.p99_us, seen.worst_us].map(|us| format!("{us:.0}"));
    table.row(cells, Some(seen.p50_us < REFUSAL_TARGET_US));
    table.notes.push("From the first byte of a request to the last of its answer, over a connection that is there. Target: a median below 1 ms.".into());
    Ok(table)
}

fn ask<T: for<'de> Deserialize<'de>>(program: &Path, word: &[&str], rest: &[String]) -> Result<T> {
    json_of(Command::new(program).args(word).args(rest))
}
