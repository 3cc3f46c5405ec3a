//! Paging the memory of another process out and in.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use weal_model::Bytes;

/// The kernel takes at most so many ranges at once (`UIO_MAXIOV`).
const RANGES_AT_ONCE: usize = 1024;

/// What to do with a process's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// Write it to swap and free it.
    PageOut,
    /// Read it from swap.
    WillNeed,
}

impl Advice {
    fn number(self) -> libc::c_int {
        match self {
            Self::PageOut => libc::MADV_PAGEOUT,
            Self::WillNeed => libc::MADV_WILLNEED,
        }
    }
}

/// Advises the kernel about all private memory of `pid`. Needs its user or CAP_SYS_NICE.
///
/// Ranges that the kernel refuses (locked, huge, of a device) are passed over. That the process is gone is no error.
pub fn advise(pid: u32, advice: Advice) -> io::Result<()> {
    let maps = match fs::read_to_string(format!("/proc/{pid}/maps")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        maps => maps?,
    };
    let Some(pid) = Pid::from_raw(pid.cast_signed()) else { return Ok(()) };
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    let ranges = ranges(&maps);
    for some in ranges.chunks(RANGES_AT_ONCE) {
        let mut rest = some;
        while !rest.is_empty() {
            match process_madvise(process.as_raw_fd(), rest, advice.number()) {
                Ok(done) => rest = &rest[skip(rest, done).max(1).min(rest.len())..],
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(()),
                Err(error) if error.raw_os_error() == Some(libc::EPERM) => return Err(error),
                // The first range is one that it refuses.
                Err(_) => rest = &rest[1..],
            }
        }
    }
    Ok(())
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

fn process_madvise(process: i32, ranges: &[libc::iovec], advice: libc::c_int) -> io::Result<usize> {
    // SAFETY: the ranges are addresses in the other process; the kernel reads the list, which lives during the call.
    let done = unsafe { libc::syscall(libc::SYS_process_madvise, process, ranges.as_ptr(), ranges.len(), advice, 0) };
    usize::try_from(done).map_err(|_| io::Error::last_os_error())
}

/// The private and anonymous memory in `/proc/PID/maps`, without what the kernel puts into every process.
fn ranges(maps: &str) -> Vec<libc::iovec> {
    let range = |line: &str| {
        let mut fields = line.split_whitespace();
        let (range, rights, name) = (fields.next()?, fields.next()?, fields.nth(3).unwrap_or(""));
        let is_special = name.starts_with("[v") || !rights.ends_with('p') || rights.starts_with("---");
        let (start, end) = range.split_once('-')?;
        let (start, end) = (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
        (!is_special).then(|| libc::iovec { iov_base: start as *mut libc::c_void, iov_len: end.saturating_sub(start) })
    };
    maps.lines().filter_map(range).collect()
}

/// Free swap, from `/proc/swaps`.
pub fn free_swap(swaps: &str) -> Bytes {
    let kib = |line: &str| {
        let mut fields = line.split_whitespace().skip(2);
        let (size, used): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        Some(size.saturating_sub(used))
    };
    Bytes(swaps.lines().skip(1).filter_map(kib).sum::<u64>() * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_private_memory_is_advised_about() {
        let maps = "55d0-55d4 r-xp 00000000 08:01 123 /usr/bin/x
7f00-7f08 rw-p 00000000 00:00 0
7f10-7f18 rw-s 00000000 00:01 9 /dev/zero (deleted)
7f20-7f28 ---p 00000000 00:00 0
7ff0-7ff4 rw-p 00000000 00:00 0 [stack]
7ff8-7ffa r--p 00000000 00:00 0 [vvar]";
        let found: Vec<(usize, usize)> = ranges(maps).iter().map(|range| (range.iov_base as usize, range.iov_len)).collect();
        assert_eq!(found, [(0x55d0, 4), (0x7f00, 8), (0x7ff0, 4)]);
    }

    #[test]
    fn done_bytes_are_counted_in_ranges() {
        let list: Vec<libc::iovec> =
            [4, 8, 4].iter().map(|length| libc::iovec { iov_base: std::ptr::null_mut(), iov_len: *length }).collect();
        assert_eq!([0, 4, 11, 12, 16].map(|bytes| skip(&list, bytes)), [0, 1, 1, 2, 3]);
    }

    #[test]
    fn free_swap_is_the_sum_over_devices() {
        let swaps = "Filename Type Size Used Priority\n/dev/sda2 partition 1000 400 -2\n/swap file 500 0 -3\n";
        assert_eq!(free_swap(swaps), Bytes(1100 * 1024));
        assert_eq!(free_swap("Filename Type Size Used Priority\n"), Bytes(0));
        assert_eq!(free_swap(""), Bytes(0));
    }
}
