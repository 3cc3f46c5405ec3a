//! `cargo xtask bench threads`: a server with a thread for each connection, alone and behind weal, under clients that think (Carrera 4.4.2,
//! Figures 4.11 to 4.16).

use anyhow::Result;
use serde::Deserialize;

use super::Arguments;
use super::real::pool::free_address;
use super::real::tls_gateway::TlsPrograms;
use crate::programs::json_of;
use crate::table::Table;

/// Threads of the server: what the thesis gives its hybrid Tomcat and the other one.
const SERVERS: [(&str, &str, bool); 4] = [
    ("10 threads", "10", false),
    ("500 threads", "500", false),
    ("weal, 10 threads", "10", true),
    ("weal, 500 threads", "500", true),
];

/// Sessions, as `sessions-bench` knows them, with new ones per second. At the last rate there are more sessions at once than 500.
const SESSIONS: [Sessions; 2] = [
    Sessions {
        what: "6 requests for static files (Surge)",
        shape: "surge",
        rates: [50.0, 125.0, 200.0],
        note: "2000 files with Surge's sizes, cut at 1 MiB, and Zipf's popularity. A request takes 0.2 ms of CPU besides its bytes.",
    },
    Sessions {
        what: "30 requests at an auction (RUBiS)",
        shape: "rubis",
        rates: [10.0, 20.0, 30.0],
        note: "Clients go from page to page by chance; sessions have 30 requests in the mean. A request takes 1.1 ms of CPU in the mean.",
    },
];

/// Sessions of one kind, over one connection each.
struct Sessions {
    what: &'static str,
    shape: &'static str,
    rates: [f64; 3],
    note: &'static str,
}

/// What a server of `sessions-bench` takes for a request that asks for nothing in particular. There is none here.
const CPU_US: &str = "0";

#[derive(Deserialize)]
struct Seen {
    begun_per_s: f64,
    completed_per_s: f64,
    left_per_s: f64,
    closed_per_s: f64,
    replies_per_s: f64,
    response_mean_ms: f64,
    response_p95_ms: f64,
    lifetime_s: f64,
}

/// Runs the benchmark.
pub fn run(arguments: &Arguments) -> Result<Vec<Table>> {
    let programs = TlsPrograms::build()?;
    let seconds = if arguments.quick { 8 } else { 30 };
    let mut tables = SESSIONS.iter().map(|sessions| measure(&programs, sessions, seconds)).collect::<Result<Vec<_>>>()?;
    if let Some(last) = tables.last_mut() {
        last.notes.push(crate::report::circumstances());
    }
    Ok(tables)
}

fn measure(programs: &TlsPrograms, sessions: &Sessions, seconds: u64) -> Result<Table> {
    let what = sessions.what;
    let title = format!("sessions of {what} with a thread for each connection, alone and behind weal, {seconds} s each");
    let columns = [
        "server",
        "sessions/s",
        "begun/s",
        "completed/s",
        "left/s",
        "closed/s",
        "replies/s",
        "mean, ms",
        "p95, ms",
        "lifetime, s",
    ];
    let mut table = Table::new(title, &columns);
    for rate in sessions.rates {
        for server in &SERVERS {
            let seen = load(programs, server, sessions.shape, rate, seconds)?;
            table.row(row(server.0, rate, &seen), None);
        }
    }
    table.notes.push(format!(
        "{} Clients think 0.7 s in the mean, and leave after ten seconds without an answer. Left: clients that did. Closed: connections that the \
         server closed while their clients thought; they then made others.",
        sessions.note
    ));
    Ok(table)
}

fn load(
    programs: &TlsPrograms,
    &(_, threads, is_behind): &(&str, &str, bool),
    shape: &str,
    rate: f64,
    seconds: u64,
) -> Result<Seen> {
    let cpus = std::thread::available_parallelism()?.get();
    let address = free_address()?;
    let _server = programs.instance(0..cpus, &["threads", &address.to_string(), threads, CPU_US])?;
    let gateway =
        is_behind.then(|| programs.start(&["ec", "-pkeyopt", "ec_paramgen_curve:P-256"], 0..cpus, true, address)).transpose()?;
    let asked = gateway.as_ref().map_or(address, |gateway| gateway.plain);
    let mut command = programs.on(0..cpus, "sessions-bench");
    command.args(["load", &asked.to_string(), "-", "-", "plain", shape, &rate.to_string(), &seconds.to_string()]);
    json_of(&mut command)
}

fn row(server: &str, rate: f64, seen: &Seen) -> [String; 10] {
    [
        server.to_owned(),
        format!("{rate:.1}"),
        format!("{:.1}", seen.begun_per_s),
        format!("{:.1}", seen.completed_per_s),
        format!("{:.1}", seen.left_per_s),
        format!("{:.1}", seen.closed_per_s),
        format!("{:.1}", seen.replies_per_s),
        format!("{:.1}", seen.response_mean_ms),
        format!("{:.1}", seen.response_p95_ms),
        // Of none there is no mean.
        if seen.lifetime_s > 0.0 { format!("{:.1}", seen.lifetime_s) } else { "-".to_owned() },
    ]
}
