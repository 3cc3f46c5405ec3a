//! Others to whom the supervisor sends what weal has: when something that was not taken is sent again, and what the person here is told of it.

use std::fmt::Display;
use std::time::Duration;

use tokio::sync::watch;
use weal_model::PoolSpec;

use super::console::Console;
use crate::output::Tone;

/// The pause before something is sent again for the first time; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How an attempt went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attempt {
    Taken,
    /// It may be taken later.
    Untaken,
    /// It will never be taken.
    Refused,
}

/// What follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// Nothing, but `recovered` says that earlier attempts failed.
    Done { recovered: bool },
    /// The same again after a pause.
    Again { pause: Duration, is_first: bool },
    /// It is given up.
    GivenUp,
}

/// The attempts at one place.
#[derive(Debug, Default)]
struct Attempts {
    /// The pause after the last attempt; zero when that one was the last for its cargo.
    pause: Duration,
}

impl Attempts {
    fn handle(&mut self, attempt: Attempt) -> Next {
        let before = std::mem::take(&mut self.pause);
        match attempt {
            Attempt::Taken => Next::Done { recovered: !before.is_zero() },
            Attempt::Refused => Next::GivenUp,
            Attempt::Untaken => {
                self.pause = (before * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
                Next::Again { pause: self.pause, is_first: before.is_zero() }
            }
        }
    }
}

/// Why something was not taken.
pub trait Untaken: Display {
    /// Whether the same may be taken later.
    fn is_passing(&self) -> bool;
}

/// One place to which something is sent.
pub struct Outlet {
    console: Console,
    /// The key that asks for it, as a person here reads it: `logs-to:`.
    key: &'static str,
    /// What is sent: `lines`.
    things: &'static str,
    attempts: Attempts,
}

impl Outlet {
    /// A place where nothing was sent yet.
    pub fn new(console: &Console, key: &'static str, things: &'static str) -> Self {
        Self { console: console.clone(), key, things, attempts: Attempts::default() }
    }

    /// An attempt is over. `untaken` is why `count` things were not taken. Returns the pause after which they are to be sent again; `None` when they
    /// are done with.
    pub fn handle_attempt<E: Untaken>(&mut self, count: usize, untaken: Option<&E>) -> Option<Duration> {
        let attempt = match untaken {
            None => Attempt::Taken,
            Some(why) if why.is_passing() => Attempt::Untaken,
            Some(_) => Attempt::Refused,
        };
        let (things, next) = (self.things, self.attempts.handle(attempt));
        let why = untaken.map_or_else(String::new, ToString::to_string);
        match next {
            Next::Done { recovered: true } => self.console.tell(Tone::Good, self.key, &format!("{things} are taken again")),
            Next::Again { is_first: true, .. } => {
                self.console.tell(Tone::Warn, self.key, &format!("{count} {things} wait: {why}"))
            }
            Next::GivenUp => self.console.tell(Tone::Bad, self.key, &format!("{count} {things} are not sent: {why}")),
            Next::Done { recovered: false } | Next::Again { is_first: false, .. } => {}
        }
        match next {
            Next::Again { pause, .. } => Some(pause),
            Next::Done { .. } | Next::GivenUp => None,
        }
    }
}

/// Completes when the config in force says another `of` than `now`; false when there will be no other config.
pub async fn changes<T: PartialEq>(specs: &mut watch::Receiver<PoolSpec>, of: fn(&PoolSpec) -> &T, now: &T) -> bool {
    while specs.changed().await.is_ok() {
        if of(&specs.borrow()) != now {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound_and_begin_anew_once_something_was_taken() {
        let mut attempts = Attempts::default();
        assert_eq!(attempts.handle(Attempt::Taken), Next::Done { recovered: false });
        for (seconds, is_first) in [(1, true), (2, false), (4, false), (8, false), (16, false), (30, false), (30, false)] {
            let pause = Duration::from_secs(seconds);
            assert_eq!(attempts.handle(Attempt::Untaken), Next::Again { pause, is_first });
        }
        assert_eq!(attempts.handle(Attempt::Taken), Next::Done { recovered: true });
        assert_eq!(attempts.handle(Attempt::Untaken), Next::Again { pause: FIRST_PAUSE, is_first: true });
    }

    #[test]
    fn what_is_refused_is_given_up_at_once() {
        let mut attempts = Attempts::default();
        attempts.handle(Attempt::Untaken);
        assert_eq!(attempts.handle(Attempt::Refused), Next::GivenUp);
        assert_eq!(attempts.handle(Attempt::Taken), Next::Done { recovered: false }, "what comes next is another thing");
    }
}
