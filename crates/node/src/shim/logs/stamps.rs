//! When lines came. Beside `NUMBER.log` stands `NUMBER.times`: pairs of an offset in the log and a time, 16 bytes each, ascending by offset.
//!
//! A pair holds for all lines from its offset to the next pair's. The shim writes at most one per read and per millisecond, so a program that
//! writes much costs little, and a program that writes one line now and then costs 16 bytes a line.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use weal_model::Time;

/// The size of a pair.
pub const STAMP_BYTES: u64 = 16;
/// A log's file is full with so many, however small it is: 2 MiB of times.
pub const MOST_STAMPS: u64 = 1 << 17;
/// Lines that came within it share a time.
pub const RESOLUTION: Duration = Duration::from_millis(1);

/// A pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Where the first line begins that it holds for.
    pub offset: u64,
    /// When that was read.
    pub time: Time,
}

impl Stamp {
    /// As it stands in the file: both numbers with their lowest byte first.
    pub fn to_bytes(self) -> [u8; STAMP_BYTES as usize] {
        let mut bytes = [0; STAMP_BYTES as usize];
        bytes[..8].copy_from_slice(&self.offset.to_le_bytes());
        bytes[8..].copy_from_slice(&self.time.0.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: [u8; STAMP_BYTES as usize]) -> Self {
        let half = |at: usize| u64::from_le_bytes(std::array::from_fn(|index| bytes[at + index]));
        Self { offset: half(0), time: Time(half(8)) }
    }
}

/// The file of the times of `NUMBER.log`.
pub fn path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number}.times"))
}

/// The times of one file.
#[derive(Debug)]
pub struct Stamps {
    file: File,
    count: u64,
}

impl Stamps {
    /// Those of `NUMBER.log` in `folder`; `None` where none were written, as in a log of an older version.
    pub fn open(folder: &Path, number: u64) -> Option<Self> {
        let file = File::open(path(folder, number)).ok()?;
        let count = file.metadata().ok()?.len() / STAMP_BYTES;
        (count > 0).then_some(Self { file, count })
    }

    /// Where the first line begins that came at `time` or later.
    pub fn first_since(&self, time: Time) -> Option<u64> {
        let index = self.first(|stamp| stamp.time >= time);
        self.get(index).map(|stamp| stamp.offset)
    }

    /// Those that hold for lines that begin at `from` up to `to`.
    pub fn within(&self, from: u64, to: u64) -> impl Iterator<Item = Stamp> + '_ {
        let begin = self.first(|stamp| stamp.offset > from).saturating_sub(1);
        (begin..self.count).map_while(|index| self.get(index)).take_while(move |stamp| stamp.offset < to)
    }

    /// The index of the first for which `is` holds, where it holds for all after that too.
    fn first(&self, is: impl Fn(Stamp) -> bool) -> u64 {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low.midpoint(high);
            if self.get(middle).is_none_or(&is) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low
    }

    fn get(&self, index: u64) -> Option<Stamp> {
        let mut bytes = [0; STAMP_BYTES as usize];
        (index < self.count).then_some(())?;
        self.file.read_exact_at(&mut bytes, index * STAMP_BYTES).ok()?;
        Some(Stamp::from_bytes(bytes))
    }
}
