//! `cargo xtask bench idle`: what a client connection costs the gateway in memory while nothing happens on it (Carrera 4.4: connections of
//! clients that think should cost no more than their sockets).

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use weal_host::Proc;

use super::Arguments;
use super::real::pool::free_address;
use super::real::tls_gateway::{TlsGateway, TlsPrograms};
use crate::table::Table;

/// Bytes of the gateway's memory that one may take.
const TARGET: f64 = 4096.0;

/// So long nothing happens before memory is read: the gateway frees what idle connections hold after two seconds, and hands it back to the
/// machine within ten more.
const REST: Duration = Duration::from_secs(15);

/// What a connection is, and which library keeps state for it that nobody else can free.
const CASES: [(&str, &str, Option<&str>); 4] = [
    ("h1-new", "nothing sent yet", None),
    ("h1", "HTTP/1.1, after an answer", None),
    ("tls", "HTTP/1.1 over TLS 1.3, after an answer", Some("tls")),
    ("h2", "HTTP/2, after an answer", Some("h2")),
];

/// Runs the benchmark.
pub fn run(arguments: &Arguments) -> Result<Table> {
    let count = if arguments.quick { 1000 } else { 10_000 };
    // Processes that are started from here inherit it.
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).context("cannot raise the limit on open files")?;
    let programs = TlsPrograms::build()?;
    let mut table = Table::new(
        format!("memory of the gateway for each of {count} idle connections"),
        &["connection", "bytes each", "of the library", "the rest", "target"],
    );
    let held = held(&programs)?;
    for (case, what, library) in CASES {
        let bytes = measure(&programs, case, count)?;
        let of_library = library.and_then(|library| held.get(library)).copied().unwrap_or_default();
        let rest = bytes - of_library;
        let cells =
            [what.to_owned(), format!("{bytes:.0}"), format!("{of_library:.0}"), format!("{rest:.0}"), format!("{TARGET:.0}")];
        table.row(cells, Some(rest <= TARGET));
    }
    table.notes.push(format!(
        "Growth of the process' resident memory (VmRSS), {} s after the last connection was opened, over their number. What the kernel holds for a \
         socket is not in it. Two workers. Target: of the rest.",
        REST.as_secs()
    ));
    table.notes.push(
        "Of the library: what rustls or h2 holds for an idle connection, by an allocator that counts, in a process with nothing else. It may be more than \
         what is resident: buffers that were never used in full."
            .to_owned(),
    );
    table.notes.push(crate::report::circumstances());
    Ok(table)
}

fn measure(programs: &TlsPrograms, case: &str, count: usize) -> Result<f64> {
    let cpus = std::thread::available_parallelism()?.get();
    // Nobody is there, and the gateway's own answer says so: what an instance would cost is not asked.
    let gateway = programs.start(&["ec", "-pkeyopt", "ec_paramgen_curve:P-256"], 0..cpus.min(2), true, free_address()?)?;
    // What the first ones bring about is not theirs: threads, buffers, tables.
    let warm_up = open(programs, &gateway, case, count / 10)?;
    std::thread::sleep(REST);
    let before = resident_bytes(gateway.pid())?;
    let clients = open(programs, &gateway, case, count)?;
    std::thread::sleep(REST);
    let after = resident_bytes(gateway.pid())?;
    drop((warm_up, clients));
    Ok((after - before) / count as f64)
}

/// Bytes that each library holds for one idle connection, on the heap and in its own type.
fn held(programs: &TlsPrograms) -> Result<BTreeMap<String, f64>> {
    let output = Command::new(programs.program("held-bench")).output().context("cannot start held-bench")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8(output.stdout)?;
    let read = |line: &str| -> Result<(String, f64)> {
        let mut words = line.split(' ');
        let library = words.next().context("no library")?.to_owned();
        let bytes: f64 = words.map(str::parse::<f64>).sum::<Result<f64, _>>()?;
        Ok((library, bytes))
    };
    printed.lines().map(read).collect()
}

/// A process whose connections end with it.
struct Clients(Child);

fn open(programs: &TlsPrograms, gateway: &TlsGateway, case: &str, count: usize) -> Result<Clients> {
    let address = if case == "tls" { gateway.address } else { gateway.plain };
    let mut command = Command::new(programs.program("idle-bench"));
    command.args([case, &address.to_string()]).arg(&gateway.authority).arg(count.to_string());
    let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("cannot start the clients")?;
    let output = process.stdout.take().expect("it is piped");
    let clients = Clients(process);
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    ensure!(line == "open\n", "the clients cannot open {count} connections");
    Ok(clients)
}

impl Drop for Clients {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn resident_bytes(pid: u32) -> Result<f64> {
    Ok(Proc::system().resident(pid).context("no VmRSS")? as f64)
}
