//! Where each page of a process is, from `/proc/PID/pagemap` (kernel documentation, admin-guide/mm/pagemap).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::maps::Region;
use crate::process::Proc;
use crate::ranges::Ranges;

const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
/// A page of a file, or of memory that several processes share.
const OF_FILE: u64 = 1 << 61;
/// Where a swapped page is: the device in bits 0 to 4, the slot in bits 5 to 54. Zero for who may not know.
const PLACE: u64 = (1 << 55) - 1;
/// Mappings beyond this are reservations that nobody fills (sanitizers map terabytes); reading their page maps takes minutes.
pub const LARGEST: u64 = 64 << 30;
/// So many pages that lie together are read as quickly as one.
const SMALL_COMPANY: usize = 4;
/// Entries read at once.
const BATCH: usize = 1 << 15;

/// What is in memory and what is in swap.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Pages {
    /// Mapped and in memory. What was only read ahead into the swap cache is not.
    pub present: Ranges,
    /// Those of `present` that are nobody else's and no file's.
    pub private: Ranges,
    /// In swap, or in the swap cache.
    pub swapped: Ranges,
    /// How many contiguous areas of swap the swapped pages take; 0 when that may not be known.
    pub areas: usize,
}

/// Where the pages of `regions` of `pid` are, as `proc` shows it.
pub fn read(proc: &Proc, pid: u32, regions: &[Region]) -> io::Result<Pages> {
    let (mut pages, mut places) = (Pages::default(), Vec::new());
    let ranges = regions.iter().map(|region| (region.start, region.end)).filter(|(start, end)| end - start <= LARGEST);
    for_each(proc, pid, ranges, |start, end, entry| {
        if entry & PRESENT != 0 {
            pages.present.push(start, end);
            if entry & OF_FILE == 0 {
                pages.private.push(start, end);
            }
        } else if entry & SWAPPED != 0 {
            pages.swapped.push(start, end);
            places.push(turned(entry & PLACE));
        }
    })?;
    pages.areas = areas(places);
    Ok(pages)
}

/// Calls `look` with each page of `ranges` of `pid`, from its first address to the one after its last, and with what the page map has for it.
fn for_each(
    proc: &Proc,
    pid: u32,
    ranges: impl Iterator<Item = (u64, u64)>,
    mut look: impl FnMut(u64, u64, u64),
) -> io::Result<()> {
    let file = open(proc, pid)?;
    let page = rustix::param::page_size() as u64;
    let mut buffer = vec![0u8; BATCH * 8];
    for (start, end) in ranges {
        let (mut at, last) = (start / page, end / page);
        while at < last {
            let wanted = usize::try_from(last - at).unwrap_or(BATCH).min(BATCH) * 8;
            let got = file.read_at(&mut buffer[..wanted], at * 8)? / 8;
            if got == 0 {
                break;
            }
            for entry in buffer[..got * 8].chunks_exact(8).map(|bytes| u64::from_ne_bytes(bytes.try_into().unwrap_or_default())) {
                look(at * page, (at + 1) * page, entry);
                at += 1;
            }
        }
    }
    Ok(())
}

/// How many contiguous areas of swap `pid` takes (al-Qudah table 1), and its bytes there; `None` when its page map cannot be read.
pub fn swap_areas(proc: &Proc, pid: u32) -> Option<(usize, u64)> {
    let pages = read(proc, pid, &proc.regions(pid).ok()?).ok()?;
    Some((pages.areas, pages.swapped.bytes()))
}

/// What of `ranges` of `pid` is mapped and in memory.
pub fn present(proc: &Proc, pid: u32, ranges: &Ranges) -> io::Result<Ranges> {
    let mut present = Ranges::default();
    for_each(proc, pid, ranges.iter(), |start, end, entry| {
        if entry & PRESENT != 0 {
            present.push(start, end);
        }
    })?;
    Ok(present)
}

/// How many of the pages at `addresses` of `pid` are in swap.
pub fn swapped_of(proc: &Proc, pid: u32, addresses: &[u64]) -> io::Result<usize> {
    let file = open(proc, pid)?;
    let page = rustix::param::page_size() as u64;
    let mut swapped = 0;
    for at in addresses {
        let mut entry = [0; 8];
        file.read_exact_at(&mut entry, at / page * 8)?;
        swapped += usize::from(u64::from_ne_bytes(entry) & (PRESENT | SWAPPED) == SWAPPED);
    }
    Ok(swapped)
}

fn open(proc: &Proc, pid: u32) -> io::Result<File> {
    File::open(proc.path(pid, "pagemap"))
}

/// How many runs of neighbouring slots there are.
fn areas(mut places: Vec<u64>) -> usize {
    places.sort_unstable();
    places.dedup();
    match places.as_slice() {
        [] | [0] => 0,
        places => places.chunk_by(|a, b| *b == a + 1).count(),
    }
}

/// Of `pages`, which are in swap, those that lie alone or in small company there, the loneliest first, up to `most` bytes: to read them takes a
/// request to the disk each, or nearly. Nothing for who may not know the places.
pub fn scattered(proc: &Proc, pid: u32, pages: &Ranges, most: u64) -> io::Result<Ranges> {
    let mut places = Vec::new();
    for_each(proc, pid, pages.iter(), |start, end, entry| {
        if entry & (PRESENT | SWAPPED) == SWAPPED && entry & PLACE != 0 {
            places.push((turned(entry & PLACE), (start, end)));
        }
    })?;
    places.sort_unstable();
    places.dedup_by_key(|(place, _)| *place);
    let mut runs: Vec<_> = places.chunk_by(|a, b| b.0 == a.0 + 1).filter(|run| run.len() <= SMALL_COMPANY).collect();
    runs.sort_by_key(|run| run.len());
    let mut left = most;
    let fits = |run: &&[(u64, (u64, u64))]| {
        let bytes: u64 = run.iter().map(|(_, (start, end))| end - start).sum();
        left.checked_sub(bytes).inspect(|rest| left = *rest).is_some()
    };
    Ok(runs.into_iter().take_while(fits).flatten().map(|(_, page)| *page).collect::<Vec<_>>().into())
}

/// The device in the high bits, so that slots of one device are neighbours.
fn turned(place: u64) -> u64 {
    (place & 31) << 50 | place >> 5
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maps::Backing;

    #[test]
    fn pages_are_sorted_by_where_they_are() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("7")).unwrap();
        let page = rustix::param::page_size() as u64;
        let slot = |device: u64, slot: u64| SWAPPED | slot << 5 | device;
        let entries = [0, PRESENT | 5, PRESENT | OF_FILE, slot(1, 8), slot(1, 9), 0, slot(1, 20), slot(0, 21)];
        let bytes: Vec<u8> = entries.iter().flat_map(|entry| entry.to_ne_bytes()).collect();
        std::fs::write(folder.path().join("7/pagemap"), bytes).unwrap();
        let region = Region { start: page, end: 8 * page, backing: Backing::Anonymous };
        let pages = read(&Proc::new(folder.path()), 7, &[region]).unwrap();
        assert_eq!(pages.present.iter().collect::<Vec<_>>(), [(page, 3 * page)]);
        assert_eq!(pages.private.iter().collect::<Vec<_>>(), [(page, 2 * page)]);
        assert_eq!(pages.swapped.iter().collect::<Vec<_>>(), [(3 * page, 5 * page), (6 * page, 8 * page)]);
        assert_eq!(pages.areas, 3);
        let first_half = Ranges::from(vec![(page, 2 * page), (4 * page, 8 * page)]);
        assert_eq!(present(&Proc::new(folder.path()), 7, &first_half).unwrap().iter().collect::<Vec<_>>(), [(page, 2 * page)]);
        let addresses: Vec<u64> = (1..8).map(|number| number * page).collect();
        assert_eq!(swapped_of(&Proc::new(folder.path()), 7, &addresses).unwrap(), 4);
    }

    #[test]
    fn what_lies_alone_on_the_disk_is_the_first_to_be_kept() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("7")).unwrap();
        let page = rustix::param::page_size() as u64;
        let slot = |slot: u64| SWAPPED | slot << 5;
        // Five neighbours, in memory, one alone, two neighbours in another order, one alone on another device.
        let entries = [slot(8), slot(9), slot(10), slot(11), slot(12), PRESENT, slot(30), slot(51), slot(50), slot(13) | 1];
        let bytes: Vec<u8> = entries.iter().flat_map(|entry| u64::to_ne_bytes(*entry)).collect();
        std::fs::write(folder.path().join("7/pagemap"), bytes).unwrap();
        let all = Ranges::from(vec![(0, 10 * page)]);
        let kept = |most: u64| {
            Vec::from_iter(
                scattered(&Proc::new(folder.path()), 7, &all, most * page).unwrap().iter().map(|(s, e)| (s / page, e / page)),
            )
        };
        assert_eq!(kept(0), []);
        assert_eq!(kept(3), [(6, 7), (9, 10)], "two that go together do not fit");
        assert_eq!(kept(100), [(6, 10)], "five together are read in one go");
    }

    #[test]
    fn our_own_pages_are_in_memory() {
        let (proc, own) = (Proc::system(), std::process::id());
        assert!(read(&proc, own, &proc.regions(own).unwrap()).unwrap().present.bytes() > 0);
    }
}
