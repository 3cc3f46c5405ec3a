//! Whether the process that listens at an instance's address is still the instance.
//!
//! An instance that ends leaves its port free until the controller has heard of it, and anybody on the machine may listen there then. So each
//! new connection is compared: the kernel says which user listens at the address, and it has to be the user whom the node agent found there. The
//! config names that user. Where it names none, it has to be the one that listened when the first connection was made. Applications do not share
//! users where root started the pool.

use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use weal_host::listening::{listener_at, receiver_at};

/// So long after a stranger was seen, a config that still lists the instance knows better: the node agent has looked since. Whatever dies is
/// noticed sooner. Only where the config names no user.
const NOTICED: Duration = Duration::from_secs(2);
/// So long what the kernel said of datagrams holds: there is no connection that would break when the instance ends, and the kernel goes through
/// all such sockets for an answer.
const HOLDS: Duration = Duration::from_secs(1);

/// What is known of who listens at an instance's address.
#[derive(Debug, Default)]
pub(super) struct Listener(Mutex<Known>);

#[derive(Debug, Default, Clone, Copy)]
struct Known {
    /// The user who should listen; `None` while neither a config nor a connection has told.
    user: Option<u32>,
    /// The config named it.
    is_told: bool,
    /// The kernel has once said who listens, so that it can.
    has_answered: bool,
    /// Since when another one does.
    stranger: Option<Instant>,
    /// When the one who takes datagrams was last found to be right.
    confirmed: Option<Instant>,
}

impl Listener {
    /// A config lists the instance, and names its user as `told`.
    pub fn note_listed(&self, now: Instant, told: Option<u32>) {
        let mut known = self.known();
        let knows_better = known.stranger.is_some_and(|since| now.duration_since(since) >= NOTICED);
        match told {
            Some(user) => *known = Known { user: Some(user), is_told: true, stranger: None, ..*known },
            None if knows_better && !known.is_told => *known = Known::default(),
            None => {}
        }
    }

    /// A connection to `address` was made, and the kernel says that user `found` listens there.
    ///
    /// # Errors
    /// The instance is gone: nobody listens in its place, or another user does.
    pub fn confirm(&self, now: Instant, address: SocketAddr, found: io::Result<Option<u32>>) -> io::Result<()> {
        let mut known = self.known();
        let Ok(found) = found else {
            // Where it never says, nobody can tell.
            return if known.has_answered {
                Err(refusal("the kernel does not say who listens in the instance's place"))
            } else {
                Ok(())
            };
        };
        known.has_answered |= found.is_some();
        let is_elsewhere = known.user.is_none() && !address.ip().is_loopback();
        let is_right = match (known.user, found) {
            // This kernel knows nothing of another machine's sockets.
            (None, None) => is_elsewhere,
            (None, Some(user)) => {
                known.user = Some(user);
                true
            }
            (Some(user), found) => found == Some(user),
        };
        if is_right {
            known.stranger = None;
            return Ok(());
        }
        known.stranger.get_or_insert(now);
        known.confirmed = None;
        Err(refusal("another user's program listens in the instance's place"))
    }

    /// Datagrams are about to be sent to `address`.
    ///
    /// # Errors
    /// The instance is gone, and another user takes what is sent there.
    pub fn confirm_receiver(
        &self,
        now: Instant,
        address: SocketAddr,
        ask: impl Fn(SocketAddr) -> io::Result<Option<u32>>,
    ) -> io::Result<()> {
        if self.known().confirmed.is_some_and(|then| now.saturating_duration_since(then) < HOLDS) {
            return Ok(());
        }
        let found = ask(address);
        if matches!(found, Ok(None)) {
            // Nobody gets them: the kernel says so to the socket that they are sent from.
            return Ok(());
        }
        self.confirm(now, address, found)?;
        self.known().confirmed = Some(now);
        Ok(())
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn refusal(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionRefused, why)
}

/// The user who listens at an address of this machine; `Ok(None)` when nobody does.
pub(super) fn user_at(address: SocketAddr) -> io::Result<Option<u32>> {
    Ok(listener_at(address)?.map(|socket| socket.uid))
}

/// The user who takes datagrams at an address of this machine; `Ok(None)` when nobody does.
pub(super) fn receiving_user_at(address: SocketAddr) -> io::Result<Option<u32>> {
    Ok(receiver_at(address)?.map(|socket| socket.uid))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn here() -> SocketAddr {
        ([127, 0, 0, 1], 20_000).into()
    }

    fn silent() -> io::Error {
        io::ErrorKind::Unsupported.into()
    }

    #[test]
    fn where_no_config_names_the_user_the_first_one_is_believed() {
        let (listener, now) = (Listener::default(), Instant::now());
        for (user, is_believed) in [(Some(7), true), (Some(7), true), (Some(8), false), (None, false), (Some(7), true)] {
            assert_eq!(listener.confirm(now, here(), Ok(user)).is_ok(), is_believed, "{user:?}");
        }
        assert_eq!(listener.confirm(now, here(), Ok(Some(8))).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn the_user_whom_the_config_names_is_believed_from_the_first_connection_on_and_no_other() {
        let (listener, now) = (Listener::default(), Instant::now());
        listener.note_listed(now, Some(7));
        assert!(listener.confirm(now, here(), Ok(Some(8))).is_err(), "a stranger was there before the first connection");
        let later = now + NOTICED;
        listener.note_listed(later, Some(7));
        listener.note_listed(later, None);
        assert!(listener.confirm(later, here(), Ok(Some(8))).is_err(), "and stays a stranger");
        assert!(listener.confirm(later, here(), Ok(Some(7))).is_ok());
        listener.note_listed(later, Some(8));
        assert!(listener.confirm(later, here(), Ok(Some(8))).is_ok(), "its application has another user now");
        assert!(listener.confirm(later, here(), Ok(Some(7))).is_err());
    }

    #[test]
    fn a_config_that_lists_the_instance_some_time_later_is_believed() {
        let (listener, now) = (Listener::default(), Instant::now());
        assert!(listener.confirm(now, here(), Ok(Some(7))).is_ok() && listener.confirm(now, here(), Ok(Some(8))).is_err());
        listener.note_listed(now, None);
        assert!(listener.confirm(now, here(), Ok(Some(8))).is_err(), "it may not know yet");
        let later = now + NOTICED;
        assert!(listener.confirm(later, here(), Ok(Some(8))).is_err());
        listener.note_listed(later, None);
        assert!(listener.confirm(later, here(), Ok(Some(8))).is_ok(), "its application has another user now");
    }

    #[test]
    fn nobody_and_silence_at_first_do_not_open_the_address_to_strangers() {
        let now = Instant::now();
        let gone = Listener::default();
        assert!(gone.confirm(now, here(), Ok(None)).is_err(), "it ended just after the connection was made");
        let unknown = Listener::default();
        assert!(unknown.confirm(now, here(), Err(silent())).is_ok(), "nobody can tell");
        assert!(unknown.confirm(now, here(), Ok(Some(7))).is_ok());
        assert!(unknown.confirm(now, here(), Ok(Some(8))).is_err(), "the first answer counts, although none came before");
        assert!(unknown.confirm(now, here(), Err(silent())).is_err(), "the kernel can tell, and did not");
    }

    #[test]
    fn what_the_kernel_does_not_know_of_another_machine_is_believed() {
        let (listener, now) = (Listener::default(), Instant::now());
        let there = ([10, 0, 0, 7], 80).into();
        assert!(listener.confirm(now, there, Ok(None)).is_ok() && listener.confirm(now, there, Ok(None)).is_ok());
    }

    #[test]
    fn the_one_who_takes_datagrams_is_asked_for_once_a_second() {
        let (listener, now, asked) = (Listener::default(), Instant::now(), Cell::new(0));
        listener.note_listed(now, Some(7));
        let told = |at: Instant, user: Option<u32>| {
            listener.confirm_receiver(at, here(), |_| {
                asked.set(asked.get() + 1);
                Ok(user)
            })
        };
        assert!(told(now, None).is_ok() && asked.replace(0) == 1, "nobody is there yet, and nobody gets anything");
        let confirm = |at: Instant, user: u32| told(at, Some(user));
        assert!(confirm(now, 7).is_ok() && confirm(now + HOLDS / 2, 8).is_ok());
        assert_eq!(asked.get(), 1);
        assert!(confirm(now + HOLDS, 8).is_err() && confirm(now + HOLDS, 8).is_err(), "what was refused is asked for again");
        assert!(confirm(now + HOLDS, 7).is_ok());
        assert_eq!(asked.get(), 4);
    }

    #[test]
    fn the_kernel_names_the_user_who_listens() {
        let own = Some(rustix::process::geteuid().as_raw());
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(user_at(socket.local_addr().unwrap()).unwrap(), own);
        let datagrams = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert_eq!(receiving_user_at(datagrams.local_addr().unwrap()).unwrap(), own);
    }
}
