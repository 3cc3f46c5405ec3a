//! The book in which gateways of one pool that live at once keep who holds how many seats, for [`weal_control::flow::sharing`].
//!
//! The book is memory that the supervisor makes and all of them map, so that taking a seat is one atomic step and no call. Each gateway holds a
//! lock as long as it lives. The kernel lets go of it when the gateway dies, whichever way. So the others notice a death without a clock, and
//! give back what the dead one held.
//!
//! Nothing in the book outlives the gateways: the first one that finds itself alone begins with an empty one.

mod book;
mod index_locks;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use weal_control::flow::sharing::{Claim, GatewayIndex, Holdings, MOST_GATEWAYS, SeatBook};
use weal_model::AppName;

use book::Book;
use index_locks::IndexLocks;

/// Memory for the book of a pool's gateways.
///
/// # Errors
/// The system has none.
pub fn seats_memory() -> io::Result<OwnedFd> {
    book::memory()
}

/// The same memory for one gateway more: each needs an opening of its own.
///
/// # Errors
/// It cannot be opened.
pub fn seats_of_another(memory: impl AsFd) -> io::Result<OwnedFd> {
    book::open_again(memory)
}

/// One gateway's part in the book, as long as this lives.
#[derive(Debug)]
pub(crate) struct SeatRoom {
    book: Arc<Book>,
    locks: IndexLocks,
    mine: GatewayIndex,
}

/// The part of the book that is about one cluster.
#[derive(Debug)]
pub(crate) struct SharedSeats {
    book: Arc<Book>,
    page: usize,
}

impl SeatRoom {
    /// Takes an index among the gateways that have the book in `memory`.
    ///
    /// # Errors
    /// It cannot be mapped, or as many gateways live as may share.
    pub fn enter(memory: OwnedFd) -> io::Result<Self> {
        let book = Book::open(&memory)?;
        let locks = IndexLocks::of(memory);
        let entry = locks.lock_entry()?;
        let mine = locks.take_any().ok_or_else(|| io::Error::other("as many gateways live as may share seats"))?;
        let vacant = locks.vacant(mine);
        vacant.iter().chain([&mine]).for_each(|gateway| book.clear(*gateway));
        if vacant.len() + 1 == MOST_GATEWAYS {
            book.tear_out_pages();
        }
        drop(entry);
        Ok(Self { book: Arc::new(book), locks, mine })
    }

    /// This gateway's index.
    pub fn index(&self) -> GatewayIndex {
        self.mine
    }

    /// What is about the cluster of `app`; `None` when the book is full.
    pub fn seats_of(&self, app: &AppName) -> Option<SharedSeats> {
        let page = self.book.find_or_begin(app)?;
        Some(SharedSeats { book: Arc::clone(&self.book), page })
    }

    /// Gives back what gateways held that have died.
    pub fn clear_dead(&self) {
        let mut others = GatewayIndex::all().filter(|gateway| *gateway != self.index());
        if !others.any(|gateway| self.book.is_marked_by(gateway)) {
            return;
        }
        // A gateway that holds the lock for entering does the same, or takes an index, which clears it.
        let Some(_entry) = self.locks.try_lock_entry() else { return };
        for gateway in self.locks.vacant(self.mine) {
            self.book.clear(gateway);
        }
    }
}

impl SeatBook for SharedSeats {
    fn holdings(&self) -> Holdings {
        self.book.page(self.page).holdings()
    }

    fn exchange(&self, seen: Holdings, next: Holdings) -> Result<(), Holdings> {
        self.book.page(self.page).exchange(seen, next)
    }

    fn claim(&self, gateway: GatewayIndex) -> Claim {
        self.book.page(self.page).claim(gateway)
    }

    fn set_claim(&self, gateway: GatewayIndex, claim: Claim) {
        self.book.page(self.page).set_claim(gateway, claim);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enter(memory: &OwnedFd) -> io::Result<SeatRoom> {
        SeatRoom::enter(seats_of_another(memory).unwrap())
    }

    fn shop(room: &SeatRoom) -> SharedSeats {
        room.seats_of(&"shop".into()).unwrap()
    }

    fn take(room: &SeatRoom, seats: u32) {
        let shared = shop(room);
        let seen = shared.holdings();
        shared.exchange(seen, seen.with(room.index(), seats)).unwrap();
    }

    #[test]
    fn gateways_of_one_pool_see_each_others_seats_and_those_of_the_dead_come_back() {
        let memory = seats_memory().unwrap();
        let [one, other] = [(); 2].map(|()| enter(&memory).unwrap());
        assert_ne!(one.index(), other.index());
        take(&one, 3);
        take(&other, 4);
        other.clear_dead();
        assert_eq!(shop(&other).holdings().total(), 7, "both live");
        assert_eq!(other.seats_of(&"files".into()).unwrap().holdings().total(), 0);
        drop(one);
        assert_eq!(shop(&other).holdings().total(), 7, "until somebody looks");
        other.clear_dead();
        assert_eq!(shop(&other).holdings(), Holdings::default().with(other.index(), 4));
    }

    #[test]
    fn a_gateway_that_comes_finds_neither_its_forerunners_seats_nor_those_of_others_that_died() {
        let memory = seats_memory().unwrap();
        let [one, other] = [(); 2].map(|()| enter(&memory).unwrap());
        take(&one, 3);
        take(&other, 4);
        let gateway = one.index();
        drop(one);
        let next = enter(&memory).unwrap();
        assert_eq!((next.index(), shop(&next).holdings().of(gateway)), (gateway, 0));
        assert_eq!(shop(&next).holdings().total(), 4, "the other one lives");
        drop((next, other));
        let alone = enter(&memory).unwrap();
        assert_eq!(shop(&alone).holdings(), Holdings::default());
    }

    #[test]
    fn no_more_gateways_share_than_there_are_indices() {
        let memory = seats_memory().unwrap();
        let rooms: Vec<SeatRoom> = GatewayIndex::all().map(|_| enter(&memory).unwrap()).collect();
        assert!(enter(&memory).is_err());
        drop(rooms);
        assert!(enter(&memory).is_ok());
    }

    #[test]
    fn a_full_book_shares_no_more_clusters_and_a_new_one_begins_empty() {
        let memory = seats_memory().unwrap();
        let room = enter(&memory).unwrap();
        let named = |number: usize| AppName::from(format!("app-{number}").as_str());
        assert!((0..book::PAGES).all(|number| room.seats_of(&named(number)).is_some()));
        assert!(room.seats_of(&named(book::PAGES)).is_none());
        assert!(room.seats_of(&named(7)).is_some(), "it is there already");
        drop(room);
        let room = enter(&memory).unwrap();
        assert!(room.seats_of(&named(book::PAGES)).is_some());
    }
}
