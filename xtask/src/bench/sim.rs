//! `cargo xtask bench sim`: the simulator's engine beside a bare binary heap, NeXosim and SimPy, in events per second.
//!
//! All of them run M/M/1 stations at load 0.8, each with random numbers of its own, on one core; arrivals and departures count, per second of
//! the process's own CPU time. The runs
//! are short and interleaved, so that whatever else the machine does hits all of them; the median of the rounds' ratios is what counts.
//! That all simulate the same is seen by the customers at a station, 4 in the mean.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::Arguments;
use crate::programs::{json_of, python_with, release, target};
use crate::table::Table;

/// The project that holds NeXosim's model.
const NEXOSIM: &str = r#"[package]
name = "nexosim-mm1"
version = "0.0.0"
edition = "2024"

[dependencies]
nexosim = "=1.0.0"
rand_distr = "0.6"
rand_pcg = { version = "0.10", features = ["serde"] }
serde = { version = "1", features = ["derive"] }

[profile.release]
lto = "fat"
codegen-units = 1

[workspace]
"#;
const SIMPY: &str = "simpy==4.1.1";

/// What one run prints.
#[derive(Debug, Clone, Copy, Deserialize)]
struct Sample {
    events: f64,
    seconds: f64,
    customers: f64,
}

impl Sample {
    fn per_s(self) -> f64 {
        self.events / self.seconds
    }
}

/// An engine: its name, its command before the number of stations, and how many events it gets.
struct Engine {
    name: &'static str,
    command: Vec<PathBuf>,
    events: u64,
}

/// Stations, millions of events per second to reach, and how many times as fast as which peer.
const CASES: [(u32, f64); 2] = [(1, 20.0), (1000, 10.0)];
const PEERS: [(&str, f64); 2] = [("nexosim 1.0", 4.0), ("simpy 4.1, processes", 100.0)];

/// Runs the benchmark.
pub fn run(arguments: &Arguments) -> Result<Table> {
    let engines = engines(arguments.quick)?;
    let rounds = if arguments.quick { 2 } else { 7 };
    let mut table = Table::new(
        format!("M/M/1 at load 0.8, arrivals and departures per CPU-second on one core: median of {rounds} rounds"),
        &["stations", "engine", "million events/s", "weal is so many times as fast", "rounds", "customers (theory: 4)"],
    );
    for (stations, wanted) in CASES {
        let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); engines.len()];
        for round in 0..rounds {
            for turn in 0..engines.len() {
                let at = (turn + round) % engines.len();
                samples[at].push(measure(&engines[at], stations)?);
            }
        }
        for (engine, own) in engines.iter().zip(&samples) {
            let ratios: Vec<f64> = samples[0].iter().zip(own).map(|(weal, own)| weal.per_s() / own.per_s()).collect();
            let millions = median(own.iter().map(|sample| sample.per_s() / 1e6));
            let ratio = median(ratios.iter().copied());
            let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
            let most = ratios.iter().copied().fold(0.0, f64::max);
            let peer = PEERS.iter().find(|peer| peer.0 == engine.name);
            let met = if engine.name == "weal" { Some(millions >= wanted) } else { peer.map(|peer| ratio >= peer.1) };
            let cells = [
                stations.to_string(),
                engine.name.to_owned(),
                format!("{millions:.2}"),
                format!("{ratio:.2}"),
                format!("{least:.2} to {most:.2}"),
                format!("{:.2}", median(own.iter().map(|sample| sample.customers))),
            ];
            table.row(cells, met);
        }
    }
    table.notes.push(
        "targets: 20 million events/s with one station, 10 million with 1,000; 4 x NeXosim, 100 x SimPy as it is documented"
            .to_owned(),
    );
    Ok(table)
}

fn measure(engine: &Engine, stations: u32) -> Result<Sample> {
    let (program, rest) = engine.command.split_first().context("an engine has a program")?;
    let sample: Sample = json_of(Command::new(program).args(rest).arg(stations.to_string()).arg(engine.events.to_string()))?;
    // Short runs of many stations begin empty, and so have fewer.
    let plausible = (2.0..5.5).contains(&sample.customers);
    ensure!(plausible, "{} has {:.2} customers a station, theory says 4", engine.name, sample.customers);
    Ok(sample)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn engines(quick: bool) -> Result<Vec<Engine>> {
    let folder = target().join("bench-sim");
    std::fs::create_dir_all(&folder)?;
    let (own, nexosim, python) = (build_own()?, build_nexosim(&folder)?, python_with(&folder.join("venv"), &[SIMPY])?);
    let script = folder.join("mm1.py");
    std::fs::write(&script, include_str!("sim/mm1.py"))?;
    let scale = if quick { 4 } else { 1 };
    Ok(vec![
        Engine { name: "weal", command: vec![own.clone(), "agenda".into()], events: 20_000_000 / scale },
        Engine { name: "binary heap alone", command: vec![own, "heap".into()], events: 20_000_000 / scale },
        Engine { name: "nexosim 1.0", command: vec![nexosim], events: 3_000_000 / scale },
        Engine {
            name: "simpy 4.1, processes",
            command: vec![python.clone(), script.clone(), "processes".into()],
            events: 400_000 / scale,
        },
        Engine { name: "simpy 4.1, callbacks", command: vec![python, script, "callbacks".into()], events: 400_000 / scale },
    ])
}

fn build_own() -> Result<PathBuf> {
    Ok(release(&["--package", "weal-sim", "--example", "sim-bench"])?.join("examples/sim-bench"))
}

fn build_nexosim(folder: &Path) -> Result<PathBuf> {
    let project = folder.join("nexosim");
    std::fs::create_dir_all(project.join("src"))?;
    write_if_new(&project.join("Cargo.toml"), NEXOSIM)?;
    write_if_new(&project.join("src/main.rs"), include_str!("sim/nexosim.rs"))?;
    let status = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--release", "--target-dir"])
        .arg(folder.join("nexosim-target"))
        .current_dir(&project)
        .status()?;
    ensure!(status.success(), "cannot build NeXosim's model");
    Ok(folder.join("nexosim-target/release/nexosim-mm1"))
}

/// Writing what is there already would build it anew.
fn write_if_new(file: &Path, text: &str) -> Result<()> {
    if std::fs::read_to_string(file).is_ok_and(|there| there == text) {
        return Ok(());
    }
    std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}
