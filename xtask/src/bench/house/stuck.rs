//! What the API takes while the node agent is stopped: nobody waits for a peer that is stuck.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::bench::Arguments;
use crate::bench::real::pool::Pool;
use crate::bench::real::quantile;
use crate::programs::release;
use crate::table::Table;

/// The 99th percentile at most, in milliseconds: a person takes that for at once.
const TARGET_MS: f64 = 50.0;
/// Between two requests, so that they meet all that the controller does in its cycles.
const PAUSE: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(60);
const CONFIG: &str = "\n[app.web]\nrun = [\"sleep\", \"1000000\"]\nhealth = { command = [\"true\"] }\nmemory = \"16MiB\"\n";

/// The times of one kind of request, with the node agent and without its answers.
pub fn run(arguments: &Arguments) -> Result<Table> {
    let requests = if arguments.quick { 100 } else { 1000 };
    let weal = release(&["--package", "weal", "--bin", "weal"])?.join("weal");
    let folder = tempfile::tempdir()?;
    let pool = Pool::start(&weal, &folder.path().join("pool"), CONFIG)?;
    let socket = pool.state().join("run/controller.sock");
    let alive = times_ms(&socket, requests)?;
    let stopped = Stopped::new(pool.agent()?)?;
    let stuck = times_ms(&socket, requests)?;
    drop(stopped);
    let mut table = Table::new(
        "the API while the node agent is stopped by SIGSTOP",
        &["`GET /v1/status`", "requests", "p50 ms", "p99 ms", "target ms"],
    );
    for (what, times, judged) in [("the node agent answers", &alive, false), ("the node agent is stopped", &stuck, true)] {
        let (median, p99) = (quantile(times, 0.5), quantile(times, 0.99));
        let target = if judged { format!("{TARGET_MS:.0}") } else { "-".to_owned() };
        let cells = [what.to_owned(), times.len().to_string(), format!("{median:.2}"), format!("{p99:.2}"), target];
        table.row(cells, judged.then_some(p99 <= TARGET_MS));
    }
    Ok(table)
}

/// A process that stands still until this is dropped.
struct Stopped(Pid);

impl Stopped {
    fn new(pid: u32) -> Result<Self> {
        let pid = Pid::from_raw(pid as i32).context("a process has a number above 0")?;
        kill_process(pid, Signal::STOP)?;
        Ok(Self(pid))
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // One that has ended needs nothing.
        let _ = kill_process(self.0, Signal::CONT);
    }
}

/// Milliseconds of each of so many requests, one after the other, each over a connection of its own.
fn times_ms(socket: &Path, requests: usize) -> Result<Vec<f64>> {
    let mut times = Vec::with_capacity(requests);
    for _ in 0..requests {
        let begun = Instant::now();
        status(socket)?;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
        std::thread::sleep(PAUSE);
    }
    Ok(times)
}

fn status(socket: &Path) -> Result<()> {
    let mut stream = UnixStream::connect(socket).with_context(|| format!("cannot connect to {}", socket.display()))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET /v1/status HTTP/1.1\r\nhost: weal\r\nconnection: close\r\n\r\n")?;
    let (mut line, mut rest) = (String::new(), Vec::new());
    let mut reader = BufReader::new(stream);
    reader.read_line(&mut line)?;
    reader.read_to_end(&mut rest)?;
    ensure!(line.contains(" 200 "), "the API answers {}", line.trim());
    Ok(())
}
