//! What a choice of an instance costs: what `cargo xtask bench dispatch` measures, after Tsai's Table 3.2.
//!
//! `dispatch-bench CASE ROUNDS`: one case in a process of its own, so that its memory is its own. It prints the nanoseconds of each round for
//! one name, and the pages of 4 KiB by which the process grew.

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use md5::Digest as _;
use weal_control::dispatch::locality::hash_of;
use weal_control::dispatch::{Attempt, Candidate, Dispatcher, RequestKey};
use weal_model::{DispatchPolicy, DispatchRules, NameHash, Time};

/// As many as in the thesis' trace of the World Cup's site.
const NAMES: usize = 90_000;
/// As many as in the thesis' cluster.
const INSTANCES: usize = 4;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [case, rounds] = arguments.as_slice() else { return Err("usage: dispatch-bench CASE ROUNDS".into()) };
    let names: Vec<String> = (0..NAMES).map(name).collect();
    let mut choose = chooser(case).ok_or_else(|| format!("there is no case `{case}`"))?;
    let before = resident_pages()?;
    // The first round fills caches and tables.
    let mut times_ns = Vec::new();
    for round in 0..=rounds.parse::<u32>()? {
        let begun = Instant::now();
        for name in &names {
            choose(name.as_bytes());
        }
        if round > 0 {
            times_ns.push(begun.elapsed().as_nanos() as f64 / NAMES as f64);
        }
    }
    let grown = resident_pages()?.saturating_sub(before);
    println!("{}", serde_json::json!({ "ns": times_ns, "pages": grown }));
    Ok(())
}

/// Of the length of that site's names.
fn name(number: usize) -> String {
    const LANGUAGES: [&str; 2] = ["english", "french"];
    format!("/{}/images/teams/{}/photo_{number}.gif", LANGUAGES[number % 2], number % 32)
}

/// What a case does with each name.
type Chooser = Box<dyn FnMut(&[u8])>;

/// `None` when there is no such case.
fn chooser(case: &str) -> Option<Chooser> {
    match case {
        "md5" => {
            return Some(Box::new(|name| {
                black_box(md5::Md5::digest(name));
            }));
        }
        "sha-1" => {
            return Some(Box::new(|name| {
                black_box(ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, name));
            }));
        }
        "fnv" => {
            return Some(Box::new(|name| {
                black_box(hash_of(NameHash::Fnv, name));
            }));
        }
        "charsum" => {
            return Some(Box::new(|name| {
                black_box(hash_of(NameHash::Charsum, name));
            }));
        }
        _ => {}
    }
    let (word, hash) = case.split_once('/').map_or((case, NameHash::Fnv), |(word, _)| (word, NameHash::Charsum));
    let policy = DispatchPolicy::ALL.into_iter().find(|policy| policy.as_str() == word)?;
    let mut dispatcher = Dispatcher::new(1);
    dispatcher.set_rules(&DispatchRules { policy, hash, ..DispatchRules::default() }, None);
    let instance = |number| Candidate { instance: format!("a-{number}").as_str().into(), weight: 1.0, draining: false };
    dispatcher.configure(Time::ZERO, &(0..INSTANCES).map(instance).collect::<Vec<_>>());
    Some(Box::new(move |name| {
        let key = RequestKey { name: policy.reads_names().then(|| hash_of(hash, name)), prefers: None };
        let chosen = dispatcher.handle_dispatch(Time::ZERO, key, &[]).expect("all are open");
        dispatcher.handle_end(Time::ZERO, black_box(chosen), Attempt::Answered);
    }))
}

fn resident_pages() -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/statm")?;
    Ok(status.split(' ').nth(1).ok_or("no resident set")?.parse()?)
}
