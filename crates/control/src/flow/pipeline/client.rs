//! The client of one request: how long it was waited for, and how it takes the answer. The latter is the part of
//! [slow readers](super::readers) that is about one of them.

use std::time::Duration;

use weal_model::Time;

/// How long the gateway has waited for a client in all when that is a slow reader. Shorter takes every pause of a phone for slowness; longer, and
/// whoever reads slowly on purpose holds a seat for longer before others get it.
const SLOW_AFTER: Duration = Duration::from_secs(2);

/// While others wait, readers below so many times the least rate are cut off at once. Less lets whoever reads slowly on purpose hold seats at the
/// price of a few bytes; more ends downloads over lines that people have.
const PRESSED: u64 = 100;

/// For how much longer others wait before the rate that readers have to keep is doubled. Shorter ends downloads that would be done in a moment;
/// longer keeps others waiting behind readers whose lines are good.
const DOUBLED_AFTER: Duration = Duration::from_secs(2);

/// The time that a request with a seat has spent waiting for its client, to send more of it or to take more of the answer.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ClientTime {
    spent: Duration,
    /// Since when it waits; `None` while it does not.
    since: Option<Time>,
}

impl ClientTime {
    /// It waits from now on, or no longer. False when that is nothing new.
    pub fn note(&mut self, now: Time, waits: bool) -> bool {
        if waits == self.waits() {
            return false;
        }
        self.spent = self.total(now);
        self.since = waits.then_some(now);
        true
    }

    pub fn waits(&self) -> bool {
        self.since.is_some()
    }

    pub fn total(&self, now: Time) -> Duration {
        self.spent + self.since.map_or(Duration::ZERO, |since| now.since(since))
    }
}

/// What a client has to do with the answer to a request in service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// The gateway waits from now on for it to take more; or no longer.
    pub waits: bool,
    /// Bytes that it has taken since the gateway waited for it.
    pub taken: u64,
    /// Bytes per second that it has to take at least; 0 is any rate.
    pub min_rate: u32,
}

/// How the client of a request in service takes the answer.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Reader {
    /// What it took to take more.
    pub waited: ClientTime,
    /// Bytes taken after waits.
    taken: u64,
    pub min_rate: u32,
    pub standing: Standing,
}

/// What has become of a client that is waited for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Standing {
    #[default]
    Fast,
    Slow,
    /// The caller was told to end it.
    Cut,
}

impl Reader {
    /// Takes in what the client has to do now.
    pub fn note(&mut self, now: Time, reading: Reading) {
        let Reading { waits, taken, min_rate } = reading;
        self.waited.note(now, waits);
        self.taken = self.taken.saturating_add(taken);
        self.min_rate = min_rate;
    }

    /// When it is a slow reader, if it goes on as now; `None` when it is one or takes what it is sent.
    pub fn due(&self) -> Option<Time> {
        let since = self.waited.since.filter(|_| self.standing == Standing::Fast)?;
        Some(since + SLOW_AFTER.saturating_sub(self.waited.spent))
    }

    pub fn is_slow(&self) -> bool {
        self.standing == Standing::Slow
    }

    /// Bytes per second of the time that the gateway has waited.
    pub fn rate(&self, now: Time) -> u64 {
        let waited_ms = self.waited.total(now).as_millis().max(1);
        u64::try_from(u128::from(self.taken) * 1000 / waited_ms).unwrap_or(u64::MAX)
    }
}

/// How long others wait for a reader at so many bytes per second.
pub(super) fn patience(rate: u64, min_rate: u32) -> Duration {
    let pressed = PRESSED.saturating_mul(u64::from(min_rate)).max(1);
    let doublings = (rate / pressed).checked_ilog2().map_or(0, |whole| whole + 1);
    DOUBLED_AFTER * doublings
}
