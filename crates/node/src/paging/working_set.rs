//! What a process needs to answer after a sleep: the pages that it touched the last few times that it woke.
//!
//! Al-Qudah's untried idea (section 7, "snapshot prefetching"). Recorded as: of the pages that were paged out when it fell
//! asleep, those that are mapped again a while after it woke. Reading ahead fills the swap cache and maps nothing, so what
//! was prefetched in vain is not recorded again, and the set stays true although it is used.

use std::collections::VecDeque;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::maps::{Backing, addresses, regions};
use super::pagemap;
use super::ranges::Ranges;
use crate::process::{Identity, Proc};

/// A set is united from so many activations: requests differ, and what one of a few needed the next may need. Older ones are
/// forgotten, so that it does not grow for ever.
const REMEMBERED: usize = 3;
/// So many warm sleeps in a row keep the set mapped.
const LONGEST_UNCHECKED: u32 = 8;

/// The working sets of all processes of an instance.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkingSet {
    processes: Vec<Process>,
    /// Sleeps in a row with the set kept mapped.
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
    /// All of that. Kept, because it is wanted while a request waits.
    #[serde(default)]
    needed: Ranges,
}

/// Whether the working set stays mapped in a warm sleep. Mapped pages save a fault each when it wakes, but show no more whether
/// they are needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// In memory and mapped.
    Mapped,
    /// In memory, not mapped: the next wake shows what is needed.
    Unmapped,
}

impl WorkingSet {
    /// True when nothing was recorded yet.
    pub fn is_empty(&self) -> bool {
        self.processes.iter().all(|process| process.touched.is_empty())
    }

    /// Bytes of it that no file backs: what it holds of the instance's memory.
    pub fn private_bytes(&self) -> u64 {
        self.processes.iter().map(|process| process.needed.bytes().saturating_sub(process.files.bytes())).sum()
    }

    /// What `process` needs again and again: what it touched most times, the fewest megabytes that answer most requests at once.
    pub fn core_of(&self, process: Identity) -> Ranges {
        self.processes.iter().find(|known| known.identity == process).map(Process::core).unwrap_or_default()
    }

    /// What `process` needs.
    pub fn of(&self, process: Identity) -> Ranges {
        self.processes.iter().find(|known| known.identity == process).map(|known| known.needed.clone()).unwrap_or_default()
    }

    /// How to keep it in the next warm sleep: mapped, and every now and then not, so that a stale one is noticed.
    pub fn keep_as(&self) -> Kept {
        if self.unchecked < LONGEST_UNCHECKED { Kept::Mapped } else { Kept::Unmapped }
    }

    /// The processes have fallen asleep: notes what is paged out of them, and forgets those that are gone.
    pub fn handle_asleep(&mut self, proc: &Proc, pids: &[u32], kept: Kept) {
        self.unchecked = if kept == Kept::Mapped { self.unchecked + 1 } else { 0 };
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
        if self.unchecked > 0 {
            // What was kept mapped shows no more whether it was needed.
            return false;
        }
        for process in self.processes.iter_mut().filter(|process| pids.contains(&process.identity.pid)) {
            let Some((files, pages)) = pages(proc, process.identity.pid) else { continue };
            if proc.identity(process.identity.pid) != Some(process.identity) || process.asleep.is_empty() {
                continue;
            }
            let own = process.asleep.intersection(&pages.present);
            process.files = files.intersection(&pages.present);
            process.touched.push_back(own);
            if process.touched.len() > REMEMBERED {
                process.touched.pop_front();
            }
            process.needed = process.private().union(&process.files);
            // What it wakes from next is not this sleep.
            process.asleep = Ranges::default();
            changed = true;
        }
        changed
    }
}

impl Process {
    /// What at least two activations have touched, or the only one.
    fn core(&self) -> Ranges {
        let touched = Vec::from_iter(&self.touched);
        let pairs = (0..touched.len()).flat_map(|i| (0..i).map(move |j| (i, j)));
        let twice = pairs.fold(Ranges::default(), |core, (i, j)| core.union(&touched[i].intersection(touched[j])));
        if touched.len() == 1 { touched[0].union(&self.files) } else { twice.union(&self.files) }
    }

    fn private(&self) -> Ranges {
        self.touched.iter().fold(Ranges::default(), |all, touched| all.union(touched))
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
