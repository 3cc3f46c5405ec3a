//! Who is at the other end of a connection, on a kernel that looks no single socket up.
//!
//! There, the kernel tells of all connections of the machine at once. So one reading of them answers for every connection that was there before it:
//! ten thousand clients that come at the same time cost a few readings, and not one each.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A connection: the address of the end that is asked about, and that of the other end.
pub type Ends = (SocketAddr, SocketAddr);

/// What was read is believed for so long. Ends that were closed are soon used again, then by somebody else.
const BELIEVED: Duration = Duration::from_secs(10);

/// What was last read of all connections of the machine: for each, who is there. What somebody has asked about since is not in it any more.
#[derive(Debug)]
pub struct Connections<T>(Mutex<Option<Reading<T>>>);

#[derive(Debug)]
struct Reading<T> {
    began: Instant,
    ended: Instant,
    known: HashMap<Ends, T>,
}

impl<T> Reading<T> {
    /// What it says of `ends`, which somebody asked about at `asked`; `None` when it says nothing. It says so once: whoever has these ends the next
    /// time may be somebody else.
    fn take(&mut self, ends: &Ends, asked: Instant, now: Instant) -> Option<Option<T>> {
        // A connection that was there before it is in it, or was closed.
        let is_whole = self.began >= asked;
        let is_fresh = now.saturating_duration_since(self.ended) < BELIEVED;
        let found = self.known.remove(ends).filter(|_| is_whole || is_fresh);
        (is_whole || found.is_some()).then_some(found)
    }
}

impl<T> Connections<T> {
    /// Nothing was read yet.
    pub const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Who is at the first of `ends` and connected to the second, as was asked at `asked`: by the last reading, or else by a new one. Who comes while
    /// another reads waits for that, and mostly needs none of its own.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn find(
        &self,
        ends: &Ends,
        asked: Instant,
        now: impl Fn() -> Instant,
        read: impl FnOnce() -> io::Result<HashMap<Ends, T>>,
    ) -> io::Result<Option<T>> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let began = now();
        if let Some(said) = last.as_mut().and_then(|reading| reading.take(ends, asked, began)) {
            return Ok(said);
        }
        let mut known = read()?;
        let found = known.remove(ends);
        *last = Some(Reading { began, ended: now(), known });
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const SERVER: u16 = 8080;

    fn at(port: u16) -> SocketAddr {
        ([127, 0, 0, 1], port).into()
    }

    fn ends(port: u16) -> Ends {
        (at(port), at(SERVER))
    }

    /// A machine with connections from these ports, each of which is told by its port.
    struct Machine {
        connections: Connections<u16>,
        begin: Instant,
        /// Seconds since then.
        now_s: Cell<u64>,
        ports: Vec<u16>,
        readings: Cell<u32>,
    }

    impl Machine {
        fn new(ports: impl IntoIterator<Item = u16>) -> Self {
            let ports = ports.into_iter().collect();
            Self { connections: Connections::new(), begin: Instant::now(), now_s: Cell::new(0), ports, readings: Cell::new(0) }
        }

        fn now(&self) -> Instant {
            self.begin + Duration::from_secs(self.now_s.get())
        }

        /// Who is at `port`, asked at that second.
        fn ask(&self, port: u16, asked_s: u64) -> Option<u16> {
            let asked = self.begin + Duration::from_secs(asked_s);
            let read = || {
                self.readings.set(self.readings.get() + 1);
                Ok(self.ports.iter().map(|port| (ends(*port), *port)).collect())
            };
            self.connections.find(&ends(port), asked, || self.now(), read).unwrap()
        }
    }

    #[test]
    fn one_reading_answers_for_all_connections_that_were_there_before_it() {
        let machine = Machine::new(1000..11_000);
        for port in 1000..11_000 {
            assert_eq!(machine.ask(port, machine.now_s.get()), Some(port));
            machine.now_s.set(u64::from(port - 1000) / 2000);
        }
        assert_eq!(machine.readings.get(), 1);
    }

    #[test]
    fn a_connection_that_came_after_the_last_reading_takes_another() {
        let mut machine = Machine::new([1000]);
        assert_eq!(machine.ask(1000, 0), Some(1000));
        machine.now_s.set(1);
        machine.ports.push(1001);
        assert_eq!(machine.ask(1001, 1), Some(1001));
        assert_eq!(machine.readings.get(), 2);
    }

    #[test]
    fn who_asked_before_a_reading_began_takes_its_word_that_there_is_none() {
        let machine = Machine::new([1000]);
        machine.now_s.set(2);
        assert_eq!(machine.ask(1000, 1), Some(1000));
        assert_eq!(machine.ask(1001, 1), None, "it waited while the other read");
        assert_eq!(machine.readings.get(), 1);
    }

    #[test]
    fn nobody_is_taken_for_who_had_the_same_ends_before() {
        let mut machine = Machine::new([1000, 1001]);
        assert_eq!(machine.ask(1000, 0), Some(1000));
        machine.now_s.set(1);
        machine.ports.clear();
        assert_eq!(machine.ask(1000, 1), None, "it was asked about already");
        let mut machine = Machine::new([1000, 1001]);
        assert_eq!(machine.ask(1000, 0), Some(1000));
        machine.now_s.set(BELIEVED.as_secs());
        machine.ports.clear();
        assert_eq!(machine.ask(1001, BELIEVED.as_secs()), None, "what was read is too old");
        assert_eq!(machine.readings.get(), 2);
    }

    #[test]
    fn what_cannot_be_read_is_an_error_and_is_asked_again() {
        let connections = Connections::new();
        let refused = || Err(io::ErrorKind::PermissionDenied.into());
        assert!(connections.find(&ends(1000), Instant::now(), Instant::now, refused).is_err());
        let read = || Ok(HashMap::from([(ends(1000), 1000)]));
        assert_eq!(connections.find(&ends(1000), Instant::now(), Instant::now, read).unwrap(), Some(1000));
    }
}
