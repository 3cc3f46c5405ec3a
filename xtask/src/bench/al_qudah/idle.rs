//! Figures 4 and 5: what idle servers cost where memory is short, run everywhere and asleep.

use std::time::{Duration, Instant};

use anyhow::Result;
use weal_model::Rung;
use weal_reproduce::{Figure, Record, Reproduction, within};

use super::site::{NULL_PAGE, Site};
use crate::bench::real::agent::Agent;
use crate::bench::real::machine::cpu_times;

/// Memory of the node: about three of these servers, as four JBosses in the paper's 512 MB.
const NODE_MIB: u64 = 1024;
/// So many are started, one after the other.
const MOST: usize = 10;
/// A start that takes so many times as long as the first is the end: the node thrashes.
const TOO_LONG: f64 = 6.0;
/// How long the CPUs are looked at after each start.
const LOOK: Duration = Duration::from_secs(8);

/// What was seen after each start: seconds to start, percent busy, percent waiting for a disk.
type Seen = Vec<(f64, f64, f64)>;

/// Runs both.
pub fn run(site: &Site) -> Result<Reproduction> {
    let awake = fill(site, false)?;
    let asleep = fill(site, true)?;
    let mut record = Record::new(
        "figures-4-and-5",
        "Al-Qudah et al. 4.2, Figures 4 and 5",
        "idle servers do housekeeping: the more of them run, the more the disk is busy with paging, and the longer the next one takes to start; 18 are the end in 512 MB",
        &format!(
            "WildFly 35, one after the other on a node of {NODE_MIB} MiB, {MOST} at most; the CPUs are looked at for {} s after each start; asleep: each is \
             parked when it is ready; on {}",
            LOOK.as_secs(),
            site.machine
        ),
    );
    let names = ["run-everywhere", "ladder, parked"];
    let mut starts =
        Figure::new("figure-5", "seconds to start against servers there before", ["servers there before", "s"], &names);
    let mut idle = Figure::new(
        "figure-4",
        "CPUs and disk against idle servers",
        ["servers", "% of all CPUs"],
        &["run-everywhere: busy", "run-everywhere: waiting for a disk", "ladder: busy", "ladder: waiting for a disk"],
    );
    let of = |seen: &Seen, at: usize| seen.get(at).copied().unwrap_or((f64::NAN, f64::NAN, f64::NAN));
    for at in 0..awake.len().max(asleep.len()) {
        let (awake, asleep) = (of(&awake, at), of(&asleep, at));
        starts.row(at as f64, &[awake.0, asleep.0]);
        idle.row(at as f64 + 1.0, &[awake.1, awake.2, asleep.1, asleep.2]);
    }
    let last = |seen: &Seen| seen.last().map_or(f64::NAN, |last| last.0 / seen[0].0);
    let worst = |seen: &Seen| seen.iter().map(|seen| seen.1 + seen.2).fold(0.0, f64::max);
    record.number("run-everywhere: servers until it thrashed, or the most", awake.len() as f64);
    record.number("run-everywhere: the last start over the first", last(&awake)).paper(within(1.5..=f64::INFINITY));
    record.number("run-everywhere: busy and waiting for a disk while all are idle, at most, %", worst(&awake));
    record.number("ladder, parked: servers", asleep.len() as f64);
    record.number("ladder, parked: the last start over the first", last(&asleep)).recalculated(within(0.0..=1.3));
    record.number("ladder, parked: busy and waiting for a disk while all are idle, at most, %", worst(&asleep));
    record.figure(idle);
    record.figure(starts);
    Ok(record.done())
}

fn fill(site: &Site, sleep: bool) -> Result<Seen> {
    let agent = site.agent("")?;
    let mut seen: Seen = Vec::new();
    for number in 1..=site.rounds(MOST) {
        let id = format!("server{number}-1");
        let mut spec = site.server(&id, NULL_PAGE)?;
        spec.health.start_timeout_s = 120.0;
        let Some(start_s) = start(&agent, &spec)? else { break };
        let group = agent.memory_group(&id)?;
        if number == 1 {
            group.parent()?.limit(NODE_MIB << 20)?;
        }
        if sleep {
            agent.sleep(&id, Rung::Parked)?;
        } else {
            group.open_swap()?;
        }
        let before = cpu_times()?;
        std::thread::sleep(LOOK);
        let (busy, waiting) = cpu_times()?.percent_since(&before);
        seen.push((start_s, busy, waiting));
        if start_s > TOO_LONG * seen[0].0 {
            break;
        }
    }
    Ok(seen)
}

/// Seconds that it took; `None` when it does not come up any more.
fn start(agent: &Agent, spec: &weal_protocol::node::InstanceSpec) -> Result<Option<f64>> {
    let began = Instant::now();
    match agent.start_ready(spec) {
        Ok(instance) => Ok(Some(instance.start_took_s.unwrap_or_else(|| began.elapsed().as_secs_f64()))),
        Err(error) if began.elapsed() > Duration::from_secs(60) => {
            eprintln!("{}: {error:#}", spec.id);
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
