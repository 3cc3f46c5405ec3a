//! What a process has mapped, from `/proc/PID/maps`.

use std::io;

use crate::process::Proc;
use crate::ranges::Ranges;
use crate::read::{LIST, text};

/// What is behind a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backing {
    /// Nothing but swap, for this process alone.
    Anonymous,
    /// Nothing but swap, for whoever maps it too.
    Shared,
    /// A file. What this process has changed of a private mapping is anonymous.
    File,
}

/// One mapping whose memory can be paged out and in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// Its first address.
    pub start: u64,
    /// The one after its last.
    pub end: u64,
    /// What is behind it.
    pub backing: Backing,
}

impl Proc {
    /// The mappings of `pid` that can be paged.
    ///
    /// # Errors
    /// There is no such process, or it is not ours to look at.
    pub fn regions(&self, pid: u32) -> io::Result<Vec<Region>> {
        Ok(regions(&text(&self.path(pid, "maps"), LIST)?))
    }
}

/// The mappings in `maps` that are worth advising about: not what the kernel puts into every process (`[vvar]` and its kin end
/// a call with EINVAL), nor what cannot be accessed, nor other processes' files.
fn regions(maps: &str) -> Vec<Region> {
    maps.lines().filter_map(region).collect()
}

fn region(line: &str) -> Option<Region> {
    let mut fields = line.split_whitespace();
    let (range, rights, inode) = (fields.next()?, fields.next()?, fields.nth(2)?);
    let name = fields.next().unwrap_or("");
    let (start, end) = range.split_once('-')?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    let without_file =
        ["/dev/zero", "/memfd:", "/SYSV", "/dev/shm/", "[anon_shmem"].iter().any(|prefix| name.starts_with(prefix));
    let backing = match (rights.ends_with('p'), inode) {
        _ if name.starts_with("[v") || rights.starts_with("---") => return None,
        (false, _) if without_file => Backing::Shared,
        (false, _) => return None,
        (true, "0") => Backing::Anonymous,
        (true, _) => Backing::File,
    };
    (start < end).then_some(Region { start, end, backing })
}

/// The addresses of `regions` with one of these backings.
pub fn addresses(regions: &[Region], wanted: &[Backing]) -> Ranges {
    let matching = regions.iter().filter(|region| wanted.contains(&region.backing));
    matching.map(|region| (region.start, region.end)).collect::<Vec<_>>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "55d0-55d4 r-xp 00000000 08:01 123 /usr/bin/x
7f00-7f08 rw-p 00000000 00:00 0
7f10-7f18 rw-s 00000000 00:01 9 /dev/zero (deleted)
7f18-7f1c rw-s 00000000 08:01 77 /var/lib/db/data
7f20-7f28 ---p 00000000 00:00 0
7ff0-7ff4 rw-p 00000000 00:00 0 [stack]
7ff6-7ff8 r--p 00000000 00:00 0 [vvar_vclock]
7ff8-7ffa r--p 00000000 00:00 0 [vvar]";

    #[test]
    fn only_what_can_be_paged_is_listed() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("7")).unwrap();
        std::fs::write(root.path().join("7/maps"), MAPS).unwrap();
        let regions = Proc::new(root.path()).regions(7).unwrap();
        let of = |wanted: &[Backing]| addresses(&regions, wanted).iter().collect::<Vec<_>>();
        assert_eq!(of(&[Backing::File]), [(0x55d0, 0x55d4)]);
        assert_eq!(of(&[Backing::Anonymous]), [(0x7f00, 0x7f08), (0x7ff0, 0x7ff4)]);
        assert_eq!(of(&[Backing::Shared]), [(0x7f10, 0x7f18)]);
    }
}
