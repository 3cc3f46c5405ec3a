//! Which TLS handshakes one worker does first, and how many it does at all, when clients want more than it has CPU for.
//!
//! A handshake that resumes a session costs little. A full one costs a signature: with RSA ten times as much, and more. When new clients
//! come faster than their signatures can be made, everybody waits: those with a session under way give up too, come back as new clients, and
//! then nearly all handshakes are full ones. So the server does ever more work, and completes ever less (Carrera 4.3.3.2, Figure 4.7, Tables
//! 4.1 and 4.2). The thesis' answer is to know the two kinds apart before the costly part, and to let resumed ones go first.
//!
//! # Rules
//!
//! - A resumed handshake never waits, and neither does a request on a connection that stands.
//! - A full one waits until its worker has nothing else to do. While the worker always has, full ones still get [`LEAST_SHARE`] of its time:
//!   the next may begin `c / LEAST_SHARE` after the last one began, which cost `c`.
//! - Of those that wait, the one goes next that came first, where each counts as if it came `STRETCH` times its expected cost later. So
//!   cheap ones overtake costly ones, and no client is overtaken for ever.
//! - The costs are measured: for each [`Effort`], the smoothed CPU time of those that were done. From the first one on nothing is assumed.
//! - A client that would have to wait longer than [`LONGEST_WAIT`] is turned away at once:
//!
//! ```text
//! expected wait = (sum of the expected costs of those that wait) / share
//! share         = CPU time of full handshakes / time,  over the last seconds in which some waited
//! ```
//!
//! Time spent on a client that leaves in the end is lost to all others, so it is better to say no before anything was spent.

#[cfg(test)]
mod collapse;

use std::collections::BTreeMap;
use std::time::Duration;

use weal_model::Time;

/// How long a client may expect to wait for its handshake. Clients leave after some ten seconds without an answer (the thesis' httperf, and
/// people), and after the handshake comes the request. Much shorter, and the crowd of a moment is turned away that would be served.
pub const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// Of a worker's time, what full handshakes get while there is always something else to do. Less, and new clients never come in; more is
/// taken from sessions under way.
pub const LEAST_SHARE: f64 = 0.05;

/// A handshake waits as if it had come so many times its cost later: a millisecond of RSA lets those pass that come within 0.1 s.
const STRETCH: f64 = 100.0;

/// Clients of one worker that wait at once at most, whatever their handshakes cost: each holds a few kilobytes.
const MOST_WAITING: usize = 4096;

/// The weight of one measurement in a mean cost.
const SMOOTHING: f64 = 0.1;

/// After so long, a measurement of the share counts for `1/e`.
const MEMORY_S: f64 = 1.0;

/// What a handshake takes, as far as it shows before anything was spent on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effort {
    /// It goes on with a session, by a ticket of ours.
    Resumed,
    /// A signature by a key on a curve.
    FullByCurve,
    /// A signature by an RSA key.
    FullByRsa,
}

/// A place among those that wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HandshakePlace {
    /// When it came, and what it costs, in one: the least goes next.
    turn: Time,
    number: u64,
}

/// The client is turned away: others wait for longer than it would wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("new sessions wait for {:.1} s already", .wait.as_secs_f64())]
pub struct Overloaded {
    /// How long it would have to wait.
    pub wait: Duration,
}

/// The handshakes of one worker.
#[derive(Debug, Default)]
pub struct Handshakes {
    /// Mean seconds of CPU, by [`Effort`]; `None` before the first.
    costs_s: [Option<f64>; 3],
    /// What each is expected to cost, in seconds of CPU.
    waiting: BTreeMap<HandshakePlace, f64>,
    /// Their sum.
    waiting_s: f64,
    /// Places so far.
    numbers: u64,
    pace: Pace,
    /// When the next may begin although the worker has something else to do.
    due: Time,
}

impl Handshakes {
    /// Nothing waits and nothing is known of costs.
    pub fn new() -> Self {
        Self::default()
    }

    /// A client has said what it wants. `None`: it goes at once. Otherwise it waits until its place is named.
    ///
    /// # Errors
    /// When it would have to wait for too long.
    pub fn handle_hello(&mut self, now: Time, effort: Effort) -> Result<Option<HandshakePlace>, Overloaded> {
        if effort == Effort::Resumed {
            return Ok(None);
        }
        let wait = self.expected_wait();
        if wait > LONGEST_WAIT || self.waiting.len() >= MOST_WAITING {
            return Err(Overloaded { wait });
        }
        let cost_s = self.costs_s[effort as usize].unwrap_or(0.0);
        let place = HandshakePlace { turn: now + Duration::from_secs_f64(STRETCH * cost_s), number: self.numbers };
        self.numbers += 1;
        self.pace.begin(now);
        self.waiting.insert(place, cost_s);
        self.waiting_s += cost_s;
        Ok(Some(place))
    }

    /// The worker has nothing else to do: who goes now. To be asked again once that one's work was done: [`Handshakes::handle_done`].
    pub fn poll_idle(&mut self, now: Time) -> Option<HandshakePlace> {
        let place = *self.waiting.first_key_value()?.0;
        self.remove(place);
        self.due = now + self.least_pause();
        Some(place)
    }

    /// The worker has something else to do: who goes all the same.
    pub fn poll_due(&mut self, now: Time) -> Option<HandshakePlace> {
        if now < self.due { None } else { self.poll_idle(now) }
    }

    /// When [`Handshakes::poll_due`] gives something; `None` while nobody waits.
    pub fn poll_timeout(&self) -> Option<Time> {
        (!self.waiting.is_empty()).then_some(self.due)
    }

    /// A client that waited has gone. False when it waited no longer.
    pub fn handle_leave(&mut self, place: HandshakePlace) -> bool {
        self.remove(place)
    }

    /// A handshake's costly part was done, in so much CPU time.
    pub fn handle_done(&mut self, now: Time, effort: Effort, cost: Duration) {
        let measured = cost.as_secs_f64();
        let mean = &mut self.costs_s[effort as usize];
        *mean = Some(mean.map_or(measured, |mean| mean + SMOOTHING * (measured - mean)));
        if effort != Effort::Resumed {
            self.pace.note(now, measured, !self.waiting.is_empty());
        }
    }

    /// How long a client that comes now would have to wait.
    pub fn expected_wait(&self) -> Duration {
        Duration::try_from_secs_f64(self.waiting_s / self.pace.share()).unwrap_or(Duration::MAX)
    }

    /// What a handshake of this kind costs; `None` before the first.
    pub fn cost(&self, effort: Effort) -> Option<Duration> {
        self.costs_s[effort as usize].map(Duration::from_secs_f64)
    }

    /// Clients that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    fn remove(&mut self, place: HandshakePlace) -> bool {
        let Some(cost_s) = self.waiting.remove(&place) else { return false };
        // Sums of many differences drift; nobody waits for nothing.
        self.waiting_s = if self.waiting.is_empty() { 0.0 } else { (self.waiting_s - cost_s).max(0.0) };
        true
    }

    /// Between two that begin although there is something else to do.
    fn least_pause(&self) -> Duration {
        let dearest = self.costs_s[Effort::FullByCurve as usize..].iter().flatten().copied().fold(0.0, f64::max);
        Duration::from_secs_f64(dearest / LEAST_SHARE)
    }
}

/// How much of the time goes to full handshakes while some wait.
#[derive(Debug, Default)]
struct Pace {
    /// Since when some wait of which nothing was counted yet.
    since: Option<Time>,
    waited_s: f64,
    done_s: f64,
}

impl Pace {
    /// Some wait from now on, if none did before.
    fn begin(&mut self, now: Time) {
        self.since.get_or_insert(now);
    }

    /// One was done; `goes_on` says whether others wait.
    fn note(&mut self, now: Time, cost_s: f64, goes_on: bool) {
        let begun = if goes_on { self.since.replace(now) } else { self.since.take() };
        let span_s = begun.map_or(cost_s, |begun| now.since(begun).as_secs_f64().max(cost_s));
        let kept = (-span_s / MEMORY_S).exp();
        self.waited_s = self.waited_s * kept + span_s;
        self.done_s = self.done_s * kept + cost_s;
    }

    fn share(&self) -> f64 {
        if self.waited_s > 0.0 { (self.done_s / self.waited_s).clamp(LEAST_SHARE, 1.0) } else { 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RSA: Duration = Duration::from_millis(10);
    const CURVE: Duration = Duration::from_millis(1);

    fn ms(milliseconds: u64) -> Time {
        Time::ZERO + Duration::from_millis(milliseconds)
    }

    /// One that knows what handshakes cost.
    fn experienced() -> Handshakes {
        let mut handshakes = Handshakes::new();
        handshakes.handle_done(ms(0), Effort::FullByRsa, RSA);
        handshakes.handle_done(ms(0), Effort::FullByCurve, CURVE);
        handshakes
    }

    fn wait(handshakes: &mut Handshakes, now: Time, effort: Effort) -> HandshakePlace {
        handshakes.handle_hello(now, effort).unwrap().expect("a full handshake waits")
    }

    #[test]
    fn a_resumed_session_never_waits() {
        let mut handshakes = experienced();
        while handshakes.handle_hello(ms(1), Effort::FullByRsa).is_ok() {}
        assert_eq!(handshakes.handle_hello(ms(1), Effort::Resumed), Ok(None));
    }

    #[test]
    fn cheap_ones_overtake_costly_ones_and_nobody_is_overtaken_for_ever() {
        let mut handshakes = experienced();
        let costly = wait(&mut handshakes, ms(0), Effort::FullByRsa);
        let cheap = wait(&mut handshakes, ms(800), Effort::FullByCurve);
        let late = wait(&mut handshakes, ms(1000), Effort::FullByCurve);
        let order: Vec<HandshakePlace> = std::iter::from_fn(|| handshakes.poll_idle(ms(1000))).collect();
        assert_eq!(order, [cheap, costly, late]);
    }

    #[test]
    fn a_worker_that_is_never_idle_gives_new_sessions_their_least_share() {
        let mut handshakes = experienced();
        for _ in 0..5 {
            wait(&mut handshakes, ms(0), Effort::FullByRsa);
        }
        let begun: Vec<u64> = (0..1000).filter(|&at| handshakes.poll_due(ms(at)).is_some()).collect();
        assert_eq!(begun, [0, 200, 400, 600, 800], "10 ms in each 200 are a twentieth");
        assert_eq!(handshakes.poll_timeout(), None);
    }

    #[test]
    fn who_would_wait_too_long_by_what_was_measured_is_turned_away_at_once() {
        let mut handshakes = experienced();
        let mut taken = 0;
        let refused = loop {
            match handshakes.handle_hello(ms(1), Effort::FullByRsa) {
                Ok(_) => taken += 1,
                Err(overloaded) => break overloaded,
            }
        };
        assert_eq!(taken, 201, "201 times 10 ms are more than two seconds");
        assert!(refused.wait > LONGEST_WAIT && refused.wait < LONGEST_WAIT + 2 * RSA, "{refused:?}");

        // Half of the time goes to other work: half as many may wait.
        for done in 1..=200 {
            handshakes.poll_idle(ms(20 * done)).unwrap();
            handshakes.handle_done(ms(20 * done), Effort::FullByRsa, RSA);
        }
        while handshakes.handle_hello(ms(4001), Effort::FullByRsa).is_ok() {}
        assert!((98..=106).contains(&handshakes.waiting()), "{}", handshakes.waiting());
    }

    #[test]
    fn one_that_leaves_is_forgotten_once() {
        let mut handshakes = experienced();
        let (first, second) = (wait(&mut handshakes, ms(0), Effort::FullByRsa), wait(&mut handshakes, ms(0), Effort::FullByRsa));
        assert!(handshakes.handle_leave(first) && !handshakes.handle_leave(first));
        assert_eq!((handshakes.poll_idle(ms(1)), handshakes.poll_idle(ms(1))), (Some(second), None));
        assert!(!handshakes.handle_leave(second));
        assert_eq!(handshakes.expected_wait(), Duration::ZERO);
    }
}
