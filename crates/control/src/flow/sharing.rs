//! Gateways that live at once share the seats of a cluster exactly.
//!
//! A gateway that ends, and the one that replaces it, work by the same plan: `N` seats for the cluster. Neither knows the other's requests. So
//! they keep a book together ([`SeatBook`]), and each takes from it the seats that its requests need, and gives them back.
//!
//! # How many
//!
//! How many seats `h_i` each gateway holds stands in one word ([`Holdings`]), which changes by compare-and-exchange alone:
//!
//! ```text
//! take:       h_i <- h_i + min(k, N - sum of h_j)
//! give back:  h_i <- h_i - k
//! ```
//!
//! No step lifts the sum above the `N` of the gateway that takes it, whatever others do meanwhile and wherever one of them dies. A gateway has
//! no more requests outstanding than it holds seats, but for [slow readers](crate::flow::pipeline#time-that-clients-take). The seats of one that has died are given back by the gateway that notices its death; the kernel
//! has closed its connections by then.
//!
//! # Whose turn
//!
//! A gateway lends all that it does not use: seats without a request belong to no gateway. While requests wait at several gateways, they take turns
//! by stride scheduling, as classes do within each ([`crate::flow::pipeline`]). Let `w_i` be the weights of the classes that wait at gateway `i`:
//!
//! ```text
//! i may let a request go while    (p_i, i) < (p_j, j)  for all other gateways j at which requests wait;  then  p_i <- p_i + 1 / w_i
//! at all times                    p_i <= min p_j + 1 / w_i
//! i begins to wait                p_i <- max(p_i, min p_j)
//! ```
//!
//! So a gateway that has lent seats takes them back with the next requests that end, and what two gateways let go is as their weights are. A
//! gateway that leaves a free seat for [`OVERLOOKED_AFTER`] although it is its turn is stuck. The others overlook it until it moves again.

use std::time::Duration;

use weal_model::Time;

#[cfg(test)]
mod tests;

/// Gateways that share at most. Two live at once while one replaces the other, and three or four only where that happens faster than
/// their requests end.
pub const MOST_GATEWAYS: usize = 4;

/// Seats of one cluster that one gateway holds at most.
pub const MOST_SEATS: u32 = u16::MAX as u32;

/// How long a gateway leaves a free seat to another whose turn it is. Much longer than a live one takes to look; short beside what a
/// request takes, as the seat is idle meanwhile.
pub const OVERLOOKED_AFTER: Duration = Duration::from_millis(50);

/// How often a gateway with requests that wait looks whether another has given seats back.
pub const LOOK_EACH: Duration = Duration::from_millis(2);

/// Bits of a word for each gateway.
const BITS: usize = 16;

/// A gateway's number in the book. No two gateways that live have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct GatewayIndex(u8);

impl GatewayIndex {
    /// Every index.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..MOST_GATEWAYS as u8).map(Self)
    }

    /// Counted from zero.
    pub fn at(self) -> usize {
        usize::from(self.0)
    }
}

/// The seats of one cluster that each gateway holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Holdings(pub u64);

impl Holdings {
    /// Those of one gateway.
    pub fn of(self, gateway: GatewayIndex) -> u32 {
        (self.0 >> (BITS * gateway.at())) as u32 & MOST_SEATS
    }

    /// Those of all.
    pub fn total(self) -> u32 {
        GatewayIndex::all().map(|gateway| self.of(gateway)).sum()
    }

    /// Those of all but one.
    pub fn of_others(self, gateway: GatewayIndex) -> u32 {
        self.total() - self.of(gateway)
    }

    /// The same, but one gateway holds `seats`, at most [`MOST_SEATS`].
    #[must_use]
    pub fn with(self, gateway: GatewayIndex, seats: u32) -> Self {
        let shift = BITS * gateway.at();
        let others = self.0 & !(u64::from(MOST_SEATS) << shift);
        Self(others | u64::from(seats.min(MOST_SEATS)) << shift)
    }

    /// What is held after `gateway` has reached for `goal` seats where there are `seats` in all.
    fn reach(self, gateway: GatewayIndex, goal: u32, seats: u32) -> Self {
        let mine = self.of(gateway);
        let free = seats.saturating_sub(self.total());
        self.with(gateway, goal.min(mine.saturating_add(free)))
    }
}

/// Whether requests wait at a gateway for a seat, and if so its pass: `p` of the module docs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Claim(pub u64);

impl Claim {
    /// Nothing waits.
    pub const NONE: Self = Self(0);

    fn waits(pass: f64) -> Self {
        Self(pass.max(0.0).to_bits() + 1)
    }

    fn pass(self) -> Option<f64> {
        (self != Self::NONE).then(|| f64::from_bits(self.0 - 1))
    }
}

/// What gateways know of each other's part in the seats of one cluster. Each method is one atomic step.
pub trait SeatBook {
    /// Who holds how many.
    fn holdings(&self) -> Holdings;

    /// Puts `next` instead of `seen`.
    ///
    /// # Errors
    /// What is there instead, when it is no longer `seen`, or without a reason.
    fn exchange(&self, seen: Holdings, next: Holdings) -> Result<(), Holdings>;

    /// What `gateway` waits for.
    fn claim(&self, gateway: GatewayIndex) -> Claim;

    /// Says what `gateway`, which is the caller, waits for.
    fn set_claim(&self, gateway: GatewayIndex, claim: Claim);
}

/// What a gateway needs of the seats of one cluster.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Need {
    /// Seats of its requests that are outstanding.
    pub occupied: u32,
    /// Those, and the seats of requests that could go now. Invariant: at least `occupied`.
    pub wanted: u32,
    /// Weights of the classes whose requests wait, together. Invariant: finite and positive.
    pub weight: f64,
}

/// One gateway's part in the seats of one cluster.
#[derive(Debug)]
pub struct Sharer {
    gateway: GatewayIndex,
    /// `p` of the module docs.
    pass: f64,
    /// As it stands in the book; only this gateway changes it.
    held: u32,
    /// As it stands in the book.
    claim: Claim,
    /// What was occupied when seats were taken last, with the weight for which that was.
    before: (u32, f64),
    rivals: [Rival; MOST_GATEWAYS],
    /// Another gateway held seats or waited when this one looked last.
    is_shared: bool,
}

/// Another gateway, as this one has seen it.
#[derive(Debug, Clone, Copy, Default)]
struct Rival {
    claim: Claim,
    held: u32,
    /// The last moment at which it moved, or there was nothing for it to take.
    moved: Time,
    is_overlooked: bool,
}

impl Sharer {
    /// The gateway, which holds nothing yet.
    pub fn new(gateway: GatewayIndex) -> Self {
        let (rivals, claim) = ([Rival::default(); MOST_GATEWAYS], Claim::NONE);
        Self { gateway, pass: 0.0, held: 0, claim, before: (0, 1.0), rivals, is_shared: false }
    }

    /// Takes seats for requests that are to go, as many as are free and its turn allows, and gives back what it does not need. Says how many it
    /// holds: requests may go as long as their seats are no more. To be followed by [`Sharer::settle`] once they have gone.
    pub fn balance(&mut self, now: Time, book: &impl SeatBook, need: Need, seats: u32) -> u32 {
        let seen = book.holdings();
        self.look(now, book, seen, seats);
        let turns = self.turns(need, seats);
        self.before = (need.occupied, need.weight);
        self.hold(book, seen, need.occupied.saturating_add(turns), seats);
        self.held
    }

    /// After requests have gone: gives back the seats that were not used, and tells the others whether requests still wait here.
    pub fn settle(&mut self, book: &impl SeatBook, need: Need) {
        let (occupied, weight) = self.before;
        let gone = need.occupied.saturating_sub(occupied);
        if self.rivals().next().is_some() {
            self.pass += f64::from(gone) / weight;
        }
        self.before = (need.occupied, weight);
        if self.held > need.occupied {
            self.hold(book, book.holdings(), need.occupied, 0);
        }
        self.tell(book, if need.wanted > need.occupied { Claim::waits(self.pass) } else { Claim::NONE });
    }

    /// Gives everything back.
    pub fn leave(&mut self, book: &impl SeatBook) {
        if self.held > 0 {
            self.hold(book, book.holdings(), 0, 0);
        }
        self.tell(book, Claim::NONE);
    }

    /// When to call [`Sharer::balance`] again although nothing comes in; `None` when requests do not wait for another gateway.
    pub fn poll_timeout(&self, now: Time) -> Option<Time> {
        (self.is_shared && self.claim != Claim::NONE).then(|| now + LOOK_EACH)
    }

    /// Seats that other gateways hold now.
    pub fn lent(&self, book: &impl SeatBook) -> u32 {
        book.holdings().of_others(self.gateway)
    }

    fn tell(&mut self, book: &impl SeatBook, claim: Claim) {
        if claim != self.claim {
            self.claim = claim;
            book.set_claim(self.gateway, claim);
        }
    }

    /// Notes what the others do.
    fn look(&mut self, now: Time, book: &impl SeatBook, seen: Holdings, seats: u32) {
        let is_any_free = seen.total() < seats;
        self.is_shared = false;
        for gateway in GatewayIndex::all().filter(|gateway| *gateway != self.gateway) {
            let (claim, held) = (book.claim(gateway), seen.of(gateway));
            self.is_shared |= held > 0 || claim != Claim::NONE;
            let rival = &mut self.rivals[gateway.at()];
            if (claim, held) != (rival.claim, rival.held) {
                *rival = Rival { claim, held, moved: now, is_overlooked: false };
            } else if !is_any_free {
                rival.moved = now;
            } else if now.since(rival.moved) >= OVERLOOKED_AFTER {
                rival.is_overlooked = true;
            }
        }
    }

    /// The passes of those at which requests wait.
    fn rivals(&self) -> impl Iterator<Item = (f64, GatewayIndex)> {
        let mine = self.gateway;
        GatewayIndex::all().filter(move |gateway| *gateway != mine).filter_map(|gateway| {
            let rival = &self.rivals[gateway.at()];
            Some((rival.claim.pass().filter(|_| !rival.is_overlooked)?, gateway))
        })
    }

    /// How many seats' worth of requests may go before it is another's turn.
    fn turns(&mut self, need: Need, seats: u32) -> u32 {
        let waiting = need.wanted.saturating_sub(need.occupied).min(seats);
        let Some(next) = self.rivals().min_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1))) else {
            return waiting;
        };
        let stride = 1.0 / need.weight;
        if self.claim == Claim::NONE {
            self.pass = self.pass.max(next.0);
        }
        self.pass = self.pass.min(next.0 + stride);
        let is_mine = |turns: &u32| (self.pass + f64::from(*turns) * stride, self.gateway) < next;
        (0..waiting).take_while(is_mine).count() as u32
    }

    /// Holds `goal` seats, or as many as there are.
    fn hold(&mut self, book: &impl SeatBook, mut seen: Holdings, goal: u32, seats: u32) {
        loop {
            let next = seen.reach(self.gateway, goal, seats);
            if next == seen {
                break;
            }
            match book.exchange(seen, next) {
                Ok(()) => break seen = next,
                Err(other) => seen = other,
            }
        }
        self.held = seen.of(self.gateway);
    }
}
