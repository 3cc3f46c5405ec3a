//! `cargo xtask bench locality`: four web servers with small page caches and slow disks behind the gateway, policy by policy, and the death of
//! one of them (Tsai Figures 3.9, 3.10 and 4.4, in kind).
//!
//! Each nginx has its own copy of all files, its own memory control group, which bounds what is cached of them, and its own limit of bytes
//! read from the disk per second. Clients ask for files by Zipf's law, each as soon as it has its last one.

mod clients;
mod servers;
mod setting;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};

use super::Arguments;
use super::real::machine::drop_file_cache;
use super::real::pool::free_address;
use crate::programs::release;
use crate::table::Table;
use clients::{Clients, Seen};
use servers::Server;
use setting::{CACHE_BYTES, DISK_BYTES_PER_S, FILE_BYTES, FILES, SERVERS};

const CONNECTIONS: usize = 32;

/// What is compared, as JSON of the rules of dispatch.
const POLICIES: [(&str, &str); 7] = [
    ("round-robin", r#"{"policy":"round-robin"}"#),
    ("least-loaded", r#"{"policy":"least-loaded"}"#),
    ("url-hash, R = 1", r#"{"policy":"url-hash","replication":1}"#),
    ("url-hash, R = 2", r#"{"policy":"url-hash","replication":2}"#),
    ("lard", r#"{"policy":"lard"}"#),
    ("lard-r", r#"{"policy":"lard-r","replication":2}"#),
    ("bounded-load", r#"{"policy":"bounded-load"}"#),
];
/// The one whose server dies: the thesis' choice.
const SURVIVOR: usize = 3;

/// Runs the benchmark.
pub fn run(arguments: &Arguments) -> Result<Vec<Table>> {
    let gateway = release(&["--package", "weal-gateway", "--example", "gateway-bench"])?.join("examples/gateway-bench");
    let folder = tempfile::Builder::new().prefix("weal-locality-").tempdir_in("/var/tmp")?;
    servers::write_files(folder.path())?;
    let (warm_s, measured_s) = if arguments.quick { (3, 3) } else { (20, 20) };
    let mut compared = Table::new(
        format!(
            "{CONNECTIONS} clients, {SERVERS} servers with {} MiB of cache for {} MiB of files, {measured_s} s",
            CACHE_BYTES >> 20,
            (FILES * FILE_BYTES) >> 20
        ),
        &["dispatch", "files/s", "mean ms", "p95 ms", "read from disk, MB/s", "of round-robin's reads per file"],
    );
    let mut first = None;
    for (name, rules) in POLICIES {
        let site = Site::start(&gateway, folder.path(), rules)?;
        site.clients.watch(Duration::from_secs(warm_s));
        let (seen, read) = site.measure(Duration::from_secs(measured_s))?;
        let per_file = read / seen.files.max(1) as f64;
        let first = *first.get_or_insert(per_file);
        compared.row(row(name.to_owned(), &seen, read, format!("{:.2}", per_file / first)), None);
    }
    compared.notes.push(format!(
        "Each server reads at most {} MiB/s from its disk. Files are asked for by Zipf's law with exponent 0.8. Caches begin empty and are \
         filled for {warm_s} s.",
        DISK_BYTES_PER_S >> 20
    ));
    Ok(vec![compared, death(&gateway, folder.path(), if arguments.quick { 1 } else { 5 })?])
}

/// One server dies after four spans, and is back after eight.
fn death(gateway: &Path, folder: &Path, span_s: u64) -> Result<Table> {
    let (name, rules) = POLICIES[SURVIVOR];
    let title = format!("{name}: the second of {SERVERS} servers dies and is started again");
    let mut table = Table::new(title, &["seconds", "files/s", "mean ms", "p95 ms", "read from disk, MB/s", "what happened"]);
    let mut site = Site::start(gateway, folder, rules)?;
    site.clients.watch(Duration::from_secs(span_s * 4));
    for span in 0..12 {
        let event = match span {
            4 => {
                site.servers[1].kill()?;
                "it is killed"
            }
            8 => {
                site.servers[1].start()?;
                "it is started, with nothing cached"
            }
            _ => "",
        };
        let (seen, read) = site.measure(Duration::from_secs(span_s))?;
        table.row(row(format!("{} to {}", span * span_s, (span + 1) * span_s), &seen, read, event.to_owned()), None);
    }
    let lost = site.clients.lost();
    table.notes.push(format!("{lost} requests had no answer, or another than 200."));
    Ok(table)
}

fn row(first: String, seen: &Seen, read: f64, last: String) -> [String; 6] {
    let per_s = |count: f64| count / seen.span_s;
    [
        first,
        format!("{:.0}", per_s(seen.files as f64)),
        format!("{:.1}", seen.mean_ms),
        format!("{:.1}", seen.p95_ms),
        format!("{:.1}", per_s(read) / 1e6),
        last,
    ]
}

/// Servers, the gateway before them, and clients.
struct Site {
    clients: Clients,
    gateway: Child,
    servers: Vec<Server>,
}

impl Site {
    fn start(gateway: &Path, folder: &Path, rules: &str) -> Result<Self> {
        drop_file_cache()?;
        let servers: Vec<Server> = (0..SERVERS).map(|number| Server::new(folder, number)).collect::<Result<_>>()?;
        let addresses: Vec<String> = servers.iter().map(|server| server.address.to_string()).collect();
        let listen = free_address()?;
        let arguments = [listen.to_string(), addresses.join(","), "0".to_owned(), "2".to_owned(), rules.to_owned()];
        let mut command = Command::new(gateway);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let gateway = command.spawn().context("cannot start the gateway")?;
        servers::wait_for(listen)?;
        Ok(Self { clients: Clients::start(listen, CONNECTIONS)?, gateway, servers })
    }

    /// What clients saw, and the bytes that all servers read from their disks meanwhile.
    fn measure(&self, span: Duration) -> Result<(Seen, f64)> {
        let read = || self.servers.iter().map(Server::bytes_read).sum::<Result<f64>>();
        let before = read()?;
        let seen = self.clients.watch(span);
        // A server that was started anew counts from zero.
        Ok((seen, (read()? - before).max(0.0)))
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.clients.stop();
        let _ = self.gateway.kill();
        let _ = self.gateway.wait();
    }
}
