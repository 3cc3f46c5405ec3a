//! `cargo xtask bench build`: a site's response times while a build takes every core beside it, as a job of weal and without weal.
//!
//! Four phases a round, one after the other: the site in a pool alone, with `make -j8` submitted as a job, the site as a plain process alone,
//! with `make -j8` as a plain process. Requests come at the same moments in all of them. The program that makes them runs with real-time priority, so that
//! it is never late itself.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::Arguments;
use super::real::agent::first_byte_s;
use super::real::median;
use super::real::pool::{Pool, free_address};
use crate::programs::{json_of, release};
use crate::table::Table;

/// How much the site's 99th percentile may grow when the build starts.
const GROWTH: f64 = 1.15;
/// Requests a second.
const RATE: &str = "100/s";
/// Each uses that much CPU.
const PATH: &str = "/work?cpu_ms=3";
/// More than are compiled in any phase.
const FILES: usize = 20_000;
const PATIENCE: Duration = Duration::from_secs(60);
/// A build that has begun is at its full width after that.
const RUN_UP: Duration = Duration::from_secs(2);

/// What a phase showed.
#[derive(Clone, Copy)]
struct Phase {
    p50_ms: f64,
    p99_ms: f64,
    /// Files compiled per second of the phase.
    compiled_per_s: Option<f64>,
}

/// Runs the benchmark.
pub fn run(arguments: &Arguments) -> Result<Table> {
    for needed in ["make", "cc", "chrt"] {
        let found = Command::new(needed).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        ensure!(found.is_ok(), "this needs `{needed}`: install make, gcc and util-linux");
    }
    let (rounds, seconds) = if arguments.quick { (1, 5) } else { (5, 20) };
    let programs = release(&["--package", "weal", "--package", "weal-demo"])?;
    let folder = tempfile::tempdir()?;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
    let bench = Bench { sources: sources(folder.path())?, programs, seconds };
    let mut phases: [Vec<Phase>; 4] = Default::default();
    for _ in 0..rounds {
        let [alone, beside] = bench.with_weal(folder.path())?;
        let [plain_alone, plain_beside] = bench.without_weal(folder.path())?;
        for (all, phase) in phases.iter_mut().zip([alone, beside, plain_alone, plain_beside]) {
            all.push(phase);
        }
    }
    Ok(shown(&phases, rounds, seconds))
}

fn shown(phases: &[Vec<Phase>; 4], rounds: usize, seconds: u32) -> Table {
    let columns = [
        "site",
        "p50 alone, ms",
        "p50 beside",
        "p99 alone, ms",
        "p99 beside",
        "growth of p99",
        "from - to",
        "files built a second",
    ];
    let mut table = Table::new("a site's response times while `make -j8` runs beside it", &columns);
    for (name, pair, target) in
        [("in weal, the build as a job", &phases[..2], Some(GROWTH)), ("plain processes", &phases[2..], None)]
    {
        let (alone, beside) = (&pair[0], &pair[1]);
        let middle = |of: &[Phase], figure: fn(&Phase) -> f64| median(&of.iter().map(figure).collect::<Vec<_>>());
        let growths: Vec<f64> = alone.iter().zip(beside).map(|(alone, beside)| beside.p99_ms / alone.p99_ms).collect();
        let growth = median(&growths);
        let (least, most) = growths.iter().fold((f64::INFINITY, 0.0_f64), |(least, most), &one| (least.min(one), most.max(one)));
        let cells = [
            name.to_owned(),
            format!("{:.2}", middle(alone, |phase| phase.p50_ms)),
            format!("{:.2}", middle(beside, |phase| phase.p50_ms)),
            format!("{:.2}", middle(alone, |phase| phase.p99_ms)),
            format!("{:.2}", middle(beside, |phase| phase.p99_ms)),
            format!("{growth:.2} x"),
            format!("{least:.2} - {most:.2}"),
            format!("{:.1}", middle(beside, |phase| phase.compiled_per_s.unwrap_or(0.0))),
        ];
        table.row(cells, target.map(|target| growth <= target));
    }
    table.notes.push(format!(
        "{rounds} round(s) of four phases of {seconds} s, {RATE} requests that use 3 ms of CPU each; medians of the rounds. Target: p99 grows at most \
         {:.0}% in weal.",
        100.0 * (GROWTH - 1.0)
    ));
    table
}

struct Bench {
    sources: PathBuf,
    programs: PathBuf,
    /// Of a phase.
    seconds: u32,
}

impl Bench {
    /// The site alone in a pool, then with the build as a job.
    fn with_weal(&self, folder: &Path) -> Result<[Phase; 2]> {
        let config = format!(
            "[[node]]\nname = \"n1\"\ncpu = {}\nmemory = \"4GiB\"\n[class.gold]\ngoal = \"p95 < 50ms\"\nimportance = \"high\"\n\
             [app.site]\nrun = [\"{}\", \"--port\", \"$PORT\"]\nhealth = \"/healthz\"\nmemory = \"64MiB\"\ninstances = {{ min = 1, max = 1 }}\n\
             routes = [{{ host = \"127.0.0.1\", class = \"gold\" }}]\n",
            weal_host::machine::cpus().0,
            self.site().display()
        );
        let pool = Pool::start(&self.programs.join("weal"), &folder.join("pool"), &config)?;
        pool.wait_for_answer("/healthz")?;
        let alone = self.measure(pool.listen())?;
        let sources = self.sources.display().to_string();
        let job = json_of::<Value>(&mut pool.prepared(&[
            "submit",
            "-o",
            "json",
            "--done-by",
            "10h",
            "--cpus",
            "2",
            "--memory",
            "2GiB",
            "--cwd",
            &sources,
            "--",
            "make",
            "-j8",
        ]))?;
        let job = job["job"]["id"].as_str().context("the answer names no job")?.to_owned();
        let deadline = Instant::now() + PATIENCE;
        while json_of::<Value>(&mut pool.prepared(&["job", "show", &job, "-o", "json"]))?["state"] != "running" {
            ensure!(Instant::now() < deadline, "the job does not run");
            std::thread::sleep(Duration::from_millis(200));
        }
        std::thread::sleep(RUN_UP);
        let compiled = || -> Result<usize> { Ok(lines(&pool.weal(&["job", "logs", &job])?.stdout)) };
        let (before, begun) = (compiled()?, Instant::now());
        let beside = self.measure(pool.listen())?;
        let compiled_per_s = Some((compiled()? - before) as f64 / begun.elapsed().as_secs_f64());
        ensure!(pool.weal(&["job", "cancel", &job])?.status.success(), "the job cannot be cancelled");
        drop(pool);
        fs::remove_dir_all(folder.join("pool"))?;
        Ok([alone, Phase { compiled_per_s, ..beside }])
    }

    /// The same site and the same build, as a shell would start them.
    fn without_weal(&self, folder: &Path) -> Result<[Phase; 2]> {
        let address = free_address()?;
        let port = address.port().to_string();
        let _site = Started(Command::new(self.site()).args(["--port", &port]).process_group(0).stdout(Stdio::null()).spawn()?);
        let deadline = Instant::now() + PATIENCE;
        while first_byte_s(address, "/healthz").is_err() {
            ensure!(Instant::now() < deadline, "the site does not answer");
            std::thread::sleep(Duration::from_millis(50));
        }
        let alone = self.measure(address)?;
        let output = folder.join("built");
        let make =
            Command::new("make").arg("-j8").current_dir(&self.sources).process_group(0).stdout(File::create(&output)?).spawn();
        let _build = Started(make.context("cannot run make")?);
        std::thread::sleep(RUN_UP);
        let compiled = || -> Result<usize> { Ok(lines(&fs::read(&output)?)) };
        let (before, begun) = (compiled()?, Instant::now());
        let beside = self.measure(address)?;
        let compiled_per_s = Some((compiled()? - before) as f64 / begun.elapsed().as_secs_f64());
        Ok([alone, Phase { compiled_per_s, ..beside }])
    }

    fn site(&self) -> PathBuf {
        self.programs.join("weal-demo-search")
    }

    fn measure(&self, site: SocketAddr) -> Result<Phase> {
        let duration = format!("{}s", self.seconds);
        let mut load = Command::new("chrt");
        load.args(["--fifo", "1"]).arg(self.programs.join("weal"));
        load.args(["load", &format!("http://{site}{PATH}"), "--rate", RATE, "--duration", &duration, "-o", "json"]);
        let measured: Value = json_of(&mut load)?;
        let flow = &measured["flows"][0];
        let figure = |name: &str| flow["response"][name].as_f64().with_context(|| format!("the load tells no {name}"));
        ensure!(flow["answered"] == flow["sent"], "requests were not answered: {flow}");
        Ok(Phase { p50_ms: figure("p50_ms")?, p99_ms: figure("p99_ms")?, compiled_per_s: None })
    }
}

/// A folder with what `make` builds: the same source again and again.
fn sources(folder: &Path) -> Result<PathBuf> {
    let sources = folder.join("sources");
    fs::create_dir(&sources)?;
    let function = |number: usize| {
        format!(
            "double f{number}(double *a, int n) {{ double s = 0; for (int i = 0; i < n; i++) for (int j = 0; j < i; j++) \
             s += a[i] * a[j] / ({number} + 1.5) + (a[j] > s ? 1 : -1); return s; }}\n"
        )
    };
    fs::write(sources.join("part.c"), (0..60).map(function).collect::<String>())?;
    let rule = "\t@cc -O2 -S part.c -o - > /dev/null && echo $@\n";
    fs::write(
        sources.join("Makefile"),
        format!("PARTS := $(shell seq {FILES})\nall: $(PARTS)\n$(PARTS):\n{rule}.PHONY: all $(PARTS)\n"),
    )?;
    Ok(sources)
}

fn lines(text: &[u8]) -> usize {
    text.iter().filter(|&&byte| byte == b'\n').count()
}

/// A process with all that it started, ended when it is dropped.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let group = rustix::process::Pid::from_child(&self.0);
        if let Err(error) = rustix::process::kill_process_group(group, rustix::process::Signal::KILL) {
            eprintln!("error: cannot end what was started: {error}");
        }
        let _ = self.0.wait();
    }
}
