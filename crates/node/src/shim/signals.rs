//! Which signals a shim takes: none but its children's ends.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// Nothing but SIGKILL ends the shim. What it spawns inherits the mask and takes it back with [`unblock_signals`].
pub(super) fn block_signals() -> io::Result<()> {
    // SAFETY: a set of signals is plain data, and both calls only read or write it.
    let result = unsafe {
        let mut set = std::mem::zeroed();
        libc::sigfillset(&mut set);
        libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut())
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The standard library leaves the mask as it is: without this, an instance would never see its SIGTERM.
pub(super) fn unblock_signals() -> io::Result<()> {
    // SAFETY: a set of signals is plain data, and both calls only read or write it.
    let result = unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigprocmask(libc::SIG_SETMASK, &set, std::ptr::null_mut())
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Becomes readable when a child has ended.
pub(super) fn child_signals() -> io::Result<OwnedFd> {
    // SAFETY: the set is plain data; the descriptor is new and owned by nobody else.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGCHLD);
        match libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}
