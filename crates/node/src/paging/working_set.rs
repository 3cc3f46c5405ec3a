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
/// So much of an instance stays in memory when it is parked because it lies scattered on the disk. A WildFly needs 2,000 pages to answer,
/// and 500 of them are worth as many requests as all others together.
const SCATTERED: u64 = 3 << 20;
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
    /// What of it lies scattered on the disk, and stays in memory in this sleep.
    #[serde(default)]
    scattered: Ranges,
    /// All that it touched and had mapped. Kept, because it is wanted while a request waits.
    #[serde(default)]
    needed: Ranges,
}

/// What of the working set stays mapped in a sleep. Mapped pages save a fault each when it wakes, but show no more whether they are
/// needed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kept {
    /// All of it: a warm sleep.
    All,
    /// What cannot be read ahead, or only with a request to the disk for each page.
    #[serde(alias = "Changed")]
    Costly,
    /// Nothing: the next wake shows what is needed.
    #[default]
    Nothing,
}

impl WorkingSet {
    /// True when nothing was recorded yet.
    pub fn is_empty(&self) -> bool {
        self.processes.iter().all(|process| process.touched.is_empty())
    }

    /// What `process` needs.
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
            Kept::Costly => process.costly(),
            Kept::Nothing => Ranges::default(),
        }
    }

    /// Bytes that `kept` says.
    pub fn bytes_kept(&self, kept: Kept) -> u64 {
        self.processes.iter().map(|process| self.kept_of(process.identity, kept).bytes()).sum()
    }

    /// How much to keep in the sleep on `rung` that begins now; every now and then nothing, so that a stale set is noticed. What lies scattered
    /// is found out when it is paged out.
    pub fn keep_on(&mut self, rung: Rung) -> Kept {
        self.processes.iter_mut().for_each(|process| process.scattered = Ranges::default());
        match rung {
            _ if self.unchecked >= LONGEST_UNCHECKED => Kept::Nothing,
            Rung::Suspended | Rung::Warm => Kept::All,
            Rung::Parked => Kept::Costly,
        }
    }

    /// All is paged out but what is kept of files: finds what lies scattered on the disk, to be kept as well.
    pub fn handle_paged_out(&mut self, proc: &Proc) {
        let mut left = SCATTERED;
        let living = |process: &&mut Process| proc.identity(process.identity.pid) == Some(process.identity);
        for process in self.processes.iter_mut().filter(living) {
            let pages = pagemap::scattered(proc.root(), process.identity.pid, &process.private(), left);
            process.scattered = pages.unwrap_or_default();
            left -= process.scattered.bytes().min(left);
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
            let own = if kept == Kept::Costly { missing.union(&process.costly().minus(&process.asleep)) } else { missing };
            process.files = files.intersection(&pages.present);
            match kept {
                // It was needed although it had not been in the set: that counts as often as it takes to be in it.
                Kept::All => process.touched.iter_mut().rev().take(2).for_each(|last| *last = last.union(&own)),
                Kept::Costly => process.touched.push_back(own),
                // Nothing of it was assumed: what this one did not touch is not needed any more.
                Kept::Nothing => process.touched.extend([own.clone(), own]),
            }
            while process.touched.len() > REMEMBERED {
                process.touched.pop_front();
            }
            let private = process.private();
            process.changed = private.intersection(&files);
            process.needed = private.union(&process.files);
            // What it wakes from next is not this sleep.
            process.asleep = Ranges::default();
            changed = true;
        }
        changed
    }
}

impl Process {
    /// What [`Kept::Costly`] keeps.
    fn costly(&self) -> Ranges {
        self.changed.union(&self.scattered)
    }

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

/// How many contiguous areas of swap `pid` takes (al-Qudah table 1), and its bytes there.
pub fn swap_areas(proc: &Path, pid: u32) -> Option<(usize, u64)> {
    let pages = pages(&Proc::new(proc), pid)?.1;
    Some((pages.areas, pages.swapped.bytes()))
}
