//! Goals under a load that the pool cannot satisfy: 64 clients of wrk on one flow and 16 on another, with the same goal. Only four
//! times the throughput for the first makes both equally well off.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::pool::{Pool, demo_program};

const NODES_AND_CLASSES: &str = r#"
[[node]]
name = "n1"
cpu = 0.35
memory = "512MiB"

[[node]]
name = "n2"
cpu = 0.35
memory = "512MiB"

[class.gold]
goal = "mean < 300ms"

[class.silver]
goal = "mean < 300ms"
"#;

/// The gap is a median over so many seconds, of values that are themselves about the last ten.
const LAST: usize = 8;
/// On a busy machine; a quiet one takes 20 s.
const PATIENCE: Duration = Duration::from_secs(150);

fn app(name: &str, routes: &str) -> String {
    let program = demo_program("weal-demo-search");
    format!(
        "[app.{name}]\nrun = [\"{}\", \"--port\", \"$PORT\"]\nhealth = \"/healthz\"\nmemory = \"64MiB\"\n\
         instances = {{ min = 2, max = 2 }}\nper-node = 1\nroutes = [{routes}]\n",
        program.display()
    )
}

/// wrk for as long as the test may take; ended with it.
struct Wrk(Child);

impl Wrk {
    fn start(pool: &Pool, host: &str, clients: u32) -> Self {
        let (clients, host) = (format!("-c{clients}"), format!("Host: {host}"));
        let arguments = ["-t1", &clients, "-d200s", "--timeout", "60s", "-H", &host, &pool.url("/work?cpu_ms=10")];
        Self(Command::new("wrk").args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Wrk {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Utility of each class, when both are known.
fn utilities(pool: &Pool) -> Option<[f64; 2]> {
    let status = pool.json(&["status"]);
    let of = |class: &str| status["flows"].as_array()?.iter().find(|flow| flow["class"] == class)?["utility"].as_f64();
    Some([of("gold")?, of("silver")?])
}

fn come_to_the_same_utility(apps: &str) {
    if Command::new("wrk").arg("-v").output().is_err() {
        weal_testing::skip("wrk is missing; scripts/bootstrap test installs it");
        return;
    }
    let mut pool = Pool::new(&format!("{NODES_AND_CLASSES}\n{apps}"));
    pool.up();
    let _load = [Wrk::start(&pool, "crowded.localhost", 64), Wrk::start(&pool, "quiet.localhost", 16)];
    let (began, mut seen) = (Instant::now(), Vec::new());
    loop {
        std::thread::sleep(Duration::from_secs(1));
        let Some(both) = utilities(&pool) else { continue };
        seen.push(both);
        let missed = |[gold, silver]: &[f64; 2]| *gold < 0.0 && *silver < 0.0;
        let last = &seen[seen.len().saturating_sub(LAST)..];
        let mut gaps: Vec<f64> = last.iter().map(|[gold, silver]| (gold - silver).abs()).collect();
        gaps.sort_by(f64::total_cmp);
        if gaps.len() == LAST && last.iter().all(missed) && gaps[LAST / 2] <= 0.1 {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "utilities of gold and silver, second by second: {seen:.2?}");
    }
}

#[test]
fn flows_of_two_applications_that_cannot_be_satisfied_come_to_the_same_utility() {
    let apps = app("crowded", r#"{ host = "crowded.localhost", class = "gold" }"#)
        + &app("quiet", r#"{ host = "quiet.localhost", class = "silver" }"#);
    come_to_the_same_utility(&apps);
}

#[test]
fn flows_of_one_application_that_cannot_be_satisfied_come_to_the_same_utility() {
    let routes = r#"{ host = "crowded.localhost", class = "gold" }, { host = "quiet.localhost", class = "silver" }"#;
    come_to_the_same_utility(&app("one", routes));
}
