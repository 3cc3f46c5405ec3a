//! Paging the memory of another process out and in.
//!
//! [`working_set`] says what is needed after a sleep. Where the pages are is read by `weal_host`.
//!
//! Two system calls do the work: `process_madvise` with `MADV_PAGEOUT` and `MADV_WILLNEED`. Both need the process's user and
//! CAP_SYS_NICE.

pub mod working_set;

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::thread::CapabilitySet;

use weal_host::Proc;
use weal_host::maps::{Backing, addresses};
use weal_host::pagemap;
use weal_host::ranges::Ranges;

/// The kernel takes at most so many ranges at once (`UIO_MAXIOV`).
const RANGES_AT_ONCE: usize = 1024;
/// Bytes between two looks at whether to go on with what is read ahead.
const PIECE: u64 = 4 << 20;
/// Bytes that are paged out in one go. It holds up who waits for the same core or for the same disk, and a wake that waits for it to let go:
/// 64 KiB took some 50 us, on a slower machine twice as long.
pub const PAGED_OUT_AT_ONCE: u64 = 32 << 10;

/// What to do with a process's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// Write it to swap and free it.
    PageOut,
    /// Read it from swap or from its file.
    WillNeed,
    /// Leave it in memory, as the first to go when somebody wants some.
    Cold,
}

impl Advice {
    fn number(self) -> libc::c_int {
        match self {
            Self::PageOut => libc::MADV_PAGEOUT,
            Self::WillNeed => libc::MADV_WILLNEED,
            Self::Cold => libc::MADV_COLD,
        }
    }

    /// Bytes between two looks at whether to go on.
    fn piece(self) -> u64 {
        if self == Self::PageOut { PAGED_OUT_AT_ONCE } else { PIECE }
    }
}

/// The memory of a process, by what is behind each page.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct ProcessMemory {
    /// What swap backs, whatever is mapped there: also what the process has changed of a private file.
    pub own: Ranges,
    /// Mappings of files: page cache, but for what is in `own`.
    pub files: Ranges,
}

/// All memory of `pid` that can be paged; nothing when it is gone.
pub fn memory_of(proc: &Proc, pid: u32) -> io::Result<ProcessMemory> {
    let mut regions = match proc.regions(pid) {
        Err(error) if error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH) => {
            return Ok(ProcessMemory::default());
        }
        other => other?,
    };
    regions.retain(|region| region.end - region.start <= pagemap::LARGEST);
    let swap_backed = addresses(&regions, &[Backing::Anonymous, Backing::Shared]);
    regions.retain(|region| region.backing == Backing::File);
    // Who may not read the page map leaves the little that was changed of files in memory.
    let changed = pagemap::read(proc, pid, &regions).map(|pages| pages.private).unwrap_or_default();
    Ok(ProcessMemory { own: swap_backed.union(&changed), files: addresses(&regions, &[Backing::File]) })
}

/// What of `ranges` of `pid` is mapped and in memory: of a heap that was reserved and hardly used, that is little. All of it for who may not know.
pub fn present(proc: &Proc, pid: u32, ranges: &Ranges) -> Ranges {
    pagemap::present(proc, pid, ranges).unwrap_or_else(|_| ranges.clone())
}

/// Advises the kernel about `ranges` of `pid`, piece by piece as long as `go_on` says so; false when it did not.
///
/// What the kernel refuses (locked, huge, of a device, gone) is passed over. That the process is gone is no error.
pub fn advise(pid: u32, ranges: &Ranges, advice: Advice, mut go_on: impl FnMut() -> bool) -> io::Result<bool> {
    let Some(process) = open(pid) else { return Ok(true) };
    for piece in ranges.pieces(advice.piece()) {
        for some in piece.chunks(RANGES_AT_ONCE) {
            let list: Vec<libc::iovec> = some.iter().map(|range| iovec(*range)).collect();
            if !advise_list(&process, &list, advice)? {
                return Ok(true);
            }
        }
        if !go_on() {
            return Ok(false);
        }
    }
    Ok(true)
}

fn open(pid: u32) -> Option<OwnedFd> {
    pidfd_open(Pid::from_raw(pid.cast_signed())?, PidfdFlags::empty()).ok()
}

fn iovec((start, end): (u64, u64)) -> libc::iovec {
    libc::iovec { iov_base: start as *mut libc::c_void, iov_len: usize::try_from(end - start).unwrap_or(usize::MAX) }
}

/// False when the process is gone.
fn advise_list(process: &OwnedFd, list: &[libc::iovec], advice: Advice) -> io::Result<bool> {
    let mut rest = list;
    while !rest.is_empty() {
        match process_madvise(process, rest, advice.number()) {
            Ok(done) => rest = &rest[skip(rest, done).max(1).min(rest.len())..],
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(false),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS)) => return Err(error),
            // The first range is one that it refuses.
            Err(_) => rest = &rest[1..],
        }
    }
    Ok(true)
}

/// How many of `ranges` are done when `bytes` are.
fn skip(ranges: &[libc::iovec], bytes: usize) -> usize {
    let mut left = bytes;
    ranges
        .iter()
        .take_while(|range| {
            let is_done = range.iov_len <= left;
            left = left.saturating_sub(range.iov_len);
            is_done
        })
        .count()
}

fn process_madvise(process: &OwnedFd, ranges: &[libc::iovec], advice: libc::c_int) -> io::Result<usize> {
    // SAFETY: the ranges are addresses in the other process; the kernel reads the list, which lives during the call.
    let done = unsafe { libc::syscall(libc::SYS_process_madvise, process.as_raw_fd(), ranges.as_ptr(), ranges.len(), advice, 0) };
    usize::try_from(done).map_err(|_| io::Error::last_os_error())
}

/// True when the kernel lets this process advise about others' memory. About its own it may, since Linux 6.13, without that right.
pub fn may_advise() -> bool {
    let knows_how = || open(std::process::id()).is_some_and(|own| process_madvise(&own, &[], libc::MADV_WILLNEED).is_ok());
    let has_right = rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_NICE));
    has_right && knows_how()
}

/// Maps each page of `ranges` of `pid` by reading a byte: waking up has no fault there. Only a help: what cannot be read is passed over.
pub fn touch(pid: u32, ranges: &Ranges) {
    let page = rustix::param::page_size() as u64;
    let pages: Vec<libc::iovec> =
        ranges.iter().flat_map(|(start, end)| (start..end).step_by(page as usize)).map(|at| iovec((at, at + 1))).collect();
    let mut bytes = [0u8; RANGES_AT_ONCE];
    for some in pages.chunks(RANGES_AT_ONCE) {
        let mut rest = some;
        while !rest.is_empty() {
            let into = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: rest.len() };
            // SAFETY: `into` is our own buffer of at least so many bytes; the rest are addresses in the other process.
            let read =
                unsafe { libc::process_vm_readv(pid.cast_signed(), &raw const into, 1, rest.as_ptr(), rest.len() as u64, 0) };
            match usize::try_from(read) {
                Ok(read) if read > 0 => rest = &rest[read.min(rest.len())..],
                _ if matches!(io::Error::last_os_error().raw_os_error(), Some(libc::ESRCH | libc::EPERM)) => return,
                _ => rest = &rest[1..],
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

    use super::*;

    #[test]
    fn done_bytes_are_counted_in_ranges() {
        let list: Vec<libc::iovec> = [4, 8, 4].iter().map(|length| iovec((0, *length))).collect();
        assert_eq!([0, 4, 11, 12, 16].map(|bytes| skip(&list, bytes)), [0, 1, 1, 2, 3]);
    }

    #[test]
    fn our_own_memory_can_be_mapped_in_and_advised_about() {
        let own = std::process::id();
        let heap = vec![7u8; 1 << 20];
        let start = heap.as_ptr() as u64 / 4096 * 4096 + 4096;
        let ranges = Ranges::from(vec![(start, start + (1 << 19)), (1 << 46, (1 << 46) + 8192)]);
        touch(own, &ranges);
        if may_advise() {
            assert!(advise(own, &ranges, Advice::WillNeed, || true).unwrap());
            assert!(!advise(own, &ranges, Advice::WillNeed, || false).unwrap());
        }
        assert!(heap.iter().all(|byte| *byte == 7));
    }

    #[test]
    fn of_memory_that_was_reserved_only_what_is_used_counts() {
        let reserve = |bytes: u64, rights: ProtFlags| {
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
            // SAFETY: new memory at an address of the kernel's choice.
            unsafe { mmap_anonymous(std::ptr::null_mut(), bytes as usize, rights, flags).unwrap() }
        };
        // With the same rights they could be one mapping.
        let (huge, large) = (reserve(1 << 40, ProtFlags::READ), reserve(1 << 30, ProtFlags::READ | ProtFlags::WRITE));
        // SAFETY: it is ours, and nobody else knows of it.
        unsafe { large.cast::<u8>().add(1 << 20).write_volatile(7) };
        let own = std::process::id();
        let memory = memory_of(&Proc::system(), own).unwrap();
        let of_large = Ranges::from(vec![(large as u64, large as u64 + (1 << 30))]);
        assert_eq!(memory.own.room_at(huge as u64), None, "a sanitizer's terabytes are nobody's memory");
        assert_eq!(memory.own.intersection(&of_large), of_large);
        let used = present(&Proc::system(), own, &of_large).bytes();
        // One page, or a huge one.
        assert!((4 << 10..=2 << 20).contains(&used), "{used}");
        for (start, bytes) in [(huge, 1usize << 40), (large, 1 << 30)] {
            // SAFETY: nobody uses it any more.
            unsafe { munmap(start, bytes).unwrap() };
        }
    }

    #[test]
    fn who_lost_the_right_is_not_taken_for_one_who_may_advise() {
        let lost = std::thread::spawn(|| {
            let mut sets = rustix::thread::capabilities(None).unwrap();
            sets.effective.remove(CapabilitySet::SYS_NICE);
            // Of this thread only.
            rustix::thread::set_capabilities(None, sets).unwrap();
            may_advise()
        });
        assert!(!lost.join().unwrap());
    }
}
