//! Which gateways live: one lock for each index, which its gateway holds as long as it lives, and one for entering. The locks are bytes of the
//! book's memory (`F_OFD_SETLK`, fcntl(2)). Each gateway opens that memory for itself. Its locks belong to this opening and end with it.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use weal_control::flow::sharing::{GatewayIndex, MOST_GATEWAYS};

/// The byte behind those of the indices.
const ENTRY: usize = MOST_GATEWAYS;

/// The locks of one pool's gateways.
#[derive(Debug)]
pub(super) struct IndexLocks {
    memory: OwnedFd,
}

/// No other gateway enters until this is dropped.
#[derive(Debug)]
pub(super) struct EntryLock<'p>(&'p IndexLocks);

impl IndexLocks {
    /// Those of the book in `memory`, which no other gateway has by the same opening.
    pub fn of(memory: OwnedFd) -> Self {
        Self { memory }
    }

    /// Waits for its turn to enter: one gateway at a time enters, or clears away what dead ones have left.
    pub fn lock_entry(&self) -> io::Result<EntryLock<'_>> {
        self.lock(ENTRY, libc::F_OFD_SETLKW)?;
        Ok(EntryLock(self))
    }

    /// The lock for entering, unless another gateway holds it.
    pub fn try_lock_entry(&self) -> Option<EntryLock<'_>> {
        self.lock(ENTRY, libc::F_OFD_SETLK).ok().map(|()| EntryLock(self))
    }

    /// Takes an index that no gateway has, and holds it until this is dropped. The caller holds the lock for entering.
    pub fn take_any(&self) -> Option<GatewayIndex> {
        GatewayIndex::all().find(|index| self.lock(index.at(), libc::F_OFD_SETLK).is_ok())
    }

    /// The indices that no gateway has. The caller holds the lock for entering.
    pub fn vacant(&self, mine: GatewayIndex) -> Vec<GatewayIndex> {
        GatewayIndex::all().filter(|index| *index != mine && self.is_free(*index)).collect()
    }

    fn is_free(&self, index: GatewayIndex) -> bool {
        let mut lock = byte(index.at(), libc::F_WRLCK);
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

impl AsFd for IndexLocks {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }
}

impl Drop for EntryLock<'_> {
    fn drop(&mut self) {
        // It ends with the opening at the latest.
        let _ = self.0.call(libc::F_OFD_SETLK, &mut byte(ENTRY, libc::F_UNLCK));
    }
}

fn byte(at: usize, kind: i32) -> libc::flock {
    let (l_type, l_whence) = (kind as libc::c_short, libc::SEEK_SET as libc::c_short);
    // The kernel wants 0 for the process here.
    libc::flock { l_type, l_whence, l_start: at as libc::off_t, l_len: 1, l_pid: 0 }
}
