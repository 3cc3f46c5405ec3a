//! How much of a cluster's seats the requests of one client address hold.
//!
//! An address has at most a part of all seats, `floor(seats * part)` and one at least. Its requests beyond that wait here, before they arrive:
//! they take no place in a queue that others need, and their wait is none that more CPU would shorten. They go on in the order in which they
//! came, each when another one of the address has ended.
//!
//! What holds:
//!
//! - No address has more places than its part allowed when they were given.
//! - While requests of an address wait, it has all the places that it may have.

use std::collections::{BTreeMap, VecDeque};

use weal_model::Network;

/// Requests of all addresses that wait at once; each costs a few kilobytes of the gateway. Less refuses a page with many parts, more fills memory.
const WAITING: usize = 1024;

/// A request's place among those of its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AddressPlace {
    address: Network,
    /// By age.
    number: u64,
}

/// As many requests wait as may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

/// The places of all addresses.
#[derive(Debug)]
pub struct AddressPlaces {
    /// What one address may have.
    most: u32,
    /// Those that have or want a place.
    addresses: BTreeMap<Network, AddressUse>,
    /// Over all addresses.
    waiting: usize,
    next: u64,
    /// Not yet told.
    granted: Vec<AddressPlace>,
}

#[derive(Debug, Default)]
struct AddressUse {
    held: u32,
    waiting: VecDeque<u64>,
}

impl Default for AddressPlaces {
    /// As many as anybody wants.
    fn default() -> Self {
        Self { most: u32::MAX, addresses: BTreeMap::new(), waiting: 0, next: 0, granted: Vec::new() }
    }
}

impl AddressPlaces {
    /// There are so many seats from now on, of which one address has at most `percent`; `None` are as many as anybody wants.
    pub fn handle_seats(&mut self, seats: Option<u32>, percent: u32) {
        let part = |seats: u32| u32::try_from(u64::from(seats) * u64::from(percent) / 100).unwrap_or(u32::MAX).max(1);
        let most = seats.filter(|_| percent < 100).map_or(u32::MAX, part);
        if most != std::mem::replace(&mut self.most, most) && self.waiting > 0 {
            let addresses: Vec<Network> = self.addresses.keys().copied().collect();
            addresses.into_iter().for_each(|address| self.grant(address));
        }
    }

    /// False: each request has a place at once, and none need be asked for.
    pub fn is_bounded(&self) -> bool {
        self.most < u32::MAX
    }

    /// A request of `address` comes. It has a place at once where this says `true`, and otherwise when [`AddressPlaces::poll_granted`] names it.
    ///
    /// # Errors
    /// As many wait as may.
    pub fn handle_request(&mut self, address: Network) -> Result<(AddressPlace, bool), Full> {
        let place = AddressPlace { address, number: self.next };
        let has_room = self.has_room(address);
        if !has_room && self.waiting >= WAITING {
            return Err(Full);
        }
        self.next += 1;
        let places = self.addresses.entry(address).or_default();
        if has_room {
            places.held += 1;
        } else {
            places.waiting.push_back(place.number);
            self.waiting += 1;
        }
        Ok((place, has_room))
    }

    /// True when a request of `address` would have a place at once.
    pub fn has_room(&self, address: Network) -> bool {
        self.addresses.get(&address).is_none_or(|places| places.held < self.most)
    }

    /// A request has ended, with a place or while it waited for one.
    pub fn handle_end(&mut self, place: AddressPlace) {
        let Some(places) = self.addresses.get_mut(&place.address) else { return };
        match places.waiting.iter().position(|number| *number == place.number) {
            Some(at) => {
                places.waiting.remove(at);
                self.waiting -= 1;
            }
            None => places.held = places.held.saturating_sub(1),
        }
        self.grant(place.address);
    }

    /// A request that waited and has a place now.
    pub fn poll_granted(&mut self) -> Option<AddressPlace> {
        self.granted.pop()
    }

    fn grant(&mut self, address: Network) {
        let Some(places) = self.addresses.get_mut(&address) else { return };
        while places.held < self.most
            && let Some(number) = places.waiting.pop_front()
        {
            places.held += 1;
            self.waiting -= 1;
            self.granted.push(AddressPlace { address, number });
        }
        if places.held == 0 && places.waiting.is_empty() {
            self.addresses.remove(&address);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn address(last: u8) -> Network {
        Network::of([192, 0, 2, last].into(), 32)
    }

    fn places(seats: u32, percent: u32) -> AddressPlaces {
        let mut places = AddressPlaces::default();
        places.handle_seats(Some(seats), percent);
        places
    }

    #[test]
    fn an_address_has_its_part_of_the_seats_and_leaves_others_theirs() {
        let mut all = places(4, 75);
        let held: Vec<AddressPlace> = (0..3).map(|_| all.handle_request(address(1)).unwrap().0).collect();
        let (first, second) = (all.handle_request(address(1)).unwrap(), all.handle_request(address(1)).unwrap());
        assert!(!first.1 && !second.1, "three are three quarters of four");
        assert!(all.handle_request(address(2)).unwrap().1, "another address has all of its own");
        all.handle_end(held[0]);
        assert_eq!((all.poll_granted(), all.poll_granted()), (Some(first.0), None), "the oldest first");
        all.handle_end(second.0);
        all.handle_end(held[1]);
        assert_eq!(all.poll_granted(), None, "who has left gets nothing");
        assert!(all.handle_request(address(1)).unwrap().1);
    }

    #[test]
    fn a_part_is_one_seat_at_least_and_all_where_nothing_bounds_it() {
        for (seats, percent, most) in
            [(1, 75, 1), (2, 75, 1), (3, 75, 2), (8, 75, 6), (0, 75, 1), (5, 1, 1), (u32::MAX, 99, 4_252_017_622)]
        {
            assert_eq!(places(seats, percent).most, most, "{percent} % of {seats}");
        }
        assert!(!places(4, 100).is_bounded() && places(4, 99).is_bounded());
        let mut all = AddressPlaces::default();
        all.handle_seats(None, 75);
        assert!(!all.is_bounded());
    }

    #[test]
    fn more_seats_let_on_who_waits_and_so_many_wait_at_most() {
        let mut all = places(2, 75);
        assert!(all.handle_request(address(1)).unwrap().1);
        let waiting: Vec<_> = (0..WAITING).map(|_| all.handle_request(address(1)).unwrap()).collect();
        assert!(waiting.iter().all(|(_, has)| !has));
        assert_eq!(all.handle_request(address(1)), Err(Full));
        assert!(all.handle_request(address(2)).unwrap().1, "whoever need not wait does not wait for those who do");
        all.handle_seats(Some(4), 75);
        assert_eq!((all.poll_granted().is_some(), all.poll_granted().is_some(), all.poll_granted()), (true, true, None));
        all.handle_seats(None, 75);
        assert_eq!(std::iter::from_fn(|| all.poll_granted()).count(), WAITING - 2);
    }

    proptest! {
        #[test]
        fn an_address_that_waits_has_all_that_it_may_have_and_nothing_is_remembered_at_the_end(
            steps in proptest::collection::vec((0u8..3, any::<bool>(), any::<usize>(), 0u32..9), 1..200),
        ) {
            let mut all = places(4, 75);
            let mut under_way: Vec<AddressPlace> = Vec::new();
            for (who, comes, which, seats) in steps {
                if comes {
                    under_way.extend(all.handle_request(address(who)).map(|(place, _)| place));
                } else if !under_way.is_empty() {
                    all.handle_end(under_way.swap_remove(which % under_way.len()));
                } else {
                    all.handle_seats(Some(seats), 75);
                }
                let granted: Vec<AddressPlace> = std::iter::from_fn(|| all.poll_granted()).collect();
                prop_assert!(granted.iter().all(|place| under_way.contains(place)));
                let counted: usize = all.addresses.values().map(|places| places.held as usize + places.waiting.len()).sum();
                prop_assert_eq!(counted, under_way.len());
                for places in all.addresses.values().filter(|places| !places.waiting.is_empty()) {
                    prop_assert!(places.held >= all.most);
                }
            }
            under_way.into_iter().for_each(|place| all.handle_end(place));
            prop_assert!(all.addresses.is_empty() && all.waiting == 0);
        }
    }
}
