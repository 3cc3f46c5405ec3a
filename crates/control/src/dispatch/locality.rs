//! Which instances serve which part of a name space, so that each finds its part in its cache (Tsai 3.3.1, 4.3.3).
//!
//! A hash divides the names into as many equal, contiguous ranges as there are instances; range `i` is served by instance `i`
//! and the `R - 1` that follow it, `R` being the replication factor. When an instance fails it is skipped: the ranges that it
//! served go to the next available one, and `1/N` of what the caches hold is lost. (Renumbering the survivors, the obvious
//! alternative, moves the bounds of nearly all ranges and loses about a third.)

/// The part of the name space that a hash falls into, of `parts`.
pub fn part_of(hash: u64, parts: usize) -> usize {
    ((u128::from(hash) * parts as u128) >> 64) as usize
}

/// The instances that serve `part`: the next `replication` available ones from `part` on, wrapping around; fewer when so few
/// are available.
pub fn servers_of(part: usize, replication: usize, available: &[bool]) -> Vec<usize> {
    let count = available.len();
    (0..count).map(|step| (part + step) % count).filter(|&server| available[server]).take(replication).collect()
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
        assert_eq!((part_of(0, 10), part_of(u64::MAX, 10)), (0, 9));
        assert_eq!((part_of(u64::MAX / 2, 2), part_of(u64::MAX / 2 + 1, 2)), (0, 1));
    }
}
