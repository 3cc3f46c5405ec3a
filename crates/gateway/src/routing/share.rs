//! A cluster's seats where other gateways of the pool use them too.

use weal_control::admission::Admission;
use weal_control::flow::pipeline::ClassIndex;
use weal_control::flow::sharing::Sharer;
use weal_model::{AppName, Time};

use crate::sharing::{SeatRoom, SharedSeats};

/// This gateway's part. Gives back all of it when it is dropped.
#[derive(Debug)]
pub(super) struct Share {
    sharer: Sharer,
    seats: SharedSeats,
}

impl Share {
    /// Nothing yet of the seats of `app`. `None` when they are not shared.
    pub fn of(app: &AppName, room: Option<&SeatRoom>) -> Option<Self> {
        let room = room?;
        let seats = room.seats_of(app);
        if seats.is_none() {
            tracing::warn!(%app, "too many applications: a gateway that ends and its successor do not share the seats of this one");
        }
        Some(Self { sharer: Sharer::new(room.index()), seats: seats? })
    }

    /// Takes seats for what is to go, with one more of the class `expecting`.
    pub fn balance(&mut self, now: Time, admission: &mut Admission, expecting: Option<ClassIndex>) {
        let Self { sharer, seats } = self;
        let held = match admission.seats() {
            Some(planned) => Some(sharer.balance(now, seats, admission.need(now, expecting), planned)),
            None => {
                sharer.leave(seats);
                None
            }
        };
        admission.handle_share(held);
    }

    /// Gives back what was not used after all.
    pub fn settle(&mut self, now: Time, admission: &mut Admission) {
        if admission.seats().is_some() {
            self.sharer.settle(&self.seats, admission.need(now, None));
        }
    }

    /// Seats that other gateways hold now.
    pub fn lent(&self) -> u32 {
        self.sharer.lent(&self.seats)
    }

    /// When to look again although nothing comes in.
    pub fn poll_timeout(&self, now: Time) -> Option<Time> {
        self.sharer.poll_timeout(now)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.sharer.leave(&self.seats);
    }
}
