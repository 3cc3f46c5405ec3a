//! Which connection of a listener is closed when there is no room for another one.
//!
//! Each connection has an owner: the address that it comes from, and once a valid token was shown on it, that token. When the room is full,
//! the owner with the most connections loses its oldest one. A token counts as [`TOKEN_SHARE`] addresses: nobody without one takes the place of
//! who has one, be it from the same address. A connection stays for [`GRACE`] in any case, so that whoever has just come gets to its request;
//! a listener that is flooded accepts more slowly instead. Streams are bounded elsewhere, and none is closed.
//!
//! A token has at most [`TOKEN_MOST`] connections, streams among them. It may not be shown on another one.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use tokio::time::Instant;

/// So long a connection stays at least. Shorter, a flood of new connections would push out a caller before its request is here; longer, each
/// connection beyond the room would wait longer.
pub(super) const GRACE: Duration = Duration::from_secs(1);
/// Connections on which one token may be shown at once. A dashboard has a few, and a script that submits jobs one for each that it submits at a
/// time. More would let the holder of one token take all that streams have.
pub(super) const TOKEN_MOST: usize = 64;
/// So many connections of a token weigh as much as one of an address.
const TOKEN_SHARE: usize = 16;

/// Whose a connection is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Owner {
    /// Whoever is at this address and has shown no token; of IPv6, in this network.
    Address(IpAddr),
    /// The holder of the token of this name.
    Token(String),
    /// A user of this machine.
    User(u32),
}

impl Owner {
    /// Whose a connection from `address` is at first. One site has 64 bits of IPv6 for itself.
    pub fn at(address: IpAddr) -> Self {
        Self::Address(match address.to_canonical() {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => std::net::Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        })
    }

    /// What `count` connections of it weigh.
    fn weight(&self, count: usize) -> usize {
        if matches!(self, Self::Address(_)) { count * TOKEN_SHARE } else { count }
    }
}

/// A connection that was let in.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Opened {
    pub id: u64,
    /// The one that has to be closed for it.
    pub closed: Option<u64>,
}

/// The open connections of a listener.
#[derive(Debug)]
pub(super) struct Room {
    most: usize,
    /// By number, which is by age.
    held: BTreeMap<u64, Held>,
    next: u64,
}

#[derive(Debug)]
struct Held {
    owner: Owner,
    opened: Instant,
    streams: bool,
}

impl Room {
    pub fn new(most: usize) -> Self {
        Self { most, held: BTreeMap::new(), next: 0 }
    }

    /// A connection has come; an error says when there may be room for it.
    pub fn handle_open(&mut self, now: Instant, owner: &Owner) -> Result<Opened, Instant> {
        let closed = if self.held.len() < self.most { None } else { Some(self.first_to_go(now)?) };
        closed.map(|id| self.held.remove(&id));
        self.next += 1;
        self.held.insert(self.next, Held { owner: owner.clone(), opened: now, streams: false });
        Ok(Opened { id: self.next, closed })
    }

    /// Whether a connection is among them.
    pub fn has(&self, id: u64) -> bool {
        self.held.contains_key(&id)
    }

    /// A valid token was shown on a connection. False: it has been on as many others as it may.
    pub fn handle_token(&mut self, id: u64, token: &str) -> bool {
        let is_its = |held: &Held| matches!(&held.owner, Owner::Token(name) if name == token);
        if self.held.get(&id).is_none_or(is_its) {
            return true;
        }
        if self.held.values().filter(|held| is_its(held)).count() >= TOKEN_MOST {
            return false;
        }
        self.held.entry(id).and_modify(|held| held.owner = Owner::Token(token.to_owned()));
        true
    }

    /// A connection carries a stream from now on.
    pub fn handle_stream(&mut self, id: u64) {
        if let Some(held) = self.held.get_mut(&id) {
            held.streams = true;
        }
    }

    /// A connection has ended.
    pub fn handle_closed(&mut self, id: u64) {
        self.held.remove(&id);
    }

    fn first_to_go(&self, now: Instant) -> Result<u64, Instant> {
        let mut owners: BTreeMap<&Owner, (usize, u64)> = BTreeMap::new();
        for (id, held) in self.held.iter().filter(|(_, held)| !held.streams) {
            owners.entry(&held.owner).or_insert((0, *id)).0 += 1;
        }
        let heaviest =
            owners.into_iter().max_by_key(|(owner, (count, oldest))| (owner.weight(*count), std::cmp::Reverse(*oldest)));
        // Streams alone do not fill a room; if they do, one of them may end meanwhile.
        let Some((_, (_, oldest))) = heaviest else { return Err(now + GRACE) };
        let may_go = self.held[&oldest].opened + GRACE;
        if may_go <= now { Ok(oldest) } else { Err(may_go) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 8;

    fn address(last: u8) -> Owner {
        Owner::at([192, 0, 2, last].into())
    }

    /// A room in which these came, one after the other, and the moment at which each of them may go.
    fn room(owners: impl IntoIterator<Item = Owner>) -> (Room, Instant) {
        let (mut room, now) = (Room::new(MOST), Instant::now());
        for owner in owners {
            assert_eq!(room.handle_open(now, &owner).unwrap().closed, None);
        }
        (room, now + GRACE)
    }

    #[test]
    fn the_oldest_of_who_has_most_goes_when_there_is_no_room() {
        let (mut room, now) = room([1, 2, 2, 2, 3, 3, 4, 4].map(address));
        for (newcomer, gone) in [(address(5), 2), (address(3), 3)] {
            assert_eq!(room.handle_open(now, &newcomer).unwrap().closed, Some(gone));
        }
        assert_eq!(room.handle_open(now, &address(6)).unwrap().closed, Some(5), "three have more than two");
        room.handle_closed(1);
        assert_eq!(room.handle_open(now, &address(7)).unwrap().closed, None);
    }

    #[test]
    fn who_has_just_come_stays_until_its_request_can_be_there() {
        let (mut room, may_go) = room((0..MOST).map(|_| address(1)));
        assert_eq!(room.handle_open(may_go - Duration::from_millis(1), &address(2)), Err(may_go));
        assert_eq!(room.handle_open(may_go, &address(2)).unwrap().closed, Some(1));
        assert_eq!(room.handle_open(may_go, &address(2)).unwrap().closed, Some(2), "the newcomer stays");
    }

    #[test]
    fn nobody_without_a_token_takes_the_place_of_who_has_shown_one_nor_of_a_stream() {
        let (mut room, now) = room((0..MOST).map(|_| address(1)));
        assert!((1..=3).all(|id| room.handle_token(id, "ops")));
        room.handle_stream(4);
        let gone: Vec<u64> = (0..3).filter_map(|_| room.handle_open(now, &address(2)).unwrap().closed).collect();
        assert_eq!(gone, [5, 6, 7]);
        // One from the first address is left, and three that have just come from the second.
        assert_eq!(room.handle_open(now, &address(3)), Err(now + GRACE));
        assert_eq!(room.handle_open(now + GRACE, &address(3)).unwrap().closed, Some(9), "three of a token weigh less");
    }

    #[test]
    fn a_token_that_has_filled_the_room_gives_way_too() {
        let (mut room, now) = room((0..MOST).map(|_| address(1)));
        assert!((1..=MOST as u64).all(|id| room.handle_token(id, "greedy")));
        let newcomer = room.handle_open(now, &address(2)).unwrap();
        assert_eq!(newcomer.closed, Some(1));
        room.handle_token(newcomer.id, "ops");
        assert_eq!(room.handle_open(now, &address(2)).unwrap().closed, Some(2), "not the one that has fewer");
    }

    #[test]
    fn a_token_has_so_many_connections_and_takes_none_of_anothers() {
        let (mut room, now) = (Room::new(2 * TOKEN_MOST), Instant::now());
        let ids: Vec<u64> = (0..=TOKEN_MOST).map(|_| room.handle_open(now, &address(1)).unwrap().id).collect();
        assert!(ids[..TOKEN_MOST].iter().all(|id| room.handle_token(*id, "greedy")));
        assert!(room.handle_token(ids[0], "greedy"), "it was shown there before");
        assert!(!room.handle_token(ids[TOKEN_MOST], "greedy"));
        assert!(room.handle_token(ids[TOKEN_MOST], "ops"));
        room.handle_stream(ids[1]);
        room.handle_closed(ids[0]);
        let next = room.handle_open(now, &address(1)).unwrap().id;
        assert!(room.handle_token(next, "greedy"));
        let one_more = room.handle_open(now, &address(1)).unwrap().id;
        assert!(!room.handle_token(one_more, "greedy"), "streams count too");
    }

    #[test]
    fn a_site_is_one_owner_in_ipv6() {
        let at = |text: &str| Owner::at(text.parse().unwrap());
        assert_eq!(at("2001:db8::1"), at("2001:db8::ffff:2"));
        assert_ne!(at("2001:db8::1"), at("2001:db8:0:1::1"));
        assert_eq!(at("::ffff:192.0.2.7"), at("192.0.2.7"));
    }
}
