//! Figure 8: applications of different sizes, whose memory the next request needs as a whole or not at all.

use anyhow::Result;
use weal_reproduce::{Figure, Record, Reproduction, within};

use super::site::{NULL_PAGE, Site};
use super::ways::{ENHANCED, PARKED, REGULAR, Way, settle};
use crate::bench::real::agent::{first_byte_s, serve_requests};
use crate::bench::real::median;

const SIZES_MIB: [u32; 4] = [50, 100, 200, 300];
const WAYS: [Way; 3] = [REGULAR, ENHANCED, PARKED];
const TOUCH: &str = "/bench/memory.jsp";

/// Runs both halves.
pub fn run(site: &Site) -> Result<Reproduction> {
    let halves = [("useful", TOUCH), ("useless", NULL_PAGE)];
    // By half, size and way.
    let mut medians = vec![vec![vec![f64::NAN; WAYS.len()]; SIZES_MIB.len()]; halves.len()];
    let spec = site.server("server-1", NULL_PAGE)?;
    let mut agent = site.agent("")?;
    let address = agent.start_ready(&spec)?.address;
    serve_requests(address, 3000)?;
    for (at, mib) in SIZES_MIB.iter().enumerate() {
        first_byte_s(address, &format!("{TOUCH}?mib={mib}"))?;
        for (number, way) in WAYS.iter().enumerate() {
            agent = agent.replaced(&site.fixture(), way.prefetch)?;
            for ((_, path), medians) in halves.iter().zip(&mut medians) {
                let mut took = Vec::new();
                for round in 0..site.rounds(3) + way.lessons() {
                    way.put_to_rest(&agent, "server-1")?;
                    let took_s = way.activate_s(&agent, "server-1", path)?;
                    settle();
                    took.extend((round >= way.lessons()).then_some(took_s));
                }
                medians[at][number] = median(&took);
            }
        }
    }
    let mut record = Record::new(
        "figure-8",
        "Al-Qudah et al. 4.4, Figure 8",
        "when the next request needs all memory, enhanced resume is the better the larger the application; when it needs none of it, it is no worse up to 280 MB",
        &format!(
            "WildFly 35 with an array of {SIZES_MIB:?} MiB that the request after the resume reads, or not; swap on a file; on {}",
            site.machine
        ),
    );
    for ((half, _), medians) in halves.iter().zip(&medians) {
        let title = format!("ms to resume against size, memory {half}");
        let mut figure = Figure::new(&format!("figure-8-{half}"), &title, ["array, MiB", "ms"], &WAYS.map(|way| way.name));
        for (mib, of_size) in SIZES_MIB.iter().zip(medians) {
            figure.row(f64::from(*mib), &of_size.iter().map(|took_s| took_s * 1e3).collect::<Vec<_>>());
        }
        record.figure(figure);
        for (at, way) in WAYS.iter().enumerate() {
            for size in [0, SIZES_MIB.len() - 1] {
                record.number(&format!("{half}, {} MiB: {}, ms", SIZES_MIB[size], way.name), medians[size][at] * 1e3);
            }
        }
    }
    let gain = |size: usize| medians[0][size][0] - medians[0][size][1];
    record.claim("useful: what enhanced gains grows with the size", gain(SIZES_MIB.len() - 1) > gain(0));
    let largest = &medians[1][SIZES_MIB.len() - 1];
    record.number("useless, largest: enhanced over suspend/resume", largest[1] / largest[0]).paper(within(0.0..=1.0));
    let row = record.number("useless, largest: weal's working set over suspend/resume", largest[2] / largest[0]);
    row.recalculated(within(0.0..=1.0));
    let largest = &medians[0][SIZES_MIB.len() - 1];
    let row = record.number("useful, largest: weal's working set over enhanced", largest[2] / largest[1]);
    row.recalculated(within(0.0..=1.1));
    Ok(record.done())
}
