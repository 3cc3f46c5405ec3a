//! Who is there: one lock for each place, which its gateway holds as long as it lives, and one for the door. The locks are bytes of the book's
//! memory (`F_OFD_SETLK`, fcntl(2)). They belong to the opening of it that each gateway has for itself, and end with it.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use weal_control::flow::sharing::{MOST_GATEWAYS, Place};

/// The byte behind those of the places.
const DOOR: usize = MOST_GATEWAYS;

/// The places of the gateways of one pool.
#[derive(Debug)]
pub(super) struct Places {
    memory: OwnedFd,
}

/// The door is locked until this is dropped.
#[derive(Debug)]
pub(super) struct Door<'p>(&'p Places);

impl Places {
    /// Those of the book in `memory`, which no other gateway has by the same opening.
    pub fn of(memory: OwnedFd) -> Self {
        Self { memory }
    }

    /// Waits at the door: one gateway at a time comes in, or clears away what dead ones have left.
    pub fn lock_door(&self) -> io::Result<Door<'_>> {
        self.lock(DOOR, libc::F_OFD_SETLKW)?;
        Ok(Door(self))
    }

    /// The door, unless somebody else is there.
    pub fn try_lock_door(&self) -> Option<Door<'_>> {
        self.lock(DOOR, libc::F_OFD_SETLK).ok().map(|()| Door(self))
    }

    /// A place that nobody has, held until this is dropped. To be called at the door.
    pub fn take_any(&self) -> Option<Place> {
        Place::all().find(|place| self.lock(place.at(), libc::F_OFD_SETLK).is_ok())
    }

    /// The places that nobody has. To be called at the door.
    pub fn vacant(&self, mine: Place) -> Vec<Place> {
        Place::all().filter(|place| *place != mine && self.is_free(*place)).collect()
    }

    fn is_free(&self, place: Place) -> bool {
        let mut lock = byte(place.at(), libc::F_WRLCK);
        self.call(libc::F_OFD_GETLK, &mut lock).is_ok() && i32::from(lock.l_type) == libc::F_UNLCK
    }

    fn lock(&self, at: usize, how: i32) -> io::Result<()> {
        self.call(how, &mut byte(at, libc::F_WRLCK))
    }

    fn call(&self, what: i32, lock: &mut libc::flock) -> io::Result<()> {
        // SAFETY: the descriptor is open, and the kernel reads and writes the one structure that it is given.
        let answer = unsafe { libc::fcntl(self.memory.as_raw_fd(), what, std::ptr::from_mut(lock)) };
        if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl AsFd for Places {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }
}

impl Drop for Door<'_> {
    fn drop(&mut self) {
        // It ends with the opening at the latest.
        let _ = self.0.call(libc::F_OFD_SETLK, &mut byte(DOOR, libc::F_UNLCK));
    }
}

fn byte(at: usize, kind: i32) -> libc::flock {
    let (l_type, l_whence) = (kind as libc::c_short, libc::SEEK_SET as libc::c_short);
    // The kernel wants 0 for the process here.
    libc::flock { l_type, l_whence, l_start: at as libc::off_t, l_len: 1, l_pid: 0 }
}
