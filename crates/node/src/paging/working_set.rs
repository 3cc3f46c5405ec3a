//! What a process needs to answer after a sleep: the pages that it touched the last few times that it woke.
//!
//! Al-Qudah's untried idea (section 7, "snapshot prefetching"). Recorded as: of the pages that were paged out when it fell
//! asleep, those that are mapped again a while after it woke. Reading ahead fills the swap cache and maps nothing, so what
//! was prefetched in vain is not recorded again, and the set stays true although it is used.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};
use weal_host::maps::{Backing, addresses};
use weal_host::pagemap;
use weal_host::ranges::Ranges;
use weal_host::{Identity, Proc};
use weal_model::Rung;

/// So many activations count for what is read ahead: requests differ, and what two of a few needed the next may need. Older ones are
/// forgotten, so that the set does not grow for ever.
const LATELY: usize = 3;
/// And so many for what is kept on the warm rung: a server that hands its connections to four threads in turn touches the stack of each in every
/// fourth request.
const REMEMBERED: usize = 8;
/// Of those, so many must have touched it. Of what two did a wake needs one page in ten, and of what has stayed since, half: a JVM's compiler takes
/// megabytes in two wakes that no other needs. With four a WildFly has 3.4 MB less in memory than with three, and waits for the disk for 20 pages more
/// ([`TRIED`] being the same).
const OFTEN: usize = 4;
/// So much of an instance stays in memory when it is parked because it lies scattered on the disk. A WildFly needs 2,000 pages to answer,
/// and 500 of them are worth as many requests as all others together.
const SCATTERED: u64 = 5 << 19;
/// Where memory is taken page by page, as an allocator does, twice as much as was taken last is expected next, within these bounds. A WildFly takes
/// six pages in a row for a request, and two or three each in a dozen other places.
const AHEAD: std::ops::RangeInclusive<u64> = 4 << 12..=32 << 12;
/// And in all such places at most so much.
const AHEAD_IN_ALL: u64 = 1 << 20;
/// Each sleep checks one of so many parts of what is kept. A WildFly that was warm has two hundred faults more then, of half a millisecond in all.
const PARTS: u64 = 8;
/// And each sleep so little of what cannot be read ahead: each fault of it waits for the disk.
const COSTLY_PARTS: u64 = 64;
/// Bytes of one block; every so many blocks are a part.
const BLOCK: u64 = 1 << 16;
/// So much of what was touched lately, and not often enough to be kept on the warm rung, is in memory and not mapped: what is touched again is in
/// the set from then on, and had not to be read from the disk for that.
const TRIED: u64 = 9 << 20;
/// And on the parked rung of what not each of the last wakes touched: to read that beside the process made it wait for the disk, too. A WildFly
/// answers in 23 ms from parked, and in 30 when it is read.
const TRIED_PARKED: u64 = 13 << 18;

/// The working sets of all processes of an instance.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkingSet {
    processes: Vec<Process>,
    /// What was kept in the last sleep.
    #[serde(default)]
    kept: Kept,
    /// Sleeps of which it was recorded what was needed after them.
    #[serde(default)]
    recorded: u64,
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
    /// when it is advised about a file's mapping. So they are kept, or read by being touched, and then no wake shows whether they are needed.
    #[serde(default)]
    changed: Ranges,
    /// What of it lies scattered on the disk, and stays in memory in this sleep.
    #[serde(default)]
    scattered: Ranges,
    /// Where it takes memory page by page, the latest first.
    #[serde(default)]
    fronts: Vec<Front>,
    /// What stays mapped in this sleep: worked out once, because that takes a busy machine's idle time.
    #[serde(default)]
    kept: Ranges,
    /// What of it is in memory in this sleep and not mapped, so that the next wake shows whether it is needed.
    #[serde(default)]
    checked: Ranges,
    /// What was touched lately, and is tried in the same way.
    #[serde(default)]
    tried: Ranges,
    /// What it cannot do without: what each of those activations touched, and had mapped of files. Kept, because it is wanted while a request
    /// waits.
    #[serde(default)]
    core: Ranges,
    /// All that it is likely to touch, the core included.
    #[serde(default)]
    needed: Ranges,
}

/// Where memory is taken page by page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Front {
    /// The address up to which it was taken.
    at: u64,
    /// Bytes that are expected to be taken next.
    next: u64,
    /// Activations since it moved on.
    still: usize,
}

/// What of the working set stays mapped in a sleep, but for a part that is checked. Mapped pages save a fault each when it wakes, but show no more
/// whether they are needed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kept {
    /// All of it: a warm sleep.
    All,
    /// What cannot be read ahead, or only with a request to the disk for each page: a parked one.
    #[default]
    Costly,
}

impl WorkingSet {
    /// True when nothing was recorded yet.
    pub fn is_empty(&self) -> bool {
        self.processes.iter().all(|process| process.touched.is_empty())
    }

    fn known(&self, process: Identity) -> Option<&Process> {
        self.processes.iter().find(|known| known.identity == process)
    }

    /// What `process` needs before anything else.
    pub fn core_of(&self, process: Identity) -> Ranges {
        self.known(process).map(|known| known.core.clone()).unwrap_or_default()
    }

    /// What `process` is likely to touch besides and is not in memory in this sleep.
    pub fn rest_of(&self, process: Identity) -> Ranges {
        self.known(process).map(|process| process.needed.minus(&process.core).minus(&process.tried)).unwrap_or_default()
    }

    /// What `process` needs.
    pub fn of(&self, process: Identity) -> Ranges {
        self.known(process).map(|known| known.needed.clone()).unwrap_or_default()
    }

    /// The part of it that advice does not reach, what `process` has changed of files; without what this wake is to show.
    pub fn changed_of(&self, process: Identity) -> Ranges {
        self.known(process).map(|process| process.changed_lately().minus(&process.checked)).unwrap_or_default()
    }

    /// What of `process` stays mapped in this sleep.
    pub fn kept_of(&self, process: Identity) -> Ranges {
        self.known(process).map(|process| process.kept.clone()).unwrap_or_default()
    }

    /// Bytes that stay mapped in this sleep.
    pub fn bytes_kept(&self) -> u64 {
        self.processes.iter().map(|process| process.kept.bytes()).sum()
    }

    /// What of `process` is in memory all the same in a sleep that keeps `kept`, and not mapped.
    pub fn unmapped_of(&self, process: Identity, kept: Kept) -> Ranges {
        let Some(process) = self.known(process) else { return Ranges::default() };
        match kept {
            Kept::All => process.checked.union(&process.tried).union(&process.ahead()),
            Kept::Costly => process.tried.clone(),
        }
    }

    /// How much to keep in the sleep on `rung` that begins now. What lies scattered is found out when it is paged out.
    pub fn keep_on(&mut self, rung: Rung) -> Kept {
        let kept = match rung {
            Rung::Suspended | Rung::Warm => Kept::All,
            Rung::Parked => Kept::Costly,
        };
        let mut left = if kept == Kept::All { TRIED } else { TRIED_PARKED };
        for process in &mut self.processes {
            process.scattered = Ranges::default();
            process.checked = process.part(kept, self.recorded);
            let stays = if kept == Kept::All { process.warm() } else { process.costly() };
            process.kept = stays.minus(&process.checked);
            process.tried = process.tried(kept, left);
            left -= process.tried.bytes();
        }
        kept
    }

    /// All is paged out but what is kept of files: finds what lies scattered on the disk, to be kept as well.
    pub fn handle_paged_out(&mut self, proc: &Proc) {
        let mut left = SCATTERED;
        let living = |process: &&mut Process| proc.identity(process.identity.pid) == Some(process.identity);
        for process in self.processes.iter_mut().filter(living) {
            let unchecked = process.always().minus(&process.checked);
            let pages = pagemap::scattered(proc, process.identity.pid, &unchecked, left);
            process.scattered = pages.unwrap_or_default();
            left -= process.scattered.bytes().min(left);
            process.kept = process.costly().minus(&process.checked);
        }
    }

    /// The processes have fallen asleep: notes what is paged out of them, and forgets those that are gone.
    pub fn handle_asleep(&mut self, proc: &Proc, pids: &[u32], kept: Kept) {
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
            process.note_fronts(&missing);
            process.note_touched(missing, kept);
            process.files = files.intersection(&pages.present);
            process.changed = process.warm().intersection(&files);
            process.needed = process.private().union(&process.files);
            process.core = process.always().union(&process.files);
            // What it wakes from next is not this sleep.
            process.asleep = Ranges::default();
            changed = true;
        }
        self.recorded += u64::from(changed);
        changed
    }
}

impl Process {
    /// What [`Kept::Costly`] keeps.
    fn costly(&self) -> Ranges {
        self.changed_lately().union(&self.scattered)
    }

    /// What it needs of pages of files that it has changed: of these, what one activation touched is not taken for that.
    fn changed_lately(&self) -> Ranges {
        if self.touched.len() < 2 { Ranges::default() } else { self.changed.clone() }
    }

    /// What sleep `number` checks, one that keeps `kept`.
    fn part(&self, kept: Kept, number: u64) -> Ranges {
        if self.touched.len() < 2 {
            return self.changed.clone();
        }
        let costly = self.changed.part(BLOCK, number % COSTLY_PARTS, COSTLY_PARTS);
        let others = if kept == Kept::All { self.warm() } else { self.always() };
        costly.union(&others.minus(&self.changed).part(BLOCK, number % PARTS, PARTS))
    }

    /// It touched `missing` since it woke from a sleep that kept `kept`.
    fn note_touched(&mut self, missing: Ranges, kept: Kept) {
        let assumed = match kept {
            // What was checked and is still asleep was not needed.
            Kept::All => self.warm().minus(&self.checked.intersection(&self.asleep).minus(&missing)),
            Kept::Costly => self.costly().minus(&self.asleep),
        };
        let own = missing.union(&assumed);
        // Once not needed is not never: it counts as touched once from now on, so that it is tried for a while.
        let unneeded = self.checked.minus(&own);
        self.touched.iter_mut().for_each(|before| *before = before.minus(&unneeded));
        let own = own.union(&unneeded);
        self.touched.push_back(own);
        while self.touched.len() > REMEMBERED {
            self.touched.pop_front();
        }
    }

    /// What each activation touched of its own memory.
    fn always(&self) -> Ranges {
        let touched = self.touched.iter().rev().take(LATELY).cloned().reduce(|core, touched| core.intersection(&touched));
        touched.unwrap_or_default().union(&self.ahead())
    }

    /// What it needs of its own memory: what it usually touches, and what comes next.
    fn private(&self) -> Ranges {
        self.usual(LATELY, 2).union(&self.ahead())
    }

    /// What a warm sleep keeps of it.
    fn warm(&self) -> Ranges {
        self.usual(REMEMBERED, OFTEN)
    }

    /// What it touched in at least so many of the `last` activations, or in most of the first few: what one touched was mostly housekeeping that
    /// came by.
    fn usual(&self, last: usize, times: usize) -> Ranges {
        let lately = self.touched.iter().rev().take(last);
        // At index `n`: what was touched more than `n` times.
        let mut more_than = vec![Ranges::default(); times.min(lately.len() / 2 + 1)];
        for touched in lately {
            for n in (1..more_than.len()).rev() {
                more_than[n] = more_than[n].union(&more_than[n - 1].intersection(touched));
            }
            more_than[0] = more_than[0].union(touched);
        }
        more_than.pop().unwrap_or_default()
    }

    /// At most so many bytes of what it touched lately and is neither kept nor read before it goes on: what it usually touches, then the latest.
    fn tried(&self, kept: Kept, most: u64) -> Ranges {
        let (others, first) = match kept {
            Kept::All => (self.warm(), Ranges::default()),
            Kept::Costly => (self.always().union(&self.changed), self.private()),
        };
        std::iter::once(&first).chain(self.touched.iter().rev()).fold(Ranges::default(), |tried, touched| {
            let more = touched.minus(&others).minus(&tried);
            tried.union(&more.first(most - tried.bytes()))
        })
    }

    /// What comes next where it takes memory page by page.
    fn ahead(&self) -> Ranges {
        self.fronts.iter().map(|front| (front.at, front.at + front.next)).collect::<Vec<_>>().into()
    }

    /// It touched `missing` since it woke: what of that goes on where it had touched something moves a front, or begins one.
    fn note_fronts(&mut self, missing: &Ranges) {
        let known = self.touched.iter().fold(Ranges::default(), |known, touched| known.union(touched));
        let ends: BTreeSet<u64> = known.iter().map(|(_, end)| end).chain(self.fronts.iter().map(|front| front.at)).collect();
        let taken = missing.minus(&known);
        let taken: BTreeMap<u64, u64> = taken.iter().filter(|(start, _)| ends.contains(start)).collect();
        let still = self.fronts.iter().filter(|front| !taken.contains_key(&front.at) && front.still < REMEMBERED);
        let still = still.map(|front| Front { still: front.still + 1, ..*front });
        let moved = taken.iter().filter_map(|(start, end)| {
            let room = self.asleep.room_at(*end)?;
            Some(Front { at: *end, next: (2 * (end - start)).clamp(*AHEAD.start(), *AHEAD.end()).min(room), still: 0 })
        });
        let mut left = AHEAD_IN_ALL;
        let fits = |front: &Front| left.checked_sub(front.next).inspect(|rest| left = *rest).is_some();
        self.fronts = moved.chain(still).take_while(fits).collect();
    }
}

/// The addresses of mapped files and shared memory, and where all pages are.
fn pages(proc: &Proc, pid: u32) -> Option<(Ranges, pagemap::Pages)> {
    let regions = proc.regions(pid).ok()?;
    let pages = pagemap::read(proc, pid, &regions).ok()?;
    Some((addresses(&regions, &[Backing::File, Backing::Shared]), pages))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;

    fn pages(ranges: &[(u64, u64)]) -> Ranges {
        ranges.iter().map(|(start, end)| (start * PAGE, end * PAGE)).collect::<Vec<_>>().into()
    }

    /// An allocator that takes ten pages from `at` on in each activation, between housekeeping here and there.
    fn activation(process: &mut Process, at: u64, kept: Kept) -> Ranges {
        let all = pages(&[(0, 10_000)]);
        let stays = if kept == Kept::All { process.warm() } else { Ranges::default() };
        process.asleep = all.minus(&stays);
        let touched = pages(&[(5, 9), (1000 + at, 1010 + at), (5000 + 7 * at, 5001 + 7 * at)]);
        let missing = touched.intersection(&process.asleep);
        process.note_fronts(&missing);
        process.note_touched(missing.clone(), kept);
        missing
    }

    /// Warm sleep `number`, after which `touched` is needed: gives what of that was not mapped.
    fn warm_sleep(process: &mut Process, number: u64, touched: &Ranges) -> Ranges {
        process.checked = process.part(Kept::All, number);
        process.tried = process.tried(Kept::All, TRIED);
        process.asleep = pages(&[(0, 10_000)]).minus(&process.warm().minus(&process.checked));
        let missing = touched.intersection(&process.asleep);
        process.note_fronts(&missing);
        process.note_touched(missing.clone(), Kept::All);
        missing
    }

    #[test]
    fn what_every_fourth_request_touches_is_mostly_warm() {
        let mut process = Process::default();
        let turn = |number: u64| pages(&[(0, 3), (100 * (number % 4) + 100, 100 * (number % 4) + 120)]);
        let from_disk: u64 = (0..80)
            .map(|number| {
                let missing = warm_sleep(&mut process, number, &turn(number)).minus(&process.checked).minus(&process.tried);
                if number < 8 { 0 } else { missing.bytes() / PAGE }
            })
            .sum();
        assert!(from_disk < 72 * 20 / 2, "{from_disk} of {} pages were read from the disk", 72 * 20);
    }

    #[test]
    fn what_is_not_needed_any_more_leaves_the_warm_set_part_by_part() {
        let mut process = Process::default();
        (0..2).for_each(|_| process.touched.push_back(pages(&[(0, 4000)])));
        let needed = pages(&[(0, 10), (3000, 3050)]);
        for number in 0..PARTS {
            let before = process.warm();
            let missing = warm_sleep(&mut process, number, &needed);
            assert_eq!(missing.minus(&process.checked), Ranges::default(), "what is needed was there");
            let given_up = before.minus(&process.warm());
            assert!(given_up.bytes() > 0 && given_up.minus(&process.checked).is_empty(), "sleep {number}: {given_up:?}");
            assert!(process.checked.bytes() <= 4000 * PAGE * 5 / 4 / PARTS, "sleep {number}: {:?}", process.checked);
        }
        assert_eq!(process.warm(), needed);
    }

    #[test]
    fn what_cannot_be_read_ahead_is_checked_little_by_little() {
        let mut process = Process { changed: pages(&[(0, 4000)]), ..Process::default() };
        (0..2).for_each(|_| process.touched.push_back(pages(&[(0, 4000)])));
        let needed = pages(&[(0, 10)]);
        for number in 0..COSTLY_PARTS {
            warm_sleep(&mut process, number, &needed);
            assert!(process.checked.bytes() <= 4 * BLOCK, "sleep {number}: {:?}", process.checked);
        }
        assert_eq!(process.warm(), needed);
    }

    #[test]
    fn what_is_touched_now_and_then_is_tried_and_stays_when_it_was_touched_often() {
        let mut process = Process::default();
        (0..4).for_each(|_| process.touched.push_back(pages(&[(0, 10)])));
        warm_sleep(&mut process, 0, &pages(&[(0, 10), (500, 510), (700, 5000)]));
        assert_eq!(process.warm(), pages(&[(0, 10)]));
        warm_sleep(&mut process, 1, &pages(&[(0, 10), (500, 510)]));
        assert_eq!(process.tried.bytes(), TRIED, "no more of what it touched once than that is in memory");
        assert!(pages(&[(500, 510)]).minus(&process.tried).is_empty());
        warm_sleep(&mut process, 2, &pages(&[(0, 10), (500, 510)]));
        assert_eq!(process.warm(), pages(&[(0, 10)]), "three times are not often");
        warm_sleep(&mut process, 3, &pages(&[(0, 10), (500, 510)]));
        assert!(pages(&[(500, 510)]).minus(&process.tried).is_empty());
        assert_eq!(process.warm(), pages(&[(0, 10), (500, 510)]));
    }

    #[test]
    fn most_of_the_first_few_wakes_are_often() {
        let mut process = Process::default();
        let kept = [vec![(0, 9)], vec![(0, 3), (20, 30)], vec![(0, 2), (20, 30)], vec![(0, 1), (20, 30)]].map(|touched| {
            process.touched.push_back(pages(&touched));
            process.warm()
        });
        assert_eq!(kept, [pages(&[(0, 9)]), pages(&[(0, 3)]), pages(&[(0, 3), (20, 30)]), pages(&[(0, 2), (20, 30)])]);
    }

    #[test]
    fn what_was_changed_of_files_is_not_read_for_ever_because_it_was_read_once() {
        let (files, needed) = (pages(&[(1000, 3000)]), pages(&[(1000, 1010), (2500, 2505)]));
        let mut process = Process::default();
        let mut read = Vec::new();
        // A parked sleep in which the page cache is short of memory: nothing stays, all that is known to be needed is read by being touched.
        for number in 0..2 * COSTLY_PARTS {
            process.checked = process.part(Kept::Costly, number);
            process.asleep = pages(&[(0, 4000)]);
            let advised = process.changed_lately().minus(&process.checked);
            let housekeeping = if number < 2 { files.clone() } else { Ranges::default() };
            process.note_touched(needed.union(&advised).union(&housekeeping), Kept::Costly);
            process.changed = process.warm().intersection(&files);
            read.push(advised.bytes() / PAGE);
        }
        assert!(read[..2] == [0, 0] && read[2] > 1900, "{read:?}");
        assert!(*read.last().unwrap() <= 15 && read[3..].windows(2).all(|pair| pair[0] + 16 >= pair[1]), "{read:?}");
    }

    #[test]
    fn what_lay_scattered_and_is_not_needed_any_more_is_given_up_part_by_part() {
        let (before, needed) = (pages(&[(0, 600)]), pages(&[(0, 10), (300, 310)]));
        let mut process = Process { scattered: before.clone(), ..Process::default() };
        (0..2).for_each(|_| process.touched.push_back(before.clone()));
        for number in 0..PARTS {
            process.checked = process.part(Kept::Costly, number);
            process.scattered = process.always().minus(&process.checked);
            process.asleep = pages(&[(0, 4000)]).minus(&process.scattered);
            process.note_touched(needed.intersection(&process.asleep), Kept::Costly);
            assert!(process.checked.bytes() <= 5 * BLOCK, "sleep {number}: {:?}", process.checked);
        }
        assert_eq!(process.always(), needed);
    }

    #[test]
    fn what_an_allocator_takes_next_is_there_when_it_comes_to_it() {
        let mut process = Process::default();
        activation(&mut process, 0, Kept::Costly);
        assert_eq!(process.ahead(), Ranges::default(), "one activation shows no course");
        activation(&mut process, 10, Kept::Costly);
        assert_eq!(process.ahead(), pages(&[(1020, 1040)]), "twice as much as it took");
        for round in 2..40 {
            let ahead = process.ahead();
            let missing = activation(&mut process, 10 * round, Kept::All).minus(&ahead);
            assert!(
                missing.bytes() <= 2 * PAGE,
                "round {round}: of ten pages in a row and one elsewhere, {missing:?} was not there"
            );
        }
        assert!(process.ahead().bytes() < 100 * PAGE, "{:?}", process.ahead());
    }

    #[test]
    fn where_nothing_is_taken_any_more_nothing_is_expected() {
        let mut process = Process::default();
        (0..3).for_each(|round| drop(activation(&mut process, 10 * round, Kept::All)));
        assert!(pages(&[(1030, 1040)]).minus(&process.ahead()).is_empty(), "{:?}", process.ahead());
        (0..=REMEMBERED).for_each(|_| drop(activation(&mut process, 20, Kept::All)));
        assert_eq!(process.ahead(), Ranges::default());
    }

    #[test]
    fn what_comes_next_is_bounded_by_what_there_is_and_in_all() {
        let mut process = Process { asleep: pages(&[(0, 100), (200, 30_000)]), ..Process::default() };
        process.touched.push_back(pages(&[(90, 95)]));
        process.note_fronts(&pages(&[(95, 99)]));
        assert_eq!(process.ahead(), pages(&[(99, 100)]));
        process.touched.push_back((2..202).map(|n| (n * 100 * PAGE, (n * 100 + 1) * PAGE)).collect::<Vec<_>>().into());
        process.note_fronts(&(2..202).map(|n| ((n * 100 + 1) * PAGE, (n * 100 + 20) * PAGE)).collect::<Vec<_>>().into());
        assert!(process.ahead().bytes() > AHEAD_IN_ALL - *AHEAD.end() && process.ahead().bytes() <= AHEAD_IN_ALL);
    }

    #[test]
    fn what_was_not_needed_once_is_still_there_for_a_while_and_then_given_up() {
        let mut process = Process::default();
        (0..2).for_each(|_| process.touched.push_back(pages(&[(0, 400)])));
        let needed = pages(&[(0, 10)]);
        (0..PARTS).for_each(|number| drop(warm_sleep(&mut process, number, &needed)));
        process.tried = process.tried(Kept::All, TRIED);
        assert_eq!((process.warm(), process.tried.clone()), (needed.clone(), pages(&[(10, 400)])), "in memory, and not mapped");
        (0..REMEMBERED as u64).for_each(|number| drop(warm_sleep(&mut process, PARTS + number, &needed)));
        assert_eq!((process.warm(), process.tried(Kept::All, TRIED)), (needed, Ranges::default()));
    }
}
