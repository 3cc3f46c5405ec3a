//! `cargo xtask bench slow-clients`: slowhttptest's four attacks ([`super::slow_attacks`]) on a pool, and what good clients see of them.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::Arguments;
use super::real::pool::Pool;
use super::real::{median, quantile};
use super::slow_attacks::{Attack, CONNECTIONS, Mode, PER_SECOND};
use crate::programs::release;
use crate::table::Table;

/// How much longer the slowest hundredth of good answers may take under attack.
const TARGET: f64 = 1.1;

/// What the attacks are called.
const ATTACKS: [(&str, Mode); 4] = [
    ("heads that never end", Mode::Heads),
    ("bodies that never end", Mode::Bodies),
    ("many ranges", Mode::Ranges),
    ("answers read slowly", Mode::Reads),
];

/// Longer than all connections of an attack take to come.
const ALL_THERE: Duration = Duration::from_secs(30);

/// Good clients, each with a connection of its own.
const CLIENTS: usize = 4;
/// Each asks so often.
const PAUSE: Duration = Duration::from_millis(10);

const APP: &str =
    "\n[app.shop]\nrun = [\"SHOP\", \"--port\", \"$PORT\"]\nhealth = \"/healthz\"\nmemory = \"64MiB\"\nroutes = [{ }]\n";

/// Runs the benchmark.
pub fn run(arguments: &Arguments) -> Result<Table> {
    // Both ends of a connection take one, but in different processes.
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).context("cannot raise the limit on open files")?;
    let programs = release(&["--package", "weal", "--package", "weal-demo", "--bin", "weal", "--bin", "weal-demo-shop"])?;
    let folder = std::env::temp_dir().join(format!("weal-slow-clients-{}", std::process::id()));
    let result = measure(arguments, &programs, &folder);
    std::fs::remove_dir_all(&folder)?;
    result
}

fn measure(arguments: &Arguments, programs: &Path, folder: &Path) -> Result<Table> {
    let (rounds, span) = if arguments.quick { (1, Duration::from_secs(4)) } else { (5, Duration::from_secs(10)) };
    let shop = folder.join("shop");
    std::fs::create_dir_all(folder)?;
    std::fs::copy(programs.join("weal-demo-shop"), &shop)?;
    let pool = Pool::start(&programs.join("weal"), folder, &APP.replace("SHOP", &shop.display().to_string()))?;
    pool.wait_for_answer("/")?;
    let title = format!("what {CLIENTS} good clients see of slowhttptest's attacks: {rounds} rounds of {} s", span.as_secs());
    let mut table = Table::new(title, &["attack", "p99 without, ms", "p99 under it, ms", "ratio", "rounds", "closed", "failed"]);
    for (name, mode) in ATTACKS {
        let (mut samples, mut closed) = (Vec::new(), 0);
        for _ in 0..rounds {
            let quiet = good_clients(pool.listen(), span)?;
            let attack = Attack::start(pool.listen(), mode);
            wait_for_all(&attack);
            let under = good_clients(pool.listen(), span)?;
            closed += attack.closed();
            samples.push((quiet, under));
        }
        add_row(&mut table, name, &samples, closed);
    }
    table.notes.push(format!(
        "{CONNECTIONS} connections each, of which {PER_SECOND} come each second; those that the gateway closes (so many in all rounds) come again. A good client \
         asks every {} ms over a connection that it keeps. Target: a ratio of at most {TARGET}, and nothing failed.",
        PAUSE.as_millis()
    ));
    table.notes.push(crate::report::circumstances());
    Ok(table)
}

/// Until all connections of an attack are there, or the gateway closes them as fast as they come.
fn wait_for_all(attack: &Attack) {
    let begun = Instant::now();
    while attack.open() + (attack.closed() as usize) < CONNECTIONS && begun.elapsed() < ALL_THERE {
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn add_row(table: &mut Table, name: &str, samples: &[(Seen, Seen)], closed: u64) {
    let p99 = |seen: &Seen| quantile(&seen.answers_ms, 0.99);
    let ratios: Vec<f64> = samples.iter().map(|(quiet, under)| p99(under) / p99(quiet)).collect();
    let of = |values: Vec<f64>| format!("{:.2}", median(&values));
    let failed: u32 = samples.iter().map(|(quiet, under)| quiet.failed + under.failed).sum();
    let cells = [
        name.to_owned(),
        of(samples.iter().map(|(quiet, _)| p99(quiet)).collect()),
        of(samples.iter().map(|(_, under)| p99(under)).collect()),
        format!("{:.2}", median(&ratios)),
        format!("{:.2} to {:.2}", quantile(&ratios, 0.0), quantile(&ratios, 1.0)),
        closed.to_string(),
        failed.to_string(),
    ];
    table.row(cells, Some(median(&ratios) <= TARGET && failed == 0));
}

/// What good clients saw.
struct Seen {
    answers_ms: Vec<f64>,
    failed: u32,
}

fn good_clients(address: SocketAddr, span: Duration) -> Result<Seen> {
    let clients: Vec<_> = (0..CLIENTS).map(|_| std::thread::spawn(move || good_client(address, span))).collect();
    let mut all = Seen { answers_ms: Vec::new(), failed: 0 };
    for client in clients {
        let seen = client.join().ok().context("a good client panicked")?;
        all.answers_ms.extend(seen.answers_ms);
        all.failed += seen.failed;
    }
    Ok(all)
}

fn good_client(address: SocketAddr, span: Duration) -> Seen {
    let mut seen = Seen { answers_ms: Vec::new(), failed: 0 };
    let (begun, mut stream) = (Instant::now(), None);
    while begun.elapsed() < span {
        let asked = Instant::now();
        match ask(address, &mut stream) {
            Ok(()) => seen.answers_ms.push(asked.elapsed().as_secs_f64() * 1e3),
            Err(_) => {
                seen.failed += 1;
                stream = None;
            }
        }
        std::thread::sleep(PAUSE);
    }
    seen
}

fn ask(address: SocketAddr, kept: &mut Option<BufReader<TcpStream>>) -> Result<()> {
    let stream = match kept {
        Some(stream) => stream,
        None => {
            let stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(Duration::from_secs(10)))?;
            kept.insert(BufReader::new(stream))
        }
    };
    stream.get_mut().write_all(b"GET / HTTP/1.1\r\nHost: shop\r\n\r\n")?;
    let (mut line, mut length, mut is_good) = (String::new(), 0, false);
    while line != "\r\n" {
        line.clear();
        ensure!(stream.read_line(&mut line)? > 0, "closed");
        is_good |= line.starts_with("HTTP/1.1 200");
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse()?;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    ensure!(is_good, "refused");
    Ok(())
}
