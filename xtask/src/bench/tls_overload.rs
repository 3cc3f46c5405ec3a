//! `cargo xtask bench tls-overload`: more new sessions than there is CPU for their handshakes (Carrera 4.3, Figures 4.3 to 4.8, Tables 4.1
//! and 4.2), with weal's order of handshakes and without it.

use std::net::SocketAddr;
use std::process::Command;

use anyhow::Result;
use serde::Deserialize;

use super::Arguments;
use super::real::pool::free_address;
use super::real::tls_gateway::{TlsGateway, TlsPrograms};
use crate::programs::json_of;
use crate::table::Table;

/// Keys and versions. RSA of 4096 bits costs the server as much more than the client as it takes to overload it from the same machine. With a cheap
/// key there is no trouble to see at less than the greatest load.
const KINDS: [Kind; 3] = [
    Kind { name: "RSA 4096, TLS 1.2", key: &["rsa:4096"], version: "1.2", offered: &OFFERED },
    Kind { name: "RSA 4096, TLS 1.3", key: &["rsa:4096"], version: "1.3", offered: &OFFERED },
    Kind {
        name: "ECDSA P-256, TLS 1.3",
        key: &["ec", "-pkeyopt", "ec_paramgen_curve:P-256"],
        version: "1.3",
        offered: &[GREATEST],
    },
];

/// New sessions offered, in full handshakes with RSA that the CPUs can do.
const OFFERED: [f64; 3] = [0.5, 1.5, GREATEST];
const GREATEST: f64 = 3.0;

/// Connections of a session, and requests of each.
const SESSION: &str = "4x2";

/// CPUs that the thesis gave its server. More than this machine has are left out, and the table says so.
const CPUS: [usize; 4] = [1, 2, 3, 4];

struct Kind {
    name: &'static str,
    key: &'static [&'static str],
    version: &'static str,
    offered: &'static [f64],
}

/// What a gateway with or without its order of handshakes did at one load.
struct Point {
    kind: &'static str,
    cpus: usize,
    order: &'static str,
    /// New clients per second.
    rate: f64,
    replies_per_s: f64,
}

/// Milliseconds of CPU.
#[derive(Deserialize)]
struct Cost {
    full_ms: f64,
    resumed_ms: f64,
}

#[derive(Deserialize)]
struct Seen {
    begun_per_s: f64,
    completed_per_s: f64,
    left_per_s: f64,
    turned_away_per_s: f64,
    replies_per_s: f64,
    response_mean_ms: f64,
    response_p95_ms: f64,
    handshake_mean_ms: f64,
    lifetime_s: f64,
    full_share: f64,
}

/// What clients saw, or that they are too many for the files that their process may open.
#[derive(Deserialize)]
#[serde(untagged)]
enum Outcome {
    Seen(Box<Seen>),
    OutOfFiles { open_files: u64 },
}

/// Runs the benchmark.
pub fn run(arguments: &Arguments) -> Result<Vec<Table>> {
    let bench = Bench { programs: TlsPrograms::build()?, seconds: if arguments.quick { 8 } else { 30 } };
    bench.measure()
}

struct Bench {
    programs: TlsPrograms,
    seconds: u64,
}

impl Bench {
    fn measure(&self) -> Result<Vec<Table>> {
        let costs = KINDS.iter().map(|kind| self.cost(kind)).collect::<Result<Vec<_>>>()?;
        let (mut tables, mut points) = (vec![table_of_costs(&costs)], Vec::new());
        let there = std::thread::available_parallelism()?.get();
        // The clients need a CPU beside the gateway's, or at least their part of all.
        for cpus in CPUS.into_iter().filter(|&cpus| cpus <= there) {
            tables.push(self.overload(cpus, there, &costs, &mut points)?);
        }
        tables.push(table_of_collapse(&points));
        let missing: Vec<String> = CPUS.iter().filter(|&&cpus| cpus > there).map(usize::to_string).collect();
        if let (false, Some(last)) = (missing.is_empty(), tables.last_mut()) {
            last.notes.push(format!("The thesis has {} CPUs too, which this machine lacks.", missing.join(" and ")));
        }
        if let Some(last) = tables.last_mut() {
            last.notes.push(crate::report::circumstances());
        }
        Ok(tables)
    }

    fn cost(&self, kind: &Kind) -> Result<Cost> {
        let gateway = self.start(kind, 1, true, free_address()?)?;
        json_of(Command::new(self.programs.program("sessions-bench")).arg("cost").args(gateway.words()).arg(kind.version))
    }

    fn overload(&self, cpus: usize, there: usize, costs: &[Cost], points: &mut Vec<Point>) -> Result<Table> {
        let title = format!("new sessions beyond what {cpus} of {there} CPUs can shake hands with, {} s each", self.seconds);
        let columns = [
            "handshake",
            "offered",
            "order",
            "begun/s",
            "completed/s",
            "of without",
            "left/s",
            "turned away/s",
            "replies/s",
            "handshake, ms",
            "mean, ms",
            "p95, ms",
            "lifetime, s",
            "full",
        ];
        let mut table = Table::new(title, &columns);
        for kind in &KINDS {
            // With a cheap key, as many as with a costly one: the trouble vanishes.
            let costly = if kind.key[0] == "ec" {
                &costs[1]
            } else {
                &costs[KINDS.iter().position(|one| one.name == kind.name).unwrap_or(0)]
            };
            for &times in kind.offered {
                let rate = times * cpus as f64 * 1e3 / costly.full_ms;
                let (without, with) = (self.load(kind, cpus, there, false, rate)?, self.load(kind, cpus, there, true, rate)?);
                let (Outcome::Seen(without), Outcome::Seen(with)) = (&without, &with) else {
                    let open_files = [&without, &with].into_iter().find_map(Outcome::open_files).unwrap_or_default();
                    table.notes.push(format!(
                        "{}, {times:.1} x: left out. The clients that wait take more than the {open_files} files that a process may open here.",
                        kind.name
                    ));
                    continue;
                };
                for (order, seen) in [("none", without), ("weal's", with)] {
                    table.row(row(kind, times, order, seen, without), None);
                    points.push(Point { kind: kind.name, cpus, order, rate, replies_per_s: seen.replies_per_s });
                }
            }
        }
        table.notes.push(
            "Offered: new clients per second, in full handshakes by an RSA key that the CPUs can do. Begun: sessions, those of clients who \
             come back included. Left: after ten seconds without an answer. Handshake: from a client's wish for a connection to its end (Figure 4.6). \
             Full: of all handshakes, those that were no resumption (Figure 4.7)."
                .into(),
        );
        Ok(table)
    }

    fn load(&self, kind: &Kind, cpus: usize, there: usize, orders: bool, rate: f64) -> Result<Outcome> {
        let (address, others) = (free_address()?, if cpus < there { cpus..there } else { 0..there });
        let _instance = self.programs.instance(others.clone(), &["answer", &address.to_string()])?;
        let gateway = self.start(kind, cpus, orders, address)?;
        let mut command = self.programs.on(others, "sessions-bench");
        command.arg("load").args(gateway.words()).args([kind.version, SESSION, &rate.to_string(), &self.seconds.to_string()]);
        json_of(&mut command)
    }

    fn start(&self, kind: &Kind, cpus: usize, orders: bool, instance: SocketAddr) -> Result<TlsGateway> {
        self.programs.start(kind.key, 0..cpus, orders, instance)
    }
}

impl Outcome {
    fn open_files(&self) -> Option<u64> {
        match self {
            Self::Seen(_) => None,
            Self::OutOfFiles { open_files } => Some(*open_files),
        }
    }
}

fn table_of_costs(costs: &[Cost]) -> Table {
    let mut table = Table::new("CPU time of the costly part of a handshake", &["handshake", "full, ms", "resumed, ms", "ratio"]);
    for (kind, cost) in KINDS.iter().zip(costs) {
        let ratio = cost.full_ms / cost.resumed_ms;
        let cells =
            [kind.name.to_owned(), format!("{:.3}", cost.full_ms), format!("{:.3}", cost.resumed_ms), format!("{ratio:.1}")];
        table.row(cells, None);
    }
    table.notes.push("The thesis: 175 ms and 2 ms with a key of 1024 bits, a ratio of 87.5 (section 4.3.1).".into());
    table
}

/// Tables 4.1 and 4.2 in one: the most that was done at any load, and what was done at the greatest.
fn table_of_collapse(points: &[Point]) -> Table {
    let columns = ["handshake", "CPUs", "order", "most replies/s", "at new clients/s", "overloaded, replies/s", "of the most"];
    let mut table = Table::new("what is left of the throughput under overload (Tables 4.1 and 4.2)", &columns);
    let is_same = |a: &Point, b: &Point| (a.kind, a.cpus, a.order) == (b.kind, b.cpus, b.order);
    for (at, first) in points.iter().enumerate() {
        if points[..at].iter().any(|before| is_same(before, first)) {
            continue;
        }
        let of: Vec<&Point> = points.iter().filter(|point| is_same(point, first)).collect();
        // One load alone says nothing about where the most is.
        let (Some(most), Some(last), 2..) = (
            of.iter().max_by(|a, b| a.replies_per_s.total_cmp(&b.replies_per_s)),
            of.iter().max_by(|a, b| a.rate.total_cmp(&b.rate)),
            of.len(),
        ) else {
            continue;
        };
        let cells = [
            first.kind.to_owned(),
            first.cpus.to_string(),
            first.order.to_owned(),
            format!("{:.1}", most.replies_per_s),
            format!("{:.1}", most.rate),
            format!("{:.1}", last.replies_per_s),
            format!("{:.2}", last.replies_per_s / most.replies_per_s),
        ];
        table.row(cells, None);
    }
    table.notes.push(
        "The thesis: 90, 155, 208 and 256 replies/s with 1 to 4 CPUs become 13, 28, 41 and 53, a seventh to a fifth.".into(),
    );
    table
}

fn row(kind: &Kind, times: f64, order: &str, seen: &Seen, without: &Seen) -> [String; 14] {
    // Of what was never completed there is neither a ratio nor a time.
    let if_any = |completed_per_s: f64, cell: String| if completed_per_s > 0.0 { cell } else { "-".to_owned() };
    [
        kind.name.to_owned(),
        format!("{times:.1} x"),
        order.to_owned(),
        format!("{:.1}", seen.begun_per_s),
        format!("{:.1}", seen.completed_per_s),
        if_any(without.completed_per_s, format!("{:.2}", seen.completed_per_s / without.completed_per_s)),
        format!("{:.1}", seen.left_per_s),
        format!("{:.1}", seen.turned_away_per_s),
        format!("{:.1}", seen.replies_per_s),
        format!("{:.0}", seen.handshake_mean_ms),
        format!("{:.0}", seen.response_mean_ms),
        format!("{:.0}", seen.response_p95_ms),
        if_any(seen.completed_per_s, format!("{:.1}", seen.lifetime_s)),
        format!("{:.0}%", seen.full_share * 100.0),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_told_by_the_greatest_load_and_the_most_by_any() {
        let point = |order, rate, replies_per_s| Point { kind: "RSA", cpus: 1, order, rate, replies_per_s };
        let points = [
            point("none", 2.0, 80.0),
            point("weal's", 2.0, 80.0),
            point("none", 4.0, 90.0),
            point("weal's", 4.0, 100.0),
            point("none", 8.0, 18.0),
            point("weal's", 8.0, 95.0),
            Point { kind: "ECDSA", ..point("none", 8.0, 400.0) },
        ];
        let table = table_of_collapse(&points);
        let rows: Vec<_> = table.rows.iter().map(|row| row.cells[2..].to_vec()).collect();
        assert_eq!(rows, [["none", "90.0", "4.0", "18.0", "0.20"], ["weal's", "100.0", "4.0", "95.0", "0.95"]]);
    }
}
