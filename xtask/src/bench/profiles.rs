//! `cargo xtask bench profiles`: work factors as learnt online, beside what the kernel counted.
//!
//! A flow's true work factor is the CPU time of the application's process (`/proc/PID/stat`) over the requests that were
//! answered, with that flow alone. A fresh pool, which knows nothing, then gets both flows at once: after five flow cycles its
//! estimates are compared, and again at every cycle while the mix of the two changes.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tempfile::TempDir;

use super::Arguments;
use super::real::machine::cpu_seconds;
use super::real::median;
use super::real::pool::Pool;
use crate::programs::release;
use crate::table::Table;

/// How far an estimate may be off after [`CYCLES`], and while the mix changes.
const TARGETS: [f64; 2] = [0.05, 0.10];
/// Cycles after which the first is judged.
const CYCLES: u32 = 5;
const CYCLE: Duration = Duration::from_secs(2);
/// Requests per second of the two flows, one pair after the other.
const MIXES: [[u32; 2]; 4] = [[30, 6], [10, 12], [40, 3], [15, 9]];

/// A flow: its class and what one of its requests costs, in milliseconds of CPU.
const FLOWS: [(&str, u32); 2] = [("light", 4), ("heavy", 25)];

/// Runs the benchmark.
pub fn run(arguments: &Arguments) -> Result<Table> {
    let binary = build()?;
    let (rounds, alone) = if arguments.quick { (1, 5) } else { (3, 15) };
    let mut truth = [0.0; 2];
    let pool = Site::start(&binary)?;
    for (flow, truth) in truth.iter_mut().enumerate() {
        *truth = pool.alone(flow, alone).with_context(|| format!("with {} alone", FLOWS[flow].0))?;
    }
    drop(pool);
    let rounds: Vec<Round> = (0..rounds).map(|_| round(&binary, truth)).collect::<Result<_>>()?;
    Ok(table(truth, &rounds))
}

/// What one fresh pool learnt: how far off each flow's estimate was, as a share of the truth.
struct Round {
    after_cycles: [f64; 2],
    estimates: [f64; 2],
    worst_while_changing: [f64; 2],
}

fn round(binary: &Path, truth: [f64; 2]) -> Result<Round> {
    let pool = Site::start(binary)?;
    // The estimates of a cycle are there when the next begins.
    let mut loads = pool.load(MIXES[0], CYCLE * (CYCLES + 1) + CYCLE)?;
    std::thread::sleep(CYCLE * CYCLES + CYCLE / 2);
    let estimates = pool.estimates()?;
    let off = |estimates: [f64; 2]| [0, 1].map(|flow| (estimates[flow] / truth[flow] - 1.0).abs());
    let mut worst = [0.0_f64; 2];
    for mix in &MIXES[1..] {
        wait(&mut loads)?;
        loads = pool.load(*mix, CYCLE * 4)?;
        for _ in 0..4 {
            std::thread::sleep(CYCLE - Duration::from_millis(50));
            let now = off(pool.estimates()?);
            worst = [worst[0].max(now[0]), worst[1].max(now[1])];
        }
    }
    wait(&mut loads)?;
    Ok(Round { after_cycles: off(estimates), estimates, worst_while_changing: worst })
}

fn table(truth: [f64; 2], rounds: &[Round]) -> Table {
    let title = format!("CPU time of a request, learnt online beside the kernel's count; median of {} fresh pools", rounds.len());
    let mut table = Table::new(title, &["flow", "when", "kernel, ms", "learnt, ms", "off by", "all"]);
    let percents = |values: &[f64]| values.iter().map(|value| format!("{:.1}%", value * 100.0)).collect::<Vec<_>>().join(" ");
    for (flow, (name, _)) in FLOWS.iter().enumerate() {
        let after: Vec<f64> = rounds.iter().map(|round| round.after_cycles[flow]).collect();
        let changing: Vec<f64> = rounds.iter().map(|round| round.worst_while_changing[flow]).collect();
        let learnt: Vec<f64> = rounds.iter().map(|round| round.estimates[flow] * 1e3).collect();
        let cases = [
            (format!("after {CYCLES} cycles"), format!("{:.2}", median(&learnt)), after, TARGETS[0]),
            ("mix changing, worst cycle".to_owned(), "-".to_owned(), changing, TARGETS[1]),
        ];
        for (when, learnt, off, target) in cases {
            let cells = [
                (*name).to_owned(),
                when,
                format!("{:.2}", truth[flow] * 1e3),
                learnt,
                format!("{:.1}%", median(&off) * 100.0),
                percents(&off),
            ];
            table.row(cells, Some(median(&off) <= target));
        }
    }
    let mixes: Vec<String> = MIXES.iter().map(|[light, heavy]| format!("{light} + {heavy}")).collect();
    table.notes.push(format!(
        "Requests per second of light + heavy, each mix for some cycles of {} s: {}. Targets: {:.0}% after {CYCLES} cycles, {:.0}% in \
         every cycle while the mix changes.",
        CYCLE.as_secs(),
        mixes.join(", then "),
        TARGETS[0] * 100.0,
        TARGETS[1] * 100.0
    ));
    table
}

/// A pool of one application with two flows; gone when dropped.
struct Site {
    pool: Pool,
    /// The pool's, and after it gone.
    _folder: TempDir,
}

impl Site {
    fn start(binary: &Path) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let program = binary.with_file_name("weal-demo-search");
        let config = format!(
            r#"flow-cycle = "{}s"

[class.light]
goal = "mean < 500ms"

[class.heavy]
goal = "mean < 500ms"

[app.work]
run = ["{}", "--port", "$PORT"]
health = "/healthz"
memory = "64MiB"
routes = [
    {{ host = "work.localhost", header = "x-heavy", class = "heavy" }},
    {{ host = "work.localhost", class = "light" }},
]
"#,
            CYCLE.as_secs(),
            program.display()
        );
        Ok(Self { pool: Pool::start(binary, folder.path(), &config)?, _folder: folder })
    }

    fn load_of(&self, flow: usize, rate: u32, duration: Duration) -> Command {
        let url = format!("http://work.localhost:{}/work?cpu_ms={}", self.pool.listen().port(), FLOWS[flow].1);
        let (rate, duration) = (format!("{rate}/s"), format!("{}s", duration.as_secs()));
        let mut command = self.pool.prepared(&["load", &url, "--rate", &rate, "--duration", &duration, "-o", "json"]);
        if FLOWS[flow].0 == "heavy" {
            command.args(["-H", "x-heavy: 1"]);
        }
        command
    }

    /// Both flows at once.
    fn load(&self, rates: [u32; 2], duration: Duration) -> Result<Vec<Child>> {
        let start = |flow: usize| self.load_of(flow, rates[flow], duration).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        Ok(vec![start(0)?, start(1)?])
    }

    /// CPU-seconds per answered request of one flow that is alone.
    fn alone(&self, flow: usize, seconds: u64) -> Result<f64> {
        let before = self.cpu_seconds()?;
        let output = self.load_of(flow, 20, Duration::from_secs(seconds)).output()?;
        let used = self.cpu_seconds()? - before;
        let outcome: Value = serde_json::from_slice(&output.stdout).context("the load's outcome cannot be read")?;
        let answered = outcome["flows"][0]["answered"].as_f64().unwrap_or(0.0);
        ensure!(answered >= 10.0, "only {answered} requests were answered");
        Ok(used / answered)
    }

    fn status(&self) -> Result<Value> {
        let output = self.pool.weal(&["status", "-o", "json"])?;
        serde_json::from_slice(&output.stdout).context("the status cannot be read")
    }

    /// What the kernel has counted for the application's process, in seconds.
    fn cpu_seconds(&self) -> Result<f64> {
        let status = self.status()?;
        let pid = status["apps"][0]["instances"][0]["pid"].as_u64().context("the instance has no process")?;
        cpu_seconds(u32::try_from(pid)?)
    }

    /// CPU-seconds per request that the pool has learnt.
    fn estimates(&self) -> Result<[f64; 2]> {
        let status = self.status()?;
        let flows = status["flows"].as_array().context("the status has no flows")?;
        let mut estimates = [0.0; 2];
        for (estimate, (class, _)) in estimates.iter_mut().zip(FLOWS) {
            let flow = flows.iter().find(|flow| flow["class"] == class).context("a flow is missing")?;
            *estimate = flow["work_factors"][0]["work"].as_f64().unwrap_or(0.0);
        }
        Ok(estimates)
    }
}

fn wait(loads: &mut [Child]) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(60);
    for load in loads {
        while load.try_wait()?.is_none() {
            if Instant::now() > deadline {
                load.kill()?;
                bail!("the load did not end");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    Ok(())
}

/// The programs, as released; beside each other.
fn build() -> Result<PathBuf> {
    Ok(release(&["--package", "weal", "--package", "weal-demo"])?.join("weal"))
}
