//! Figures 2, 6 and 10: how long a start and a resume take, against the CPU load of others and after use.

use anyhow::{Context, Result};
use weal_reproduce::{Figure, Record, Reproduction, near, within};

use super::site::{NULL_PAGE, Site};
use super::ways::{ENHANCED, PARKED, REGULAR, WARM, Way, settle};
use crate::bench::real::agent::{Agent, first_byte_s, serve_requests};
use crate::bench::real::load::{Phase, Question, drive};
use crate::bench::real::machine::{self, Competitors};
use crate::bench::real::{median, quantile};

/// Percent of all CPUs that others take.
const LOADS: [u32; 4] = [0, 20, 40, 80];
const WAYS: [Way; 4] = [REGULAR, ENHANCED, PARKED, WARM];
/// Requests that a server has answered before it rests: compiled code, as one that was in use has.
const SERVED: usize = 3000;
const COMPETITORS: &str = "the competing load is one thread on each CPU that computes for that share of each 10 ms";

/// Figure 2: a regular start against CPU load.
pub fn starts(site: &Site) -> Result<Reproduction> {
    let agent = site.agent("")?;
    let spec = site.server("server-1", NULL_PAGE)?;
    let mut record = Record::new(
        "figure-2",
        "Al-Qudah et al. 4.1, Figure 2",
        "a regular start takes over 90 s on an idle machine and 150 s with 40% of its CPU taken, growing linearly",
        &format!(
            "WildFly 35 until its applications answer, their pages' compilation included; {COMPETITORS}; on {}",
            site.machine
        ),
    );
    let mut figure =
        Figure::new("figure-2", "seconds to start against CPU load", ["load, %", "s"], &["median", "shortest", "longest"]);
    // The first start ever reads its files from the disk: that is not what is asked about.
    agent.start_ready(&spec)?;
    agent.stop("server-1")?;
    let mut medians = Vec::new();
    for load in LOADS {
        let mut took = Vec::new();
        for _ in 0..site.rounds(5) {
            let _others = Competitors::start_at(machine::cpus()?, f64::from(load) / 100.0)?;
            let instance = agent.start_ready(&spec)?;
            took.push(instance.start_took_s.context("it has been started")?);
            agent.stop("server-1")?;
        }
        figure.row(f64::from(load), &[median(&took), quantile(&took, 0.0), quantile(&took, 1.0)]);
        record.number(&format!("start with {load}% of the CPU taken, s"), median(&took));
        medians.push(median(&took));
    }
    record.claim("the more of the CPU is taken, the longer", medians.windows(2).all(|pair| pair[0] < pair[1]));
    record.number("start at 40% over start at 0%", medians[2] / medians[0]).paper(near(150.0 / 90.0, 0.35));
    record.figure(figure);
    Ok(record.done())
}

/// Figure 6: a resume against CPU load.
pub fn resumes(site: &Site) -> Result<Reproduction> {
    let spec = site.server("server-1", NULL_PAGE)?;
    let mut agent = site.agent("")?;
    let start_s = agent.start_ready(&spec)?.start_took_s.context("it has been started")?;
    serve_requests(agent.instance("server-1")?.address, SERVED)?;
    let mut medians = vec![vec![f64::NAN; LOADS.len()]; WAYS.len()];
    for (way, of_way) in WAYS.iter().zip(&mut medians) {
        agent = agent.replaced(&site.fixture(), way.prefetch)?;
        rounds(&agent, way, way.lessons(), 0)?;
        for (load, of_load) in LOADS.iter().zip(of_way) {
            *of_load = median(&rounds(&agent, way, site.rounds(5), *load)?);
        }
    }
    let mut record = Record::new(
        "figure-6",
        "Al-Qudah et al. 4.3, Figure 6",
        "suspend/resume is 5.3 times faster than a start on an idle machine; enhanced over 20 times, over 30 times at 40% load, and hardly dependent on the load",
        &format!(
            "WildFly 35 that has answered {SERVED} requests, swap on a file; from the order until the first byte of a page; {COMPETITORS}; on {}",
            site.machine
        ),
    );
    let mut figure = Figure::new("figure-6", "ms to resume against CPU load", ["load, %", "ms"], &WAYS.map(|way| way.name));
    for (at, load) in LOADS.iter().enumerate() {
        figure.row(f64::from(*load), &medians.iter().map(|of_way| of_way[at] * 1e3).collect::<Vec<_>>());
    }
    record.number("regular start in this run, idle, s", start_s);
    for (way, of_way) in WAYS.iter().zip(&medians) {
        record.number(&format!("{}, idle, ms", way.name), of_way[0] * 1e3);
        record.number(&format!("{}, 80% taken, ms", way.name), of_way[3] * 1e3);
    }
    let [regular, enhanced, parked, _] = &medians[..] else { anyhow::bail!("there are four ways") };
    record.number("suspend/resume: times faster than the start", start_s / regular[0]).paper(within(5.3..=f64::INFINITY));
    record.number("enhanced: times faster than the start", start_s / enhanced[0]).paper(within(20.0..=f64::INFINITY));
    record.claim("enhanced is faster than suspend/resume", enhanced[0] < regular[0]);
    record.number("enhanced: at 40% load over idle", enhanced[2] / enhanced[0]).paper(within(0.0..=1.2));
    record.property("weal's working set is faster than prefetching all", parked[0] < enhanced[0]);
    let row = record.number("ladder, parked: times faster than the start", start_s / parked[0]);
    row.recalculated(within(150.0..=f64::INFINITY));
    record.figure(figure);
    Ok(record.done())
}

/// Seconds of each activation, with others that take `load` percent of the CPUs.
fn rounds(agent: &Agent, way: &Way, count: usize, load: u32) -> Result<Vec<f64>> {
    let one = |_| {
        way.put_to_rest(agent, "server-1")?;
        let _others = Competitors::start_at(machine::cpus()?, f64::from(load) / 100.0)?;
        std::thread::sleep(std::time::Duration::from_millis(300));
        let took_s = way.activate_s(agent, "server-1", NULL_PAGE)?;
        settle();
        Ok(took_s)
    };
    (0..count).map(one).collect()
}

/// Figure 10: a resume of an instance that was used between its sleeps.
pub fn repeated(site: &Site) -> Result<Reproduction> {
    const LOAD: u32 = 20;
    const USED_S: f64 = 6.0;
    let ways = [REGULAR, ENHANCED, PARKED];
    let spec = site.server("server-1", NULL_PAGE)?;
    let mut agent = site.agent("")?;
    let address = agent.start_ready(&spec)?.address;
    serve_requests(address, SERVED)?;
    let trials = site.rounds(8);
    let mut took = vec![Vec::new(); ways.len()];
    for (way, took) in ways.iter().zip(&mut took) {
        agent = agent.replaced(&site.fixture(), way.prefetch)?;
        for trial in 0..trials {
            // As different as visitors are: the size of what is read and the work change from one trial to the next.
            let mib = [10, 80, 30, 120, 20, 60, 100, 40][trial % 8];
            first_byte_s(address, &format!("/bench/memory.jsp?mib={mib}"))?;
            let path = format!("/bench/work.jsp?cpu_ms={}", 1 + trial % 4);
            drive(&Question { address, path }, &[Phase { rate: 30.0, lasts_s: USED_S }])?;
            took.extend(rounds(&agent, way, 1, LOAD)?);
        }
    }
    let mut record = Record::new(
        "figure-10",
        "Al-Qudah et al. 4.6, Figure 10",
        "after use, the time of suspend/resume varies much from one trial to another; that of enhanced does not, and is shorter in all of them",
        &format!(
            "WildFly 35 that between its sleeps keeps 10 to 120 MiB, another amount each time, and answers 30 requests a second for {USED_S} s; {LOAD}% \
             competing load; on {}",
            site.machine
        ),
    );
    let mut figure = Figure::new("figure-10", "ms to resume, trial by trial", ["trial", "ms"], &ways.map(|way| way.name));
    for trial in 0..trials {
        figure.row(trial as f64 + 1.0, &took.iter().map(|of_way| of_way[trial] * 1e3).collect::<Vec<_>>());
    }
    for (way, took) in ways.iter().zip(&took) {
        record.number(&format!("{}: median, ms", way.name), median(took) * 1e3);
        record.number(&format!("{}: longest over shortest", way.name), quantile(took, 1.0) / quantile(took, 0.0));
    }
    let all_shorter = |a: usize, b: usize| took[a].iter().zip(&took[b]).all(|(a, b)| a < b);
    record.claim("enhanced is faster than suspend/resume in every trial", all_shorter(1, 0));
    record.property("weal's working set is faster than suspend/resume in every trial", all_shorter(2, 0));
    record.figure(figure);
    Ok(record.done())
}
