//! `cargo xtask bench jobs`: what the queue of jobs can take.
//!
//! - Submissions at once, each acknowledged when it is on disk, beside what SQLite commits by itself on the same disk in the same run: one
//!   row a transaction, `synchronous = FULL`, as the controller's store. The jobs wait for one that never ends, so that nothing is planned.
//! - A plan for many jobs that wait and run (`crates/control/examples/jobs-bench.rs`).
//! - `weal jobs` while the store holds many jobs that are over: one real record, copied.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rusqlite::Connection;
use serde_json::Value;

use super::Arguments;
use super::real::median;
use super::real::pool::Pool;
use crate::programs::{json_of, release};
use crate::table::Table;

/// Connections that submit jobs at the same time.
const CLIENTS: usize = 64;
/// Acknowledgements a second at least.
const ACKNOWLEDGED_PER_S: f64 = 500.0;
/// A plan for all of them at most, in milliseconds.
const PLAN_MS: f64 = 10.0;
/// `weal jobs` at most, in milliseconds.
const LIST_MS: f64 = 100.0;
const PATIENCE: Duration = Duration::from_secs(60);
const CONFIG: &str = "\n[app.web]\nrun = [\"sleep\", \"1000000\"]\nhealth = { command = [\"true\"] }\nmemory = \"16MiB\"\n";

/// Runs the benchmark.
pub fn run(arguments: &Arguments) -> Result<Table> {
    let (jobs, over, rounds) = if arguments.quick { (500, 5_000, 3) } else { (10_000, 100_000, 11) };
    let weal = release(&["--package", "weal", "--bin", "weal"])?.join("weal");
    let planner = release(&["--package", "weal-control", "--example", "jobs-bench"])?.join("examples/jobs-bench");
    let mut table = Table::new("The queue of jobs", &["what", "measured", "beside it", "ratio"]);
    submissions(&mut table, &weal, jobs)?;
    plans(&mut table, &planner, rounds)?;
    lists(&mut table, &weal, over, rounds)?;
    table.notes.push(format!(
        "Targets: {ACKNOWLEDGED_PER_S:.0} submissions a second, a plan within {PLAN_MS:.0} ms, a list within {LIST_MS:.0} ms. {CLIENTS} clients submit jobs at once."
    ));
    Ok(table)
}

fn submissions(table: &mut Table, weal: &Path, jobs: usize) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let alone = commits_per_s(folder.path(), (jobs / 10).max(100))?;
    let pool = Pool::start(weal, &folder.path().join("pool"), CONFIG)?;
    let blocker = pool.weal(&["submit", "--done-by", "10d", "--name", "blocker", "--", "sleep", "1000000"])?;
    ensure!(blocker.status.success(), "{}", String::from_utf8_lossy(&blocker.stderr));
    let socket = pool.state().join("run/controller.sock");
    let (share, begun) = (jobs.div_ceil(CLIENTS), Instant::now());
    std::thread::scope(|scope| -> Result<()> {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(|| submit_job(&socket, share))).collect();
        clients.into_iter().try_for_each(|client| client.join().expect("a client does not panic"))
    })?;
    let taken = share * CLIENTS;
    let rate = taken as f64 / begun.elapsed().as_secs_f64();
    let cells = [
        format!("{taken} submissions"),
        format!("{rate:.0} acknowledged a second"),
        format!("SQLite alone: {alone:.0} commits a second"),
        format!("{:.2}", rate / alone),
    ];
    table.row(cells, Some(rate >= ACKNOWLEDGED_PER_S));
    Ok(())
}

/// Submits `count` jobs over one connection, one after the other.
fn submit_job(socket: &Path, count: usize) -> Result<()> {
    let body = r#"{"run":["true"],"done_within_s":86400,"memory":1048576,"after":["blocker-1"]}"#;
    let request = format!(
        "POST /v1/jobs HTTP/1.1\r\nhost: weal\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = UnixStream::connect(socket).with_context(|| format!("cannot connect to {}", socket.display()))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    for _ in 0..count {
        stream.write_all(request.as_bytes())?;
        read_answer(&mut reader)?;
    }
    Ok(())
}

fn read_answer(reader: &mut impl BufRead) -> Result<()> {
    let (mut status, mut length) = (String::new(), 0);
    reader.read_line(&mut status)?;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    ensure!(status.contains(" 200 "), "{}{}", status, String::from_utf8_lossy(&body));
    Ok(())
}

/// Rows of the size of a job's record that SQLite commits by itself, one a transaction.
fn commits_per_s(folder: &Path, count: usize) -> Result<f64> {
    let mut connection = Connection::open(folder.join("alone.db"))?;
    connection.execute_batch(
        "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
         CREATE TABLE job (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, body TEXT NOT NULL);",
    )?;
    let body = "x".repeat(700);
    let begun = Instant::now();
    for number in 0..count {
        let transaction = connection.transaction()?;
        transaction.execute("INSERT INTO job VALUES (?1, ?2, ?3)", (number as i64, format!("job-{number}"), &body))?;
        transaction.commit()?;
    }
    Ok(count as f64 / begun.elapsed().as_secs_f64())
}

fn plans(table: &mut Table, planner: &Path, rounds: usize) -> Result<()> {
    for apps in [0, 50] {
        let measured: Value = json_of(Command::new(planner).args(["1000", "200", &apps.to_string(), &rounds.to_string()]))?;
        let (median_ms, worst_ms) =
            (measured["median_ms"].as_f64().unwrap_or(f64::NAN), measured["worst_ms"].as_f64().unwrap_or(f64::NAN));
        let beside = if apps == 0 { String::new() } else { format!(", beside {apps} applications") };
        let cells = [
            format!("a plan for 1000 jobs that wait and 200 that run{beside}"),
            format!("{median_ms:.1} ms"),
            format!("the slowest of {rounds}: {worst_ms:.1} ms"),
            "-".to_owned(),
        ];
        table.row(cells, (apps == 0).then_some(median_ms <= PLAN_MS));
    }
    Ok(())
}

fn lists(table: &mut Table, weal: &Path, over: usize, rounds: usize) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let few = {
        let pool = Pool::start(weal, folder.path(), CONFIG)?;
        let done = pool.weal(&["submit", "--done-by", "1h", "--wait", "--name", "one", "--", "true"])?;
        ensure!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        median(&list_ms(&pool, rounds)?)
    };
    multiply(&folder.path().join("state/controller/store.db"), over)?;
    let pool = Pool::start(weal, folder.path(), CONFIG)?;
    let listed = pool.weal(&["jobs", "--all", "-n", "10000", "-o", "json"])?;
    let listed: Vec<Value> = serde_json::from_slice(&listed.stdout)?;
    ensure!(listed.len() == over.min(10_000), "{} of {over} jobs are listed", listed.len());
    let many = median(&list_ms(&pool, rounds)?);
    let cells = [
        format!("weal jobs, {over} are over"),
        format!("{many:.1} ms"),
        format!("with 1: {few:.1} ms"),
        format!("{:.2}", many / few),
    ];
    table.row(cells, Some(many <= LIST_MS));
    Ok(())
}

fn list_ms(pool: &Pool, rounds: usize) -> Result<Vec<f64>> {
    let one = |_| {
        let begun = Instant::now();
        let output = pool.weal(&["jobs"])?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(begun.elapsed().as_secs_f64() * 1e3)
    };
    (0..rounds).map(one).collect()
}

/// Copies the first record until there are `count`.
fn multiply(store: &PathBuf, count: usize) -> Result<()> {
    let connection = Connection::open(store)?;
    connection.execute(
        "WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
         INSERT INTO job SELECT i, 'one-' || i, NULL, 1, json_set(body, '$.number', i, '$.spec.name', 'one-' || i) FROM job, n WHERE number = 1",
        [count as i64],
    )?;
    Ok(())
}
