//! Which instances serve which part of a name space, so that each finds its part in its cache (Tsai 3.3.1, 4.3.3).
//!
//! A hash divides the names into as many equal, contiguous ranges as there are instances; range `i` is served by instance `i`
//! and the `R - 1` that follow it, `R` being the replication factor. When an instance fails it is skipped: the ranges that it
//! served go to the next available one, and `1/N` of what the caches hold is lost. (Renumbering the survivors, the obvious
//! alternative, moves the bounds of nearly all ranges and loses about a third.)
//!
//! So each instance has a [place](ServerTable) in the order. It keeps that place when it fails, sleeps or is restarted. A new instance takes
//! the place of one that is gone, or else one behind the last.

use std::time::Duration;

use weal_model::{InstanceId, NameHash, Time, fnv1a};

/// How long the place of an instance that is gone is kept. Shorter would renumber all during a slow restart; longer would leave the
/// neighbours of a removed instance with more than their part of the load.
pub const PLACE_KEPT: Duration = Duration::from_secs(600);

/// The number that stands for a name. Equal names give equal numbers in every process.
pub fn hash_of(hash: NameHash, name: &[u8]) -> u64 {
    match hash {
        NameHash::Charsum => name.iter().map(|&byte| u64::from(byte)).sum(),
        NameHash::Fnv => mix(fnv1a(name)),
    }
}

/// Spreads what differs in the low bits over the high ones, by which parts are told apart (the end of MurmurHash3).
fn mix(mut hash: u64) -> u64 {
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ (hash >> 33)
}

/// The part of the name space that a hash falls into, of `parts`. Sums of characters are small numbers, so they are taken modulo the
/// parts (Tsai 3.4.3).
pub fn part_of(kind: NameHash, hash: u64, parts: usize) -> usize {
    match kind {
        NameHash::Fnv => ((u128::from(hash) * parts as u128) >> 64) as usize,
        NameHash::Charsum => (hash % parts as u64) as usize,
    }
}

/// The instances that serve `part`: the next `replication` available ones from `part` on, wrapping around; fewer when so few
/// are available.
pub fn servers_of(part: usize, replication: usize, available: &[bool]) -> Vec<usize> {
    from(part, available.len()).filter(|&server| available[server]).take(replication).collect()
}

/// All of `count` numbers from `part` on, wrapping around.
pub(super) fn from(part: usize, count: usize) -> impl Iterator<Item = usize> {
    (part..count).chain(0..part)
}

/// The instances of a cluster in the order in which they share the name space.
#[derive(Debug, Default)]
pub(super) struct ServerTable(Vec<ServerEntry>);

#[derive(Debug)]
struct ServerEntry {
    holder: InstanceId,
    /// Its slot while it is a candidate.
    slot: Option<u32>,
    /// Meaningless while the holder is there.
    left: Time,
}

impl ServerTable {
    /// Takes note of the candidates that there are now.
    pub fn configure<'a>(&mut self, now: Time, candidates: impl Iterator<Item = (u32, &'a InstanceId)>) {
        let mut new: Vec<(u32, &InstanceId)> = candidates.collect();
        for place in &mut self.0 {
            let held = new.iter().position(|(_, id)| **id == place.holder).map(|at| new.remove(at).0);
            if held.is_none() && place.slot.is_some() {
                place.left = now;
            }
            place.slot = held;
        }
        for (slot, id) in new {
            let place = ServerEntry { holder: id.clone(), slot: Some(slot), left: now };
            match self.0.iter_mut().find(|place| place.slot.is_none()) {
                Some(vacant) => *vacant = place,
                None => self.0.push(place),
            }
        }
        self.0.retain(|place| place.slot.is_some() || now.since(place.left) < PLACE_KEPT);
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The candidate at a place, while it is one.
    pub fn slot(&self, place: usize) -> Option<usize> {
        self.0[place].slot.map(|slot| slot as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tsai_figure_4_2_skips_a_failed_server() {
        let all = |part| servers_of(part, 2, &[true; 4]);
        assert_eq!([all(0), all(1), all(2), all(3)], [[0, 1], [1, 2], [2, 3], [3, 0]]);
        let without_first = |part| servers_of(part, 2, &[false, true, true, true]);
        assert_eq!([without_first(0), without_first(1), without_first(2), without_first(3)], [[1, 2], [1, 2], [2, 3], [3, 1]]);
        assert_eq!(servers_of(1, 2, &[false, false, true]), [2]);
    }

    #[test]
    fn parts_are_contiguous_and_equal() {
        let part_of = |hash, parts| part_of(NameHash::Fnv, hash, parts);
        assert_eq!((part_of(0, 10), part_of(u64::MAX, 10)), (0, 9));
        assert_eq!((part_of(u64::MAX / 2, 2), part_of(u64::MAX / 2 + 1, 2)), (0, 1));
    }
}
