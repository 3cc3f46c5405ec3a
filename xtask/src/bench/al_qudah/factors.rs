//! Figure 9 and table 1: what each part of the enhancement contributes, where memory is short.

use anyhow::{Context, Result};
use weal_host::Proc;
use weal_host::pagemap::swap_areas;
use weal_model::Rung;
use weal_reproduce::{Figure, Record, Reproduction, within};

use super::site::{NULL_PAGE, Site};
use super::ways::{ENHANCED, PARKED, REGULAR, Rest, Way, settle};
use crate::bench::real::agent::{Agent, first_byte_s, serve_requests};
use crate::bench::real::machine::{self, Competitors};
use crate::bench::real::median;
use crate::bench::real::server::spec;

/// Memory of the node, and what the process takes that fills it: it leaves the server less than what that needs to answer.
const NODE_MIB: u64 = 560;
const FILLER_MIB: u64 = 545;
/// So often the process touches all that it has: what it has once is not yet more used than what a frozen server has.
const TOUCHES: usize = 3;
const LOADS: [u32; 2] = [0, 40];

/// A way, and whether there is memory for the server when it is activated.
struct Factor {
    name: &'static str,
    way: Way,
    has_room: bool,
}

const FACTORS: [Factor; 6] = [
    Factor { name: "suspend/resume", way: REGULAR, has_room: false },
    Factor { name: "prefetching only", way: Way { prefetch: "everything", ..REGULAR }, has_room: false },
    Factor { name: "free memory only", way: REGULAR, has_room: true },
    Factor { name: "contiguity only", way: Way { prefetch: "nothing", ..ENHANCED }, has_room: false },
    Factor { name: "enhanced (all three)", way: ENHANCED, has_room: true },
    Factor { name: "ladder, parked", way: PARKED, has_room: true },
];

/// Figure 9.
pub fn run(site: &Site) -> Result<Reproduction> {
    let server = site.server("server-1", NULL_PAGE)?;
    let mut agent = site.agent("")?;
    let address = agent.start_ready(&server)?.address;
    serve_requests(address, 3000)?;
    let mut medians = vec![vec![f64::NAN; LOADS.len()]; FACTORS.len()];
    for (factor, medians) in FACTORS.iter().zip(&mut medians) {
        agent = agent.replaced(&site.fixture(), factor.way.prefetch)?;
        for _ in 0..factor.way.lessons() {
            activation_s(site, &agent, factor, 0)?;
        }
        for (load, of_load) in LOADS.iter().zip(medians) {
            let took: Result<Vec<f64>> = (0..site.rounds(5)).map(|_| activation_s(site, &agent, factor, *load)).collect();
            *of_load = median(&took?);
        }
    }
    let mut record = Record::new(
        "figure-9",
        "Al-Qudah et al. 4.5, Figure 9",
        "prefetching, free memory and contiguous areas on disk each make resuming faster, prefetching most, and all three together more than each",
        &format!(
            "WildFly 35 on a node of {NODE_MIB} MiB beside a process that fills {FILLER_MIB} MiB, which pushes the suspended server out; free memory: that process \
             has ended; on {}",
            site.machine
        ),
    );
    let mut figure =
        Figure::new("figure-9", "ms to resume against CPU load", ["load, %", "ms"], &FACTORS.map(|factor| factor.name));
    for (at, load) in LOADS.iter().enumerate() {
        figure.row(f64::from(*load), &medians.iter().map(|of_factor| of_factor[at] * 1e3).collect::<Vec<_>>());
    }
    for (factor, of_factor) in FACTORS.iter().zip(&medians) {
        for (load, took_s) in LOADS.iter().zip(of_factor) {
            record.number(&format!("{}, {load}% competing load, ms", factor.name), took_s * 1e3);
        }
    }
    let idle: Vec<f64> = medians.iter().map(|of_factor| of_factor[0]).collect();
    for (name, at) in [("prefetching", 1), ("free memory", 2), ("contiguity", 3)] {
        record.claim(&format!("{name} alone makes it faster"), idle[at] < idle[0]);
    }
    record.claim("prefetching contributes most", idle[1] < idle[2] && idle[1] < idle[3]);
    record.claim("all three together are the fastest of these", idle[4] < idle[1].min(idle[2]).min(idle[3]));
    record.property("weal's working set is faster than all three", idle[5] < idle[4]);
    record.figure(figure);
    Ok(record.done())
}

fn activation_s(site: &Site, agent: &Agent, factor: &Factor, load: u32) -> Result<f64> {
    let id = "server-1";
    // Here the kernel evicts because another process wants the memory, which is the point.
    let rung = if factor.way.rest == Rest::Evicted { Rung::Suspended } else { Rung::Parked };
    agent.sleep(id, rung)?;
    let run = vec![site.fixture().display().to_string(), "serve".into(), "$PORT".into()];
    let filler = agent.start_ready(&spec("filler-1", run))?.address;
    let server = agent.memory_group(id)?;
    server.open_swap()?;
    // An agent that takes over sets its node's own.
    server.parent()?.limit(NODE_MIB << 20)?;
    first_byte_s(filler, &format!("/hog/{FILLER_MIB}"))?;
    for _ in 0..TOUCHES {
        first_byte_s(filler, "/touch")?;
    }
    if factor.has_room {
        agent.stop("filler-1")?;
    } else {
        // What the server needs now is taken from it.
        agent.memory_group("filler-1")?.open_swap()?;
    }
    let others = Competitors::start_at(machine::cpus()?, f64::from(load) / 100.0)?;
    std::thread::sleep(std::time::Duration::from_millis(300));
    let took_s = factor.way.activate_s(agent, id, NULL_PAGE)?;
    drop(others);
    if !factor.has_room {
        agent.stop("filler-1")?;
    }
    settle();
    Ok(took_s)
}

/// Table 1: contiguous areas of swap.
pub fn areas(site: &Site) -> Result<Reproduction> {
    const INSTANCES: usize = 5;
    let count = site.rounds(INSTANCES);
    let mut record = Record::new(
        "table-1",
        "Al-Qudah et al. 4.5, Table 1",
        "an instance that is paged out in bulk takes about 20 contiguous areas of swap, one that was paged out by the kernel about 5,000",
        &format!(
            "{count} WildFly 35, paged out one after the other by the agent, or all suspended and pushed out by a limit of the node; on {}",
            site.machine
        ),
    );
    let bulk = paged_out(site, count, |agent, ids| ids.iter().try_for_each(|id| agent.sleep(id, Rung::Parked).map(drop)))?;
    let pressed = paged_out(site, count, |agent, ids| {
        for id in ids {
            agent.sleep(id, Rung::Suspended)?;
            agent.memory_group(id)?.open_swap()?;
        }
        let group = agent.memory_group(&ids[0])?.parent()?;
        for mib in (0..=30u64).rev().map(|step| 100 + 50 * step) {
            // What it cannot page out at once it refuses; the next step goes on.
            let _ = group.limit(mib << 20);
        }
        group.limit(16 << 30)
    })?;
    let mut figure = Figure::new(
        "table-1",
        "contiguous areas of swap, instance by instance",
        ["instance", "areas"],
        &["in bulk", "by the kernel"],
    );
    figure.points = true;
    for (at, (bulk, pressed)) in bulk.iter().zip(&pressed).enumerate() {
        figure.row(at as f64 + 1.0, &[bulk.0, pressed.0]);
        record.number(&format!("instance {}: areas in bulk, by the kernel", at + 1), bulk.0);
        record.number(&format!("instance {}: areas by the kernel", at + 1), pressed.0);
    }
    let per_mb = |all: &[(f64, f64)]| median(&all.iter().map(|(areas, bytes)| areas / (bytes / 1e6)).collect::<Vec<_>>());
    record.number("areas per MB in swap, in bulk", per_mb(&bulk));
    record.number("areas per MB in swap, by the kernel", per_mb(&pressed));
    let row = record.number("areas by the kernel over areas in bulk, per MB", per_mb(&pressed) / per_mb(&bulk));
    row.paper(within(10.0..=f64::INFINITY));
    record.figure(figure);
    Ok(record.done())
}

/// Areas and bytes in swap of each of `count` fresh servers after `page_out`.
fn paged_out(site: &Site, count: usize, page_out: impl Fn(&Agent, &[String]) -> Result<()>) -> Result<Vec<(f64, f64)>> {
    let agent = site.agent("")?;
    let ids: Vec<String> = (1..=count).map(|number| format!("server{number}-1")).collect();
    for id in &ids {
        agent.start_ready(&site.server(id, NULL_PAGE)?)?;
    }
    page_out(&agent, &ids)?;
    let of = |id: &String| {
        let pid = agent.instance(id)?.pid.context("it has a process")?;
        let (areas, bytes) = swap_areas(&Proc::system(), pid).context("its page map cannot be read")?;
        Ok((areas as f64, bytes as f64))
    };
    ids.iter().map(of).collect()
}
