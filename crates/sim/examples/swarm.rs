//! Simulates random pools under faults: `swarm [--whole] FROM TO [PART OF]`, or `swarm SEED`. Prints what fails, shrunk unless `--whole`, and
//! ends with 1 then. `swarm --print SEED` prints the seed's scenario for `weal simulate`.
//! `cargo xtask swarm` runs it on every core.

use std::collections::BTreeMap;
use std::process::ExitCode;

use weal_sim::swarm::{Draft, Verdict, judge, shrink};

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let whole = arguments.iter().any(|argument| argument == "--whole");
    arguments.retain(|argument| argument != "--whole");
    let print = arguments.iter().any(|argument| argument == "--print");
    arguments.retain(|argument| argument != "--print");
    let numbers: Vec<u64> = arguments.iter().map(|argument| argument.parse().expect("a number")).collect();
    let (from, to, part, of) = match *numbers.as_slice() {
        [seed] => (seed, seed + 1, 0, 1),
        [from, to] => (from, to, 0, 1),
        [from, to, part, of] => (from, to, part, of),
        _ => panic!("usage: swarm [--whole] FROM TO [PART OF]"),
    };
    if print {
        (from..to).for_each(|seed| println!("{}", Draft::of(seed).to_toml()));
        return ExitCode::SUCCESS;
    }
    let (mut failed, mut done) = (0, 0);
    // How many of the others changed so much in the last phase, and took back so much.
    let (mut changes, mut taken_back) = (BTreeMap::<usize, u32>::new(), BTreeMap::<usize, u32>::new());
    for seed in (from..to).filter(|seed| seed % of == part) {
        done += 1;
        let draft = Draft::of(seed);
        let Verdict { findings, changes: changed, taken_back: back } = judge(&draft);
        if findings.is_empty() {
            *changes.entry(changed).or_default() += 1;
            *taken_back.entry(back).or_default() += 1;
            continue;
        }
        failed += 1;
        println!("seed {seed}:\n  {}", findings.join("\n  "));
        if whole {
            continue;
        }
        // The same kind of finding, or shrinking would wander off to another fault.
        let kind = kind_of(&findings[0]);
        let smallest = shrink(draft, &mut |less| judge(less).findings.iter().any(|finding| kind_of(finding) == kind));
        println!("  the smallest scenario that fails so:\n\n{}", smallest.to_toml());
    }
    println!("{{\"done\":{done},\"failed\":{failed},\"changes\":\"{changes:?}\",\"taken_back\":\"{taken_back:?}\"}}");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A finding without its numbers and names.
fn kind_of(finding: &str) -> String {
    finding.chars().filter(|c| !c.is_ascii_digit()).filter(|c| c.is_alphabetic() || *c == ' ').take(60).collect()
}
