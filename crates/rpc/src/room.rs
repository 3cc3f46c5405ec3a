//! How much of a server one user may take at once: a user that calls without end finds no room, and others do.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Connections of one user. A role makes one for each call, and the most that it makes at once is a wait for each application's wake and each
/// log that somebody follows.
pub(crate) const MOST_CONNECTIONS: usize = 512;
/// Bytes of the requests of one user that are read or answered at once: several of the largest.
pub(crate) const MOST_BYTES: usize = 192 << 20;

/// What the users of a server take of it.
#[derive(Debug, Default)]
pub(crate) struct Rooms(Mutex<BTreeMap<u32, Taken>>);

/// What one user takes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Taken {
    connections: usize,
    bytes: usize,
}

impl Rooms {
    /// Room for one more connection of `uid`; `None` when it has as many as it may have.
    pub fn connect(self: &Arc<Self>, uid: u32) -> Option<Connected> {
        let mut rooms = self.lock();
        let taken = rooms.entry(uid).or_default();
        if taken.connections >= MOST_CONNECTIONS {
            return None;
        }
        taken.connections += 1;
        Some(Connected { rooms: Arc::clone(self), uid })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, Taken>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, uid: u32, change: impl FnOnce(&mut Taken)) {
        let mut rooms = self.lock();
        let taken = rooms.entry(uid).or_default();
        change(taken);
        if *taken == Taken::default() {
            rooms.remove(&uid);
        }
    }
}

/// A connection, until it is dropped.
#[derive(Debug)]
pub(crate) struct Connected {
    rooms: Arc<Rooms>,
    uid: u32,
}

impl Connected {
    /// Whose it is.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Room for a request, nothing of which is there yet.
    pub fn request(&self) -> Held {
        Held { rooms: Arc::clone(&self.rooms), uid: self.uid, bytes: 0 }
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.rooms.change(self.uid, |taken| taken.connections -= 1);
    }
}

/// What a request takes, until it is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    rooms: Arc<Rooms>,
    uid: u32,
    bytes: usize,
}

impl Held {
    /// Room for `more` bytes; false when there is none.
    pub fn grow(&mut self, more: usize) -> bool {
        let mut has_room = false;
        self.rooms.change(self.uid, |taken| {
            has_room = taken.bytes + more <= MOST_BYTES;
            taken.bytes += if has_room { more } else { 0 };
        });
        self.bytes += if has_room { more } else { 0 };
        has_room
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.rooms.change(self.uid, |taken| taken.bytes -= self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_takes_no_room_from_another_and_gives_back_what_it_took() {
        let rooms = Arc::new(Rooms::default());
        let mut all: Vec<Connected> = (0..MOST_CONNECTIONS).map(|_| rooms.connect(7).unwrap()).collect();
        assert!(rooms.connect(7).is_none());
        assert!(rooms.connect(8).is_some());
        let (mut first, mut second) = (all[0].request(), all[1].request());
        assert!(first.grow(MOST_BYTES - 1) && second.grow(1) && !second.grow(1));
        assert!(rooms.connect(8).unwrap().request().grow(MOST_BYTES));
        drop(first);
        assert!(second.grow(1));
        all.pop();
        assert!(rooms.connect(7).is_some());
        drop((all, second));
        assert!(rooms.lock().is_empty(), "nothing is remembered of who has left");
    }
}
