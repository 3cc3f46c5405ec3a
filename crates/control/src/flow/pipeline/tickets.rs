//! Requests by ticket: a slab whose keys are never valid twice.

use std::time::Duration;

use weal_model::Time;

use super::client::{ClientTime, Reader};

/// A request that has had a seat for so long without a sign of life hangs. Shorter would name slow answers; longer would leave seats
/// lost for longer before anybody is told.
pub const HANGS_AFTER: Duration = Duration::from_secs(30);

/// A class of one pipeline: where its name was found once, so that requests need no look-up. Valid for the pipeline's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassIndex(pub(super) u32);

/// A request that was taken. Valid until it has ended, and never again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    slot: u32,
    generation: u32,
}

impl ClassIndex {
    /// Its place in the list of classes.
    pub(super) fn at(self) -> usize {
        self.0 as usize
    }
}

impl Ticket {
    /// A small number that no other valid ticket of the same pipeline has: fit to index a table beside the pipeline.
    pub fn slot(self) -> usize {
        self.slot as usize
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    pub class: ClassIndex,
    pub arrived: Time,
    pub phase: Phase,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Phase {
    Queued {
        deadline: Time,
        late: Option<Time>,
    },
    /// Silent: nothing has come of it yet.
    InService {
        dispatched: Time,
        is_silent: bool,
        client: ClientTime,
        reader: Reader,
    },
}

impl Request {
    /// It has a seat, nothing has come of it for [`HANGS_AFTER`], and that is not its client's doing.
    pub fn hangs(&self, now: Time) -> bool {
        let Phase::InService { dispatched, is_silent: true, client, .. } = self.phase else { return false };
        !client.waits() && now.since(dispatched).saturating_sub(client.total(now)) >= HANGS_AFTER
    }
}

#[derive(Debug, Default)]
pub(super) struct Tickets {
    slots: Vec<Slot>,
    /// Invariant: exactly the slots that hold no request.
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot {
    /// Grows with each request that the slot held. It takes 2^32 requests in one slot for a stale ticket to look valid.
    generation: u32,
    request: Option<Request>,
}

impl Tickets {
    pub fn insert(&mut self, request: Request) -> Ticket {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, request: None });
            (self.slots.len() - 1) as u32
        });
        let entry = &mut self.slots[slot as usize];
        entry.request = Some(request);
        Ticket { slot, generation: entry.generation }
    }

    /// All that are valid.
    pub fn iter(&self) -> impl Iterator<Item = &Request> {
        self.slots.iter().filter_map(|slot| slot.request.as_ref())
    }

    /// The same, with their tickets.
    pub fn entries(&self) -> impl Iterator<Item = (Ticket, &Request)> {
        self.slots.iter().zip(0..).filter_map(|(entry, slot)| {
            let ticket = Ticket { slot, generation: entry.generation };
            Some((ticket, entry.request.as_ref()?))
        })
    }

    pub fn get(&self, ticket: Ticket) -> Option<&Request> {
        let slot = self.slots.get(ticket.slot as usize).filter(|slot| slot.generation == ticket.generation)?;
        slot.request.as_ref()
    }

    pub fn get_mut(&mut self, ticket: Ticket) -> Option<&mut Request> {
        let slot = self.slots.get_mut(ticket.slot as usize).filter(|slot| slot.generation == ticket.generation)?;
        slot.request.as_mut()
    }

    pub fn remove(&mut self, ticket: Ticket) -> Option<Request> {
        let slot = self.slots.get_mut(ticket.slot as usize).filter(|slot| slot.generation == ticket.generation)?;
        let request = slot.request.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(ticket.slot);
        Some(request)
    }
}
