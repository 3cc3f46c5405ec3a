//! `cargo xtask bench gateway`: weal's gateway beside HAProxy, nginx, Envoy and Caddy, in requests per CPU-second of the proxy.
//!
//! All stand before the same instance, with two threads or workers each, keep-alive towards the instance and the same headers added. Each work
//! starts them anew and loads one after the other in short interleaved rounds, so that whatever else the machine does hits all of them. Each
//! round gives a ratio to HAProxy, and the median of those is what counts.

mod figures;
mod load;
mod programs;
mod proxies;
mod setting;
mod websocket;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use self::figures::{Sample, TARGET, add_rows, new_table};
use self::load::Load;
use self::programs::Programs;
use self::proxies::{Front, Kind, Proxy, Setting, start, start_instance};
use self::setting::{Course, SMALL};
use super::Arguments;
use super::real::tls_gateway::make_certificate;
use crate::table::Table;

/// A process that used less is not what was loaded.
const LEAST_CPU_S: f64 = 0.05;

/// One kind of work that is asked of the proxies.
struct Work {
    /// As `--case` has it.
    case: &'static str,
    name: &'static str,
    front: Front,
    load: Load,
    /// What a first request asks for, and how many bytes its answer has.
    path: &'static str,
    bytes: usize,
}

const SMALL_ANSWERS: Work =
    Work { case: "h1-small", name: "h1, 64 bytes", front: Front::Http1, load: Load::KeepAlive, path: "/small", bytes: SMALL };

const WORKS: [Work; 8] = [
    SMALL_ANSWERS,
    Work { case: "h1-64k", name: "h1, 64 KiB", path: "/large", bytes: 64 << 10, ..SMALL_ANSWERS },
    Work { case: "h1-1m", name: "h1, 1 MiB", path: "/huge", bytes: 1 << 20, ..SMALL_ANSWERS },
    Work { case: "h1-new", name: "h1, a new connection each", load: Load::NewConnections, ..SMALL_ANSWERS },
    Work { case: "h2", name: "h2, 64 bytes", front: Front::Http2, load: Load::Streams, ..SMALL_ANSWERS },
    Work { case: "tls-full", name: "TLS, a full handshake each", front: Front::Tls, load: Load::FullHandshakes, ..SMALL_ANSWERS },
    Work {
        case: "tls-resumed",
        name: "TLS, a resumed session each",
        front: Front::Tls,
        load: Load::Resumptions,
        ..SMALL_ANSWERS
    },
    Work { case: "websocket", name: "WebSocket, 64 bytes and back", load: Load::Messages, path: "/", bytes: 2, ..SMALL_ANSWERS },
];

/// Runs the benchmark.
pub fn run(arguments: &Arguments) -> Result<Table> {
    let works = chosen(arguments)?;
    let course = if arguments.quick { Course { rounds: 3, seconds: 1 } } else { Course { rounds: 9, seconds: 2 } };
    let programs = Programs::prepare()?;
    // Workers of nginx have a user of their own, and read answers there.
    let folder = tempfile::Builder::new().prefix("weal-bench-").permissions(Permissions::from_mode(0o755)).tempdir()?;
    let certificate = ["bench.pem", "bench.key"].map(|name| folder.path().join(name));
    make_certificate(&["ec", "-pkeyopt", "ec_paramgen_curve:P-256"], folder.path(), &certificate)?;
    let mut table = new_table(course);
    for work in works {
        let samples = work.measure(course, &programs, &certificate, folder.path()).with_context(|| work.name)?;
        add_rows(&mut table, work.name, &samples);
    }
    table.notes.push(format!(
        "One machine with {} CPUs runs the load, the proxy and the instance: what is done per second and p99 are of that whole, only ratios say \
         something about the proxy. Target: {TARGET:.1} of HAProxy, and a p99 that is beyond HAProxy's by no more than HAProxy's own rounds are apart.",
        std::thread::available_parallelism()?
    ));
    table.notes.push(programs.versions()?);
    table.notes.push(crate::report::circumstances());
    Ok(table)
}

fn chosen(arguments: &Arguments) -> Result<Vec<&'static Work>> {
    const ALL: &[Work] = &WORKS;
    let Some(case) = arguments.case.as_deref() else { return Ok(ALL.iter().collect()) };
    ensure!(!arguments.write, "the page has all works in one table: leave --case or --write out");
    let work = ALL.iter().find(|work| work.case == case);
    let cases = || ALL.iter().map(|work| work.case).collect::<Vec<_>>().join(", ");
    Ok(vec![work.with_context(|| format!("there is no case {case}: the cases are {}", cases()))?])
}

impl Work {
    /// Samples of each proxy, in the order of [`Kind::ALL`].
    fn measure(
        &self,
        course: Course,
        programs: &Programs,
        certificate: &[PathBuf; 2],
        folder: &Path,
    ) -> Result<Vec<Vec<Sample>>> {
        let (echo, answers) = (websocket::Echo::start()?, start_instance(folder)?);
        let instance = if let Load::Messages = self.load { echo.address() } else { answers.address };
        let setting = Setting { front: self.front, instance, certificate, folder, path: self.path, bytes: self.bytes };
        let proxies = Kind::ALL.into_iter().map(|kind| start(kind, &setting, programs)).collect::<Result<Vec<_>>>()?;
        self.run_rounds(course, &proxies, folder)
    }

    /// The order of proxies turns with each round.
    fn run_rounds(&self, course: Course, proxies: &[Proxy], folder: &Path) -> Result<Vec<Vec<Sample>>> {
        for proxy in proxies {
            self.load.run(proxy.address, self.path, 1, folder).with_context(|| format!("{} cannot be warmed up", proxy.name))?;
        }
        let mut samples = vec![Vec::new(); proxies.len()];
        for round in 0..course.rounds {
            for turn in 0..proxies.len() {
                let index = (round + turn) % proxies.len();
                samples[index].push(self.sample(&proxies[index], course.seconds, folder)?);
            }
        }
        Ok(samples)
    }

    /// One round with one proxy.
    fn sample(&self, proxy: &Proxy, seconds: u32, folder: &Path) -> Result<Sample> {
        let before = proxy.cpu_s()?;
        let done = self.load.run(proxy.address, self.path, seconds, folder).with_context(|| proxy.name)?;
        let cpu_s = proxy.cpu_s()? - before;
        ensure!(cpu_s > LEAST_CPU_S, "{} used no CPU to speak of: {cpu_s} s", proxy.name);
        Ok(Sample {
            per_cpu_second: done.count as f64 / cpu_s,
            per_second: done.count as f64 / done.seconds,
            p99_ms: done.p99_ms,
        })
    }
}
