//! Goals under a load that the pool cannot satisfy.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::pool::{Pool, demo_program};

const APPS: &str = r#"
[[node]]
name = "n1"
cpu = 0.3
memory = "512MiB"

[[node]]
name = "n2"
cpu = 0.3
memory = "512MiB"

[class.gold]
goal = "mean < 300ms"

[class.silver]
goal = "mean < 300ms"

[app.crowded]
run = ["PROGRAM", "--port", "$PORT"]
health = "/healthz"
memory = "64MiB"
instances = { min = 2, max = 2 }
per-node = 1
routes = [{ host = "crowded.localhost", class = "gold" }]

[app.quiet]
run = ["PROGRAM", "--port", "$PORT"]
health = "/healthz"
memory = "64MiB"
instances = { min = 2, max = 2 }
per-node = 1
routes = [{ host = "quiet.localhost", class = "silver" }]
"#;

/// wrk for as long as the test may take; ended with it.
struct Wrk(Child);

impl Wrk {
    fn start(pool: &Pool, host: &str, clients: u32) -> Self {
        let (clients, host) = (format!("-c{clients}"), format!("Host: {host}"));
        let url = pool.url("/work?cpu_ms=10");
        let arguments = ["-t1", &clients, "-d120s", "--timeout", "60s", "-H", &host, &url];
        Self(Command::new("wrk").args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Wrk {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn utility(pool: &Pool, app: &str) -> Option<f64> {
    let status = pool.status()?;
    status["flows"].as_array()?.iter().find(|flow| flow["app"] == app)?["utility"].as_f64()
}

/// Sixty-four clients on one flow and sixteen on the other, with the same goal: only four times the CPU for the first makes both
/// equally well off.
#[test]
fn two_flows_that_cannot_be_satisfied_end_up_equally_far_from_their_goals() {
    if Command::new("wrk").arg("-v").output().is_err() {
        eprintln!("skipped: wrk is missing; scripts/bootstrap test installs it");
        return;
    }
    let program = demo_program();
    let mut pool = Pool::new(&APPS.replace("PROGRAM", program.to_str().unwrap()));
    pool.up();
    let _load = [Wrk::start(&pool, "crowded.localhost", 64), Wrk::start(&pool, "quiet.localhost", 16)];
    let mut gaps: Vec<f64> = Vec::new();
    pool.eventually("the median gap of ten seconds is at most 0.1, both below their goals", || {
        std::thread::sleep(Duration::from_secs(1));
        let (crowded, quiet) = (utility(&pool, "crowded")?, utility(&pool, "quiet")?);
        if crowded >= 0.0 || quiet >= 0.0 {
            gaps.clear();
            return None;
        }
        gaps.push((crowded - quiet).abs());
        let mut last: Vec<f64> = gaps.iter().rev().take(10).copied().collect();
        last.sort_by(f64::total_cmp);
        (last.len() == 10 && last[5] <= 0.1).then_some(())
    });
}
