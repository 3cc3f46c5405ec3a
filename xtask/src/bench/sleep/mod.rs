//! `cargo xtask bench sleep`: a real server is put to sleep on each rung and woken again.
//!
//! What is measured is the time from the order to wake it until the first byte of a request's answer, as the gateway would see
//! it: the agent's readiness probe is in it. Every ratio is of one run. The server's own start is measured in the same run.

mod gateway;
mod neighbour;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use weal_model::Rung;

use self::gateway::Sleeper;
use self::neighbour::Round;
use super::arguments::{Arguments, Sleep};
use super::real::agent::{Agent, LESSONS, first_byte_s, serve_requests};
use super::real::machine::{self, Competitors, Moved, Swap, SwapOn};
use super::real::server::{Server, spec};
use super::real::{median, quantile};
use crate::programs::release;
use crate::table::Table;

/// Requests that a server has answered before it sleeps, so that it runs compiled code as one that was in use does.
const SERVED: usize = 5000;

/// One way to sleep and to wake.
struct Way {
    name: &'static str,
    rung: Rung,
    /// As the agent's argument; empty lets it decide.
    prefetch: &'static str,
    cold_files: bool,
    competitors: usize,
    /// Most milliseconds at the median and at the 99th percentile, on disk swap.
    target_ms: Option<(f64, f64)>,
}

impl Way {
    const fn new(name: &'static str, rung: Rung, prefetch: &'static str) -> Self {
        Self { name, rung, prefetch, cold_files: false, competitors: 0, target_ms: None }
    }
}

const WAYS: [Way; 8] = [
    Way::new("suspended", Rung::Suspended, ""),
    Way::new("parked, demand paging", Rung::Parked, "nothing"),
    Way::new("parked, all prefetched (the paper)", Rung::Parked, "everything"),
    Way { target_ms: Some((30.0, 120.0)), ..Way::new("parked, working set", Rung::Parked, "") },
    Way { target_ms: Some((6.0, 20.0)), ..Way::new("warm", Rung::Warm, "") },
    Way { cold_files: true, ..Way::new("parked, files cold", Rung::Parked, "") },
    Way { competitors: 2, ..Way::new("parked, 2 competitors", Rung::Parked, "") },
    Way { competitors: 2, ..Way::new("warm, 2 competitors", Rung::Warm, "") },
];

/// What one way gave.
#[derive(Default)]
struct Outcome {
    /// The first ones, from which it learns.
    first_ms: Vec<f64>,
    wake_ms: Vec<f64>,
    /// Without the competitors, by turns with those.
    idle_ms: Vec<f64>,
    cpu_s: Vec<f64>,
    sleep_ms: Vec<f64>,
    memory_mb: Vec<f64>,
    swap_mb: Vec<f64>,
}

/// One sleep and one wake.
struct Wake {
    wake_ms: f64,
    cpu_s: f64,
    sleep_ms: f64,
    memory_mb: f64,
    swap_mb: f64,
}

impl Outcome {
    fn take(&mut self, wake: &Wake) {
        self.wake_ms.push(wake.wake_ms);
        self.cpu_s.push(wake.cpu_s);
        self.sleep_ms.push(wake.sleep_ms);
        self.memory_mb.push(wake.memory_mb);
        self.swap_mb.push(wake.swap_mb);
    }
}

/// Runs it.
pub fn run(arguments: &Arguments) -> Result<Vec<Table>> {
    let choice = &arguments.sleep;
    let program = build()?;
    let target = crate::programs::root().join("target/bench");
    let home = choice.server.prepare(&target)?;
    let folder = target.join(format!("sleep-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let gib = choice.many.map_or(4, |count| 2 + u64::from(count) * 2 / 5);
    let result = Swap::make(choice.swap, gib, &folder).and_then(|_swap| {
        let bench = Bench { arguments, program, home, folder: folder.clone() };
        match choice.many {
            Some(count) => Ok(vec![bench.many(count)?]),
            None => bench.all(),
        }
    });
    std::fs::remove_dir_all(&folder)?;
    result
}

/// The agent, in release form: a debug one would be measured too.
fn build() -> Result<PathBuf> {
    let selection = ["--package", "weal", "--package", "weal-node", "--bin", "weal", "--example", "node_fixture"];
    Ok(release(&selection)?.join("examples/node_fixture"))
}

struct Bench<'a> {
    arguments: &'a Arguments,
    program: PathBuf,
    home: PathBuf,
    folder: PathBuf,
}

impl Bench<'_> {
    fn agent(&self, prefetch: &str) -> Result<Agent> {
        let more: &[&str] = if prefetch.is_empty() { &[] } else { &["--prefetch", prefetch] };
        Agent::start(&self.program, &self.folder.join("state"), more)
    }

    fn rounds(&self) -> usize {
        if self.arguments.quick { 2 } else { 10 }
    }

    fn all(&self) -> Result<Vec<Table>> {
        type Case<'a> = fn(&Bench<'a>) -> Result<Table>;
        let cases: [(&str, Case<'_>); 5] = [
            ("ladder", Self::ladder),
            ("large-set", Self::large_set),
            ("gateway", Self::through_the_gateway),
            ("full-pool", Self::full_pool),
            ("neighbour", Self::neighbours),
        ];
        let wanted = self.arguments.case.as_deref();
        if let Some(case) = wanted.filter(|case| cases.iter().all(|(name, _)| name != case)) {
            anyhow::bail!("there is no case {case}: the cases are ladder, large-set, gateway, full-pool and neighbour");
        }
        cases.iter().filter(|(name, _)| wanted.is_none_or(|case| case == *name)).map(|(_, run)| run(self)).collect()
    }

    /// Every rung, with each way to wake from it, beside a regular start.
    fn ladder(&self) -> Result<Table> {
        let choice = &self.arguments.sleep;
        let spec = choice.server.spec("server-1", &self.home, &self.folder)?;
        let mut agent = self.agent("")?;
        let (start_s, start_cpu_s) = self.starts(&agent, &spec)?;
        serve_requests(agent.instance("server-1")?.address, SERVED)?;
        let isolation = agent.isolation()?;
        let title =
            format!("{} on {:?} swap, {isolation}: from the order until the first byte", choice.server.title(), choice.swap);
        let columns = [
            "way",
            "first 8, p50 ms",
            "p50 ms",
            "p99 ms",
            "CPU ms",
            "of start",
            "of its CPU",
            "of idle",
            "MB held",
            "MB in swap",
            "asleep after ms",
        ];
        let mut table = Table::new(title.to_lowercase(), &columns);
        let (start_ms, start_cpu_ms) = (format!("{:.0}", start_s * 1e3), format!("{:.0}", start_cpu_s * 1e3));
        let start = ["regular start".to_owned(), String::new(), start_ms, String::new(), start_cpu_ms];
        table.row(start.into_iter().chain(std::iter::repeat_n(String::new(), 6)), None);
        for way in WAYS.iter().filter(|way| way.name.contains(&choice.way)) {
            agent = agent.replaced(&self.program, way.prefetch)?;
            let outcome = self.measure(&agent, way)?;
            let wake = median(&outcome.wake_ms);
            let cpu = median(&outcome.cpu_s);
            let of_idle = (way.competitors > 0).then(|| wake / median(&outcome.idle_ms));
            let ratios = (start_s * 1e3 / wake, start_cpu_s / cpu.max(1e-6));
            let met = met(choice, way, &outcome, ratios, of_idle);
            let cells = [
                way.name.to_owned(),
                format!("{:.1}", median(&outcome.first_ms)),
                format!("{wake:.1}"),
                format!("{:.1}", quantile(&outcome.wake_ms, 0.99)),
                format!("{:.1}", cpu * 1e3),
                format!("1/{:.0}", ratios.0),
                format!("1/{:.0}", ratios.1),
                of_idle.map_or_else(String::new, |ratio| format!("{ratio:.2}")),
                format!("{:.1}", median(&outcome.memory_mb)),
                format!("{:.0}", median(&outcome.swap_mb)),
                format!("{:.0}", median(&outcome.sleep_ms)),
            ];
            table.row(cells, met);
        }
        agent.stop("server-1")?;
        table.notes.push(format!(
            "{} rounds each after the first {LESSONS}, in which the agent learns what is needed; with competitors three times as many (p99 is the worst of them). Targets on disk swap with files warm: parked p50 30 ms, p99 120, at most \
             1/150 of the start and 1/500 of its CPU; warm p50 6 ms, p99 20, at most 25 MB held; with both cores taken at most 1.3 \
             times the time with both idle, which is measured by turns with it. Who asks shares the CPU as the gateway does. \
             Before, it has served {SERVED} requests: what sleeps is not fresh. Held is what its cgroup is charged \
             with, without files' pages that nobody used lately.",
            self.rounds()
        ));
        Ok(table)
    }

    fn starts(&self, agent: &Agent, spec: &weal_protocol::node::InstanceSpec) -> Result<(f64, f64)> {
        let count = if self.arguments.quick { 1 } else { 3 };
        let (mut seconds, mut cpu) = (Vec::new(), Vec::new());
        for round in 0..count {
            if round > 0 {
                agent.stop("server-1")?;
            }
            let instance = agent.start_ready(spec)?;
            first_byte_s(instance.address, "/")?;
            seconds.push(instance.start_took_s.context("it has been started")?);
            cpu.push(agent.instance("server-1")?.cpu_seconds.unwrap_or(0.0));
        }
        Ok((median(&seconds), median(&cpu)))
    }

    fn measure(&self, agent: &Agent, way: &Way) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        for round in 0..LESSONS {
            outcome.first_ms.push(self.wake_once(agent, way)?.wake_ms);
            // The first sleeps are of an instance that has come to rest.
            if round < 2 {
                std::thread::sleep(Duration::from_millis(2300));
            }
        }
        // A ratio of two medians of ten is off by a third now and then.
        let times = if way.competitors > 0 { 3 } else { 1 };
        for _ in 0..times * self.rounds() {
            if way.competitors > 0 {
                outcome.idle_ms.push(self.wake_once(agent, &Way { competitors: 0, ..*way })?.wake_ms);
            }
            outcome.take(&self.wake_once(agent, way)?);
        }
        Ok(outcome)
    }

    /// To sleep and awake again: what that took.
    fn wake_once(&self, agent: &Agent, way: &Way) -> Result<Wake> {
        let slept_s = agent.sleep("server-1", way.rung)?;
        if way.cold_files {
            machine::drop_file_cache()?;
        }
        // They begin now: paging out waits for a CPU that nobody wants.
        let _load = Competitors::start(way.competitors)?;
        let _place = Moved::beside(agent.pid(), &[std::process::id()])?;
        std::thread::sleep(Duration::from_millis(300));
        let asleep = agent.instance("server-1")?;
        let began = Instant::now();
        let answer = agent.wake("server")?;
        first_byte_s(answer.address, "/")?;
        let wake_ms = began.elapsed().as_secs_f64() * 1e3;
        let awake = agent.instance("server-1")?;
        Ok(Wake {
            wake_ms,
            sleep_ms: slept_s * 1e3,
            cpu_s: awake.cpu_seconds.unwrap_or(0.0) - asleep.cpu_seconds.unwrap_or(0.0),
            memory_mb: asleep.memory_used.unwrap_or_default().0 as f64 / 1e6,
            swap_mb: asleep.swap_used.unwrap_or_default().0 as f64 / 1e6,
        })
    }

    /// An instance that needs 150 MB at once.
    fn large_set(&self) -> Result<Table> {
        const MIB: u32 = 150;
        const TARGET_MS: f64 = 250.0;
        let agent = self.agent("")?;
        let run = vec![self.program.display().to_string(), "serve".into(), "$PORT".into()];
        let instance = agent.start_ready(&spec("large-1", run))?;
        first_byte_s(instance.address, &format!("/hog/{MIB}"))?;
        let mut table = Table::new(
            format!("a working set of {MIB} MiB, all of it touched by the first request"),
            &["rung", "p50 ms", "p99 ms"],
        );
        for rung in [Rung::Parked, Rung::Warm] {
            let mut wakes = Vec::new();
            for round in 0..self.rounds() + 2 {
                agent.sleep("large-1", rung)?;
                let began = Instant::now();
                let answer = agent.wake("large")?;
                first_byte_s(answer.address, "/touch")?;
                if round >= 2 {
                    wakes.push(began.elapsed().as_secs_f64() * 1e3);
                } else {
                    std::thread::sleep(Duration::from_millis(2300));
                }
            }
            let p50 = median(&wakes);
            let met = (rung == Rung::Parked).then_some(p50 <= TARGET_MS);
            table.row([rung.as_str().to_owned(), format!("{p50:.0}"), format!("{:.0}", quantile(&wakes, 0.99))], met);
        }
        agent.stop("large-1")?;
        table.notes.push(format!("Target: {TARGET_MS} ms from parked."));
        Ok(table)
    }

    /// A request to a parked application, through the gateway and directly.
    fn through_the_gateway(&self) -> Result<Table> {
        const TARGET_MS: f64 = 10.0;
        let choice = &self.arguments.sleep;
        let pool = self.pool("")?;
        let (mut direct, mut through) = (Vec::new(), Vec::new());
        for round in 0..self.rounds() + 2 {
            for (way, ask) in [(&mut direct, Sleeper::wake_and_ask as fn(&Sleeper) -> Result<f64>), (&mut through, Sleeper::ask)]
            {
                pool.park()?;
                let took_s = ask(&pool)?;
                if round >= 2 {
                    way.push(took_s * 1e3);
                }
            }
        }
        let mut table = Table::new(
            format!("{}, parked: a request until its first byte", choice.server.title()),
            &["way", "p50 ms", "p99 ms"],
        );
        let cells = |name: &str, times: &[f64]| {
            [name.to_owned(), format!("{:.1}", median(times)), format!("{:.1}", quantile(times, 0.99))]
        };
        table.row(cells("the agent is asked, then the instance", &direct), None);
        table.row(cells("the gateway is asked", &through), None);
        let added = median(&through) - median(&direct);
        table.row(["the gateway adds".into(), format!("{added:.1}"), String::new()], Some(added <= TARGET_MS));
        table.notes.push(format!("{} rounds each, in turns. Target: it adds at most {TARGET_MS} ms.", self.rounds()));
        Ok(table)
    }

    /// A pool with the server, and with `others` in its config.
    fn pool(&self, others: &str) -> Result<Sleeper> {
        let spec = self.arguments.sleep.server.spec("server-1", &self.home, &self.folder)?;
        let weal = self.program.parent().and_then(|examples| examples.parent()).context("the target folder")?.join("weal");
        Sleeper::start(&weal, &self.folder.join("pool"), &spec, SERVED, others)
    }

    /// Requests and wakes while another application of the pool takes all cores.
    fn full_pool(&self) -> Result<Table> {
        const REQUESTS: usize = 20;
        let (spins, fixture) = ("while :; do :; done & ".repeat(machine::cpus()?), self.program.display());
        let pool = self.pool(&format!(
            "\n[app.greedy]\nrun = [\"sh\", \"-c\", \"{spins}exec {fixture} serve $PORT\"]\nhealth = \"/\"\nmemory = \"64MiB\"\n\
             routes = [{{ host = \"greedy.localhost\" }}]\n"
        ))?;
        let roles = pool.roles()?;
        // Who asks from another machine waits for no core of this one.
        let _client = Moved::beside(roles[0], &[std::process::id()])?;
        let ways = ["weal's roles come before instances", "they come after, as others do"];
        let (mut asked, mut woken) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
        for round in 0..self.rounds() + 2 {
            for way in 0..ways.len() {
                let outside = std::os::unix::process::parent_id();
                let _others = (way == 1).then(|| Moved::beside(outside, &roles)).transpose()?;
                let mut answers = Vec::new();
                for _ in 0..REQUESTS {
                    answers.push(pool.ask()? * 1e3);
                }
                pool.park()?;
                let wake = pool.ask()? * 1e3;
                if round >= 2 {
                    asked[way].append(&mut answers);
                    woken[way].push(wake);
                }
            }
        }
        let mut table = Table::new(
            format!(
                "{} while another application takes all cores: a request until its first byte",
                self.arguments.sleep.server.title()
            ),
            &["", "awake, p50 ms", "p99 ms", "parked, p50 ms", "p99 ms"],
        );
        for ((name, asked), woken) in ways.iter().zip(&asked).zip(&woken) {
            let [a, b, c, d] = [median(asked), quantile(asked, 0.99), median(woken), quantile(woken, 0.99)];
            table.row([(*name).to_owned()].into_iter().chain([a, b, c, d].map(|ms| format!("{ms:.1}"))), None);
        }
        let times = |of: &[Vec<f64>; 2], at: f64| format!("{:.1}", quantile(&of[1], at) / quantile(&of[0], at));
        let ratios = [times(&asked, 0.5), times(&asked, 0.99), times(&woken, 0.5), times(&woken, 0.99)];
        table.row(["times as long".to_owned()].into_iter().chain(ratios), None);
        table.notes.push(format!(
            "{} rounds each, in turns, of {REQUESTS} requests and a wake, through the gateway. Who asks shares the CPU as the roles do in the first.",
            self.rounds()
        ));
        Ok(table)
    }

    /// An instance that answers while another is paged out.
    fn neighbours(&self) -> Result<Table> {
        const MIB: u32 = 300;
        const MOST: f64 = 1.05;
        let agent = self.agent("")?;
        let serve = vec![self.program.display().to_string(), "serve".into(), "$PORT".into()];
        let neighbour = agent.start_ready(&spec("neighbour-1", serve.clone()))?.address;
        let large = agent.start_ready(&spec("large-1", serve))?.address;
        first_byte_s(large, &format!("/hog/{MIB}"))?;
        let rounds = neighbour::purges(&agent, neighbour, ("large-1", "large", large), 2 * self.rounds())?;
        let mut table = Table::new(
            format!("an instance that is asked every millisecond, while {MIB} MiB of another are paged out"),
            &["", "requests", "p50 ms", "p99 ms", "p99, times before and after", "lasts ms"],
        );
        // Each purge beside what was right before and after it: what else the machine does comes and goes within minutes.
        let beside = |of: fn(&Round) -> &Vec<f64>| {
            let quiet = |round: &Round| (quantile(&round.before_ms, 0.99) + quantile(&round.after_ms, 0.99)) / 2.0;
            median(&rounds.iter().map(|round| quantile(of(round), 0.99) / quiet(round)).collect::<Vec<_>>())
        };
        let lasted = median(&rounds.iter().map(|round| round.lasted_ms).collect::<Vec<_>>());
        let mut row = |name: &str, of: fn(&Round) -> &Vec<f64>, lasts: String, most: Option<f64>| {
            let times: Vec<f64> = rounds.iter().flat_map(|round| of(round).clone()).collect();
            let ratio = beside(of);
            let [p50, p99] = [0.5, 0.99].map(|part| format!("{:.3}", quantile(&times, part)));
            let cells = [name.to_owned(), times.len().to_string(), p50, p99, format!("{ratio:.2}"), lasts];
            table.row(cells, most.map(|most| ratio <= most));
        };
        row("before", |round| &round.before_ms, String::new(), None);
        row("during a purge", |round| &round.purge_ms, format!("{lasted:.0}"), Some(MOST));
        row("after", |round| &round.after_ms, String::new(), None);
        table.notes.push(format!(
            "{} purges; all of it was written to since the last one. The ratios are medians of those of each purge. Target: p99 grows at most to {MOST} times.",
            rounds.len()
        ));
        Ok(table)
    }

    /// Many servers asleep at once.
    fn many(&self, count: u32) -> Result<Table> {
        let choice = &self.arguments.sleep;
        let agent = self.agent("")?;
        for number in 1..=count {
            let id = format!("server{number}-1");
            let mut spec = choice.server.spec(&id, &self.home, &self.folder)?;
            spec.health.interval_s = 3600.0;
            agent.start_ready(&spec)?;
            agent.sleep(&id, Rung::Parked)?;
        }
        let totals = |agent: &Agent| -> Result<(u64, u64, f64)> {
            let all = agent.instances()?;
            let memory = all.iter().filter_map(|instance| instance.memory_used).map(|bytes| bytes.0).sum();
            let swap = all.iter().filter_map(|instance| instance.swap_used).map(|bytes| bytes.0).sum();
            Ok((memory, swap, all.iter().filter_map(|instance| instance.cpu_seconds).sum()))
        };
        let (before, agent_before_s) = (totals(&agent)?, agent.cpu_seconds()?);
        let began = Instant::now();
        // As often as a controller looks at them.
        for _ in 0..30 {
            std::thread::sleep(Duration::from_secs(1));
            totals(&agent)?;
        }
        let after = totals(&agent)?;
        let of_core = |seconds: f64| seconds / began.elapsed().as_secs_f64();
        let (cores, agent_cores) = (of_core(after.2 - before.2), of_core(agent.cpu_seconds()? - agent_before_s));
        let began = Instant::now();
        let answer = agent.wake("server1")?;
        first_byte_s(answer.address, "/")?;
        let first_ms = began.elapsed().as_secs_f64() * 1e3;
        let mut table = Table::new(
            format!("{count} times {} asleep, parked", choice.server.title()),
            &["MB held", "MB each", "MB in swap", "CPU of a core", "of it the agent's", "the first woken ms"],
        );
        let (held, each) = (after.0 as f64 / 1e6, after.0 as f64 / 1e6 / f64::from(count));
        let met = held <= 1000.0 * f64::from(count) / 100.0 && cores + agent_cores <= 0.01;
        let swap = after.1 as f64 / 1e6;
        let cells = [
            format!("{held:.0}"),
            format!("{each:.1}"),
            format!("{swap:.0}"),
            format!("{:.4}", cores + agent_cores),
            format!("{agent_cores:.4}"),
            format!("{first_ms:.0}"),
        ];
        table.row(cells, Some(met));
        table.notes.push(
            "Target: 10 MB for each, and 1% of a core for all, with the agent, which is asked about them every second as a controller does."
                .to_owned(),
        );
        Ok(table)
    }
}

/// Whether `way` meets its targets, which are for disk swap.
fn met(choice: &Sleep, way: &Way, outcome: &Outcome, ratios: (f64, f64), of_idle: Option<f64>) -> Option<bool> {
    if choice.swap != SwapOn::Disk || choice.server != Server::Wildfly {
        return None;
    }
    if let Some(ratio) = of_idle {
        return Some(ratio <= 1.3);
    }
    let (p50, p99) = way.target_ms?;
    let fast = median(&outcome.wake_ms) <= p50 && quantile(&outcome.wake_ms, 0.99) <= p99;
    let small = way.rung != Rung::Warm || median(&outcome.memory_mb) <= 25.0;
    Some(fast && small && ratios.0 >= 150.0 && ratios.1 >= 500.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_missing_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let error = Server::Tomcat.spec("server-1", folder.path(), folder.path()).unwrap_err();
        assert!(error.to_string().contains("conf is missing"), "{error}");
    }
}
