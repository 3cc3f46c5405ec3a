//! A past for a pool: its store begins with all the samples that it ever keeps, so that a soak measures growth, and not how the store fills.
//!
//! The store's own code writes what the pool measured in its first cycles under load again, for each cycle of the 37 hours before. So the file has
//! the pages, and the gaps between them, of one that was written for so long.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use weal_controller::store::{MINUTES_KEPT_S, RAW_KEPT_S, Store};
use weal_model::{HistorySample, Time};

use crate::chaos::load::{Load, PAUSE};
use crate::chaos::pool::Pool;

/// How long the pool is measured before: its numbers differ from cycle to cycle, and so do the lengths of what the store keeps.
const MEASURED: Duration = Duration::from_secs(30);
/// What the store keeps of minutes begins where that of cycles ends, and it is tidied now and then.
const WRITTEN_S: u64 = MINUTES_KEPT_S + RAW_KEPT_S;
/// Between two tidyings of the store while the controller writes into it.
const TIDIED_EVERY: usize = 60;

/// Gives `pool` its past. Returns what the controller then tells of it, in a sentence.
///
/// # Errors
/// Something fails, or the controller tells of less than the store ever keeps.
pub fn give(pool: &mut Pool, clients: usize) -> Result<String> {
    let load = Load::start(pool.listen(), clients, PAUSE);
    std::thread::sleep(MEASURED);
    let total = load.finish();
    ensure!(total.unexplained.is_empty(), "{}", total.unexplained.join("\n"));
    let cycles = pool.history(MEASURED)?;
    let store = pool.state().join("controller/store.db");
    pool.while_down(|| write(&store, &cycles))?;
    let told = pool.history(Duration::from_secs(MINUTES_KEPT_S))?;
    let hours = told.iter().map(|sample| sample.span_s).sum::<f64>() / 3600.0;
    ensure!(hours > MINUTES_KEPT_S as f64 / 3600.0 - 0.1, "the controller tells of {hours:.2} hours only");
    let kib = std::fs::metadata(&store)?.len() / 1024;
    Ok(format!("At the start, the controller told of {hours:.1} hours in {} samples, and its store had {kib} KiB.", told.len()))
}

/// Writes as many samples before `cycles` as the store keeps, and more, so that it has dropped some.
fn write(store: &Path, cycles: &[HistorySample]) -> Result<()> {
    let (first, last) = cycles.first().zip(cycles.last()).context("the pool has not measured anything yet")?;
    let step = Duration::from_secs_f64(first.span_s);
    let count = (WRITTEN_S as f64 / first.span_s) as usize;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let (store, _, notes) = Store::open(store)?;
    ensure!(notes.is_empty(), "{}", notes.join("; "));
    for turn in 0..count {
        let before = step * u32::try_from(count - turn)?;
        store.save_sample(HistorySample { time: first.time - before, ..cycles[turn % cycles.len()].clone() });
        if turn % TIDIED_EVERY == 0 {
            // It answers after all that came before; what comes faster than it writes, it drops.
            runtime.block_on(store.history(Time(last.time.0.saturating_add(1))));
        }
    }
    let problem = store.problem().borrow().clone();
    ensure!(problem.is_none(), "the store cannot be written: {problem:?}");
    Ok(())
}
