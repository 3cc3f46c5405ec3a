//! What a process needs to answer after a sleep: the pages that it touched the last few times that it woke.
//!
//! Al-Qudah's untried idea (section 7, "snapshot prefetching"). Recorded as: of the pages that were paged out when it fell
//! asleep, those that are mapped again a while after it woke. Reading ahead fills the swap cache and maps nothing, so what
//! was prefetched in vain is not recorded again, and the set stays true although it is used.

use std::collections::VecDeque;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use weal_model::Rung;

use super::maps::{Backing, addresses, regions};
use super::pagemap;
use super::ranges::Ranges;
use crate::process::{Identity, Proc};

/// So many activations count: requests differ, and what two of a few needed the next may need. Older ones are forgotten, so that the
/// set does not grow for ever.
const REMEMBERED: usize = 3;
/// Each range is a request to the disk, and what lies between two that are near costs less to read than a request: measured, 20 us
/// against 3 for a page of 4 KiB. Files' pages are in the page cache, mostly, and cost neither.
const WORTH_READING_TOO: u64 = 4 * 4096;
/// So many sleeps in a row keep something mapped.
const LONGEST_UNCHECKED: u32 = 8;

/// The working sets of all processes of an instance.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkingSet {
    processes: Vec<Process>,
    /// What was kept in the last sleep.
    #[serde(default)]
    kept: Kept,
    /// Sleeps in a row with something kept.
    #[serde(default)]
    unchecked: u32,
}

#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
struct Process {
    identity: Identity,
    /// What was paged out when it fell asleep last.
    asleep: Ranges,
    /// What it touched after each of the last times it woke, the latest last.
    touched: VecDeque<Ranges>,
    /// What it had mapped of files and shared memory after it woke last: page cache, not its own.
    #[serde(default)]
    files: Ranges,
    /// What it touched of pages of files that it has changed for itself. They are in swap like others, but the kernel reads none ahead
    /// when it is advised about a file's mapping.
    #[serde(default)]
    changed: Ranges,
    /// All of that. Kept, because it is wanted while a request waits.
    #[serde(default)]
    needed: Ranges,
}

/// What of the working set stays mapped in a sleep. Mapped pages save a fault each when it wakes, but show no more whether they are
/// needed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kept {
    /// All of it: a warm sleep.
    All,
    /// What cannot be read ahead: pages of files that the process has changed for itself, 3 MB of a WildFly.
    Changed,
    /// Nothing: the next wake shows what is needed.
    #[default]
    Nothing,
}

impl WorkingSet {
    /// True when nothing was recorded yet.
    pub fn is_empty(&self) -> bool {
        self.processes.iter().all(|process| process.touched.is_empty())
    }

    /// What `process` needs, and what is worth reading along.
    pub fn of(&self, process: Identity) -> Ranges {
        self.processes.iter().find(|known| known.identity == process).map(|known| known.needed.clone()).unwrap_or_default()
    }

    /// The part of it that advice does not reach: what `process` has changed of files.
    pub fn changed_of(&self, process: Identity) -> Ranges {
        self.processes.iter().find(|known| known.identity == process).map(|known| known.changed.clone()).unwrap_or_default()
    }

    /// What of it `kept` says for `process`.
    pub fn kept_of(&self, process: Identity, kept: Kept) -> Ranges {
        let Some(process) = self.processes.iter().find(|known| known.identity == process) else { return Ranges::default() };
        match kept {
            Kept::All => process.private(),
            Kept::Changed => process.changed.clone(),
            Kept::Nothing => Ranges::default(),
        }
    }

    /// Bytes that `kept` says.
    pub fn bytes_kept(&self, kept: Kept) -> u64 {
        self.processes.iter().map(|process| self.kept_of(process.identity, kept).bytes()).sum()
    }

    /// How much to keep in the next sleep on `rung`; every now and then nothing, so that a stale set is noticed.
    pub fn keep_on(&self, rung: Rung) -> Kept {
        match rung {
            _ if self.unchecked >= LONGEST_UNCHECKED => Kept::Nothing,
            Rung::Suspended | Rung::Warm => Kept::All,
            Rung::Parked => Kept::Changed,
        }
    }

    /// The processes have fallen asleep: notes what is paged out of them, and forgets those that are gone.
    pub fn handle_asleep(&mut self, proc: &Proc, pids: &[u32], kept: Kept) {
        self.unchecked = if kept == Kept::Nothing { 0 } else { self.unchecked + 1 };
        self.kept = kept;
        let mut before = std::mem::take(&mut self.processes);
        for identity in pids.iter().filter_map(|pid| proc.identity(*pid)) {
            let mut process = match before.iter().position(|known| known.identity == identity) {
                Some(at) => before.swap_remove(at),
                None => Process { identity, ..Process::default() },
            };
            process.asleep = pages(proc, identity.pid).map(|(_, pages)| pages.swapped).unwrap_or_default();
            self.processes.push(process);
        }
    }

    /// The processes are awake for a while: records what they have touched since they fell asleep. True when that changed the set.
    pub fn handle_awake(&mut self, proc: &Proc, pids: &[u32]) -> bool {
        let mut changed = false;
        let kept = self.kept;
        for process in self.processes.iter_mut().filter(|process| pids.contains(&process.identity.pid)) {
            let Some((files, pages)) = pages(proc, process.identity.pid) else { continue };
            if proc.identity(process.identity.pid) != Some(process.identity) || process.asleep.is_empty() {
                continue;
            }
            // What was missing shows that it was needed; of what was kept, that is assumed.
            let missing = process.asleep.intersection(&pages.present);
            let own = if kept == Kept::Changed { missing.union(&process.changed.minus(&process.asleep)) } else { missing };
            process.files = files.intersection(&pages.present);
            match kept {
                // It was needed although it had not been in the set: that counts as often as it takes to be in it.
                Kept::All => process.touched.iter_mut().rev().take(2).for_each(|last| *last = last.union(&own)),
                Kept::Changed | Kept::Nothing => process.touched.push_back(own),
            }
            if process.touched.len() > REMEMBERED {
                process.touched.pop_front();
            }
            let private = process.private();
            process.changed = private.intersection(&files);
            process.needed = private.minus(&files).closed(WORTH_READING_TOO).union(&process.changed).union(&process.files);
            // What it wakes from next is not this sleep.
            process.asleep = Ranges::default();
            changed = true;
        }
        changed
    }
}

impl Process {
    /// What at least two activations have touched, or the only one: what one of three touched was mostly housekeeping that came by.
    fn private(&self) -> Ranges {
        let touched = Vec::from_iter(&self.touched);
        if let [only] = touched[..] {
            return only.clone();
        }
        let pairs = (0..touched.len()).flat_map(|i| (0..i).map(move |j| (i, j)));
        pairs.fold(Ranges::default(), |core, (i, j)| core.union(&touched[i].intersection(touched[j])))
    }
}

/// The addresses of mapped files and shared memory, and where all pages are.
fn pages(proc: &Proc, pid: u32) -> Option<(Ranges, pagemap::Pages)> {
    let maps = fs::read_to_string(proc.path(pid, "maps")).ok()?;
    let regions = regions(&maps);
    let pages = pagemap::read(proc.root(), pid, &regions).ok()?;
    Some((addresses(&regions, &[Backing::File, Backing::Shared]), pages))
}

/// What `pid` has in memory and mapped.
pub fn present(proc: &Proc, pid: u32) -> Ranges {
    pages(proc, pid).map(|(_, pages)| pages.present).unwrap_or_default()
}

/// How many contiguous areas of swap `pid` takes (al-Qudah table 1), and its bytes there.
pub fn swap_areas(proc: &Path, pid: u32) -> Option<(usize, u64)> {
    let pages = pages(&Proc::new(proc), pid)?.1;
    Some((pages.areas, pages.swapped.bytes()))
}
