//! The waiting requests of one class: those of sessions under way first, and in each of the two in order of arrival.

use std::collections::VecDeque;

use super::tickets::Ticket;

/// Dead entries beyond twice those that wait that a queue may hold before it is swept.
const SLACK: usize = 64;

/// Both parts hold some requests that have ended in between. Invariant: the front one of each waits.
#[derive(Debug, Default)]
pub(super) struct Queue {
    under_way: VecDeque<Ticket>,
    new: VecDeque<Ticket>,
}

impl Queue {
    pub fn push(&mut self, ticket: Ticket, in_session: bool) {
        if in_session { self.under_way.push_back(ticket) } else { self.new.push_back(ticket) }
    }

    /// Puts one before all others.
    pub fn push_front(&mut self, ticket: Ticket) {
        self.under_way.push_front(ticket);
    }

    /// Takes the one that is next.
    pub fn pop(&mut self) -> Option<Ticket> {
        self.under_way.pop_front().or_else(|| self.new.pop_front())
    }

    /// Takes the newest of those that begin a session, of those of which `waits` holds.
    pub fn pop_newest(&mut self, waits: impl Fn(Ticket) -> bool) -> Option<Ticket> {
        while let Some(newest) = self.new.pop_back() {
            if waits(newest) {
                return Some(newest);
            }
        }
        None
    }

    /// The first of either part.
    pub fn fronts(&self) -> impl Iterator<Item = Ticket> {
        self.under_way.front().into_iter().chain(self.new.front()).copied()
    }

    /// Restores the invariant, after which `waiting` entries are those of requests that wait. Requests that ended behind a front that
    /// waits for long would pile up without bound, so those are swept now and then.
    pub fn tidy(&mut self, waiting: usize, waits: impl Fn(Ticket) -> bool) {
        for part in [&mut self.under_way, &mut self.new] {
            while part.front().is_some_and(|&front| !waits(front)) {
                part.pop_front();
            }
        }
        if self.under_way.len() + self.new.len() > 2 * waiting + SLACK {
            self.under_way.retain(|&ticket| waits(ticket));
            self.new.retain(|&ticket| waits(ticket));
        }
    }
}
