//! Sets of addresses as sorted ranges.

use serde::{Deserialize, Serialize};

/// Addresses, as ranges `[start, end)` in bytes. Invariant: sorted, not empty, and no two touch.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(u64, u64)>", into = "Vec<(u64, u64)>")]
pub struct Ranges(Vec<(u64, u64)>);

impl From<Vec<(u64, u64)>> for Ranges {
    fn from(mut list: Vec<(u64, u64)>) -> Self {
        list.retain(|range| range.0 < range.1);
        list.sort_unstable();
        let mut ranges = Self::default();
        list.into_iter().for_each(|(start, end)| ranges.push(start, end));
        ranges
    }
}

impl From<Ranges> for Vec<(u64, u64)> {
    fn from(ranges: Ranges) -> Self {
        ranges.0
    }
}

impl Ranges {
    /// Adds a range that begins no earlier than the last one.
    pub fn push(&mut self, start: u64, end: u64) {
        match self.0.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => self.0.push((start, end)),
        }
    }

    /// The ranges, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().copied()
    }

    /// How many ranges.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True without any.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes in all.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|(start, end)| end - start).sum()
    }

    /// What is in either.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        self.0.iter().chain(&other.0).copied().collect::<Vec<_>>().into()
    }

    /// What is in both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let (mut both, mut i, mut j) = (Self::default(), 0, 0);
        while let (Some(a), Some(b)) = (self.0.get(i), other.0.get(j)) {
            let (start, end) = (a.0.max(b.0), a.1.min(b.1));
            if start < end {
                both.push(start, end);
            }
            if a.1 < b.1 { i += 1 } else { j += 1 }
        }
        both
    }

    /// What is in this one and not in `other`.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        let (mut left, mut j) = (Self::default(), 0);
        for &(mut start, end) in &self.0 {
            while other.0.get(j).is_some_and(|taken| taken.1 <= start) {
                j += 1;
            }
            for taken in other.0[j..].iter().take_while(|taken| taken.0 < end) {
                if start < taken.0 {
                    left.push(start, taken.0);
                }
                start = start.max(taken.1);
            }
            if start < end {
                left.push(start, end);
            }
        }
        left
    }

    /// The first of it, at most so many bytes.
    #[must_use]
    pub fn first(&self, bytes: u64) -> Self {
        let (mut first, mut left) = (Self::default(), bytes);
        for &(start, end) in &self.0 {
            let end = end.min(start.saturating_add(left));
            if start < end {
                first.push(start, end);
                left -= end - start;
            }
        }
        first
    }

    /// How many bytes of it lie from `at` on without a gap; none when `at` is not in it.
    pub fn room_at(&self, at: u64) -> Option<u64> {
        let before = self.0.partition_point(|(start, _)| *start <= at);
        let (_, end) = *self.0.get(before.checked_sub(1)?)?;
        (at < end).then(|| end - at)
    }

    /// So many of its addresses, evenly spread; fewer where it has fewer bytes.
    pub fn sample(&self, count: u64) -> Vec<u64> {
        let step = self.bytes().div_ceil(count.max(1)).max(1);
        let (mut sample, mut skip) = (Vec::new(), 0);
        for &(start, end) in &self.0 {
            sample.extend((start.saturating_add(skip)..end).step_by(usize::try_from(step).unwrap_or(usize::MAX)));
            skip = (skip + step - (end - start) % step) % step;
        }
        sample
    }

    /// What of it lies in every `of`th block of so many bytes, counted from block `number` on.
    #[must_use]
    pub fn part(&self, block: u64, number: u64, of: u64) -> Self {
        let mut part = Self::default();
        for &(start, end) in &self.0 {
            for at in (start / block..end.div_ceil(block)).filter(|at| at % of == number) {
                part.push(start.max(at * block), end.min((at + 1) * block));
            }
        }
        part
    }

    /// The same in pieces of at most `bytes` in all each, in order; one at a time, because a large mapping has many.
    pub fn pieces(&self, bytes: u64) -> impl Iterator<Item = Vec<(u64, u64)>> + '_ {
        let mut left = self.0.iter().copied();
        let mut rest = left.next();
        std::iter::from_fn(move || {
            let (mut piece, mut room) = (Vec::new(), bytes);
            while let Some((start, end)) = rest.filter(|_| room > 0) {
                let cut = end.min(start.saturating_add(room));
                piece.push((start, cut));
                room -= cut - start;
                rest = if cut < end { Some((cut, end)) } else { left.next() };
            }
            (!piece.is_empty()).then_some(piece)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ranges() -> impl Strategy<Value = Ranges> {
        prop::collection::vec((0u64..200, 0u64..30), 0..12)
            .prop_map(|list| list.into_iter().map(|(start, length)| (start, start + length)).collect::<Vec<_>>().into())
    }

    fn has(ranges: &Ranges, address: u64) -> bool {
        ranges.iter().any(|(start, end)| (start..end).contains(&address))
    }

    proptest! {
        #[test]
        fn sets_of_ranges_are_sets(a in ranges(), b in ranges(), size in 1u64..50) {
            for address in 0..240 {
                let (in_a, in_b) = (has(&a, address), has(&b, address));
                prop_assert_eq!(has(&a.union(&b), address), in_a || in_b);
                prop_assert_eq!(has(&a.intersection(&b), address), in_a && in_b);
                prop_assert_eq!(has(&a.minus(&b), address), in_a && !in_b);
            }
            for result in [a.union(&b), a.intersection(&b), a.minus(&b)] {
                prop_assert!(result.0.windows(2).all(|pair| pair[0].1 < pair[1].0), "{:?}", result);
                prop_assert!(result.iter().all(|(start, end)| start < end), "{:?}", result);
            }
            for address in 0..240 {
                let room = a.room_at(address).unwrap_or(0);
                prop_assert!((address..address + room).all(|at| has(&a, at)) && !has(&a, address + room));
            }
            let sample = a.sample(size);
            prop_assert!(sample.windows(2).all(|pair| pair[0] < pair[1]) && sample.iter().all(|at| has(&a, *at)), "{:?}", sample);
            prop_assert!(sample.len() as u64 <= size && sample.len() as u64 * 2 >= a.bytes().min(size), "{:?}", sample);
            let pieces: Vec<Vec<(u64, u64)>> = a.pieces(size).collect();
            prop_assert!(pieces.iter().all(|piece| piece.iter().map(|(start, end)| end - start).sum::<u64>() <= size));
            prop_assert_eq!(Ranges::from(pieces.concat()), a.clone());
            let first = a.first(size);
            prop_assert_eq!(first.bytes(), a.bytes().min(size));
            prop_assert!(a.minus(&first).iter().all(|(start, _)| first.iter().all(|(_, end)| end <= start)), "{:?}", first);
            let parts: Vec<Ranges> = (0..3).map(|number| a.part(size, number, 3)).collect();
            prop_assert!(parts.iter().all(|part| part.0.windows(2).all(|pair| pair[0].1 < pair[1].0)), "{:?}", parts);
            prop_assert_eq!(parts.iter().map(Ranges::bytes).sum::<u64>(), a.bytes());
            prop_assert_eq!(parts.iter().fold(Ranges::default(), |all, part| all.union(part)), a);
        }
    }
}
