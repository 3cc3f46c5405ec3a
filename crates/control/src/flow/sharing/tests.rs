use std::cell::{Cell, RefCell};
use std::sync::Arc;

use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use proptest::prelude::*;

use super::*;

/// A book in which the test can do something in the middle of a gateway's step.
#[derive(Default)]
struct Shelf {
    holdings: Cell<Holdings>,
    claims: [Cell<Claim>; MOST_GATEWAYS],
    /// Seats that a gateway takes, or gives back if negative, just before the next exchange.
    meanwhile: RefCell<Vec<(GatewayIndex, i32)>>,
    seats: Cell<u32>,
}

impl SeatBook for Shelf {
    fn holdings(&self) -> Holdings {
        self.holdings.get()
    }

    fn exchange(&self, seen: Holdings, next: Holdings) -> Result<(), Holdings> {
        if let Some((place, change)) = self.meanwhile.borrow_mut().pop() {
            let now = self.holdings.get();
            self.holdings.set(now.reach(place, now.of(place).saturating_add_signed(change), self.seats.get()));
        }
        if self.holdings.get() != seen {
            return Err(self.holdings.get());
        }
        self.holdings.set(next);
        Ok(())
    }

    fn claim(&self, place: GatewayIndex) -> Claim {
        self.claims[place.at()].get()
    }

    fn set_claim(&self, place: GatewayIndex, claim: Claim) {
        self.claims[place.at()].set(claim);
    }
}

/// A gateway whose requests take one seat each.
struct Gateway {
    sharer: Sharer,
    weight: f64,
    waiting: u32,
    occupied: u32,
    gone: u32,
}

impl Gateway {
    fn new(place: u8, weight: f64) -> Self {
        Self { sharer: Sharer::new(GatewayIndex(place)), weight, waiting: 0, occupied: 0, gone: 0 }
    }

    fn need(&self) -> Need {
        Need { occupied: self.occupied, wanted: self.occupied + self.waiting, weight: self.weight }
    }

    /// What a gateway does after anything has come in.
    fn pump(&mut self, now: Time, book: &Shelf) {
        let held = self.sharer.balance(now, book, self.need(), book.seats.get());
        let go = held.saturating_sub(self.occupied).min(self.waiting);
        (self.waiting, self.occupied, self.gone) = (self.waiting - go, self.occupied + go, self.gone + go);
        self.sharer.settle(book, self.need());
    }

    fn arrive(&mut self, now: Time, book: &Shelf, requests: u32) {
        self.waiting += requests;
        self.pump(now, book);
    }

    fn end(&mut self, now: Time, book: &Shelf) {
        self.occupied = self.occupied.saturating_sub(1);
        self.pump(now, book);
    }
}

fn shelf(seats: u32) -> Shelf {
    Shelf { seats: Cell::new(seats), ..Shelf::default() }
}

fn at(ms: u64) -> Time {
    Time(ms * 1_000_000)
}

#[test]
fn a_gateway_lends_all_that_it_does_not_use() {
    let (book, mut busy, mut idle) = (shelf(8), Gateway::new(0, 1.0), Gateway::new(1, 1.0));
    idle.arrive(at(0), &book, 3);
    (0..3).for_each(|_| idle.end(at(0), &book));
    busy.arrive(at(0), &book, 20);
    assert_eq!((busy.occupied, idle.occupied, book.holdings().total()), (8, 0, 8));
}

#[test]
fn a_lender_takes_its_seats_back_with_the_requests_that_end() {
    let (book, mut borrower, mut lender) = (shelf(8), Gateway::new(0, 1.0), Gateway::new(1, 1.0));
    borrower.arrive(at(0), &book, 100);
    lender.arrive(at(1), &book, 100);
    assert_eq!((borrower.occupied, lender.occupied), (8, 0), "nothing is taken from a request");
    for _ in 0..8 {
        borrower.end(at(1), &book);
        lender.pump(at(1), &book);
    }
    assert_eq!(lender.occupied, 4, "every second one");
    assert_eq!(book.holdings().total(), 8);
}

#[test]
fn what_waiting_gateways_let_go_is_as_their_weights_are() {
    for weights in [[1.0, 1.0], [3.0, 1.0], [1.0, 5.0]] {
        let (book, mut gateways) = (shelf(5), [Gateway::new(2, weights[0]), Gateway::new(0, weights[1])]);
        let mut random = crate::seeded::Seeded::new(7);
        gateways.iter_mut().for_each(|gateway| gateway.arrive(at(0), &book, 20_000));
        // From where both wait on.
        let before = [gateways[0].gone, gateways[1].gone];
        for step in 0..8000 {
            let which = random.below(2) as usize;
            gateways[which].end(at(step / 100), &book);
            gateways[1 - which].pump(at(step / 100), &book);
        }
        let gone = [0, 1].map(|index| f64::from(gateways[index].gone - before[index]) / weights[index]);
        assert!((gone[0] - gone[1]).abs() <= 1.0 / weights[0] + 1.0 / weights[1], "{weights:?}: {gone:?}");
    }
}

#[test]
fn a_single_seat_goes_round() {
    let (book, mut gateways) = (shelf(1), [Gateway::new(0, 1.0), Gateway::new(1, 1.0), Gateway::new(3, 1.0)]);
    gateways.iter_mut().for_each(|gateway| gateway.arrive(at(0), &book, 10));
    for _ in 0..27 {
        gateways.iter_mut().filter(|gateway| gateway.occupied > 0).for_each(|gateway| gateway.end(at(0), &book));
        gateways.iter_mut().for_each(|gateway| gateway.pump(at(0), &book));
    }
    assert!(gateways.iter().all(|gateway| gateway.gone >= 8), "{:?}", gateways.map(|gateway| gateway.gone));
}

#[test]
fn a_gateway_that_is_stuck_is_overlooked_until_it_moves() {
    let (book, mut live, mut stuck) = (shelf(2), Gateway::new(1, 1.0), Gateway::new(0, 1.0));
    live.arrive(at(0), &book, 100);
    stuck.arrive(at(0), &book, 100);
    live.end(at(0), &book);
    assert_eq!((live.occupied, book.holdings().total()), (1, 1), "it is the other's turn");
    live.pump(at(49), &book);
    assert_eq!(live.occupied, 1);
    assert_eq!(live.sharer.poll_timeout(at(49)), Some(at(51)));
    live.pump(at(51), &book);
    assert_eq!(live.occupied, 2);
    (0..10).for_each(|_| live.end(at(52), &book));
    assert_eq!(live.occupied, 2, "it waits no more for one that is stuck");
    live.occupied -= 1;
    live.sharer.settle(&book, live.need());
    stuck.pump(at(53), &book);
    assert_eq!(stuck.occupied, 1);
    live.pump(at(53), &book);
    live.end(at(54), &book);
    stuck.pump(at(54), &book);
    assert_eq!((live.occupied, stuck.occupied), (1, 1), "they take turns again");
}

#[test]
fn who_waits_for_nobody_else_need_not_look() {
    let (book, mut one, mut other) = (shelf(1), Gateway::new(0, 1.0), Gateway::new(1, 1.0));
    one.arrive(at(0), &book, 3);
    assert_eq!(one.sharer.poll_timeout(at(0)), None, "its own requests end");
    other.arrive(at(0), &book, 1);
    assert_eq!(other.sharer.poll_timeout(at(0)), Some(at(2)));
    (0..2).for_each(|_| one.end(at(0), &book));
    other.pump(at(2), &book);
    assert_eq!((other.occupied, other.sharer.poll_timeout(at(2))), (1, None));
}

#[test]
fn seats_beyond_what_a_word_has_room_for_are_not_taken() {
    let (book, mut gateway) = (shelf(u32::MAX), Gateway::new(3, 1.0));
    gateway.arrive(at(0), &book, 100_000);
    assert_eq!((gateway.occupied, book.holdings().of(GatewayIndex(2))), (MOST_SEATS, 0));
    gateway.sharer.leave(&book);
    assert_eq!(book.holdings(), Holdings::default());
}

proptest! {
    /// Whatever comes in at which gateway, and whatever another one does in the middle of a step.
    #[test]
    fn no_interleaving_gives_away_more_seats_than_there_are(
        seats in 1..12u32,
        steps in prop::collection::vec((0..3u8, 0..5u8, 1..4u32, 0..30u64, -3..4i32), 1..200),
    ) {
        let book = shelf(seats);
        let mut gateways = [0, 1, 2].map(|place| Gateway::new(place, f64::from(place) + 0.5));
        let mut now = 0;
        for (place, what, requests, pause, meanwhile) in steps {
            now += pause;
            // Another process, which keeps to the same rule.
            book.meanwhile.borrow_mut().push((GatewayIndex(3), meanwhile));
            let gateway = &mut gateways[usize::from(place)];
            match what {
                0 | 1 => gateway.arrive(at(now), &book, requests),
                2 => gateway.end(at(now), &book),
                3 => gateway.pump(at(now), &book),
                // It dies, and somebody notices.
                _ => {
                    *gateway = Gateway::new(place, gateway.weight);
                    book.holdings.set(book.holdings.get().with(GatewayIndex(place), 0));
                    book.set_claim(GatewayIndex(place), Claim::NONE);
                }
            }
            prop_assert!(book.holdings().total() <= seats);
            for (place, gateway) in (0..).map(GatewayIndex).zip(&gateways) {
                prop_assert_eq!(book.holdings().of(place), gateway.occupied);
            }
        }
        // Nothing is lost on the way: once all have ended, every seat can be had.
        book.meanwhile.borrow_mut().clear();
        book.holdings.set(book.holdings.get().with(GatewayIndex(3), 0));
        while gateways.iter().any(|gateway| gateway.waiting + gateway.occupied > 0) {
            now += 1;
            gateways.iter_mut().for_each(|gateway| if gateway.occupied > 0 { gateway.end(at(now), &book) } else { gateway.pump(at(now), &book) });
        }
        prop_assert_eq!(book.holdings(), Holdings::default());
    }
}

/// A book of loom's atomics, which tries every order of their steps.
#[derive(Default)]
struct Watched {
    holdings: AtomicU64,
    claims: [AtomicU64; MOST_GATEWAYS],
}

impl SeatBook for Watched {
    fn holdings(&self) -> Holdings {
        Holdings(self.holdings.load(Ordering::Acquire))
    }

    fn exchange(&self, seen: Holdings, next: Holdings) -> Result<(), Holdings> {
        let done = self.holdings.compare_exchange(seen.0, next.0, Ordering::AcqRel, Ordering::Acquire);
        done.map(|_| ()).map_err(Holdings)
    }

    fn claim(&self, place: GatewayIndex) -> Claim {
        Claim(self.claims[place.at()].load(Ordering::Acquire))
    }

    fn set_claim(&self, place: GatewayIndex, claim: Claim) {
        self.claims[place.at()].store(claim.0, Ordering::Release);
    }
}

/// Lets `wanted` requests go as far as there are seats, and ends them.
fn serve(book: &Watched, in_use: &AtomicU32, place: GatewayIndex, wanted: u32) {
    const SEATS: u32 = 3;
    let mut sharer = Sharer::new(place);
    let need = |occupied, wanted| Need { occupied, wanted, weight: 1.0 };
    let held = sharer.balance(Time::ZERO, book, need(0, wanted), SEATS);
    let before = in_use.fetch_add(held, Ordering::SeqCst);
    assert!(before + held <= SEATS, "{before} and {held} are in use");
    sharer.settle(book, need(held, wanted));
    in_use.fetch_sub(held, Ordering::SeqCst);
    sharer.leave(book);
}

#[test]
fn in_every_order_of_steps_no_more_seats_are_in_use_than_there_are() {
    let mut model = loom::model::Builder::new();
    // So many times a thread is interrupted in the middle. Beyond that loom's documents promise little, and each costs much time.
    model.preemption_bound = Some(3);
    model.check(|| {
        let (book, in_use) = (Arc::new(Watched::default()), Arc::new(AtomicU32::new(0)));
        let other = {
            let (book, in_use) = (Arc::clone(&book), Arc::clone(&in_use));
            loom::thread::spawn(move || serve(&book, &in_use, GatewayIndex(1), 2))
        };
        serve(&book, &in_use, GatewayIndex(0), 2);
        other.join().unwrap();
        assert_eq!(book.holdings(), Holdings::default());
    });
}
