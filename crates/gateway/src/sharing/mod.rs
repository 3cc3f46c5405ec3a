//! The book in which gateways of one pool that live at once keep who holds how many seats, for [`weal_control::flow::sharing`].
//!
//! The book is a file below the state directory which all of them map into memory, so that taking a seat is one atomic step and no call.
//! Each gateway holds a lock as long as it lives. The kernel lets go of it when the gateway dies, whichever way. So the others notice a death
//! without a clock, and give back what the dead one held.
//!
//! Nothing in the book outlives the gateways: the first one that finds itself alone begins with an empty one.

mod book;
mod places;

use std::io;
use std::path::Path;
use std::sync::Arc;

use weal_control::flow::sharing::{Claim, Holdings, MOST_GATEWAYS, Place, SeatBook};
use weal_model::AppName;

use book::Book;
use places::{Held, Places};

/// Where the book and the locks are, below the state directory. The number is that of the layout: programs with another one do not share.
const FOLDER: &str = "gateway/seats-1";

/// One gateway's part in the book, as long as this lives.
#[derive(Debug)]
pub(crate) struct SeatRoom {
    book: Arc<Book>,
    places: Places,
    mine: Held,
}

/// The part of the book that is about one cluster.
#[derive(Debug)]
pub(crate) struct SharedSeats {
    book: Arc<Book>,
    page: usize,
}

impl SeatRoom {
    /// Takes a place among the gateways of the pool in `state`.
    ///
    /// # Errors
    /// The files cannot be used, or as many gateways live as may share.
    pub fn enter(state: &Path) -> io::Result<Self> {
        let places = Places::below(&state.join(FOLDER))?;
        let _door = places.lock_door()?;
        let mine = places.take_any()?.ok_or_else(|| io::Error::other("as many gateways live as may share seats"))?;
        let book = Book::open(&state.join(FOLDER).join("book"))?;
        let vacant = places.vacant(&mine)?;
        vacant.iter().chain([&mine.place()]).for_each(|place| book.clear(*place));
        if vacant.len() + 1 == MOST_GATEWAYS {
            book.tear_out_pages();
        }
        Ok(Self { book: Arc::new(book), places, mine })
    }

    /// Where this gateway stands.
    pub fn place(&self) -> Place {
        self.mine.place()
    }

    /// What is about the cluster of `app`; `None` when the book is full.
    pub fn seats_of(&self, app: &AppName) -> Option<SharedSeats> {
        let page = self.book.find_or_begin(app)?;
        Some(SharedSeats { book: Arc::clone(&self.book), page })
    }

    /// Gives back what gateways held that have died.
    pub fn clear_dead(&self) {
        let mut others = Place::all().filter(|place| *place != self.place());
        if !others.any(|place| self.book.is_marked_by(place)) {
            return;
        }
        // Whoever is at the door does the same, or takes a place, which clears it.
        let Ok(Some(_door)) = self.places.try_lock_door() else { return };
        for place in self.places.vacant(&self.mine).unwrap_or_default() {
            self.book.clear(place);
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

    fn claim(&self, place: Place) -> Claim {
        self.book.page(self.page).claim(place)
    }

    fn set_claim(&self, place: Place, claim: Claim) {
        self.book.page(self.page).set_claim(place, claim);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shop(room: &SeatRoom) -> SharedSeats {
        room.seats_of(&"shop".into()).unwrap()
    }

    fn take(room: &SeatRoom, seats: u32) {
        let shared = shop(room);
        let seen = shared.holdings();
        shared.exchange(seen, seen.with(room.place(), seats)).unwrap();
    }

    #[test]
    fn gateways_of_one_pool_see_each_others_seats_and_those_of_the_dead_come_back() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other] = [(); 2].map(|()| SeatRoom::enter(folder.path()).unwrap());
        assert_ne!(one.place(), other.place());
        take(&one, 3);
        take(&other, 4);
        other.clear_dead();
        assert_eq!(shop(&other).holdings().total(), 7, "both live");
        assert_eq!(other.seats_of(&"files".into()).unwrap().holdings().total(), 0);
        drop(one);
        assert_eq!(shop(&other).holdings().total(), 7, "until somebody looks");
        other.clear_dead();
        assert_eq!(shop(&other).holdings(), Holdings::default().with(other.place(), 4));
    }

    #[test]
    fn a_gateway_that_comes_finds_neither_its_forerunners_seats_nor_those_of_others_that_died() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other] = [(); 2].map(|()| SeatRoom::enter(folder.path()).unwrap());
        take(&one, 3);
        take(&other, 4);
        let place = one.place();
        drop(one);
        let next = SeatRoom::enter(folder.path()).unwrap();
        assert_eq!((next.place(), shop(&next).holdings().of(place)), (place, 0));
        assert_eq!(shop(&next).holdings().total(), 4, "the other one lives");
        drop((next, other));
        let alone = SeatRoom::enter(folder.path()).unwrap();
        assert_eq!(shop(&alone).holdings(), Holdings::default());
    }

    #[test]
    fn no_more_gateways_share_than_there_are_places() {
        let folder = tempfile::tempdir().unwrap();
        let rooms: Vec<SeatRoom> = Place::all().map(|_| SeatRoom::enter(folder.path()).unwrap()).collect();
        assert!(SeatRoom::enter(folder.path()).is_err());
        drop(rooms);
        assert!(SeatRoom::enter(folder.path()).is_ok());
    }

    #[test]
    fn a_full_book_shares_no_more_clusters_and_a_new_one_begins_empty() {
        let folder = tempfile::tempdir().unwrap();
        let room = SeatRoom::enter(folder.path()).unwrap();
        let named = |number: usize| AppName::from(format!("app-{number}").as_str());
        assert!((0..book::PAGES).all(|number| room.seats_of(&named(number)).is_some()));
        assert!(room.seats_of(&named(book::PAGES)).is_none());
        assert!(room.seats_of(&named(7)).is_some(), "it is there already");
        drop(room);
        let room = SeatRoom::enter(folder.path()).unwrap();
        assert!(room.seats_of(&named(book::PAGES)).is_some());
    }
}
