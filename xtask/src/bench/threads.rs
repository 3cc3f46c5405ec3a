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

/// Sessions: short ones, as of static files (Surge, 4.4.2.2), and long ones, as of an auction (RUBiS, 4.4.2.3). One connection each.
const SESSIONS: [(&str, u32); 2] = [("6 requests", 6), ("30 requests", 30)];

/// CPU time of a request.
const CPU_US: u32 = 1000;

/// Load, in CPUs that the requests of all offered sessions take.
const OFFERED: [f64; 3] = [0.2, 0.4, 0.6];

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
    let seconds = if arguments.quick { 8 } else { 40 };
    SESSIONS.iter().map(|session| measure(&programs, session, seconds)).collect()
}

fn measure(programs: &TlsPrograms, &(name, requests): &(&str, u32), seconds: u64) -> Result<Table> {
    let title = format!("sessions of {name} with a thread for each connection, alone and behind weal, {seconds} s each");
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
    for cpus in OFFERED {
        let rate = cpus * 1e6 / f64::from(CPU_US) / f64::from(requests);
        for server in &SERVERS {
            let seen = load(programs, server, requests, rate, seconds)?;
            table.row(row(server.0, rate, &seen), None);
        }
    }
    table.notes.push(format!(
        "A request takes {} ms of CPU; clients think 0.7 s in the mean, and leave after ten seconds without an answer. Left: clients that did. Closed: \
         connections that the server closed while their clients thought, who then made others.",
        f64::from(CPU_US) / 1e3
    ));
    Ok(table)
}

fn load(
    programs: &TlsPrograms,
    &(_, threads, is_behind): &(&str, &str, bool),
    requests: u32,
    rate: f64,
    seconds: u64,
) -> Result<Seen> {
    let cpus = std::thread::available_parallelism()?.get();
    let (address, cpu_us) = (free_address()?, CPU_US.to_string());
    let _server = programs.instance(0..cpus, &["threads", &address.to_string(), threads, &cpu_us])?;
    let gateway =
        is_behind.then(|| programs.start(&["ec", "-pkeyopt", "ec_paramgen_curve:P-256"], 0..cpus, true, address)).transpose()?;
    let asked = gateway.as_ref().map_or(address, |gateway| gateway.plain);
    let mut command = programs.on(0..cpus, "sessions-bench");
    command.args([
        "load",
        &asked.to_string(),
        "-",
        "-",
        "plain",
        &format!("1x{requests}"),
        &rate.to_string(),
        &seconds.to_string(),
    ]);
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
        format!("{:.1}", seen.lifetime_s),
    ]
}
