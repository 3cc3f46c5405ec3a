//! Whether the one who listens at an instance's address is still the instance.
//!
//! An instance that ends leaves its port free until the controller has heard of it, and anybody on the machine may listen there then. So each
//! new connection is compared: the kernel says which user listens at the address, and it has to be the user who listened there when the
//! first connection was made, just after the node agent had looked. Applications do not share users where root started the pool.

use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use weal_host::listening::listener_at;

/// So long after a stranger was seen, a config that still lists the instance knows better: the node agent has looked since. Whatever dies is
/// noticed sooner.
const NOTICED: Duration = Duration::from_secs(2);

/// What is known of who listens at an instance's address.
#[derive(Debug, Default)]
pub(super) struct Listener(Mutex<Known>);

#[derive(Debug, Default, Clone, Copy)]
struct Known {
    /// The user who listened when the first connection was made: `Some(None)` where the kernel does not say, as of another machine's.
    user: Option<Option<u32>>,
    /// Since when another one does.
    stranger: Option<Instant>,
}

impl Listener {
    /// A config lists the instance.
    pub fn note_listed(&self, now: Instant) {
        let mut known = self.known();
        if known.stranger.is_some_and(|since| now.duration_since(since) >= NOTICED) {
            *known = Known::default();
        }
    }

    /// A connection was made, while `user_now` listens.
    ///
    /// # Errors
    /// The instance is gone and another user listens in its place.
    pub fn confirm(&self, now: Instant, user_now: Option<u32>) -> io::Result<()> {
        let mut known = self.known();
        let user = *known.user.get_or_insert(user_now);
        if user.is_none() || user == user_now {
            known.stranger = None;
            return Ok(());
        }
        known.stranger.get_or_insert(now);
        Err(io::Error::new(io::ErrorKind::ConnectionRefused, "another user's program listens in the instance's place"))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The user who listens at an address of this machine.
pub(super) fn user_at(address: SocketAddr) -> Option<u32> {
    listener_at(address).ok().flatten().map(|socket| socket.uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_user_who_listened_at_first_is_believed() {
        let (listener, now) = (Listener::default(), Instant::now());
        for (user, is_believed) in [(Some(7), true), (Some(7), true), (Some(8), false), (None, false), (Some(7), true)] {
            assert_eq!(listener.confirm(now, user).is_ok(), is_believed, "{user:?}");
        }
        assert_eq!(listener.confirm(now, Some(8)).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn a_config_that_lists_the_instance_some_time_later_is_believed() {
        let (listener, now) = (Listener::default(), Instant::now());
        assert!(listener.confirm(now, Some(7)).is_ok() && listener.confirm(now, Some(8)).is_err());
        listener.note_listed(now);
        assert!(listener.confirm(now, Some(8)).is_err(), "it may not know yet");
        let later = now + NOTICED;
        assert!(listener.confirm(later, Some(8)).is_err());
        listener.note_listed(later);
        assert!(listener.confirm(later, Some(8)).is_ok(), "its application has another user now");
    }

    #[test]
    fn what_the_kernel_does_not_know_is_believed() {
        let (listener, now) = (Listener::default(), Instant::now());
        assert!(listener.confirm(now, None).is_ok() && listener.confirm(now, Some(8)).is_ok(), "another machine's");
    }

    #[test]
    fn the_kernel_names_the_user_who_listens() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(user_at(socket.local_addr().unwrap()), Some(rustix::process::geteuid().as_raw()));
    }
}
