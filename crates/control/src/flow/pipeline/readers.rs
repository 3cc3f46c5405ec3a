//! Requests whose clients take their answers slowly.
//!
//! A *slow reader* is a request with a seat for whose client the gateway has waited for [`SLOW_AFTER`] in all to take more of the answer. Its
//! instance waits too, and computes nothing for it. Let `N` be the seats, `h = max(floor(N / 2), 1)`, and `r` the slow readers, counted
//! as seats. The slow readers beyond half of the seats give theirs to others, as far as the instances may have `h` requests more than seats:
//!
//! ```text
//! lent      = min(max(r - floor(N / 2), 0), h)
//! occupied  = outstanding - lent
//! ```
//!
//! While something waits and no seat is free, slow readers beyond `N` are cut off, the slowest first. So of the `N + h` requests that may be
//! outstanding, `h` are never slow readers for long, whoever reads slowly and from however many addresses.
//!
//! A download over a good line is a slow reader too, wherever the instance is faster than the line. So the better the line, the longer may others
//! wait before a reader is cut off for them. One that takes `b` bytes a second may go on until no request has got a seat for
//!
//! ```text
//! DOUBLED_AFTER * n,   n the least number with  b < PRESSED * least rate * 2^n
//! ```
//!
//! With a least rate of 240 bytes a second, that is no time for less than 24 kB a second, 4 s for 50 kB and 12 s for a MB. A route without
//! a least rate has no slow readers.

use std::cmp::Reverse;
use std::time::Duration;

use weal_model::Time;

use super::client::{Reader, Reading, Standing, patience};
use super::tickets::{Phase, Request};
use super::{ClassIndex, Pipeline, Ticket};

/// In which order slow readers are cut off: when, and of those that are due the slowest, of equals the one that has been waited for longest.
type Turn = (Time, u64, Reverse<Duration>, Ticket);

impl Pipeline {
    /// The client of a request in service is to take more of its answer. One that has no seat is none that holds one up.
    pub fn handle_reading(&mut self, now: Time, ticket: Ticket, reading: Reading) {
        self.handle_client_wait(now, ticket, reading.waits);
        let now = self.now;
        let Some(Request { phase: Phase::InService { reader, .. }, .. }) = self.tickets.get_mut(ticket) else { return };
        if reading.min_rate == 0 {
            return;
        }
        let before = reader.due();
        reader.note(now, reading);
        let due = reader.due();
        if let Some(before) = before {
            self.stalls.remove(&(before, ticket));
        }
        self.stalls.extend(due.map(|due| (due, ticket)));
    }

    /// A slow reader that has to be cut off, so that others go on. It is named once, and its seat is free when the caller says that it has ended.
    pub fn poll_cut(&mut self, now: Time) -> Option<Ticket> {
        self.advance(now);
        let (at, .., ticket) = self.next_cut()?;
        if at > self.now {
            return None;
        }
        let Some(Request { class, phase: Phase::InService { reader, .. }, .. }) = self.tickets.get_mut(ticket) else {
            return None;
        };
        reader.standing = Standing::Cut;
        self.classes[class.at()].slow_readers -= 1;
        Some(ticket)
    }

    /// When readers have something to say although nothing comes in; `None` while nothing waits for their seats.
    pub(super) fn poll_readers(&self) -> Option<Time> {
        let slow = self.stalls.first().map(|&(due, _)| due).filter(|_| self.queued > 0);
        let cut = self.next_cut().map(|(at, ..)| at).filter(|at| *at > self.now);
        slow.into_iter().chain(cut).min()
    }

    /// Seats of slow readers that others have.
    pub(super) fn lent(&self) -> f64 {
        let Some(seats) = self.seats else { return 0.0 };
        let half = seats / 2;
        (self.slow() - f64::from(half)).clamp(0.0, f64::from(half.max(1)))
    }

    /// Whoever has waited for too long is a slow reader from now on.
    pub(super) fn note_slow_readers(&mut self) {
        while let Some(&(due, ticket)) = self.stalls.first().filter(|(due, _)| *due <= self.now) {
            self.stalls.remove(&(due, ticket));
            if let Some(Request { class, phase: Phase::InService { reader, .. }, .. }) = self.tickets.get_mut(ticket) {
                reader.standing = Standing::Slow;
                self.classes[class.at()].slow_readers += 1;
            }
        }
    }

    /// A request is no longer in service.
    pub(super) fn forget_reader(&mut self, class: ClassIndex, ticket: Ticket, reader: Reader) {
        if let Some(due) = reader.due() {
            self.stalls.remove(&(due, ticket));
        }
        self.classes[class.at()].slow_readers -= u32::from(reader.is_slow());
    }

    /// Seats of slow readers: `r` above.
    fn slow(&self) -> f64 {
        self.classes.iter().map(|class| class.size * f64::from(class.slow_readers)).sum()
    }

    /// Which slow reader is cut off next, and when; `None` while none need be.
    fn next_cut(&self) -> Option<Turn> {
        let seats = f64::from(self.seats?);
        if self.slow() <= seats || self.next_class().is_none_or(|class| self.has_seat(class)) {
            return None;
        }
        let pressed_since = self.released.max(self.oldest_arrival()?);
        let turns = self.tickets.entries().filter_map(|(ticket, request)| {
            let Phase::InService { reader, .. } = request.phase else { return None };
            // One that takes something just now is not where it could be told.
            if !(reader.waited.waits() && reader.is_slow()) {
                return None;
            }
            let rate = reader.rate(self.now);
            Some((pressed_since + patience(rate, reader.min_rate), rate, Reverse(reader.waited.total(self.now)), ticket))
        });
        turns.min()
    }

    fn oldest_arrival(&self) -> Option<Time> {
        self.classes.iter().filter_map(|class| class.oldest(&self.tickets)).map(|request| request.arrived).min()
    }
}

#[cfg(test)]
mod tests;
